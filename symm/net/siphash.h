/* SPDX-License-Identifier: MIT */
/*
 * siphash.h - SipHash-2-4 (Aumasson, Bernstein 2012) with its tag of 128 bits: a keyed hash.
 *
 * A job's secret is used as the key on a network: a process that knows it proves that without
 * showing it (a nonce of each side is hashed), and each message carries a hash that only the two
 * ends can make. It protects against strangers who connect, send or alter messages. It does not
 * hide what is sent, and nothing protects an engine's own traffic. A forger's chance is 2^-128 a
 * try, and a connection ends at the first wrong one.
 */
#ifndef SYMM_NET_SIPHASH_H
#define SYMM_NET_SIPHASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SYMM_SIPHASH_KEY 16 /* bytes */
#define SYMM_SIPHASH_TAG 16

/* The result of a hash; the same bytes on each machine. It may be used as a key. */
struct symm_siphash_tag {
    uint8_t bytes[SYMM_SIPHASH_TAG];
};

/* A hash in the making: parts may be of any size. */
struct symm_siphash {
    uint64_t v[4];
    uint8_t tail[8];
    uint64_t bytes;
};

static inline uint64_t symm__siphash_word(const uint8_t *bytes)
{
    uint64_t word = 0;

    for (int i = 7; i >= 0; i--)
        word = word << 8 | bytes[i];
    return word;
}

static inline uint64_t symm__siphash_turn(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void symm__siphash_rounds(uint64_t v[4], int rounds)
{
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = symm__siphash_turn(v[1], 13) ^ v[0];
        v[3] = symm__siphash_turn(v[3], 16) ^ v[2];
        v[0] = symm__siphash_turn(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = symm__siphash_turn(v[1], 17) ^ v[2];
        v[3] = symm__siphash_turn(v[3], 21) ^ v[0];
        v[2] = symm__siphash_turn(v[2], 32);
    }
}

static inline void symm__siphash_take(struct symm_siphash *hash, const uint8_t *word)
{
    uint64_t m = symm__siphash_word(word);

    hash->v[3] ^= m;
    symm__siphash_rounds(hash->v, 2);
    hash->v[0] ^= m;
}

static inline struct symm_siphash symm__siphash_begin(const uint8_t *key)
{
    uint64_t low = symm__siphash_word(key), high = symm__siphash_word(key + 8);

    return (struct symm_siphash){
        .v = {low ^ 0x736f6d6570736575u, high ^ 0x646f72616e646f6du ^ 0xee,
              low ^ 0x6c7967656e657261u, high ^ 0x7465646279746573u}};
}

static inline void symm__siphash_add(struct symm_siphash *hash, const void *data,
                                     size_t bytes)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        size_t used = hash->bytes % 8, part = 8 - used;

        part = part < bytes ? part : bytes;
        if (used == 0 && part == 8) {
            symm__siphash_take(hash, at);
        } else {
            memcpy(hash->tail + used, at, part);
            if (used + part == 8)
                symm__siphash_take(hash, hash->tail);
        }
        hash->bytes += part;
        at += part;
        bytes -= part;
    }
}

static inline struct symm_siphash_tag symm__siphash_end(struct symm_siphash *hash)
{
    struct symm_siphash_tag tag;
    uint8_t last[8] = {0};

    memcpy(last, hash->tail, hash->bytes % 8);
    last[7] = (uint8_t)hash->bytes;
    symm__siphash_take(hash, last);
    for (int half = 0; half < 2; half++) {
        uint64_t word;

        if (half == 0)
            hash->v[2] ^= 0xee;
        else
            hash->v[1] ^= 0xdd;
        symm__siphash_rounds(hash->v, 4);
        word = hash->v[0] ^ hash->v[1] ^ hash->v[2] ^ hash->v[3];
        for (int i = 0; i < 8; i++)
            tag.bytes[8 * half + i] = (uint8_t)(word >> 8 * i);
    }
    return tag;
}

static inline struct symm_siphash_tag symm__siphash(const uint8_t *key,
                                                    const void *data, size_t bytes)
{
    struct symm_siphash hash = symm__siphash_begin(key);

    symm__siphash_add(&hash, data, bytes);
    return symm__siphash_end(&hash);
}

/* Takes the same time for each tag: it does not show how many bytes of a forged tag are right. */
static inline bool symm__siphash_equal(const struct symm_siphash_tag *a,
                                       const struct symm_siphash_tag *b)
{
    unsigned differ = 0;

    for (int i = 0; i < SYMM_SIPHASH_TAG; i++)
        differ |= (unsigned)a->bytes[i] ^ b->bytes[i];
    return differ == 0;
}

#endif
