/* SPDX-License-Identifier: MIT */
/*
 * multicast_proof.c - proves that the switch adds up and reaches every member. A driver may
 * make, bind and map a multicast object on a machine whose fabric does neither.
 *
 * write: each member puts small whole numbers of its own into its memory, as float32, as
 * bfloat16 and as float16. reduce: a kernel has them summed by the switch (every sum is
 * exact), and stores the member's own numbers to all. verify: all members' numbers have arrived.
 * Guarantees: a result that is not bit for bit the expected one is an error that names it. A
 * hardware fault in the kernel destroys the device's context: the next operation reports it.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/launcher.h"
#include "cuda/multicast_proof.h"
#include "cuda/stream_order.h"
#include "util/status.h"

#define PART  512u /* bytes: a line of 16 for each channel of a warp */
#define TYPES 3u
#define IN    0u         /* own numbers, a part for each type; in the stage */
#define OUT   (4 * PART) /* their sums, in the same layout */
#define SLOTS (8 * PART) /* what members store: a part each */
#define BYTES (SLOTS + SYMM_DEVICE_RANKS * PART)

static const struct {
    const char *name;
    size_t element;
} types[TYPES] = {{"float32", 4}, {"bfloat16", 2}, {"float16", 2}}; /* as multimem.cu */

/* The bits of a whole number from 1 to 255, which every type holds exactly. */
static uint32_t bits_of(unsigned type, unsigned number)
{
    float value = (float)number;
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if (type == 1)
        return bits >> 16;
    if (type == 2)
        return (bits - (112u << 23)) >> 13;
    return bits;
}

/* A member's number at this place; those of eight members sum up to 252 at most, and those of all
 * members of a larger team, up to 72, to 216. */
static unsigned number_of(int size, int member, size_t index)
{
    if (size > SYMM_FEW_RANKS)
        return 1 + ((unsigned)member + (unsigned)index) % 3;
    return (unsigned)(member + 1) * (1 + (unsigned)index % 7);
}

static unsigned sum_of(int size, size_t index)
{
    unsigned sum = 0;

    for (int member = 0; member < size; member++)
        sum += number_of(size, member, index);
    return sum;
}

static void put(uint8_t *part, unsigned type, size_t index, unsigned number)
{
    uint32_t bits = bits_of(type, number);

    memcpy(part + index * types[type].element, &bits, types[type].element);
}

static char *stage(const symm_team *team)
{
    return (char *)team->device.base[team->rank] + team->cuda->scratch[0].stage;
}

/* Compares the part with what it must be, and reports the first difference. */
static symm_status compare(const symm_team *team, const uint8_t *part,
                           const uint8_t *wanted, unsigned type, const char *what)
{
    size_t element = types[type].element;

    for (size_t i = 0; i < PART / element; i++) {
        uint32_t got = 0, right = 0;

        if (memcmp(part + i * element, wanted + i * element, element) == 0)
            continue;
        memcpy(&got, part + i * element, element);
        memcpy(&right, wanted + i * element, element);
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "device %d: %s of %s by multicast: element %zu is %#x where "
                          "%#x is right",
                          team->ctx->backend->device.ordinal, what, types[type].name, i,
                          got, right);
    }
    return SYMM_OK;
}

symm_status symm__cuda_multicast_write(symm_team *team)
{
    uint8_t numbers[TYPES * PART];

    for (unsigned t = 0; t < TYPES; t++)
        for (size_t i = 0; i < PART / types[t].element; i++)
            put(numbers + t * PART, t, i, number_of(team->size, team->rank, i));
    return symm__cuda_copy(team->ctx, stage(team) + IN, numbers, sizeof(numbers));
}

static symm_status run(symm_team *team)
{
    static const struct symm_cuda_kernel kernel = {"symm_multimem_prove_any",
                                                   "multimem"};
    const struct symm_cuda_multicast *mc = &team->cuda->multicast;
    uint64_t offset = team->cuda->scratch[0].stage;
    struct symm_backend *b = team->ctx->backend;
    struct symm_cuda_args args = {
        .team = team->device,
        .in = stage(team) + IN,
        .out = stage(team) + OUT,
        .in_offset = offset + IN,
        .out_offset = offset + SLOTS,
        .bytes = PART,
        .multicast = mc->view - mc->begin,
    };
    struct symm_cuda_follow follow = {.launcher = team->ctx->launcher};
    struct symm_cuda_scope scope;
    void *function = NULL;
    symm_status status = symm__cuda_function(team->ctx, &kernel, &function);

    if (status == SYMM_OK)
        status = symm__cuda_enter(b, &scope);
    if (status != SYMM_OK)
        return status;
    status = symm__cuda_start(&follow, function,
                              (struct symm_cuda_shape){.blocks = 1, .threads = 32},
                              &args, b->setup, "the proof of multicast");
    if (status == SYMM_OK)
        status = symm__cuda_complete(b, "proving multicast");
    symm__cuda_leave(&scope);
    return status;
}

symm_status symm__cuda_multicast_reduce(symm_team *team)
{
    uint8_t sums[TYPES * PART], wanted[PART];
    symm_status status = run(team);

    if (status == SYMM_OK)
        status = symm__cuda_copy(team->ctx, sums, stage(team) + OUT, sizeof(sums));
    for (unsigned t = 0; status == SYMM_OK && t < TYPES; t++) {
        for (size_t i = 0; i < PART / types[t].element; i++)
            put(wanted, t, i, sum_of(team->size, i));
        status = compare(team, sums + t * PART, wanted, t, "the sum");
    }
    return status;
}

symm_status symm__cuda_multicast_verify(symm_team *team)
{
    uint8_t slots[SYMM_DEVICE_RANKS * PART], wanted[PART];
    symm_status status =
        symm__cuda_copy(team->ctx, slots, stage(team) + SLOTS, sizeof(slots));

    for (int m = 0; status == SYMM_OK && m < team->size; m++) {
        for (size_t i = 0; i < PART / types[0].element; i++)
            put(wanted, 0, i, number_of(team->size, m, i));
        status = compare(team, slots + (size_t)m * PART, wanted, 0, "a store");
    }
    /* The stage as calls expect it. */
    if (status == SYMM_OK)
        status = symm__cuda_fill(team->ctx, stage(team), 0, BYTES);
    return status;
}
