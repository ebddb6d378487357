/* SPDX-License-Identifier: MIT */
/* auth.c - see auth.h. */
#include "net/auth.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <sys/random.h>
#include <sys/socket.h>

static_assert(sizeof(struct symm_auth_handshake) == 48 &&
                  sizeof(struct symm_auth_answer) == 64,
              "the layout on the wire");

/* The letter that is hashed first in the proof of each stage's message. */
static const char letters[] = {
    [SYMM_AUTH_PROOF] = 'b', [SYMM_AUTH_CONFIRM] = 'c', [SYMM_AUTH_FINISH] = 'd'};

static struct symm_siphash_tag prove(const struct symm_auth_protocol *protocol,
                                     const struct symm_auth *auth, char what)
{
    struct symm_siphash hash = symm__siphash_begin(protocol->key);

    symm__siphash_add(&hash, &what, 1);
    symm__siphash_add(&hash, &auth->first, sizeof(auth->first));
    symm__siphash_add(&hash, &auth->second, sizeof(auth->second));
    return symm__siphash_end(&hash);
}

static struct symm_siphash_tag
handshake_hash(const struct symm_auth_protocol *protocol,
               const struct symm_auth_handshake *handshake)
{
    struct symm_siphash hash = symm__siphash_begin(protocol->key);

    symm__siphash_add(&hash, "g", 1);
    symm__siphash_add(&hash, handshake, offsetof(struct symm_auth_handshake, hash));
    return symm__siphash_end(&hash);
}

static bool handshake_make(const struct symm_auth_protocol *protocol, uint32_t from,
                           uint32_t about, struct symm_auth_handshake *handshake)
{
    *handshake = (struct symm_auth_handshake){.magic = htonl(protocol->magic),
                                              .version = htonl(protocol->version),
                                              .from = htonl(from),
                                              .about = htonl(about)};
    if (getrandom(handshake->nonce, sizeof(handshake->nonce), 0) !=
        (ssize_t)sizeof(handshake->nonce))
        return false;
    handshake->hash = handshake_hash(protocol, handshake);
    return true;
}

