/* SPDX-License-Identifier: MIT */
/*
 * multicast_object.h - a team's multicast memory: one object of the driver in which the members'
 * heaps lie on top of each other, so that one address reaches the same offset of all.
 *
 * The object is as large as the team's range (or the smallest device), the members' segments
 * are bound to it as they are committed, and it is mapped as a whole: the byte at offset o of
 * the heap is at view + (o - begin). What is bound is never unbound before the team ends.
 */
#ifndef SYMM_CUDA_MULTICAST_OBJECT_H
#define SYMM_CUDA_MULTICAST_OBJECT_H

#include "cuda/device.h"

/* Own memory in the object. The driver unbinds what was bound, by the same numbers. */
struct symm_cuda_bound {
    size_t at, bytes;
};

/* All zeros: nothing is there. */
struct symm_cuda_multicast {
    struct symm_backend *backend;
    CUmemGenericAllocationHandle object;
    bool exists;      /* object is a handle */
    bool mapped;      /* at view */
    bool ended;       /* nothing more is bound: a step failed somewhere */
    CUdeviceptr view; /* a reservation of its own; 0: none */
    size_t begin;     /* offset in the heap of the object's first byte */
    size_t bytes;     /* of object and view */
    size_t bound;     /* offset: all members are bound and proved up to here; atomic */
    struct symm_cuda_bound *bindings; /* in order; owned */
    size_t count, capacity;
};

/* The steps, in the order in which the driver demands them, in a scope. Each is one
 * rank's; a member adds after one has created, and binds after all have added. On error
 * finish frees what earlier steps made. */
/* Checks that objects for so many devices fit the heap's granule. *bytes: of the range; reduced
 * to what the device has. */
symm_status symm__cuda_multicast_measure(const struct symm_cuda_multicast *mc,
                                         int devices, size_t *bytes) SYMM_MUST_CHECK;
/* *fd: a descriptor for the others, the caller's. */
symm_status symm__cuda_multicast_create(struct symm_cuda_multicast *mc, int devices,
                                        size_t bytes, int *fd) SYMM_MUST_CHECK;
symm_status symm__cuda_multicast_import(struct symm_cuda_multicast *mc, size_t bytes,
                                        int fd) SYMM_MUST_CHECK;
symm_status symm__cuda_multicast_add(struct symm_cuda_multicast *mc) SYMM_MUST_CHECK;
/* Binds memory that is mapped at `segment`, from `skip` bytes after its beginning on. */
symm_status symm__cuda_multicast_bind(struct symm_cuda_multicast *mc, void *segment,
                                      size_t skip,
                                      struct symm_cuda_bound place) SYMM_MUST_CHECK;
symm_status symm__cuda_multicast_map(struct symm_cuda_multicast *mc) SYMM_MUST_CHECK;
/* Unbinds all but the first `keep` bindings. */
void symm__cuda_multicast_unbind(struct symm_cuda_multicast *mc, size_t keep);
/* Unmaps, unbinds and releases all that exists, and keeps `ended`. No kernel of this rank may use
 * the object any more. */
void symm__cuda_multicast_finish(struct symm_cuda_multicast *mc);

#endif
