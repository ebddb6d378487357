/* SPDX-License-Identifier: MIT */
/*
 * bootstrap.c - the bootstrap by key and by an allgather. Threads of one process: pairs.c.
 *
 * By the caller's allgather or by the store the ranks agree on a random key of rank 0, by the
 * allgather also on a secret. The entries that they exchange for it show whether the
 * allgather keeps the order of ranks.
 */
#include "bootstrap/bootstrap.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/hosts.h"
#include "bootstrap/socket_path.h"
#include "bootstrap/tree.h"
#include "net/store_protocol.h"
#include "oob/exchange.h"
#include "util/clock.h"
#include "util/random.h"
#include "util/rank_text.h"
#include "util/status.h"
#include "util/text.h"

/* ---- By key ---------------------------------------------------------------------- */

/* most: ranks. */
static symm_status run_check(const struct symm_bootstrap_run *run, int most)
{
    if (run->size < 1 || run->size > most)
        return symm__fail(run->size < 1 ? SYMM_ERR_INVALID : SYMM_ERR_UNSUPPORTED,
                          "a job of %d ranks: 1 to %d are possible%s", run->size, most,
                          most == SYMM_BOOTSTRAP_MAX ? " on a host" : "");
    if (run->rank < 0 || run->rank >= run->size)
        return symm__fail(SYMM_ERR_INVALID, "rank %d of a job of %d ranks", run->rank,
                          run->size);
    return SYMM_OK;
}

symm_status symm__bootstrap_near(const struct symm_bootstrap_run *run, int *peer_fd)
{
    struct symm_socket_path place;
    double until = symm__now() + run->timeout;
    symm_status status = run_check(run, SYMM_BOOTSTRAP_MAX);
    if (status != SYMM_OK)
        return status;
    for (int i = 0; i < run->size; i++)
        peer_fd[i] = -1;
    if (run->size == 1)
        return SYMM_OK;
    status = symm__socket_path_find(&place, run->key);
    if (status != SYMM_OK)
        return status;
    status = run->rank == 0 ? symm__bootstrap_root(run, &place, until, peer_fd)
                            : symm__bootstrap_join(run, &place, until, peer_fd);
    if (status != SYMM_OK)
        symm__seqpacket_close(peer_fd, run->size);
    return status;
}

symm_status symm__bootstrap_local(const struct symm_bootstrap_run *run, int *peer_fd)
{
    double until = symm__now() + run->timeout;
    symm_status status = symm__bootstrap_near(run, peer_fd);
    if (status == SYMM_OK)
        status = symm__world_find(run->world, run->rank, run->size, peer_fd,
                                  until - symm__now());
    if (status != SYMM_OK)
        symm__seqpacket_close(peer_fd, run->size);
    return status;
}

/* ---- By an allgather ------------------------------------------------------------- */

#define ENTRY_KEY_BYTES 16
#define HAND_ON_SECONDS 2.0 /* for the entries to reach the other ranks of a host */
#define TELL_SECONDS                                                                   \
    1.0 /* at most: for the other hosts to hear who is missing on this one */

/* What each rank gives; key and secret count only in rank 0's. */
struct bootstrap_entry {
    uint32_t magic;
    uint16_t protocol;
    uint16_t failed; /* the rank could not make its part */
    int32_t rank;
    int32_t size;
    uint8_t key[ENTRY_KEY_BYTES];
    uint8_t secret[SYMM_SECRET_BYTES]; /* zeros by the store: the job has one */
    struct symm_host_address place;
};
static_assert(sizeof(struct bootstrap_entry) == 112, "the entry's layout is fixed");

