/* SPDX-License-Identifier: MIT */
/*
 * auth.h - two ends of a TCP connection prove to each other that they know one key.
 *
 * Five messages, each but the answer one way:
 *
 *     handshake  of the end that connects: its number, a random nonce, a keyed hash over them
 *     answer     the same of the end that accepts, and a keyed hash over both handshakes
 *     proof      of the end that connects, over both handshakes
 *     confirm    of the end that accepts: it keeps the connection
 *     finish     of the end that connects: it keeps the connection, too
 *
 * The key is never sent. A handshake's own hash distinguishes ends from strangers by the first
 * message, so that strangers take no state before that. A recorded handshake is recognised by its
 * nonce (symm__auth_is_new), and no other message is of use a second time. The end that connects
 * may try again whenever the connection is lost before `confirm`. The other end counts the
 * connection only after `finish`, so that neither end adopts it alone. A stranger whose magic is
 * right gets an answer before it is refused, which shows it what does not fit. Magic and version
 * are checked before the rest has arrived: in another version the rest may be shorter. Nothing
 * here waits.
 */
#ifndef SYMM_NET_AUTH_H
#define SYMM_NET_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/acceptor.h"
#include "net/siphash.h"

#define SYMM_AUTH_NONCE  16 /* bytes */
#define SYMM_AUTH_NONCES 16 /* kept of one end's handshakes */

struct symm_auth_protocol {
    uint32_t magic, version;
    const uint8_t *key; /* SYMM_SIPHASH_KEY bytes: borrows */
};

/* What both ends send first; in network byte order. */
struct symm_auth_handshake {
    uint32_t magic, version;
    uint32_t from;  /* the end's number */
    uint32_t about; /* what the protocol has the other end check */
    uint8_t nonce[SYMM_AUTH_NONCE];
    struct symm_siphash_tag hash; /* over the fields before it */
};

struct symm_auth_answer {
    struct symm_auth_handshake handshake;
    struct symm_siphash_tag proof;
};

/* Which message is to follow. */
enum symm_auth_stage {
    SYMM_AUTH_HANDSHAKE, /* to the end that accepts, as are PROOF and FINISH */
    SYMM_AUTH_PROOF,
    SYMM_AUTH_FINISH,
    SYMM_AUTH_ANSWER, /* to the end that connects, as is CONFIRM */
    SYMM_AUTH_CONFIRM
};

enum symm_auth_said {
    SYMM_AUTH_WAIT,    /* more is to follow */
    SYMM_AUTH_ASKED,   /* `first` is genuine: judge it, then symm__auth_answer */
    SYMM_AUTH_DONE,    /* the connection is both ends' */
    SYMM_AUTH_GONE,    /* it hung up, or takes nothing more */
    SYMM_AUTH_FOREIGN, /* it speaks another protocol, */
    SYMM_AUTH_VERSION, /* or another version, */
    SYMM_AUTH_KEY      /* or does not know the key */
};

/* One connection. Zeroed: the end that accepts. */
struct symm_auth {
    enum symm_auth_stage stage;
    struct symm_auth_handshake first,
        second;  /* of the end that connects, that accepts */
    size_t used; /* bytes of the message that is to follow */
    union {
        struct symm_auth_handshake handshake;
        struct symm_auth_answer answer;
        struct symm_siphash_tag proof;
        uint8_t bytes[sizeof(struct symm_auth_answer)];
    } in;
};

/* The nonces of one end's last handshakes. */
struct symm_auth_nonces {
    uint8_t nonce[SYMM_AUTH_NONCES][SYMM_AUTH_NONCE];
    unsigned count; /* ever */
};

/* Begins at the end that connects. False: the connection takes nothing, or errno. */
bool symm__auth_ask(const struct symm_auth_protocol *protocol, struct symm_auth *auth,
                    int fd, uint32_t from, uint32_t about);
/* After ASKED. False: as above. */
bool symm__auth_answer(const struct symm_auth_protocol *protocol,
                       struct symm_auth *auth, int fd, uint32_t from, uint32_t about);
/* Reads what has arrived, and sends what follows from it. */
enum symm_auth_said symm__auth_hear(const struct symm_auth_protocol *protocol,
                                    struct symm_auth *auth, int fd);
/* The same of an acceptor's guest, which is kept from here on when it is at FINISH: its end has been
 * confirmed, counts the connection, and does not come again. */
enum symm_auth_said symm__auth_hear_guest(const struct symm_auth_protocol *protocol,
                                          struct symm_auth *auth,
                                          struct symm_guest *guest);
/* Is this the first handshake with this nonce? Then the nonce is kept. */
bool symm__auth_is_new(struct symm_auth_nonces *nonces,
                       const struct symm_auth_handshake *handshake);
/* After DONE: a key for the packets that follow, of this connection alone. */
void symm__auth_key(const struct symm_auth_protocol *protocol,
                    const struct symm_auth *auth, uint8_t key[SYMM_SIPHASH_KEY]);

#endif
