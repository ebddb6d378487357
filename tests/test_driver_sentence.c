/* SPDX-License-Identifier: MIT */
/*
 * test_driver_sentence.c - what the sentences of calls that fail on the CUDA backend say.
 * ctest: cost 3
 */
#include "device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/failure.h"
#include "cuda/error_members.h"

#define LATE 0.5 /* the timeout of a call to which a rank does not come */

static int run(harness_body body, void *arg)
{
    struct harness h = {
        .ranks = 2, .body = body, .arg = arg, .team_bytes = (size_t)128 << 20};

    return device_ranks(2) == 2 ? harness_run(&h) : 0;
}

/* Makes a barrier that must end with this status. */
static int barrier_fails(symm_team *team, symm_call call, symm_status wanted)
{
    symm_work *work = NULL;

    CHECK_OK(symm_barrier(team, &call, &work));
    CHECK_STATUS(symm_work_synchronize(work, HARNESS_AMPLE), wanted);
    symm_work_release(work);
    return 0;
}

/* ---- A call and a rendezvous ------------------------------------------------------ */

static int body_elsewhere(symm_ctx *ctx, void *arg)
{
    const symm_call call = {
        .size = sizeof(call), .site = "layer", .timeout = *(const double *)arg};
    symm_team *world = symm_team_world(ctx);

    if (harness_rank() == 0) {
        CHECK_ZERO(barrier_fails(world, call, SYMM_ERR_TIMEOUT));
        CHECK_ERROR("rank 1 did not arrive at site 'layer'");
        CHECK_ERROR(
            "; rank 1 waits in rendezvous (world): all ranks of a team must make "
            "the same calls");
    } else {
        CHECK(symm_rendezvous(world) != SYMM_OK); /* rank 0 goes */
    }
    return 0;
}

static void elsewhere(void **state)
{
    double patience; /* in which rank 1 has to come to its rendezvous */
    bool said = false;

    (void)state;
    HARNESS_PATIENCE(patience, LATE)
    {
        said = run(body_elsewhere, &patience) == 0;
        if (said)
            break;
    }
    assert_true(said);
}

/* ---- Calls whose arrays alone differ ---------------------------------------------- */

struct placed {
    const char *algorithm;
    int in, out; /* elements by which rank 1's arrays are shifted */
    const char *says;
};

static int body_placed(symm_ctx *ctx, void *arg)
{
    const struct placed *p = arg;
    const int64_t shape = 1 << 20, stride = 1;
    symm_call call = {.size = sizeof(call), .site = "layer", .algorithm = p->algorithm};
    symm_team *world = symm_team_world(ctx);
    symm_work *work = NULL;
    float *at[2];

    for (uint64_t i = 0; i < 2; i++) {
        symm_buffer *buffer;

        CHECK_OK(symm_empty_strided_p2p(world, 1, &shape, &stride, SYMM_FLOAT32, i + 1,
                                        &buffer));
        at[i] = symm_buffer_ptr(buffer);
    }
    CHECK_OK(symm_rendezvous(world));
    if (harness_rank() == 1) {
        at[0] += p->in;
        at[1] += p->out;
    }
    CHECK_OK(symm_all_reduce(world, at[0], at[1], 65536, SYMM_FLOAT32, SYMM_SUM, &call,
                             &work));
    CHECK_STATUS(symm_work_synchronize(work, HARNESS_AMPLE), SYMM_ERR_MISMATCH);
    symm_work_release(work);
    CHECK_ERROR(p->says);
    CHECK_ERROR("rank 0");
    CHECK_ERROR("rank 1");
    CHECK_ERROR(" are at site 'layer' (all_reduce sum of 65536 float32, ");
    return 0;
}

static void placed_apart(void **state)
{
    struct placed placed[] = {{"one_shot_pull", 64, 0, ", but `in` is at offset "},
                              {"two_shot_inplace", 0, 64, ", but `out` is at offset "}};

    (void)state;
    for (int i = 0; i < 2; i++)
        if (run(body_placed, &placed[i]) != 0)
            fail_msg("%s", placed[i].algorithm);
}

/* ---- The stream and the channel --------------------------------------------------- */

#define LEGACY     ((void *)1) /* CU_STREAM_LEGACY */
#define PER_THREAD ((void *)2) /* CU_STREAM_PER_THREAD */

/* Which stream has the call that fails, and how. */
struct where {
    struct harness_sync sync;
    enum { LATE_PEER, OTHER_SITE, GONE_PEER, SIGNAL, COPY_ENGINE } how;
    void *stream;     /* NULL, LEGACY, PER_THREAD; else: one is made, */
    int channel;      /* with this channel; 0: any */
    void *streams[2]; /* that the ranks have made */
    const char *says; /* NULL: the made stream's handle */
};

