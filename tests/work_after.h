/* SPDX-License-Identifier: MIT */
/* work_after.h - handles of calls whose context was finalized: what each function of them does. */
#ifndef SYMM_TESTS_WORK_AFTER_H
#define SYMM_TESTS_WORK_AFTER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "symm/symm.h"

static symm_status never(void *arg, void *stream)
{
    (void)arg;
    (void)stream;
    fail_msg("a call that is over has run a function");
    return SYMM_OK;
}

static void not_notified(symm_status status, void *arg)
{
    (void)status;
    (void)arg;
    fail_msg("a call that is over has run a function");
}

static void check_over(symm_work *work)
{
    bool done = false;
    int fd = -1;

    assert_int_equal(symm_work_query(work, &done), SYMM_OK);
    assert_true(done);
    assert_int_equal(symm_work_synchronize(work, 0), SYMM_OK);
    assert_int_equal(symm_work_synchronize(work, 1e-3), SYMM_OK);
    assert_int_equal(symm_work_wait(work, NULL), SYMM_OK);
    assert_string_equal(symm_work_error(work), "");
    assert_int_equal(symm_work_fd(work, &fd), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "was finalized"));
    assert_int_equal(symm_work_notify(work, not_notified, NULL), SYMM_ERR_INVALID);
    assert_int_equal(symm_work_then(work, NULL, never, NULL, NULL), SYMM_ERR_INVALID);
}

/* Three calls on a stream, and one that had been waited for. */
static void work_after(const char *backend)
{
    const symm_config config = {
        .size = sizeof(config), .world_size = 1, .backend = backend};
    symm_work *work[4];
    symm_ctx *ctx;
    symm_call call = {.size = sizeof(call)};

    assert_int_equal(symm_init(&config, &ctx), SYMM_OK);
    assert_int_equal(symm_stream_create(ctx, &call.stream), SYMM_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(symm_barrier(symm_team_world(ctx), &call, &work[i]), SYMM_OK);
    assert_int_equal(symm_work_synchronize(work[0], 0), SYMM_OK);
    symm_finalize(ctx);
    for (int i = 0; i < 4; i++)
        check_over(work[i]);
    for (int i = 0; i < 4; i++)
        symm_work_release(work[i]);
}

#endif