/* A bootstrap by entries, which travel by an allgather or by the store. */
struct gathering {
    const struct symm_bootstrap_run *run;
    const char *prefix, *what;           /* of the key; for sentences */
    const char *store;                   /* its address; NULL: another way */
    const char *root;                    /* where rank 0 listens; NULL: another way; */
    uint8_t root_key[SYMM_SECRET_BYTES]; /* then of the secret and the job's series */
    int local_rank, local_size;          /* with root: of the launcher's ranks here, */
    const char *node;                    /* the launcher's name for them, or "", */
    int near_fd[SYMM_BOOTSTRAP_MAX]; /* and sockets to them, once they are made; -1, */
    int near_ranks[SYMM_BOOTSTRAP_MAX]; /* and their ranks in the job; -1: not known */
    double until;
    int listener; /* for other hosts; -1: none */
    /* != SYMM_OK: a rank of this host was lost, and the other hosts have the table and wait. */
    symm_status late;
    char why[SYMM_ERROR_BYTES];
    struct bootstrap_entry *entries; /* [size]; owned */
};

static symm_status entry_make(struct gathering *gathering,
                              struct bootstrap_entry *entry)
{
    const struct symm_bootstrap_run *run = gathering->run;
    symm_status status;
    *entry = (struct bootstrap_entry){
        .magic = SYMM_BOOTSTRAP_MAGIC,
        .protocol = SYMM_BOOTSTRAP_PROTOCOL,
        .rank = run->rank,
        .size = run->size,
    };
    status = symm__host_identify(&entry->place.host);
    /* In the tree the lowest rank of a host joins for all of them, and it alone listens. */
    if (status == SYMM_OK && (gathering->root == NULL || gathering->local_rank == 0))
        status =
            symm__hosts_listen(gathering->store ? gathering->store : gathering->root,
                               &entry->place, &gathering->listener);
    if (status == SYMM_OK && run->rank == 0)
        status = symm__random(entry->key, sizeof(entry->key));
    if (status == SYMM_OK && run->rank == 0 && gathering->store == NULL &&
        gathering->root == NULL)
        status = symm__random(entry->secret, sizeof(entry->secret));
    /* The others wait in the allgather: the failure must reach them. */
    entry->failed = status != SYMM_OK;
    return status;
}

/* Fails unless entry r is what rank r of this job gave. `mine`: what this rank gave. */
static symm_status entries_check(const struct gathering *gathering,
                                 const struct bootstrap_entry *mine)
{
    const struct symm_bootstrap_run *run = gathering->run;
    const char *what = gathering->what;
    bool own = memcmp(&gathering->entries[run->rank], mine, sizeof(*mine)) == 0;
    for (int r = 0; r < run->size; r++) {
        struct bootstrap_entry *entry = &gathering->entries[r];
        char *name = entry->place.host.name;
        if (entry->magic != SYMM_BOOTSTRAP_MAGIC ||
            entry->protocol != SYMM_BOOTSTRAP_PROTOCOL)
            return symm__fail(
                SYMM_ERR_JOB,
                "%s returned at place %d not what rank %d has given: does "
                "every rank call it once, with a libsymm of this version?",
                what, r, r);
        if (entry->rank != r)
            return symm__fail(SYMM_ERR_JOB,
                              "%s returned at place %d what rank %d has given: it must "
                              "return the ranks' parts in the order of their ranks",
                              what, r, entry->rank);
        if (entry->size != run->size)
            return symm__fail(SYMM_ERR_JOB,
                              "rank %d says that the job has %d ranks, rank %d says %d",
                              r, entry->size, run->rank, run->size);
        (void)symm__printable(name, SYMM_HOST_NAME);
    }
    if (!own)
        return symm__fail(SYMM_ERR_JOB,
                          "%s returned for rank %d not what this rank has given: are "
                          "there two processes of this rank, or two jobs in one?",
                          what, run->rank);
    for (int r = 0; r < run->size; r++) {
        if (gathering->entries[r].failed == 0)
            continue;
        return r == 0 ? symm__fail(SYMM_ERR_ABORTED,
                                   "rank 0 could not make a key for the bootstrap")
                      : symm__fail(SYMM_ERR_ABORTED,
                                   "rank %d could not prepare for the bootstrap", r);
    }
    return SYMM_OK;
}

/* The last error is of this host's ranks only. */
static symm_status failed_here(symm_status status, const struct bootstrap_entry *entry)
{
    char sentence[SYMM_ERROR_BYTES];
    (void)snprintf(sentence, sizeof(sentence), "on host %s: %.450s",
                   entry->place.host.name, symm_last_error());
    return symm__fail_quiet(status, sentence);
}

