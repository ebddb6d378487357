/* SPDX-License-Identifier: MIT */
/*
 * map.h - a hash map from numbers that are not 0 to others, of the CUDA backend.
 *
 * An entry is never removed: a value of 0 means none. The caller locks.
 */
#ifndef SYMM_CUDA_MAP_H
#define SYMM_CUDA_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symm_cuda_map {
    struct symm_cuda_pair {
        uint64_t id, value;
    } * pair;               /* id 0: empty */
    size_t count, capacity; /* 0, or a power of two */
};

/* A hash of both. */
uint64_t symm__cuda_mix(uint64_t a, uint64_t b);
/* Room for `more` new numbers; false: no memory. */
bool symm__cuda_map_reserve(struct symm_cuda_map *map, size_t more);
/* 0: the map has none. */
uint64_t symm__cuda_map_value(const struct symm_cuda_map *map, uint64_t id);
/* Room was reserved before. */
void symm__cuda_map_set(struct symm_cuda_map *map, uint64_t id, uint64_t value);
void symm__cuda_map_free(struct symm_cuda_map *map);

#endif
