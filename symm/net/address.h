/* SPDX-License-Identifier: MIT */
/*
 * address.h - addresses of TCP: from text, listening at one, connecting to one.
 *
 * Nothing here waits, except symm__address_parse, where names are allowed, for a name server.
 * Descriptors are CLOEXEC and do not block.
 */
#ifndef SYMM_NET_ADDRESS_H
#define SYMM_NET_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct symm_address {
    struct sockaddr_storage at;
    socklen_t bytes; /* of at */
};

enum symm_address_form {
    SYMM_ADDRESS_NUMBER, /* a number; a port may follow, and is not kept */
    SYMM_ADDRESS_PORT,   /* a number and a port */
    SYMM_ADDRESS_NAME    /* a name or a number, and a port */
};

/* "10.0.0.1:4242", "[fe80::1]:4242"; ports are 1 to 65535. */
bool symm__address_has_port(const char *text);
/* NULL: done; else what is wrong with the text (static). */
const char *symm__address_parse(const char *text, enum symm_address_form form,
                                struct symm_address *address);
/* Is it IPv6's of one link alone? Another host can use it with its own number of the link only. */
bool symm__address_is_of_link(const struct symm_address *address);
/* Is it 0.0.0.0 or [::]? One can listen there, but to connect leads to the own host. */
bool symm__address_is_any(const struct symm_address *address);
/* What messages carry of an address: 4 or 6, the number and the port in network byte order. */
struct symm_address symm__address_make(unsigned family, const uint8_t number[16],
                                       uint16_t port);
void symm__address_take(const struct symm_address *address, uint16_t *family,
                        uint8_t number[16], uint16_t *port);
/* "10.0.0.1:4242", "[fe80::1]:4242"; returns text. */
const char *symm__address_text(const struct symm_address *address, char *text,
                               size_t bytes);
/* A listener, or -1: errno. Port 0: any; `address` gets the port that was chosen. */
int symm__address_listen(struct symm_address *address);
/* The same at a given port: waits while no listener holds it, but an outgoing connection of any
 * program, or one that has ended a minute ago at most. stopped(user): no longer; NULL: never. */
int symm__address_listen_until(struct symm_address *address, double until,
                               bool (*stopped)(void *user), void *user);
/* symm__address_listen at a port from low to high that is free, but not at port `but`; errno
 * EADDRINUSE: none is. low 0: any; but 0: none is left out. */
int symm__address_listen_among(struct symm_address *address, int low, int high,
                               int but);
/* The port at the text's end; 0: there is none. */
int symm__address_port(const char *text);
/* The wildcard of IPv6 and IPv4, where the system has both; the port stays. */
void symm__address_any(struct symm_address *address);
/* A socket that connects, or -1: errno. It is writable once symm__connect_error has a result. */
int symm__address_connect(const struct symm_address *address);
/* The outcome of connecting: 0, or an errno. */
int symm__connect_error(int fd);

#endif
