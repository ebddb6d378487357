/* SPDX-License-Identifier: MIT */
/* interface.c - see interface.h. */
#include "net/interface.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* Does the interface fit the list? */
static bool fits(const char *list, const char *name)
{
    bool but = *list == '^', whole, found = false;

    list += but;
    whole = *list == '=';
    list += whole;
    while (*list && !found) {
        size_t length = strcspn(list, ",");
        /* NCCL allows a port, which is not used here */
        size_t port = strcspn(list, ":,");

        length = port < length ? port : length;
        found = length > 0 && strncmp(list, name, length) == 0 &&
                (!whole || name[length] == '\0');
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return found != but;
}

/* The preference of an address; 0: it cannot be used. */
static int worth(const struct ifaddrs *at)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(void *)at->ifa_addr;
    int loopback = at->ifa_flags & IFF_LOOPBACK ? 0 : 4;

    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP))
        return 0;
    if (at->ifa_addr->sa_family == AF_INET)
        return loopback + 2;
    /* A link's own address needs the link's number, which another host does not have. */
    if (at->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
        return loopback + 1;
    return 0;
}

static void add_name(char *names, size_t bytes, const char *name)
{
    size_t used = strlen(names), length = strlen(name);

    for (const char *c = names; (c = strstr(c, name)) != NULL; c += length)
        if ((c == names || c[-1] == ' ') && (c[length] == ',' || c[length] == '\0'))
            return;
    snprintf(names + used, bytes - used, "%s%s", used ? ", " : "", name);
}

bool symm__interface_address(const char *list, struct symm_address *address,
                             char *names, size_t names_bytes)
{
    struct ifaddrs *all;
    int best = 0;

    names[0] = '\0';
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
        int value = worth(at);

        if (value > 0)
            add_name(names, names_bytes, at->ifa_name);
        if (value <= best || !fits(list, at->ifa_name))
            continue;
        best = value;
        *address = (struct symm_address){.bytes = at->ifa_addr->sa_family == AF_INET
                                                      ? sizeof(struct sockaddr_in)
                                                      : sizeof(struct sockaddr_in6)};
        memcpy(&address->at, at->ifa_addr, address->bytes);
    }
    freeifaddrs(all);
    ((struct sockaddr_in *)&address->at)->sin_port = 0; /* where sin6_port is, too */
    return best > 0;
}
