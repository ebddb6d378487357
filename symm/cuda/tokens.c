/* SPDX-License-Identifier: MIT */
/*
 * tokens.c - the words that streams await in copy-engine calls: memory of the host that
 * the members of a team share.
 *
 * A stream's wait can be ended only by a store into the word that it awaits. Were the word
 * memory of the device, the store would itself be an operation of a stream, and a context has
 * few hardware queues (8 by default): once each of them holds a waiting stream with more
 * after the wait, no further operation begins, and nothing could end the waits. So each
 * member's words lie in a memfd that its peers map, too; every process registers its mapping
 * with the driver. Streams write and await the words through the device address, and the
 * watchdog ends a wait by a store of the host, which needs no queue.
 *
 * Guarantees: the words are there as long as a member has them mapped; those of an earlier
 * team are never those of a later one. Ranks that are threads share one mapping, which is
 * registered once, in the context of the group's owner, and goes with the group: the driver
 * unregisters memory only when that context's device is idle, and a kernel of its rank may
 * wait for the very thread that ends a team. A team of threads whose work had ended on all
 * members leaves its words to the next one.
 * A member that cannot map or register the words disables them for the team: signals by
 * copy engine are then refused, with the reason.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/shared_memory.h"
#include "cuda/launcher.h"
#include "util/log.h"
#include "util/status.h"

/* One member's words, as mapped in this process. */
struct symm_cuda_tokens {
    struct symm_cuda_words *host; /* NULL: not mapped */
    CUdeviceptr device;
    struct symm_backend *backend; /* whose context has them registered */
    bool registered;
    /* Only where ranks are threads: */
    int references;                /* atomic */
    bool dirty;                    /* atomic: an operation may still be under way */
    struct symm_cuda_tokens *next; /* of the owner's, see symm_backend */
};

/* What members send each other: that they have words, and where, if they are threads. */
struct wire_tokens {
    uint64_t object;
    uint32_t there;
    uint32_t reserved;
};

static struct symm_backend *backend_of(const symm_ctx *ctx)
{
    return ctx->thread_group ? ctx->thread_group->owner : ctx->backend;
}

/* ---- One member's words ---------------------------------------------------------- */

