/* SPDX-License-Identifier: MIT */
/* address.c - see address.h. */
#include "net/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"

/* A port from 1 to 65535; getaddrinfo would accept an empty or overflowing one. */
static bool is_port(const char *text)
{
    unsigned port = 0;
    const char *c = text;

    for (; *c >= '0' && *c <= '9' && port <= 65535; c++)
        port = 10 * port + (unsigned)(*c - '0');
    return *c == '\0' && port >= 1 && port <= 65535;
}

bool symm__address_has_port(const char *text)
{
    const char *colon = strrchr(text, ':');

    return colon && colon != text && is_port(colon + 1);
}

int symm__address_port(const char *text)
{
    return symm__address_has_port(text) ? atoi(strrchr(text, ':') + 1) : 0;
}

const char *symm__address_parse(const char *text, enum symm_address_form form,
                                struct symm_address *address)
{
    const struct addrinfo hints = {
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | (form == SYMM_ADDRESS_NAME ? 0 : AI_NUMERICHOST)};
    const char *colon = strrchr(text, ':'), *port = "9";
    size_t length = strlen(text);
    struct addrinfo *found;
    char host[256];
    int error;

    if (form != SYMM_ADDRESS_NUMBER && !symm__address_has_port(text))
        return "must end in a port, as HOST:PORT";
    if (form != SYMM_ADDRESS_NUMBER)
        port = colon + 1;
    /* Without a port, more than one colon is IPv6's. */
    if (colon &&
        (form != SYMM_ADDRESS_NUMBER || text[0] == '[' || strchr(text, ':') == colon))
        length = (size_t)(colon - text);
    if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if (length == 0 || length >= sizeof(host))
        return "has no host, or one of more than 255 characters";
    memcpy(host, text, length);
    host[length] = '\0';
    error = getaddrinfo(host, port, &hints, &found);
    if (error != 0)
        return gai_strerror(error);
    *address = (struct symm_address){.bytes = found->ai_addrlen};
    memcpy(&address->at, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return NULL;
}

bool symm__address_is_of_link(const struct symm_address *address)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->at;

    return address->at.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

bool symm__address_is_any(const struct symm_address *address)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->at;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->at;

    return address->at.ss_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)
                                             : v4->sin_addr.s_addr == htonl(INADDR_ANY);
}

struct symm_address symm__address_make(unsigned family, const uint8_t number[16],
                                       uint16_t port)
{
    struct symm_address address = {.bytes = sizeof(struct sockaddr_in)};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address.at;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address.at;

    if (family == 6) {
        address.bytes = sizeof(*v6);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = port;
        memcpy(&v6->sin6_addr, number, 16);
        return address;
    }
    v4->sin_family = AF_INET;
    v4->sin_port = port;
    memcpy(&v4->sin_addr, number, 4);
    return address;
}

void symm__address_take(const struct symm_address *address, uint16_t *family,
                        uint8_t number[16], uint16_t *port)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->at;

    *family = address->at.ss_family == AF_INET6 ? 6 : 4;
    *port = *family == 6 ? v6->sin6_port : v4->sin_port;
    if (*family == 6)
        memcpy(number, &v6->sin6_addr, 16);
    else
        memcpy(number, &v4->sin_addr, 4);
}

const char *symm__address_text(const struct symm_address *address, char *text,
                               size_t bytes)
{
    char number[INET6_ADDRSTRLEN] = "?";
    uint8_t octets[16];
    uint16_t family, port;

    symm__address_take(address, &family, octets, &port);
    inet_ntop(address->at.ss_family, octets, number, sizeof(number));
    snprintf(text, bytes, family == 6 ? "[%s]:%u" : "%s:%u", number, ntohs(port));
    return text;
}

/* Has the system IPv6? */
static bool has_v6(void)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0;

    if (fd >= 0)
        close(fd);
    return has;
}

void symm__address_any(struct symm_address *address)
{
    /* sin_port and sin6_port lie at one place. */
    const in_port_t port = ((struct sockaddr_in *)&address->at)->sin_port;
    const bool v6 = has_v6();

    *address = (struct symm_address){.bytes = v6 ? sizeof(struct sockaddr_in6)
                                                 : sizeof(struct sockaddr_in)};
    address->at.ss_family = v6 ? AF_INET6 : AF_INET;
    ((struct sockaddr_in *)&address->at)->sin_port = port;
}

