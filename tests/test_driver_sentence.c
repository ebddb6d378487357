/* SPDX-License-Identifier: MIT */
/*
 * test_driver_sentence.c - what the sentences of calls that fail on the CUDA backend say.
 * ctest: cost 3
 */
#include "device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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
    const symm_call call = {.size = sizeof(call), .site = "layer", .timeout = LATE};
    symm_team *world = symm_team_world(ctx);

    (void)arg;
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
    (void)state;
    assert_int_equal(run(body_elsewhere, NULL), 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elsewhere),
        cmocka_unit_test(placed_apart),
        cmocka_unit_test(streams),
    };

    device_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
