/* SPDX-License-Identifier: MIT */
/* hosts.c - see hosts.h. */
#include "bootstrap/hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bootstrap/job.h"
#include "net/address.h"
#include "net/interface.h"
#include "net/seqpacket.h"
#include "oob/exchange.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/options.h"
#include "util/random.h"
#include "util/status.h"
#include "util/text.h"

/* ---- Which host ------------------------------------------------------------------- */

symm_status symm__host_identify(struct symm_host *host)
{
    const char *given = symm__option(SYMM_OPTION_HOST_ID);
    char boot[64] = "";
    struct utsname system;

    *host = (struct symm_host){.id = SYMM_FNV_BASIS};
    if (given) {
        host->id = symm__fnv_text(host->id, given);
        snprintf(host->name, sizeof(host->name), "%.31s", given);
        return SYMM_OK;
    }
    if (uname(&system) != 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "asking for the host's name");
    /* Without the boot id this rank would seem to be on another host than its neighbours, so it
     * may be missing only on a system that has none. */
    if (symm__read_text(boot, sizeof(boot), "/proc/sys/kernel/random/boot_id") < 0 &&
        errno != ENOENT && errno != EACCES)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "reading the system's boot id");
    /* The NUL is hashed too: it keeps the two texts apart. */
    host->id = symm__fnv(host->id ^ 1, boot, strlen(boot) + 1);
    host->id = symm__fnv_text(host->id, system.nodename);
    snprintf(host->name, sizeof(host->name), "%.31s", system.nodename);
    return SYMM_OK;
}

/* ---- Addresses -------------------------------------------------------------------- */

struct symm_address symm__host_address(const struct symm_host_address *place)
{
    return symm__address_make(place->family, place->address, place->port);
}

static void take_address(const struct symm_address *own,
                         struct symm_host_address *place)
{
    symm__address_take(own, &place->family, place->address, &place->port);
}

/* The local address from which `target` (numeric; NULL: none) is reached, if other hosts can use
 * it; nothing is sent. */