/* Seconds in which the ranks of this host must meet: a little is left to tell the other hosts who
 * is missing here. */
static double near_seconds(const struct gathering *gathering)
{
    const double left = gathering->until - symm__now();

    return left - (left / 10 < TELL_SECONDS ? left / 10 : TELL_SECONDS);
}

/* The bootstrap on this host, by the key and secret that all have. */
static symm_status entries_bootstrap(const struct gathering *gathering,
                                     const uint8_t *secret, int *near_fd)
{
    const struct symm_bootstrap_run *run = gathering->run;
    const struct symm_world *world = run->world;
    const struct bootstrap_entry *entry = &gathering->entries[run->rank];
    char key[96];
    uint64_t high, low;
    struct symm_bootstrap_run fresh = *run;
    fresh.size = world->local_size;
    fresh.rank = world->local_of[run->rank];
    fresh.ranks = world->local;
    memcpy(&high, gathering->entries[0].key, sizeof(high));
    memcpy(&low, gathering->entries[0].key + sizeof(high), sizeof(low));
    /* One machine may play several hosts, in one directory. */
    (void)snprintf(key, sizeof(key), "%s:%016" PRIx64 "%016" PRIx64 ":%016" PRIx64,
                   gathering->prefix, high, low, entry->place.host.id);
    fresh.key = key;
    fresh.secret = secret;
    fresh.timeout =
        world->hosts > 1 ? near_seconds(gathering) : gathering->until - symm__now();
    symm_status status = symm__bootstrap_near(&fresh, near_fd);
    if (status == SYMM_OK || fresh.size == run->size)
        return status;
    return failed_here(status, entry);
}

