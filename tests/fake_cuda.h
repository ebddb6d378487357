/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda.h - the fake CUDA driver, lib/libfake_cuda.so: environment, functions for tests.
 *
 * SYMM_CUDA_LIBRARY=<build>/lib/libfake_cuda.so (SYMM_FAKE_CUDA in suites) makes the library
 * use it; tests get the functions below by dlopen and dlsym. Device memory is memfd memory,
 * so that processes share it like a GPU's; streams are threads; kernels run as fibers
 * (simt.h). A broken rule that a real driver would not report ends the program with a
 * sentence on stderr. It cannot detect accesses of the host to device memory, nor errors
 * under an ordering weaker than the processor's, nor anything about time. The same objects make
 * lib/libfake_cuda_sim.so, for ranks in the simulator (sim_driver.h).
 *
 * Environment, read when the driver starts:
 *  FAKE_CUDA_DEVICES=n        devices (8; 0: none); CUDA_VISIBLE_DEVICES chooses among them
 *  FAKE_CUDA_BUS=n            device d of the machine is at 0000:(n + d):00.0 (160)
 *  FAKE_CUDA_MEMORY=bytes     of each device, counted in each process (4 GiB)
 *  FAKE_CUDA_NO_PEER=1        no device reaches another's memory
 *  FAKE_CUDA_MULTICAST=1      devices can multicast
 *  FAKE_CUDA_NO_MULTICAST=n   except device n of the machine
 *  FAKE_CUDA_MULTICAST_LOSES=n  multicast sums omit the memory of device n; ..._DROPS=n:
 *                             multicast stores omit it (in processes with the variable)
 *  FAKE_CUDA_MULTICAST_GRANULARITY=bytes  required by multicast (2 MiB)
 *  FAKE_CUDA_VERSION=n        of the driver (13000)
 *  FAKE_CUDA_MISSING=name     cuGetProcAddress does not know this function
 *  FAKE_CUDA_CHECK=1          objects alive at exit are listed, and the status becomes 99
 *  FAKE_CUDA_FAIL=k or k+     call k fails, or all from k on (functions that release
 *                             something, or wait, still do it)
 *  FAKE_CUDA_FAIL_RESULT=n    result of these calls (999)
 *  FAKE_CUDA_TRACE=1          every call is printed on stderr
 *  FAKE_CUDA_PROCESSORS=n     multiprocessors of each device (4)
 *  FAKE_CUDA_PITCH=bytes      that rows of a copy may lie apart (2^31 - 1)
 *  FAKE_CUDA_SHARE=n          MPS is used; multiprocessors that the process may use (all)
 *  FAKE_CUDA_MODEL=1          blocks occupy multiprocessors, streams share hardware queues,
 *                             dependent kernels are resident early (fake_cuda_model.c)
 *  FAKE_CUDA_REGISTERS=n      registers of a thread of the library's kernels (96)
 *  CUDA_DEVICE_MAX_CONNECTIONS=n  hardware queues of a context, with the model (8, with MPS 2; 1
 *                             to 32)
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
/* Counts calls from now on: the k-th fails (1: the next; 0: none). */
void fake_cuda_fail(uint64_t k, bool forever, int result);
/* The k-th call (1: the next) of a function whose name has the prefix fails, once; NULL: none. */
void fake_cuda_fail_named(const char *prefix, uint64_t k, int result);
/* Calls since the start or the last fake_cuda_fail; error names are not counted. */
uint64_t fake_cuda_calls(void);
/* The number, as fake_cuda_fail counts, of the first call after call `after` whose function's
 * name has the prefix; 0: none. Only the first 65536 calls are searched. */
uint64_t fake_cuda_first(const char *prefix, uint64_t after);
/* Prints what is resident and queued on each device; nothing without FAKE_CUDA_MODEL. */
void fake_cuda_state(FILE *out);
/* The addresses that one address of a multicast mapping stands for, one per device; 0: the
 * address is in no multicast mapping, or nothing is bound there. For kernels. */
#define FAKE_CUDA_MULTICAST_MAX 16
int fake_cuda_multicast(const void *address, void *memories[FAKE_CUDA_MULTICAST_MAX]);

#ifdef __cplusplus
}
#endif
#endif
