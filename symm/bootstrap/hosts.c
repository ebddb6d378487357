/* SPDX-License-Identifier: MIT */
/*
 * hosts.c - which host a rank is on, and where it listens (hosts.h); the connections are
 * made in hosts_connect.c.
 */
#include "bootstrap/hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "util/hash.h"
#include "util/options.h"
#include "util/status.h"

/* ---- Which host ------------------------------------------------------------------- */

/* A guess would make this rank another host's: only a system without one does without. */
static symm_status read_boot_id(char *text, size_t bytes)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC), error;
    ssize_t got;

    if (fd < 0 && (errno == ENOENT || errno == EACCES))
        return SYMM_OK;
    if (fd < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "opening the system's boot id");
    do
        got = read(fd, text, bytes - 1);
    while (got < 0 && errno == EINTR);
    error = errno;
    close(fd);
    if (got < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, error, "reading the system's boot id");
    text[got] = '\0';
    return SYMM_OK;
}

symm_status symm__host_identify(struct symm_host *host)
{
    const char *given = symm__option(SYMM_OPTION_HOST_ID);
    char boot[64] = "";
    struct utsname system;
    symm_status status;

    *host = (struct symm_host){.id = SYMM_FNV_BASIS};
    if (given) {
        host->id = symm__fnv_text(host->id, given);
        snprintf(host->name, sizeof(host->name), "%.31s", given);
        return SYMM_OK;
    }
    if (uname(&system) != 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "asking for the host's name");
    status = read_boot_id(boot, sizeof(boot));
    if (status != SYMM_OK)
        return status;
    /* With the NUL: it keeps the two texts apart. */
    host->id = symm__fnv(host->id ^ 1, boot, strlen(boot) + 1);
    host->id = symm__fnv_text(host->id, system.nodename);
    snprintf(host->name, sizeof(host->name), "%.31s", system.nodename);
    return SYMM_OK;
}

/* ---- Addresses -------------------------------------------------------------------- */

struct symm_address symm__host_address_make(const struct symm_host_address *place)
{
    struct symm_address address = {.bytes = sizeof(struct sockaddr_in)};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address.at;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address.at;

    if (place->family == 6) {
        address.bytes = sizeof(*v6);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = place->port;
        memcpy(&v6->sin6_addr, place->address, 16);
        return address;
    }
    v4->sin_family = AF_INET;
    v4->sin_port = place->port;
    memcpy(&v4->sin_addr, place->address, 4);
    return address;
}

static void address_place(const struct sockaddr_storage *address,
                          struct symm_host_address *place)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

    place->family = address->ss_family == AF_INET6 ? 6 : 4;
    place->port = place->family == 6 ? v6->sin6_port : v4->sin_port;
    if (place->family == 6)
        memcpy(place->address, &v6->sin6_addr, 16);
    else
        memcpy(place->address, &v4->sin_addr, 4);
}

const char *symm__host_address_text(const struct symm_host_address *place, char *text,
                                    size_t bytes)
{
    char address[INET6_ADDRSTRLEN] = "?";

    inet_ntop(place->family == 6 ? AF_INET6 : AF_INET, place->address, address,
              sizeof(address));
    snprintf(text, bytes, place->family == 6 ? "[%s]:%u" : "%s:%u", address,
             ntohs(place->port));
    return text;
}

/* The own address of the way to `target` (a number; NULL: none); nothing is sent. */
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
        found = getsockname(fd, (struct sockaddr *)&own->at, &own->bytes) == 0;
    }
    close(fd);
    return found;
}

/* Port 0 of the address on which ranks of other hosts find this one. */
static symm_status own_address(const char *toward, struct symm_host_address *place)
{
    const char *given = symm__option(SYMM_OPTION_HOST_ADDRESS);
    struct symm_address own;

    if (given && symm__address_parse(given, SYMM_ADDRESS_NUMBER, &own))
        return symm__fail(
            SYMM_ERR_INVALID,
            "SYMM_HOST_ADDRESS='%.60s': must be a numeric address of this "
            "host, as 10.0.0.1",
            given);
    /* An address that no host has is routed by the default route. */
    if (!given && !way_to(toward, &own) && !way_to("192.0.2.1", &own) &&
        !way_to("2001:db8::1", &own) &&
        symm__address_parse("127.0.0.1", SYMM_ADDRESS_NUMBER, &own))
        return symm__fail(SYMM_ERR_SYSTEM, "this host has no network");
    address_place(&own.at, place);
    place->port = 0;
    return SYMM_OK;
}

symm_status symm__hosts_listen(const char *toward, struct symm_host_address *place,
                               int *listener)
{
    struct symm_address own;
    char text[64];
    symm_status status = own_address(toward, place);
    int fd;

    if (status != SYMM_OK)
        return status;
    own = symm__host_address_make(place);
    fd = symm__address_listen(&own);
    if (fd < 0)
        return symm__fail_errno(
            SYMM_ERR_SYSTEM, errno,
            "listening on %s for ranks of other hosts (another address of this host: "
            "SYMM_HOST_ADDRESS)",
            symm__host_address_text(place, text, sizeof(text)));
    address_place(&own.at, place);
    *listener = fd;
    return SYMM_OK;
}
