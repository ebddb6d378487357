/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda.h - what tests ask of the fake CUDA driver, lib/libfake_cuda.so.
 *
 * SYMM_CUDA_LIBRARY=<build>/lib/libfake_cuda.so (SYMM_FAKE_CUDA in suites) makes the library
 * use it; the functions below are taken from it by dlopen and dlsym. Device memory is memfd
 * memory, so processes share it as they would share a GPU's; streams are threads; kernels
 * run as fibers (simt.h). A broken rule that a real driver would not report ends the program
 * with a sentence on stderr. What it cannot show: that the host must not touch device
 * memory, weaker ordering than the processor's, anything of time.
 *
 * Environment, read when the driver starts:
 *  FAKE_CUDA_DEVICES=n        devices (8; 0: none); CUDA_VISIBLE_DEVICES chooses among them
 *  FAKE_CUDA_BUS=n            device d of the machine is at 0000:(n + d):00.0 (160)
 *  FAKE_CUDA_MEMORY=bytes     of each device, counted in each process (4 GiB)
 *  FAKE_CUDA_NO_PEER=1        no device reaches another's memory
 *  FAKE_CUDA_MULTICAST=1      devices can multicast
 *  FAKE_CUDA_NO_MULTICAST=n   but device n of the machine cannot
 *  FAKE_CUDA_MULTICAST_LOSES=n  its sums leave out the memory of device n; ..._DROPS=n: its
 *                             stores do (in the processes that have the variable)
 *  FAKE_CUDA_MULTICAST_GRANULARITY=bytes  that multicast demands (2 MiB)
 *  FAKE_CUDA_VERSION=n        of the driver (13000)
 *  FAKE_CUDA_MISSING=name     cuGetProcAddress does not know this function
 *  FAKE_CUDA_CHECK=1          what is alive at exit is listed, and the status becomes 99
 *  FAKE_CUDA_FAIL=k or k+     call k fails, or all from k on (functions that give something
 *                             back, or wait, do so all the same)
 *  FAKE_CUDA_FAIL_RESULT=n    with this result (999)
 *  FAKE_CUDA_TRACE=1          every call is told on stderr
 *  FAKE_CUDA_PROCESSORS=n     multiprocessors of each device (4)
 *  FAKE_CUDA_SHARE=n          of them are the context's, as with MPS (all)
 *  FAKE_CUDA_MODEL=1          blocks take room on them, streams share hardware queues, and
 *                             dependent kernels are resident early (fake_cuda_model.c)
 *  FAKE_CUDA_REGISTERS=n      a thread of the library's kernels takes (96)
 *  CUDA_DEVICE_MAX_CONNECTIONS=n  hardware queues of a context, with the model (8; 1 to 32)
 */
#ifndef SYMM_TESTS_FAKE_CUDA_H
#define SYMM_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of objects alive in this process; lists them by kind if `out` is not NULL. */
int fake_cuda_leaks(FILE *out);
/* Counts calls from now on: the k-th fails (1: the next; 0: none any more). */
void fake_cuda_fail(uint64_t k, bool forever, int result);
/* Calls since the start or the last fake_cuda_fail; error names are not counted. */
uint64_t fake_cuda_calls(void);
/* The number, as fake_cuda_fail counts, of the first call behind `after` of a function whose
 * name begins like this; 0: there was none. Of the first 65536 calls. */
uint64_t fake_cuda_first(const char *prefix, uint64_t after);
/* What each device has resident and queued, in words; nothing without FAKE_CUDA_MODEL. */
void fake_cuda_state(FILE *out);
/* The memories that an address of a multicast mapping stands for, one for each device; 0: the
 * address lies in no multicast mapping, or nothing is bound there. For kernels. */
#define FAKE_CUDA_MULTICAST_MAX 16
int fake_cuda_multicast(const void *address, void *memories[FAKE_CUDA_MULTICAST_MAX]);

#ifdef __cplusplus
}
#endif
#endif