static symm_status entries_world(const struct gathering *gathering)
{
    const struct symm_bootstrap_run *run = gathering->run;
    struct symm_host_address *places = malloc((size_t)run->size * sizeof(*places));
    if (places == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a job of %d ranks", run->size);
    for (int r = 0; r < run->size; r++)
        places[r] = gathering->entries[r].place;
    symm_status status = symm__world_number(run->world, run->rank, run->size, places);
    free(places);
    return status;
}

/* The ranks of this host meet, and share a listener if there are other hosts. These wait for this
 * one: if the ranks here do not meet, the relay of the lowest one says so (world->failed). */
static symm_status entries_meet(struct gathering *gathering, const uint8_t *secret,
                                int *near_fd)
{
    struct symm_world *world = gathering->run->world;
    const int place = world->local_of[gathering->run->rank];
    symm_status status = entries_bootstrap(gathering, secret, near_fd);
    if (world->hosts == 1)
        return status;
    status = status == SYMM_OK
                 ? symm__world_share(world, place, near_fd, gathering->listener,
                                     gathering->until - symm__now())
                 : symm__world_lost(world, place, status, gathering->listener);
    gathering->listener = -1;
    if (status != SYMM_OK)
        symm__seqpacket_close(near_fd, world->local_size);
    return status;
}

/* All entries are here: sockets on this host, and the listener of its relay. */
static symm_status entries_connect(struct gathering *gathering, int *peer_fd)
{
    const struct symm_bootstrap_run *run = gathering->run;
    struct symm_world *world = run->world;
    const uint8_t *secret = gathering->store != NULL  ? run->secret
                            : gathering->root != NULL ? gathering->root_key
                                                      : gathering->entries[0].secret;
    int near_fd[SYMM_BOOTSTRAP_MAX];
    bool met;
    symm_status status = entries_world(gathering);
    for (int r = 0; r < run->size; r++)
        peer_fd[r] = -1;
    memset(near_fd, -1, sizeof(near_fd));
    if (status != SYMM_OK)
        return status;
    met = gathering->root != NULL && world->local_size == gathering->local_size;
    if (met && world->local_of[run->rank] != gathering->local_rank) {
        /* The sockets are in the order of the launcher's places: they would be taken for those of
         * other ranks. */
        status = symm__fail(
            SYMM_ERR_JOB,
            "rank %d is at place %d of host %s by the table of rank 0, and at place %d "
            "by its launcher: SYMM_HOST_ID and the local ranks must name the same "
            "hosts",
            run->rank, world->local_of[run->rank],
            world->at[world->host_of[run->rank]].name, gathering->local_rank);
    } else if (met) { /* and the listener is theirs */
        memcpy(near_fd, gathering->near_fd, sizeof(near_fd));
        memset(gathering->near_fd, -1, sizeof(gathering->near_fd));
    } else {
        status = entries_meet(gathering, secret, near_fd);
    }
    if (status == SYMM_OK && world->hosts > 1)
        memcpy(world->key, secret, sizeof(world->key));
    if (status == SYMM_OK && world->hosts > 1 && met) {
        world->listener = gathering->listener;
        gathering->listener = -1;
    }
    for (int i = 0; status == SYMM_OK && i < world->local_size; i++)
        peer_fd[world->local[i]] = near_fd[i];
    if (status == SYMM_OK && gathering->late != SYMM_OK) {
        world->failed = gathering->late;
        (void)snprintf(world->why, sizeof(world->why), "%s", gathering->why);
    }
    if (status != SYMM_OK)
        symm__world_finish(world);
    return status;
}

static symm_status gather_bootstrap(const struct gathering *gathering,
                                    const symm_bootstrap *bootstrap,
                                    const struct bootstrap_entry *mine)
{
    int result =
        bootstrap->allgather(bootstrap->arg, mine, sizeof(*mine), gathering->entries);
    return result == 0
               ? SYMM_OK
               : symm__fail(SYMM_ERR_JOB,
                            "the caller's allgather failed on rank %d: it returned %d",
                            gathering->run->rank, result);
}

static symm_status gather_store(const struct gathering *gathering,
                                const struct bootstrap_entry *mine)
{
    const struct symm_bootstrap_run *run = gathering->run;
    const struct symm_store_exchange exchange = {
        .address = gathering->store,
        .secret = run->secret,
        .rank = run->rank,
        .size = run->size,
        .in = mine,
        .bytes = sizeof(*mine),
        .out = gathering->entries,
        .timeout = gathering->until - symm__now(),
    };
    return symm__store_allgather(&exchange);
}

/* ---- By rank 0's host --------------------------------------------------------------- */

/* Begins what the lowest rank of a host passes on. */
struct handed {
    int32_t status;
    char sentence[SYMM_ERROR_BYTES];
};

/* The lowest rank here joins the tree for all ranks of the host, and gets the entries of all
 * ranks of the job. `gathered`: the status of the exchange of this host's entries; if that failed,
 * the other hosts get its sentence. `rank`: this rank; 0 if it stands for rank 0, which has died. */
static symm_status join_for_host(const struct gathering *gathering, int rank,
                                 symm_status gathered,
                                 const struct symm_oob_message *near)
{
    const struct symm_bootstrap_run *run = gathering->run;
    struct bootstrap_entry here[SYMM_BOOTSTRAP_MAX];
    int ranks[SYMM_BOOTSTRAP_MAX] = {rank};
    struct symm_tree_join join = {
        .rank = rank,
        .size = run->size,
        .ranks = ranks,
        .count = gathering->local_size,
        .entries = here,
        .bytes = sizeof(*here),
        .all = gathering->entries,
        .root = gathering->root,
        .listener = gathering->listener,
        .place = &here[0].place,
        .key = gathering->root_key,
        .until = gathering->until,
        .failed = gathered,
    };
    for (int i = 0; gathered == SYMM_OK && i < gathering->local_size; i++) {
        memcpy(&here[i], near[i].bytes, sizeof(*here));
        ranks[i] = gathering->near_ranks[i];
    }
    return symm__tree_join(&join);
}

/* If the lowest rank of this host has died, the second one tells the hosts that wait for this one;
 * at rank 0's port, if that was it. */
static symm_status join_for_lowest(const struct gathering *gathering,
                                   symm_status status)
{
    const int rank = gathering->run->rank, fd = gathering->near_fd[0];
    const int lowest = gathering->near_ranks[0]; /* -1: not known */
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    if (gathering->local_rank != 1 || status != SYMM_ERR_PEER_DEAD)
        return status;
    if (fd >= 0 && (poll(&poll_fd, 1, 0) != 1 || !(poll_fd.revents & POLLHUP)))
        return status;
    return join_for_host(gathering, lowest == 0 || (lowest < 0 && rank == 1) ? 0 : rank,
                         status, NULL);
}

/* What the lowest rank passes on: the entries of all ranks, or why there are none. */
static symm_status take_entries(const struct gathering *gathering,
                                const struct symm_oob_message *all)
{
    size_t bytes = (size_t)gathering->run->size * sizeof(*gathering->entries);
    struct handed handed;
    if (all->bytes_count == sizeof(handed)) {
        memcpy(&handed, all->bytes, sizeof(handed));
        return symm__fail_quiet(
            symm__peer_status(handed.status),
            symm__printable(handed.sentence, sizeof(handed.sentence)));
    }
    if (all->bytes_count != bytes + sizeof(handed))
        return symm__fail(SYMM_ERR_DAMAGED,
                          "the lowest rank of this host passed on a damaged table");
    memcpy(gathering->entries, (const char *)all->bytes + sizeof(handed), bytes);
    return SYMM_OK;
}

/* By the lowest rank: what take_entries takes, in exchange->bytes. It is *head alone if there is no
 * table, or no memory for it; else it is returned, and the caller frees it. */
static char *hand_on(const struct gathering *gathering, symm_status joined,
                     struct handed *head, struct symm_exchange *exchange)
{
    size_t table = (size_t)gathering->run->size * sizeof(*gathering->entries);
    char *made = joined == SYMM_OK ? malloc(sizeof(*head) + table) : NULL;
    *head = (struct handed){.status = joined};
    exchange->bytes = head;
    exchange->bytes_count = sizeof(*head);
    if (joined == SYMM_OK && made == NULL)
        head->status = symm__fail(SYMM_ERR_NOMEM,
                                  "rank %d has no memory for the table of %d ranks",
                                  gathering->run->rank, gathering->run->size);
    if (made == NULL) {
        (void)snprintf(head->sentence, sizeof(head->sentence), "%s", symm_last_error());
        return NULL;
    }
    memcpy(made, head, sizeof(*head));
    memcpy(made + sizeof(*head), gathering->entries, table);
    exchange->bytes = made;
    exchange->bytes_count += table;
    return made;
}

/* The second exchange: the lowest rank hands on the table and its listener. *joined: the status of
 * its join to the tree. */
static symm_status gather_handed(struct gathering *gathering, symm_status *joined)
{
    struct symm_oob_message near[SYMM_BOOTSTRAP_MAX] = {0};
    int place = gathering->local_rank, size = gathering->local_size;
    struct handed head;
    struct symm_exchange exchange = {.sequence = 2,
                                     .fds = &gathering->listener,
                                     .fds_count =
                                         place == 0 && gathering->listener >= 0};
    char *handed = place == 0 ? hand_on(gathering, *joined, &head, &exchange) : NULL;
    /* The one that joins the tree may return as late as the deadline, with a reason. */
    symm_status status = symm__near_exchange(
        place, size, gathering->near_ranks, gathering->near_fd,
        gathering->until - symm__now() + HAND_ON_SECONDS, &exchange, near);
    if (status == SYMM_OK)
        status = *joined = take_entries(gathering, &near[0]);
    if (status == SYMM_OK && place != 0 && near[0].fds_count == 1) {
        gathering->listener = near[0].fds[0];
        near[0].fds_count = 0;
    } else if (status == SYMM_OK && place != 0) {
        status = symm__fail(SYMM_ERR_DAMAGED,
                            "the lowest rank of this host passed on no listener");
    }
    symm__oob_messages_finish(near, size);
    free(handed);
    return status;
}

/* Do the ranks of this host mean one job? The table that the lowest one passes on has its number of
 * ranks: to a rank with another one it would be a damaged table. All ranks here find the same. */
static symm_status near_check(const struct gathering *gathering,
                              const struct symm_oob_message *near)
{
    const struct symm_bootstrap_run *run = gathering->run;
    for (int i = 0; i < gathering->local_size; i++) {
        struct bootstrap_entry entry;
        if (near[i].bytes_count != sizeof(entry))
            return symm__fail(SYMM_ERR_DAMAGED, "rank %d sent a malformed entry",
                              gathering->near_ranks[i]);
        memcpy(&entry, near[i].bytes, sizeof(entry));
        if (entry.size != run->size)
            return symm__fail(
                SYMM_ERR_JOB, "rank %d says that the job has %d ranks, rank %d says %d",
                gathering->near_ranks[i], entry.size, run->rank, run->size);
    }
    return SYMM_OK;
}

/* Two exchanges among the ranks here, and the tree between them. */
static symm_status gather_among(struct gathering *gathering, symm_status made,
                                const struct bootstrap_entry *mine)
{
    struct symm_oob_message near[SYMM_BOOTSTRAP_MAX] = {0};
    int place = gathering->local_rank, size = gathering->local_size;
    struct symm_exchange exchange = {
        .sequence = 1, .status = made, .bytes = mine, .bytes_count = sizeof(*mine)};
    symm_status joined = SYMM_OK;
    symm_status status =
        symm__near_exchange(place, size, gathering->near_ranks, gathering->near_fd,
                            gathering->until - symm__now(), &exchange, near);
    if (status == SYMM_OK)
        status = near_check(gathering, near);
    if (status != SYMM_OK && made == SYMM_OK)
        status = failed_here(status, mine);
    if (place == 0)
        joined = join_for_host(gathering, gathering->run->rank, status, near);
    symm__oob_messages_finish(near, size);
    if (status != SYMM_OK)
        return join_for_lowest(gathering, status);
    status = gather_handed(gathering, &joined);
    if (joined == SYMM_OK) /* else the status is that of the join */
        status = join_for_lowest(gathering, status);
    if (status == SYMM_OK || place != 0 || joined != SYMM_OK)
        return status;
    /* The other hosts have the table, and wait for this one: they hear it from the relay. */
    gathering->late = status;
    (void)snprintf(gathering->why, sizeof(gathering->why), "%s", symm_last_error());
    return SYMM_OK;
}

/* The launcher's places must be in the order of the job's ranks. All ranks of a host find the
 * same. */
static symm_status order_check(const struct symm_bootstrap_run *near, int size)
{
    for (int i = 0; i < near->size; i++)
        if (near->ranks[i] < 0 || near->ranks[i] >= size)
            return symm__fail(SYMM_ERR_JOB,
                              "local rank %d is rank %d of a job of %d ranks", i,
                              near->ranks[i], size);
        else if (i > 0 && near->ranks[i] <= near->ranks[i - 1])
            return symm__fail(
                SYMM_ERR_JOB,
                "local rank %d is rank %d of the job, local rank %d is rank "
                "%d: the order must be the same",
                i - 1, near->ranks[i - 1], i, near->ranks[i]);
    return SYMM_OK;
}

static symm_status gather_tree(struct gathering *gathering, symm_status made,
                               const struct bootstrap_entry *mine)
{
    const struct symm_bootstrap_run *run = gathering->run;
    char key[SYMM_KEY_BYTES + 64];
    int *near_fd = gathering->near_fd;
    struct symm_bootstrap_run near = {.rank = gathering->local_rank,
                                      .size = gathering->local_size,
                                      .ranks = gathering->near_ranks,
                                      .key = key,
                                      .secret = run->secret,
                                      .timeout = near_seconds(gathering)};
    symm_status status;
    /* One machine may play several hosts, or have several launchers of one job. */
    (void)snprintf(key, sizeof(key), "%s host=%016" PRIx64 " node=%.20s", run->key,
                   mine->place.host.id, gathering->node);
    near.ranks[near.rank] = run->rank;
    status = symm__bootstrap_near(&near, near_fd);
    if (status != SYMM_OK)
        status = failed_here(status, mine);
    else
        status = order_check(&near, run->size);
    if (status != SYMM_OK && near.rank == 0)
        return join_for_host(gathering, run->rank, status, NULL);
    if (status != SYMM_OK)
        return join_for_lowest(gathering, status);
    return gather_among(gathering, made, mine);
}

/* bootstrap NULL: by the store, or the tree. */
static symm_status gather(struct gathering *gathering, const symm_bootstrap *bootstrap,
                          int *peer_fd)
{
    const struct symm_bootstrap_run *run = gathering->run;
    struct bootstrap_entry mine;
    char sentence[SYMM_ERROR_BYTES] = "";
    gathering->until = symm__now() + run->timeout;
    gathering->listener = -1;
    memset(gathering->near_fd, -1, sizeof(gathering->near_fd));
    memset(gathering->near_ranks, -1, sizeof(gathering->near_ranks));
    gathering->entries = calloc((size_t)run->size, sizeof(*gathering->entries));
    if (gathering->entries == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the entries of %d ranks",
                          run->size);
    symm_status made = entry_make(gathering, &mine);
    if (made != SYMM_OK)
        symm__error_save(sentence);
    symm_status status = bootstrap != NULL
                             ? gather_bootstrap(gathering, bootstrap, &mine)
                         : gathering->root != NULL ? gather_tree(gathering, made, &mine)
                                                   : gather_store(gathering, &mine);
    if (made != SYMM_OK)
        status = symm__fail_quiet(made, sentence);
    if (status == SYMM_OK)
        status = entries_check(gathering, &mine);
    if (status == SYMM_OK)
        status = entries_connect(gathering, peer_fd);
    if (gathering->listener >= 0)
        (void)close(gathering->listener);
    symm__seqpacket_close(gathering->near_fd, SYMM_BOOTSTRAP_MAX);
    free(gathering->entries);
    return status;
}

symm_status symm__bootstrap_given(const struct symm_bootstrap_run *run,
                                  const symm_bootstrap *bootstrap, int *peer_fd)
{
    struct gathering gathering = {
        .run = run, .prefix = "bootstrap", .what = "the caller's allgather"};
    symm_status status = run_check(run, SYMM_RANKS_MAX);
    if (status != SYMM_OK)
        return status;
    if (bootstrap->allgather == NULL)
        return symm__fail(SYMM_ERR_INVALID, "symm_bootstrap has no allgather function");
    if (run->size == 1)
        return symm__bootstrap_local(run, peer_fd);
    return gather(&gathering, bootstrap, peer_fd);
}

symm_status symm__bootstrap_store(const struct symm_bootstrap_run *run,
                                  const char *address, int *peer_fd)
{
    struct gathering gathering = {
        .run = run, .prefix = "store", .what = "the job's store", .store = address};
    symm_status status = run_check(run, SYMM_RANKS_MAX);
    if (status != SYMM_OK)
        return status;
    if (run->secret == NULL)
        return symm__fail(SYMM_ERR_JOB,
                          "the store at %s needs the job's secret: set "
                          "SYMM_SECRET, or start the ranks by symmrun",
                          address);
    if (run->size == 1)
        return symm__bootstrap_local(run, peer_fd);
    return gather(&gathering, NULL, peer_fd);
}

symm_status symm__bootstrap_tree(const struct symm_bootstrap_run *run, const char *root,
                                 const char *node, int local_rank, int local_size,
                                 int *peer_fd)
{
    struct gathering gathering = {.run = run,
                                  .prefix = "tree",
                                  .what = "the job's bootstrap",
                                  .root = root,
                                  .node = node,
                                  .local_rank = local_rank,
                                  .local_size = local_size};
    symm_status status = run_check(run, SYMM_RANKS_MAX);
    if (status != SYMM_OK)
        return status;
    if (local_size > SYMM_BOOTSTRAP_MAX)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "%d ranks are on this host: a host has at most %d",
                          local_size, SYMM_BOOTSTRAP_MAX);
    if (run->secret == NULL)
        return symm__job_no_secret();
    if (run->size == 1)
        return symm__bootstrap_local(run, peer_fd);
    symm__job_series_key(run->secret, run->series, SYMM_SERIES_JOB, gathering.root_key);
    return gather(&gathering, NULL, peer_fd);
}