/* A message is far smaller than any socket's buffer. */
static bool write_all(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

bool symm__auth_ask(const struct symm_auth_protocol *protocol, struct symm_auth *auth,
                    int fd, uint32_t from, uint32_t about)
{
    *auth = (struct symm_auth){.stage = SYMM_AUTH_ANSWER};
    return handshake_make(protocol, from, about, &auth->first) &&
           write_all(fd, &auth->first, sizeof(auth->first));
}

bool symm__auth_answer(const struct symm_auth_protocol *protocol,
                       struct symm_auth *auth, int fd, uint32_t from, uint32_t about)
{
    struct symm_auth_answer answer;

    if (!handshake_make(protocol, from, about, &auth->second))
        return false;
    auth->stage = SYMM_AUTH_PROOF;
    answer = (struct symm_auth_answer){.handshake = auth->second,
                                       .proof = prove(protocol, auth, 'a')};
    return write_all(fd, &answer, sizeof(answer));
}

bool symm__auth_is_new(struct symm_auth_nonces *nonces,
                       const struct symm_auth_handshake *handshake)
{
    for (unsigned i = 0; i < SYMM_AUTH_NONCES && i < nonces->count; i++)
        if (memcmp(nonces->nonce[i], handshake->nonce, SYMM_AUTH_NONCE) == 0)
            return false;
    memcpy(nonces->nonce[nonces->count++ % SYMM_AUTH_NONCES], handshake->nonce,
           SYMM_AUTH_NONCE);
    return true;
}

void symm__auth_key(const struct symm_auth_protocol *protocol,
                    const struct symm_auth *auth, uint8_t key[SYMM_SIPHASH_KEY])
{
    const struct symm_siphash_tag tag = prove(protocol, auth, 'k');

    static_assert(SYMM_SIPHASH_TAG == SYMM_SIPHASH_KEY, "a tag is a key");
    memcpy(key, tag.bytes, SYMM_SIPHASH_KEY);
}

/* Reads bytes of a message of that length. ASKED: it is complete. */
static enum symm_auth_said take(const struct symm_auth_protocol *protocol,
                                struct symm_auth *auth, int fd, size_t bytes)
{
    bool first = bytes >= sizeof(struct symm_auth_handshake);

    while (auth->used < bytes) {
        ssize_t got =
            recv(fd, auth->in.bytes + auth->used, bytes - auth->used, MSG_DONTWAIT);

        if (got > 0)
            auth->used += (size_t)got;
        else if (got < 0 && errno == EAGAIN)
            return SYMM_AUTH_WAIT;
        else if (got == 0 || errno != EINTR)
            return SYMM_AUTH_GONE;
        /* Another program or version may send fewer bytes and wait. */
        if (first && auth->used >= sizeof(uint32_t) &&
            ntohl(auth->in.handshake.magic) != protocol->magic)
            return SYMM_AUTH_FOREIGN;
        if (first && auth->used >= 2 * sizeof(uint32_t) &&
            ntohl(auth->in.handshake.version) != protocol->version)
            return SYMM_AUTH_VERSION;
    }
    auth->used = 0;
    return SYMM_AUTH_ASKED;
}

static enum symm_auth_said hear_handshake(const struct symm_auth_protocol *protocol,
                                          struct symm_auth *auth, int fd)
{
    struct symm_siphash_tag hash;

    auth->first = auth->in.handshake;
    hash = handshake_hash(protocol, &auth->first);
    if (symm__siphash_equal(&auth->first.hash, &hash))
        return SYMM_AUTH_ASKED;
    (void)symm__auth_answer(protocol, auth, fd, 0, 0);
    return SYMM_AUTH_KEY;
}

static enum symm_auth_said hear_answer(const struct symm_auth_protocol *protocol,
                                       struct symm_auth *auth, int fd)
{
    struct symm_siphash_tag proof;

    auth->second = auth->in.answer.handshake;
    proof = prove(protocol, auth, 'a');
    if (!symm__siphash_equal(&auth->in.answer.proof, &proof))
        return SYMM_AUTH_KEY;
    proof = prove(protocol, auth, 'b');
    auth->stage = SYMM_AUTH_CONFIRM;
    return write_all(fd, &proof, sizeof(proof)) ? SYMM_AUTH_WAIT : SYMM_AUTH_GONE;
}

enum symm_auth_said symm__auth_hear(const struct symm_auth_protocol *protocol,
                                    struct symm_auth *auth, int fd)
{
    const enum symm_auth_stage stage = auth->stage;
    const size_t bytes = stage == SYMM_AUTH_HANDSHAKE ? sizeof(auth->in.handshake)
                         : stage == SYMM_AUTH_ANSWER  ? sizeof(auth->in.answer)
                                                      : sizeof(auth->in.proof);
    enum symm_auth_said said = take(protocol, auth, fd, bytes);
    struct symm_siphash_tag next;

    if (said == SYMM_AUTH_VERSION && stage == SYMM_AUTH_HANDSHAKE)
        (void)symm__auth_answer(protocol, auth, fd, 0, 0);
    if (said != SYMM_AUTH_ASKED)
        return said;
    if (stage == SYMM_AUTH_HANDSHAKE)
        return hear_handshake(protocol, auth, fd);
    if (stage == SYMM_AUTH_ANSWER)
        return hear_answer(protocol, auth, fd);
    next = prove(protocol, auth, letters[stage]);
    if (!symm__siphash_equal(&auth->in.proof, &next))
        return SYMM_AUTH_KEY;
    if (stage == SYMM_AUTH_FINISH)
        return SYMM_AUTH_DONE;
    next = prove(protocol, auth, stage == SYMM_AUTH_PROOF ? 'c' : 'd');
    if (!write_all(fd, &next, sizeof(next)))
        return SYMM_AUTH_GONE;
    if (stage == SYMM_AUTH_CONFIRM)
        return SYMM_AUTH_DONE;
    auth->stage = SYMM_AUTH_FINISH;
    return SYMM_AUTH_WAIT;
}

enum symm_auth_said symm__auth_hear_guest(const struct symm_auth_protocol *protocol,
                                          struct symm_auth *auth,
                                          struct symm_guest *guest)
{
    const enum symm_auth_said said = symm__auth_hear(protocol, auth, guest->fd);

    if (said == SYMM_AUTH_WAIT && auth->stage == SYMM_AUTH_FINISH)
        symm__acceptor_prove(guest);
    return said;
}
