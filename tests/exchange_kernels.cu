/* SPDX-License-Identifier: MIT */
/*
 * exchange_kernels.cu - kernels over symm/device_exchange.h for the fake driver; part of it,
 * never of the library. Built a second time with a planted bug (tests/CMakeLists.txt).
 */
#include <unistd.h>

#include "bench/fused_gelu.cuh"
#include "exchange_kernels.h"
#include "kernels/cuda/port.cuh"

/* bench/fused_gelu.cu's kernel as it is. */
SYMM_KERNEL_BARE(simt_user_fused_gelu)
{
    struct exchange_case *c = (struct exchange_case *)args.in;
    const fused_gelu f = {c->team, c->workspace, c->room, c->rows, c->width,
                          c->tag,  c->in,        c->bias, c->out,  &c->failed};

    if (f.team->size == 4)
        fused_gelu_run<4>(f);
    else
        fused_gelu_run<0>(f);
}

/* Sometimes a rank stops for some time between two waits. */
static void delay(struct exchange_case *c)
{
    c->seed = c->seed * 1664525u + 1013904223u;
    if (c->delay != 0 && (c->seed >> 24) % 16 == 0)
        usleep((c->seed >> 8) % c->delay);
}

/* Several exchanges in one kernel; the tail adds 64-bit integers, and may be late. */
SYMM_KERNEL_BARE(simt_user_exchange_sums)
{
    struct exchange_case *c = (struct exchange_case *)args.in;
    const symm_device_exchange x = {c->workspace, c->room, 0, 0, 0, c->tag, 0};
    const int size = c->team->size;
    int status = 0;

    for (uint32_t k = 0; k < c->repeat && status == 0; k++) {
        const uint64_t *in = c->in + (uint64_t)k * c->rows * c->width;
        uint64_t *out = c->out + (uint64_t)k * c->rows * c->width;

        status = symm_device_exchange_rows<0>(
            c->team, x, c->rows, c->width,
            [&](uint32_t row, uint32_t column) { return in[row * c->width + column]; },
            [&](uint32_t row, uint32_t column, const uint64_t *value) {
                uint64_t sum = 0;

                for (int r = 0; r < size; r++)
                    sum = sum * 3 + value[r];
                out[row * c->width + column] = sum;
                delay(c);
            });
    }
    if (status != 0)
        c->failed = status;
    if (status != 0 && (c->status == 0 || c->status == (int)SYMM_DEVICE_ABORTED))
        c->status = status;
}