static symm_status tokens_register(struct symm_cuda_tokens *tokens)
{
    const struct symm_cuda_driver *d = tokens->backend->driver;
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(tokens->backend, &scope);

    if (status != SYMM_OK)
        return status;
    status =
        SYMM_CUDA_CALL(d, cuMemHostRegister,
                       (tokens->host, SYMM_CUDA_WORDS_BYTES,
                        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                       "%d bytes of shared memory", SYMM_CUDA_WORDS_BYTES);
    tokens->registered = status == SYMM_OK;
    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(d, cuMemHostGetDevicePointer,
                                (&tokens->device, tokens->host, 0),
                                "%d bytes of shared memory", SYMM_CUDA_WORDS_BYTES);
    symm__cuda_leave(&scope);
    return status;
}

/* Waits for the backend's device, if the words are registered. */
static void tokens_free(struct symm_cuda_tokens *tokens)
{
    struct symm_cuda_scope scope;

    if (tokens->registered && symm__cuda_enter_last(tokens->backend, &scope)) {
        (void)tokens->backend->driver->cuMemHostUnregister(tokens->host);
        symm__cuda_leave(&scope);
    }
    if (tokens->host)
        symm__shared_release(tokens->host, SYMM_CUDA_WORDS_BYTES);
    free(tokens);
}

/* drained: no operation of this member uses the words any more. */
static void tokens_drop(struct symm_cuda_tokens *tokens, bool drained)
{
    struct symm_backend *owner;

    if (!tokens)
        return;
    if (!drained)
        __atomic_store_n(&tokens->dirty, true, __ATOMIC_RELAXED);
    /* acquire and release: the last holder sees what the others did with the words */
    if (__atomic_sub_fetch(&tokens->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    owner = tokens->backend;
    if (!owner->keeps_words || owner->process != getpid()) {
        tokens_free(tokens);
        return;
    }
    pthread_mutex_lock(&owner->words_lock);
    tokens->next = owner->words;
    owner->words = tokens;
    pthread_mutex_unlock(&owner->words_lock);
}

/* Words that an ended team of threads has left, zeroed; NULL: there are none. */
static struct symm_cuda_tokens *tokens_reuse(struct symm_backend *owner)
{
    struct symm_cuda_tokens **at, *found;

    if (!owner->keeps_words)
        return NULL;
    pthread_mutex_lock(&owner->words_lock);
    at = &owner->words;
    while (*at && __atomic_load_n(&(*at)->dirty, __ATOMIC_RELAXED))
        at = &(*at)->next;
    found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&owner->words_lock);
    if (!found)
        return NULL;
    memset(found->host, 0, SYMM_CUDA_WORDS_BYTES);
    found->next = NULL;
    __atomic_store_n(&found->references, 1, __ATOMIC_RELAXED);
    return found;
}

void symm__cuda_tokens_forget(struct symm_backend *owner)
{
    while (owner->words) {
        struct symm_cuda_tokens *words = owner->words;

        owner->words = words->next;
        tokens_free(words);
    }
}

/* release: the watchdog looks for the words of a team that is just being made. */
static void publish(struct symm_cuda_tokens **tokens, struct symm_cuda_tokens *made)
{
    __atomic_store_n(tokens, made, __ATOMIC_RELEASE);
}

/* *fd: -1, makes new memory and its descriptor; else maps that. */
static symm_status tokens_create(symm_ctx *ctx, int *fd,
                                 struct symm_cuda_tokens **tokens)
{
    struct symm_backend *backend = backend_of(ctx);
    struct symm_cuda_tokens *made = tokens_reuse(backend);
    void *base;
    symm_status status;

    if (made) {
        publish(tokens, made);
        return SYMM_OK;
    }
    made = calloc(1, sizeof(*made));
    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a member's words");
    made->references = 1;
    made->backend = backend;
    status = symm__shared_reserve(SYMM_CUDA_WORDS_BYTES, "words of copy-engine calls",
                                  &base);
    if (status != SYMM_OK) {
        free(made);
        return status;
    }
    made->host = base;
    status = *fd < 0 ? symm__shared_create(base, SYMM_CUDA_WORDS_BYTES, 0, fd)
                     : symm__shared_map(*fd, base, SYMM_CUDA_WORDS_BYTES);
    if (status == SYMM_OK)
        status = tokens_register(made);
    if (status != SYMM_OK) {
        tokens_free(made);
        return status;
    }
    publish(tokens, made);
    return SYMM_OK;
}

/* ---- The team's words ------------------------------------------------------------ */

/* What a member has sent; of another size: nothing. */
static struct wire_tokens wire_of(const struct symm_oob_message *message)
{
    struct wire_tokens wire = {0};

    if (message->bytes_count == sizeof(wire))
        memcpy(&wire, message->bytes, sizeof(wire));
    return wire;
}

static symm_status own_create(symm_team *team, int *fd)
{
    struct symm_cuda_tokens **own = &team->cuda->tokens[team->local_rank];
    symm_status status = tokens_create(team->ctx, fd, own);

    for (int m = 0; status == SYMM_OK && m < SYMM_DEVICE_RANKS; m++)
        for (int s = 0; s < SYMM_SIGNALS; s++)
            (*own)->host->room[m][s] = 1;
    return status;
}

/* A member's words, from what it has sent. */
static symm_status peer_adopt(symm_team *team, int place,
                              struct symm_oob_message *message)
{
    const struct wire_tokens wire = wire_of(message);
    struct symm_cuda_tokens *theirs;

    if (symm__team_far_at(team, place))
        return symm__fail(SYMM_ERR_UNSUPPORTED, "rank %d is on another host",
                          symm__team_rank_at(team, place));
    if (!wire.there)
        return symm__fail(SYMM_ERR_UNSUPPORTED, "rank %d has none",
                          symm__team_rank_at(team, place));
    if (team->ctx->thread_group) {
        theirs = (struct symm_cuda_tokens *)(uintptr_t)wire.object;
        __atomic_add_fetch(&theirs->references, 1, __ATOMIC_RELAXED);
        publish(&team->cuda->tokens[place], theirs);
        return SYMM_OK;
    }
    if (message->fds_count != 1)
        return symm__fail(SYMM_ERR_REFUSED, "rank %d sent no descriptor",
                          symm__team_rank_at(team, place));
    return tokens_create(team->ctx, &message->fds[0], &team->cuda->tokens[place]);
}

static symm_status adopt_all(symm_team *team, symm_status mine,
                             struct symm_oob_message *messages)
{
    for (int p = 0; p < team->local_size && mine == SYMM_OK; p++)
        if (p != team->local_rank)
            mine = peer_adopt(team, p, &messages[team->local[p]]);
    return mine;
}

/* Checks that every mapped member has all words; remembers the first that has not. */
static void agree(symm_team *team, const struct symm_oob_message *acks)
{
    struct symm_cuda_team *cuda = team->cuda;
    int p = 0;

    while (p < team->local_size && wire_of(&acks[team->local[p]]).there)
        p++;
    if (p < team->local_size)
        cuda->tokens_lost = symm__team_rank_at(team, p);
    __atomic_store_n(&cuda->tokens_shared, p == team->local_size, __ATOMIC_RELAXED);
}

symm_status symm__cuda_tokens_share(symm_team *team, double timeout)
{
    static const char what[] = "sharing the words of copy-engine calls";
    struct symm_oob_message *messages = team->ctx->room.messages,
                            *acks = team->ctx->room.acks;
    struct symm_cuda_team *cuda = team->cuda;
    struct wire_tokens wire = {0};
    int fd = -1;
    struct symm_own_message own = {
        .bytes = &wire, .bytes_count = sizeof(wire), .fds = &fd};
    symm_status mine, status;

    if (!cuda || cuda->tokens_asked)
        return SYMM_OK;
    cuda->tokens_asked = true;
    mine = own_create(team, &fd);
    wire.there = mine == SYMM_OK;
    wire.object =
        team->ctx->thread_group ? (uintptr_t)cuda->tokens[team->local_rank] : 0;
    own.fds_count = mine == SYMM_OK && !team->ctx->thread_group;
    status = symm__team_exchange(team, what, timeout, &own, messages);
    if (fd >= 0)
        close(fd);
    if (status == SYMM_OK) {
        mine = adopt_all(team, mine, messages);
        wire.there = mine == SYMM_OK;
        if (mine != SYMM_OK)
            symm__log(SYMM_LOG_INFO,
                      "rank %d: signals by copy engine are not possible: %s",
                      team->ctx->rank, symm_last_error());
        own.fds_count = 0;
        status = symm__team_exchange(team, what, timeout, &own, acks);
    }
    if (status == SYMM_OK)
        agree(team, acks);
    symm__oob_messages_finish(messages, team->size);
    symm__oob_messages_finish(acks, team->size);
    return status;
}

struct symm_cuda_words *symm__cuda_tokens_find(const symm_team *team, int place,
                                               struct symm_cuda_words **device)
{
    const struct symm_cuda_team *cuda = team->cuda;
    const struct symm_cuda_tokens *tokens =
        __atomic_load_n(&cuda->tokens[place], __ATOMIC_ACQUIRE); /* see publish() */

    /* kernels count their ends in this rank's words, even if no peer has mapped them */
    if (!tokens || (place != team->local_rank &&
                    !__atomic_load_n(&cuda->tokens_shared, __ATOMIC_RELAXED)))
        return NULL;
    *device = (struct symm_cuda_words *)(uintptr_t)tokens->device;
    return tokens->host;
}

void symm__cuda_tokens_close(struct symm_cuda_team *cuda, bool drained)
{
    for (int m = 0; m < SYMM_DEVICE_RANKS; m++) {
        tokens_drop(cuda->tokens[m], drained);
        cuda->tokens[m] = NULL;
    }
}
