/* SPDX-License-Identifier: MIT */
/*
 * driver_memory.h - properties of memory of device 0, for suites on the fake driver.
 */
#ifndef SYMM_TESTS_DRIVER_MEMORY_H
#define SYMM_TESTS_DRIVER_MEMORY_H

#include "driver.h"

#define SEGMENT ((size_t)2 << 20)

static const CUmemAllocationProp device0 = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAccessDesc access0 = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static inline char *host_pointer(CUdeviceptr address)
{
    return (char *)(uintptr_t)address;
}

#endif
