/* SPDX-License-Identifier: MIT */
/*
 * hosts.c - which host a rank is on, and where it listens (hosts.h); the connections are
 * made in hosts_connect.c.
 */
#include "bootstrap/hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
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

socklen_t symm__host_address_make(const struct symm_host_address *place,
                                  struct sockaddr_storage *address)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;

    memset(address, 0, sizeof(*address));
    if (place->family == 6) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = place->port;
        memcpy(&v6->sin6_addr, place->address, 16);
        return sizeof(*v6);
    }
    v4->sin_family = AF_INET;
    v4->sin_port = place->port;
    memcpy(&v4->sin_addr, place->address, 4);
    return sizeof(*v4);
}

static bool address_place(const struct sockaddr_storage *address,
                          struct symm_host_address *place)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

    place->family = address->ss_family == AF_INET6  ? 6
                    : address->ss_family == AF_INET ? 4
                                                    : 0;
    place->port = place->family == 6 ? v6->sin6_port : v4->sin_port;
    if (place->family == 6)
        memcpy(place->address, &v6->sin6_addr, 16);
    else
        memcpy(place->address, &v4->sin_addr, 4);
    return place->family != 0;
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

/* "10.0.0.1", "10.0.0.1:4242", "[fe80::1]:4242": numbers only. */
static bool parse_address(const char *text, struct sockaddr_storage *address)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const char *colon = strrchr(text, ':');
    bool bracket = text[0] == '[';
    size_t length = strlen(text);
    char name[INET6_ADDRSTRLEN + 1];

    if (bracket || (colon && strchr(text, ':') == colon))
        length = colon ? (size_t)(colon - text) : length;
    if (bracket && length >= 2 && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if (length == 0 || length >= sizeof(name))
        return false;
    memcpy(name, text, length);
    name[length] = '\0';
    if (getaddrinfo(name, "9", &hints, &found) != 0)
        return false;
    memset(address, 0, sizeof(*address));
    memcpy(address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return true;
}

/* The own address of the way there; nothing is sent. */
static bool way_to(const struct sockaddr_storage *target, struct sockaddr_storage *own)
{
    socklen_t bytes = target->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                    : sizeof(struct sockaddr_in);
    int fd = socket(target->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = false;

    if (fd < 0)
        return false;
    if (connect(fd, (const struct sockaddr *)target, bytes) == 0) {
        bytes = sizeof(*own);
        found = getsockname(fd, (struct sockaddr *)own, &bytes) == 0;
    }
    close(fd);
    return found;
}

/* Port 0 of the address on which ranks of other hosts find this one. */
static symm_status own_address(const char *toward, struct sockaddr_storage *own)
{
    const char *given = symm__option(SYMM_OPTION_HOST_ADDRESS);
    struct sockaddr_storage target;

    if (given && !parse_address(given, own))
        return symm__fail(
            SYMM_ERR_INVALID,
            "SYMM_HOST_ADDRESS='%.60s': must be a numeric address of this "
            "host, as 10.0.0.1",
            given);
    if (given)
        return SYMM_OK;
    if (toward && parse_address(toward, &target) && way_to(&target, own))
        return SYMM_OK;
    /* An address that is nobody's leads out by the default route. */
    if (parse_address("192.0.2.1", &target) && way_to(&target, own))
        return SYMM_OK;
    if (parse_address("2001:db8::1", &target) && way_to(&target, own))
        return SYMM_OK;
    return parse_address("127.0.0.1", own)
               ? SYMM_OK
               : symm__fail(SYMM_ERR_SYSTEM, "this host has no network");
}

symm_status symm__hosts_listen(const char *toward, struct symm_host_address *place,
                               int *listener)
{
    struct sockaddr_storage own;
    socklen_t bytes;
    char text[64];
    symm_status status = own_address(toward, &own);
    int fd;

    if (status != SYMM_OK)
        return status;
    address_place(&own, place);
    place->port = 0;
    bytes = symm__host_address_make(place, &own);
    fd = socket(own.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&own, bytes) != 0 ||
        listen(fd, SOMAXCONN) != 0)
        goto err_fd;
    bytes = sizeof(own);
    if (getsockname(fd, (struct sockaddr *)&own, &bytes) != 0)
        goto err_fd;
    address_place(&own, place);
    *listener = fd;
    return SYMM_OK;

err_fd:
    status =
        symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                         "listening on %s for ranks of other hosts (another address "
                         "of this host: SYMM_HOST_ADDRESS)",
                         symm__host_address_text(place, text, sizeof(text)));
    if (fd >= 0)
        close(fd);
    return status;
}
