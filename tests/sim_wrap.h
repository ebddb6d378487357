/* SPDX-License-Identifier: MIT */
/* sim_wrap.h - what the files share whose functions the linker substitutes (sim_wrap.c). */
#ifndef SYMM_TESTS_SIM_WRAP_H
#define SYMM_TESTS_SIM_WRAP_H

#include "sim_files.h"

/* Declares what is wrapped and what replaces it. */
#define WRAP(type, name, ...)                                                          \
    type __real_##name(__VA_ARGS__);                                                   \
    type __wrap_##name(__VA_ARGS__);                                                   \
    type __wrap_##name(__VA_ARGS__)

#endif
