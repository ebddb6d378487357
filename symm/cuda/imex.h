/* SPDX-License-Identifier: MIT */
/*
 * imex.h - why memory with a fabric handle cannot be made here, as far as files show.
 *
 * Memory that is shared in an NVLink domain over several hosts needs a channel of IMEX: a device
 * file that the administrator makes, and that the process may open. Without it the driver says no
 * more than CUDA_ERROR_NOT_PERMITTED or _NOT_SUPPORTED.
 */
#ifndef SYMM_CUDA_IMEX_H
#define SYMM_CUDA_IMEX_H

#include <stddef.h>

#define SYMM_IMEX_FOLDER "/dev/nvidia-caps-imex-channels"

/* A sentence for what is missing; NULL: a channel of the folder can be used. */
const char *symm__imex_missing(const char *folder, char *text, size_t bytes);

#endif