int symm__address_listen(struct symm_address *address)
{
    const int yes = 1, no = 0;
    int error, fd = socket(address->at.ss_family,
                           SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    /* sin_port and sin6_port lie at one place. A port that was asked for may have been
     * used a moment ago; the wildcard of IPv6 serves IPv4, too. */
    if (((struct sockaddr_in *)&address->at)->sin_port != 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (address->at.ss_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    if (bind(fd, (struct sockaddr *)&address->at, address->bytes) == 0 &&
        listen(fd, SOMAXCONN) == 0 &&
        getsockname(fd, (struct sockaddr *)&address->at, &address->bytes) == 0)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Does a socket of the file, as /proc/net/tcp, listen at the port? */
static bool is_listed(const char *path, unsigned port)
{
    FILE *file = fopen(path, "re");
    char line[512];
    bool is = false;

    while (file && !is && fgets(line, sizeof(line), file)) {
        unsigned at, state;

        is = sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &at, &state) ==
                 2 &&
             at == port && state == TCP_LISTEN;
    }
    if (file)
        fclose(file);
    return is;
}

/* Is the port that gave this errno held by no listener, so that it may soon be free? Outgoing
 * connections of any program hold ephemeral ports, and a minute after their end still. */
static bool is_passing(const struct symm_address *address, int error)
{
    const unsigned port = ntohs(((const struct sockaddr_in *)&address->at)->sin_port);

    return error == EADDRINUSE && port != 0 && !is_listed("/proc/net/tcp", port) &&
           !is_listed("/proc/net/tcp6", port);
}

int symm__address_listen_until(struct symm_address *address, double until,
                               bool (*stopped)(void *user), void *user)
{
    double pause = 0.01;

    for (;;) {
        const int fd = symm__address_listen(address);
        const int error = errno;

        if (fd >= 0 || symm__now() >= until || !is_passing(address, error) ||
            (stopped && stopped(user))) {
            errno = error;
            return fd;
        }
        symm__sleep(pause);
        pause = pause < 0.2 ? 2 * pause : pause;
    }
}

/* At any port but that one. */
static int listen_but(struct symm_address *address, int but)
{
    const struct symm_address wanted = *address;
    int first = symm__address_listen(address), second;

    if (first < 0 || ntohs(((struct sockaddr_in *)&address->at)->sin_port) != but)
        return first;
    *address = wanted;
    second = symm__address_listen(address); /* while the first one is held */
    close(first);
    return second;
}

int symm__address_listen_among(struct symm_address *address, int low, int high, int but)
{
    const struct symm_address wanted = *address;
    /* Processes that begin together begin at different ports. */
    int count = high - low + 1, first = low ? (int)(getpid() % count) : 0;

    if (low == 0)
        return listen_but(address, but);
    for (int i = 0; i < count; i++) {
        const int port = low + (first + i) % count;
        int fd;

        if (port == but)
            continue;
        *address = wanted;
        ((struct sockaddr_in *)&address->at)->sin_port = htons((uint16_t)port);
        fd = symm__address_listen(address);
        if (fd >= 0 || errno != EADDRINUSE)
            return fd;
    }
    errno = EADDRINUSE;
    return -1;
}

int symm__address_connect(const struct symm_address *address)
{
    int error, fd = socket(address->at.ss_family,
                           SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 ||
        connect(fd, (const struct sockaddr *)&address->at, address->bytes) == 0 ||
        errno == EINPROGRESS)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Without a listener, TCP can connect a socket with itself. */
static bool is_own(int fd)
{
    struct sockaddr_storage own = {0}, other = {0};
    socklen_t own_bytes = sizeof(own), other_bytes = sizeof(other);

    return getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&other, &other_bytes) == 0 &&
           own_bytes == other_bytes && memcmp(&own, &other, own_bytes) == 0;
}

int symm__connect_error(int fd)
{
    int error = 0;
    socklen_t bytes = sizeof(error);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        return errno;
    return error != 0 ? error : is_own(fd) ? ECONNREFUSED : 0;
}