static bool way_to(const char *target, struct symm_address *own)
{
    struct symm_address to;
    int fd;
    bool found = false;

    if (!target || symm__address_parse(target, SYMM_ADDRESS_NUMBER, &to))
        return false;
    fd = socket(to.at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    if (connect(fd, (const struct sockaddr *)&to.at, to.bytes) == 0) {
        own->bytes = sizeof(own->at);
        found = getsockname(fd, (struct sockaddr *)&own->at, &own->bytes) == 0 &&
                !symm__address_is_of_link(own);
    }
    close(fd);
    return found;
}

/* Port 0 of the address on which ranks of other hosts find this one. */
static symm_status own_address(const char *toward, struct symm_host_address *place)
{
    const char *given = symm__option(SYMM_OPTION_HOST_ADDRESS);
    const char *list = symm__option(SYMM_OPTION_SOCKET_IFNAME);
    struct symm_address own;

    if (!list)
        list = secure_getenv("NCCL_SOCKET_IFNAME");
    if (list && !*list)
        list = NULL;

    if (given && symm__address_parse(given, SYMM_ADDRESS_NUMBER, &own))
        return symm__fail(
            SYMM_ERR_INVALID,
            "SYMM_HOST_ADDRESS='%.60s': must be a numeric address of this "
            "host, as 10.0.0.1",
            given);
    if (given && symm__address_is_of_link(&own))
        return symm__fail(SYMM_ERR_INVALID,
                          "SYMM_HOST_ADDRESS='%.60s': is an address of one link, which "
                          "other hosts cannot use: give another one of this host",
                          given);
    if (given && symm__address_is_any(&own))
        return symm__fail(SYMM_ERR_INVALID,
                          "SYMM_HOST_ADDRESS='%.60s': leads each host to itself: give "
                          "the address by which other hosts reach this one",
                          given);
    if (!given && list) {
        char names[200];

        if (!symm__interface_address(list, &own, names, sizeof(names)))
            return symm__fail(
                SYMM_ERR_INVALID,
                "%s='%.60s': no interface that is up fits it, and has an address for "
                "other hosts; there are: %s",
                symm__option(SYMM_OPTION_SOCKET_IFNAME) ? "SYMM_SOCKET_IFNAME"
                                                        : "NCCL_SOCKET_IFNAME",
                list, names[0] ? names : "none");
    }
    /* An address that no host has is routed by the default route. */
    if (!given && !list && !way_to(toward, &own) && !way_to("192.0.2.1", &own) &&
        !way_to("2001:db8::1", &own) &&
        symm__address_parse("127.0.0.1", SYMM_ADDRESS_NUMBER, &own))
        return symm__fail(SYMM_ERR_SYSTEM, "this host has no network");
    take_address(&own, place);
    place->port = 0;
    return SYMM_OK;
}

/* SYMM_PORT_RANGE, "30000-30099"; 0: any port. */
static symm_status port_range(int *low, int *high)
{
    const char *text = symm__option(SYMM_OPTION_PORT_RANGE);
    int used = 0;

    *low = *high = 0;
    if (!text)
        return SYMM_OK;
    if (sscanf(text, "%5d-%5d%n", low, high, &used) == 2 && text[used] == '\0' &&
        *low >= 1 && *high >= *low && *high <= 65535)
        return SYMM_OK;
    return symm__fail(SYMM_ERR_INVALID,
                      "SYMM_PORT_RANGE='%.60s': must be two ports, as 30000-30099",
                      text);
}

symm_status symm__hosts_listen(const char *toward, struct symm_host_address *place,
                               int *listener)
{
    struct symm_address own;
    char text[64];
    int low, high, but, fd;
    symm_status status = own_address(toward, place);

    if (status == SYMM_OK)
        status = port_range(&low, &high);
    if (status != SYMM_OK)
        return status;
    own = symm__host_address(place);
    but = toward ? symm__address_port(toward) : 0;
    fd = symm__address_listen_among(&own, low, high, but);
    if (fd < 0 && errno == EADDRINUSE && low <= but && but <= high)
        return symm__fail(
            SYMM_ERR_SYSTEM,
            "no port of SYMM_PORT_RANGE %d-%d is free beside the one where "
            "the job's hosts meet, %d",
            low, high, but);
    if (fd < 0 && errno == EADDRINUSE && low > 0)
        return symm__fail(SYMM_ERR_SYSTEM, "no port of SYMM_PORT_RANGE %d-%d is free",
                          low, high);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        return symm__fail_errno(
            SYMM_ERR_SYSTEM, errno,
            "a socket for other hosts: raise the limit of open files "
            "(ulimit -n)");
    if (fd < 0)
        return symm__fail_errno(
            SYMM_ERR_SYSTEM, errno,
            "listening on %s for ranks of other hosts (another address of this host: "
            "SYMM_SOCKET_IFNAME or SYMM_HOST_ADDRESS)",
            symm__address_text(&own, text, sizeof(text)));
    take_address(&own, place);
    *listener = fd;
    return SYMM_OK;
}

/* ---- Who is where ------------------------------------------------------------------ */

void symm__world_finish(struct symm_world *world)
{
    free(world->host_of);
    free(world->local_of);
    free(world->local);
    free(world->at);
    if (world->listener >= 0)
        (void)close(world->listener);
    *world = (struct symm_world){.listener = -1};
}

static symm_status world_alloc(struct symm_world *world, int size)
{
    size_t n = (size_t)size;

    *world = (struct symm_world){.listener = -1};
    world->host_of = calloc(n, sizeof(*world->host_of));
    world->local_of = calloc(n, sizeof(*world->local_of));
    if (world->host_of && world->local_of)
        return SYMM_OK;
    symm__world_finish(world);
    return symm__fail(SYMM_ERR_NOMEM, "no memory for a job of %d ranks", size);
}

symm_status symm__world_crowded(const struct symm_world *world, int size, int most,
                                const char *more)
{
    int crowd = 0;

    for (int r = 0; r < size; r++)
        if (world->local_of[r] >= most && world->local_of[r] >= world->local_of[crowd])
            crowd = r;
    if (world->local_of[crowd] < most)
        return SYMM_OK;
    return symm__fail(
        SYMM_ERR_UNSUPPORTED,
        "host %s has %d ranks; at most %d ranks of a job are on one host%s",
        world->at[world->host_of[crowd]].name, world->local_of[crowd] + 1, most, more);
}

/* The ranks on this host, once host_of is known. */
static symm_status world_local(struct symm_world *world, int rank, int size)
{
    int own = world->host_of[rank];

    world->local_size = 0;
    for (int r = 0; r < size; r++)
        world->local_size += world->host_of[r] == own;
    world->local = calloc((size_t)world->local_size, sizeof(*world->local));
    if (!world->local)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a job of %d ranks", size);
    for (int r = 0, place = 0; r < size; r++)
        if (world->host_of[r] == own)
            world->local[place++] = r;
    return SYMM_OK;
}

symm_status symm__world_alone(struct symm_world *world, int size)
{
    struct symm_host host;
    symm_status status = world_alloc(world, size);

    if (status != SYMM_OK)
        return status;
    world->hosts = 1;
    for (int r = 0; r < size; r++)
        world->local_of[r] = (uint16_t)r;
    status = world_local(world, 0, size);
    if (status == SYMM_OK)
        status = symm__host_identify(&host);
    if (status == SYMM_OK) {
        world->at = calloc(1, sizeof(*world->at));
        if (!world->at)
            status =
                symm__fail(SYMM_ERR_NOMEM, "no memory for a job of %d ranks", size);
        else
            snprintf(world->at->name, sizeof(world->at->name), "%.31s",
                     symm__printable(host.name, sizeof(host.name)));
    }
    if (status != SYMM_OK)
        symm__world_finish(world);
    return status;
}

/* A rank and its host's id, to be sorted. */
struct resident {
    uint64_t id;
    int rank;
};

static int resident_compare(const void *a, const void *b)
{
    const struct resident *x = a, *y = b;

    return x->id != y->id ? (x->id < y->id ? -1 : 1) : x->rank - y->rank;
}

/* Sorts the ranks by host, so that a host's ranks are together; `lowest` gets the first of each. */
static struct resident *residents_of(int size, const struct symm_host_address *places)
{
    struct resident *residents = malloc((size_t)size * sizeof(*residents));

    for (int r = 0; residents && r < size; r++)
        residents[r] = (struct resident){.id = places[r].host.id, .rank = r};
    if (residents)
        qsort(residents, (size_t)size, sizeof(*residents), resident_compare);
    return residents;
}

/* host_of becomes the lowest rank of each rank's host, then that host's number. */
static void number_hosts(struct symm_world *world, int size,
                         const struct resident *residents)
{
    for (int i = 0, first = 0; i < size; i++) {
        if (residents[i].id != residents[first].id)
            first = i;
        world->host_of[residents[i].rank] = residents[first].rank;
        world->local_of[residents[i].rank] = (uint16_t)(i - first);
    }
    world->hosts = 0;
    for (int r = 0; r < size; r++) {
        int lowest = world->host_of[r];

        world->host_of[r] = lowest == r ? world->hosts++ : world->host_of[lowest];
    }
}

static struct symm_relay_host relay_host(const struct symm_host_address *place)
{
    struct symm_relay_host host = {.family = place->family, .port = place->port};

    memcpy(host.bytes, place->address, sizeof(host.bytes));
    snprintf(host.name, sizeof(host.name), "%.31s", place->host.name);
    return host;
}

symm_status symm__world_number(struct symm_world *world, int rank, int size,
                               const struct symm_host_address *places)
{
    struct resident *residents = residents_of(size, places);
    symm_status status = world_alloc(world, size);

    if (status == SYMM_OK && !residents)
        status = symm__fail(SYMM_ERR_NOMEM, "no memory for a job of %d ranks", size);
    if (status == SYMM_OK)
        number_hosts(world, size, residents);
    free(residents);
    if (status == SYMM_OK) {
        world->at = calloc((size_t)world->hosts, sizeof(*world->at));
        if (!world->at)
            status = symm__fail(SYMM_ERR_NOMEM, "no memory for %d hosts", world->hosts);
    }
    for (int r = 0; status == SYMM_OK && r < size; r++)
        if (world->local_of[r] == 0)
            world->at[world->host_of[r]] = relay_host(&places[r]);
    if (status == SYMM_OK)
        status = symm__world_crowded(world, size, SYMM_BOOTSTRAP_MAX, "");
    if (status == SYMM_OK)
        status = world_local(world, rank, size);
    if (status != SYMM_OK)
        symm__world_finish(world);
    return status;
}

symm_status symm__near_exchange(int place, int size, const int *ranks, const int *fds,
                                double timeout, struct symm_exchange *exchange,
                                struct symm_oob_message *messages)
{
    const size_t room = (size_t)(ranks ? ranks[size - 1] + 1 : size);
    int members[SYMM_BOOTSTRAP_MAX], *by_rank = malloc(room * sizeof(*by_rank));
    uint16_t *place_of = calloc(room, sizeof(*place_of));
    int32_t *host_of = calloc(room, sizeof(*host_of)); /* all on host 0 */
    symm_status status;
    struct symm_oob near;

    for (size_t r = 0; by_rank && r < room; r++)
        by_rank[r] = -1;
    for (int i = 0; by_rank && place_of && i < size; i++) {
        members[i] = ranks ? ranks[i] : i;
        by_rank[members[i]] = fds[i];
        place_of[members[i]] = (uint16_t)i;
    }
    exchange->what = "the hosts of the job";
    exchange->tag = SYMM_HOSTS_TAG;
    exchange->members = members;
    exchange->count = size;
    exchange->timeout = timeout;
    if (by_rank && place_of && host_of) {
        symm__oob_init(&near, members[place], (int)room, by_rank);
        near.local_of = place_of;
        near.host_of = host_of;
        status = symm__exchange(&near, exchange, messages);
        near.peer_fd = NULL; /* the descriptors are the caller's */
        symm__oob_finish(&near);
    } else {
        status = symm__fail(SYMM_ERR_NOMEM, "no memory for %s", exchange->what);
    }
    free(by_rank);
    free(place_of);
    free(host_of);
    return status;
}

static void close_listener(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

symm_status symm__world_lost(struct symm_world *world, int place, symm_status status,
                             int listener)
{
    if (world->hosts == 1 || place != 0 || listener < 0) {
        close_listener(listener);
        return status;
    }
    world->failed = status;
    symm__error_save(world->why);
    world->listener = listener;
    return SYMM_OK;
}

symm_status symm__world_share(struct symm_world *world, int place, const int *near_fd,
                              int mine, double timeout)
{
    struct symm_oob_message messages[SYMM_BOOTSTRAP_MAX] = {0};
    struct symm_exchange exchange = {
        .sequence = 1, .fds = &mine, .fds_count = place == 0};
    symm_status status = symm__near_exchange(place, world->local_size, world->local,
                                             near_fd, timeout, &exchange, messages);

    if (status != SYMM_OK || place == 0) {
        if (status == SYMM_OK)
            world->listener = mine;
        else
            status = symm__world_lost(world, place, status, mine);
        symm__oob_messages_finish(messages, world->local_size);
        return status;
    }
    close_listener(mine);
    if (messages[0].fds_count == 1) {
        world->listener = messages[0].fds[0];
        messages[0].fds_count = 0;
    } else {
        status = symm__fail(SYMM_ERR_DAMAGED,
                            "the lowest rank of this host passed on no listener");
    }
    symm__oob_messages_finish(messages, world->local_size);
    return status;
}

/* ---- Hosts made of one ------------------------------------------------------------------ */

struct found {
    struct symm_host_address place;
    uint8_t key[SYMM_SIPHASH_KEY];
};

/* One exchange of all; places[r] is what rank r gave. */
static symm_status find_places(int rank, int size, const int *peer_fd, double timeout,
                               uint32_t sequence, symm_status mine,
                               const struct found *found,
                               struct symm_host_address *places, uint8_t *key)
{
    struct symm_oob_message messages[SYMM_BOOTSTRAP_MAX] = {0};
    struct symm_exchange exchange = {.sequence = sequence,
                                     .status = mine,
                                     .bytes = found,
                                     .bytes_count = sizeof(*found)};
    symm_status status =
        symm__near_exchange(rank, size, NULL, peer_fd, timeout, &exchange, messages);

    for (int r = 0; status == SYMM_OK && r < size; r++) {
        struct found theirs;

        if (messages[r].bytes_count != sizeof(theirs)) {
            status = symm__fail(SYMM_ERR_DAMAGED, "rank %d sent a malformed host", r);
            break;
        }
        memcpy(&theirs, messages[r].bytes, sizeof(theirs));
        places[r] = theirs.place;
        (void)symm__printable(places[r].host.name, SYMM_HOST_NAME);
        if (r == 0)
            memcpy(key, theirs.key, sizeof(theirs.key));
    }
    symm__oob_messages_finish(messages, size);
    return status;
}

static bool on_one_host(const struct symm_host_address *places, int size)
{
    for (int r = 1; r < size; r++)
        if (places[r].host.id != places[0].host.id)
            return false;
    return true;
}

/* Several hosts: where they listen; sockets stay among the ranks of each. */
static symm_status world_split(struct symm_world *world, int rank, int size,
                               int *peer_fd, double until, struct found *found)
{
    struct symm_host_address places[SYMM_BOOTSTRAP_MAX];
    int near_fd[SYMM_BOOTSTRAP_MAX], listener = -1;
    uint8_t key[SYMM_SIPHASH_KEY];
    symm_status status = symm__hosts_listen(NULL, &found->place, &listener);

    if (status == SYMM_OK && rank == 0)
        status = symm__random(found->key, sizeof(found->key));
    status = find_places(rank, size, peer_fd, until - symm__now(), 2, status, found,
                         places, key);
    if (status == SYMM_OK)
        status = symm__world_number(world, rank, size, places);
    if (status != SYMM_OK) {
        if (listener >= 0)
            (void)close(listener);
        return status;
    }
    memcpy(world->key, key, sizeof(key));
    for (int r = 0; r < size; r++)
        if (world->host_of[r] != world->host_of[rank])
            symm__seqpacket_close(&peer_fd[r], 1);
    for (int i = 0; i < world->local_size; i++)
        near_fd[i] = peer_fd[world->local[i]];
    return symm__world_share(world, world->local_of[rank], near_fd, listener,
                             until - symm__now());
}

symm_status symm__world_find(struct symm_world *world, int rank, int size, int *peer_fd,
                             double timeout)
{
    double until = symm__now() + timeout;
    struct symm_host_address places[SYMM_BOOTSTRAP_MAX];
    struct found found = {0};
    uint8_t key[SYMM_SIPHASH_KEY];
    symm_status status = symm__host_identify(&found.place.host);

    if (size == 1)
        return status == SYMM_OK ? symm__world_alone(world, size) : status;
    status = find_places(rank, size, peer_fd, timeout, 1, status, &found, places, key);
    if (status != SYMM_OK)
        return status;
    return on_one_host(places, size)
               ? symm__world_alone(world, size)
               : world_split(world, rank, size, peer_fd, until, &found);
}
