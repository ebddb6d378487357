/* SPDX-License-Identifier: MIT */
/* map.c - see map.h. */
#include "cuda/map.h"

#include <stdlib.h>

#include "util/hash.h"

uint64_t symm__cuda_mix(uint64_t a, uint64_t b)
{
    return symm__mix(a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2)));
}

static struct symm_cuda_pair *map_slot(const struct symm_cuda_map *map, uint64_t id)
{
    size_t at = (size_t)symm__cuda_mix(id, 0) & (map->capacity - 1);

    while (map->pair[at].id != 0 && map->pair[at].id != id)
        at = (at + 1) & (map->capacity - 1);
    return &map->pair[at];
}

bool symm__cuda_map_reserve(struct symm_cuda_map *map, size_t more)
{
    struct symm_cuda_map grown = {.capacity = map->capacity ? 2 * map->capacity : 64,
                                  .count = map->count};

    if (2 * (map->count + more) <= map->capacity)
        return true;
    grown.pair = calloc(grown.capacity, sizeof(*grown.pair));
    if (!grown.pair)
        return false;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->pair[i].id != 0)
            *map_slot(&grown, map->pair[i].id) = map->pair[i];
    free(map->pair);
    *map = grown;
    return true;
}

uint64_t symm__cuda_map_value(const struct symm_cuda_map *map, uint64_t id)
{
    return map->capacity ? map_slot(map, id)->value : 0;
}

void symm__cuda_map_set(struct symm_cuda_map *map, uint64_t id, uint64_t value)
{
    struct symm_cuda_pair *pair = map_slot(map, id);

    map->count += pair->id == 0;
    *pair = (struct symm_cuda_pair){id, value};
}

void symm__cuda_map_free(struct symm_cuda_map *map)
{
    free(map->pair);
    *map = (struct symm_cuda_map){0};
}