static symm_status fails_as(const struct where *w, symm_team *world, symm_call *call,
                            symm_work **work)
{
    call->timeout = w->how == OTHER_SITE || w->how == GONE_PEER ? HARNESS_AMPLE : LATE;
    call->algorithm = w->how == COPY_ENGINE ? "copy_engine" : NULL;
    return w->how >= SIGNAL ? symm_signal_wait(world, 1, 7, call, work)
                            : symm_barrier(world, call, work);
}

/* Ranks quote the first one that has found the mismatch, which names its own stream. */
static int check_either(const struct where *w)
{
    const char *const sites[] = {"layer", "other"};
    char text[128];
    int found = 0;

    for (int r = 0; r < 2; r++) {
        snprintf(text, sizeof(text),
                 "rank %d is at site '%s' (barrier) step 2 on stream %p%s", r, sites[r],
                 w->streams[r], w->says);
        found += strstr(symm_last_error(), text) != NULL;
    }
    CHECK_MESSAGE(found == 1, "%s", symm_last_error());
    return 0;
}

static int body_where(symm_ctx *ctx, void *arg)
{
    static const symm_status wanted[] = {SYMM_ERR_TIMEOUT, SYMM_ERR_MISMATCH,
                                         SYMM_ERR_PEER_DEAD, SYMM_ERR_TIMEOUT,
                                         SYMM_ERR_TIMEOUT};
    struct where *w = arg;
    const bool made = (uintptr_t)w->stream > (uintptr_t)PER_THREAD;
    symm_call call = {.size = sizeof(call), .site = "layer", .stream = w->stream};
    symm_team *world = symm_team_world(ctx);
    symm_work *work = NULL;
    char text[96];

    if (made)
        CHECK_OK(symm_stream_create(ctx, &call.stream));
    w->streams[harness_rank()] = call.stream;
    call.channel = w->channel;
    CHECK_OK(symm_barrier(world, &call, NULL)); /* the stream has its channel */
    CHECK_OK(symm_stream_synchronize(ctx, call.stream, HARNESS_AMPLE));
    call.channel = 0;
    if (harness_rank() == 0) {
        CHECK_OK(fails_as(w, world, &call, &work));
        CHECK_STATUS(symm_work_synchronize(work, HARNESS_AMPLE), wanted[w->how]);
        symm_work_release(work);
        if (made)
            snprintf(text, sizeof(text), " on stream %p%s", call.stream, w->says);
        else
            snprintf(text, sizeof(text), " on %s", w->says);
        if (w->how == OTHER_SITE)
            CHECK_ZERO(check_either(w));
        else
            CHECK_ERROR(text);
        CHECK_ERROR("site 'layer'");
        CHECK_ERROR("rank 0");
        CHECK_ERROR("rank 1");
    } else if (w->how == OTHER_SITE) {
        call.site = "other";
        CHECK_OK(symm_barrier(world, &call, &work));
        CHECK_STATUS(symm_work_synchronize(work, HARNESS_AMPLE), SYMM_ERR_MISMATCH);
        symm_work_release(work);
    }
    if (w->how != GONE_PEER)
        CHECK_ZERO(harness_sync_wait(&w->sync, 2));
    if (made)
        symm_stream_destroy(ctx, call.stream);
    return 0;
}

static void streams(void **state)
{
    static char marker; /* a stream is made */
    static const struct where cases[] = {
        {.how = LATE_PEER, .says = "the default stream, channel 1; "},
        {.how = LATE_PEER, .stream = LEGACY, .says = "the default stream, channel 1; "},
        {.how = LATE_PEER,
         .stream = PER_THREAD,
         .channel = 4,
         .says = "the per-thread default stream, channel 4; "},
        {.how = LATE_PEER, .stream = &marker, .channel = 9, .says = ", channel 9; "},
        {.how = OTHER_SITE, .stream = &marker, .channel = 2, .says = ", channel 2"},
        {.how = GONE_PEER,
         .stream = &marker,
         .channel = 3,
         .says = ", channel 3 of world"},
        {.how = SIGNAL, .says = "the default stream"},
        {.how = SIGNAL, .stream = &marker, .says = ""},
        {.how = COPY_ENGINE, .stream = &marker, .says = ""},
    };
    struct where *w = harness_shared(sizeof(*w));

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memcpy(w, &cases[i], sizeof(*w));
        if (run(body_where, w) != 0)
            fail_msg("case %zu", i);
    }
    harness_shared_free(w, sizeof(*w));
}

/* ---- The longest sentences -------------------------------------------------------- */

#define ADVICE "; if it is only slow, raise the timeout (SYMM_TIMEOUT)"

