/* SPDX-License-Identifier: MIT */
/*
 * hash.h - FNV-1a of 64 bits (Fowler, Noll and Vo): xor a byte, multiply by the prime. And a
 * mixer of 64 bits, and a step that spreads numbers.
 *
 * For digests that ranks of one version compare, for names and for tables. Anyone can make
 * two inputs with one hash: it proves nothing about what a stranger sends.
 */
#ifndef SYMM_UTIL_HASH_H
#define SYMM_UTIL_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SYMM_FNV_BASIS UINT64_C(0xcbf29ce484222325) /* the hash of nothing */

/* Extends `hash`, the hash of the bytes before, by these bytes. */
static inline uint64_t symm__fnv(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Without the text's NUL. */
static inline uint64_t symm__fnv_text(uint64_t hash, const char *text)
{
    return symm__fnv(hash, text, strlen(text));
}

/* splitmix64's last step (Vigna): every bit of x changes each bit of the result by half. */
static inline uint64_t symm__mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Spreads numbers evenly over 64 bits, whatever their step, by 2^64 / golden ratio (Knuth's
 * multiplicative hashing). */
static inline uint64_t symm__spread(uint64_t number)
{
    return number * UINT64_C(0x9e3779b97f4a7c15);
}

/* Its bits, folded into 32. */
static inline uint32_t symm__fnv_short(uint64_t hash)
{
    return (uint32_t)(hash ^ hash >> 32);
}

#endif