/* A name of a site that just fits, of this letter. */
static const char *long_name(char text[SYMM_SITE_NAME_BYTES], char letter)
{
    memset(text, letter, SYMM_SITE_NAME_BYTES - 1);
    text[SYMM_SITE_NAME_BYTES - 1] = '\0';
    return text;
}

static int body_long(symm_ctx *ctx, void *arg)
{
    struct harness_sync *sync = arg;
    symm_team *world = symm_team_world(ctx);
    symm_call call = {.size = sizeof(call)};
    char before[SYMM_SITE_NAME_BYTES], now[SYMM_SITE_NAME_BYTES], text[256];

    call.site = long_name(before, 'b');
    CHECK_OK(symm_stream_create(ctx, &call.stream));
    CHECK_OK(symm_barrier(world, &call, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, call.stream, HARNESS_AMPLE));
    call.site = long_name(now, 'n');
    call.timeout = LATE;
    if (harness_rank() == 0) {
        CHECK_ZERO(barrier_fails(world, call, SYMM_ERR_TIMEOUT));
        snprintf(text, sizeof(text),
                 "rank 1 did not arrive at site '%s' (barrier) step 2 ", now);
        CHECK_ERROR(text);
        snprintf(text, sizeof(text), "; rank 0 waits on stream %p, channel ",
                 call.stream);
        CHECK_ERROR(text);
        snprintf(text, sizeof(text),
                 "; rank 1 was last at site '%s' (barrier) step 1; ", before);
        CHECK_ERROR(text);
        CHECK_ERROR(
            "; rank 0 uses its only hardware queue (CUDA_DEVICE_MAX_CONNECTIONS, "
            "at most 32), so a stream that waits may hold up another" ADVICE
            "; SYMM_DUMP=FOLDER keeps the ranks' last calls");
    }
    CHECK_ZERO(harness_sync_wait(sync, 2));
    symm_stream_destroy(ctx, call.stream);
    return 0;
}

/* A late rank where all names are long and all that may be said is said. */
static void longest(void **state)
{
    struct harness_sync *sync = harness_shared(sizeof(*sync));

    (void)state;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    assert_int_equal(run(body_long, sync), 0);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    harness_shared_free(sync, sizeof(*sync));
}

/* The parts of a sentence fit into the bytes that callers have for them, whatever the numbers; the
 * bytes of all parts fit into a record (report_timeout, error_record.c). */
static void longest_parts(void **state)
{
    struct symm_site site = {.count_high = UINT32_MAX,
                             .count_low = UINT32_MAX,
                             .root = INT32_MIN,
                             .options = UINT32_MAX};
    char text[2 * SYMM_SITE_TEXT_BYTES], late[2 * SYMM_LATE_TEXT_BYTES];
    int ranks[SYMM_DEVICE_RANKS], most = 0;
    symm_team team = {.local_size = SYMM_DEVICE_RANKS, .world_rank = ranks};
    struct symm_cuda_members all;

    (void)state;
    (void)long_name(site.name, 's');
    for (int kind = 0; kind < 256; kind++)
        for (int dtype = 0; symm_dtype_name((symm_dtype)dtype); dtype++)
            for (int op = 0; symm_op_name((symm_op)op); op++)
                for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++) {
                    if (!symm__kind_name((enum symm_kind)kind))
                        continue;
                    site.kind = (uint8_t)kind;
                    site.dtype = (uint8_t)dtype;
                    site.op = (uint8_t)op;
                    site.algorithm = (uint8_t)a;
                    (void)symm__site_text(&site, UINT32_MAX, text, sizeof(text));
                    most = (int)strlen(text) > most ? (int)strlen(text) : most;
                }
    assert_in_range(most, SYMM_SITE_NAME_BYTES, SYMM_SITE_TEXT_BYTES - 1);
    snprintf(late, sizeof(late), "rank %d was last at %s", INT32_MAX, text);
    assert_in_range(strlen(late), SYMM_SITE_NAME_BYTES, SYMM_LATE_TEXT_BYTES - 1);
    /* many ranks: those that fit are listed, the others counted */
    for (int m = 0; m < SYMM_DEVICE_RANKS; m++)
        ranks[team.local[m] = m] = 16311 + m;
    memset(&all, 0xff, sizeof(all));
    assert_int_equal(symm__members_text(&team, &all, text, 96), SYMM_DEVICE_RANKS - 1);
    assert_string_equal(text,
                        "rank 16312, rank 16313, rank 16314, rank 16315, rank 16316, "
                        "rank 16317 and 65 more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elsewhere),     cmocka_unit_test(placed_apart),
        cmocka_unit_test(streams),       cmocka_unit_test(longest),
        cmocka_unit_test(longest_parts),
    };

    device_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
