/* SPDX-License-Identifier: MIT */
/* helper.c - see helper.h. */
#include "engine/helper.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/runtime.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

#define SPARE          2
#define SLICE_SECONDS  0.001 /* between two polls of wait->stop */
#define RETURN_SECONDS 1.0 /* for jobs that were left to return, at the context's end */

enum state {
    STARTING, /* its device is not current yet */
    BROKEN,   /* it has no device, and ends */
    IDLE,
    RUNNING,
    DONE,
    LEFT, /* no thread waits for the job any more; the helper frees all */
    STOPPING
};

struct symm_helpers {
    pthread_mutex_t lock;
    struct symm_helper *idle; /* owned */
    int *left;                /* atomic: jobs that were left and have not returned */
};

struct symm_helper {
    struct symm_helper *next;
    symm_ctx *ctx; /* not after LEFT */
    int rank;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum state state;
    struct symm_helper_job *job;
    int *left; /* as in struct symm_helpers */
};

static void helper_free(struct symm_helper *helper)
{
    pthread_cond_destroy(&helper->changed);
    pthread_mutex_destroy(&helper->lock);
    free(helper);
}

static void set_state(struct symm_helper *helper, enum state state)
{
    helper->state = state;
    pthread_cond_broadcast(&helper->changed);
}

/* ---- The thread ------------------------------------------------------------------ */

static symm_status run_job(void *arg)
{
    struct symm_helper_job *job = arg;

    job->status = job->run(job);
    snprintf(job->sentence, sizeof(job->sentence), "%s",
             job->status == SYMM_OK ? "" : symm_last_error());
    return SYMM_OK;
}

/* Ends the thread of a job that was left: what the thread would return to may be gone. */
static _Noreturn void end_left(struct symm_helper *helper)
{
    struct symm_helper_job *job = helper->job;
    int *left = helper->left;

    pthread_mutex_unlock(&helper->lock);
    if (job->undo)
        job->undo(job);
    free(job);
    helper_free(helper);
    /* release: pairs with a thread that then closes the engine and the device: `undo` is over */
    __atomic_fetch_sub(left, 1, __ATOMIC_RELEASE);
    pthread_exit(NULL);
}

/* With the rank's device current. */
static symm_status serve(void *arg)
{
    struct symm_helper *helper = arg;

    pthread_mutex_lock(&helper->lock);
    set_state(helper, IDLE);
    while (helper->state != STOPPING) {
        if (helper->state != RUNNING) {
            pthread_cond_wait(&helper->changed, &helper->lock);
            continue;
        }
        pthread_mutex_unlock(&helper->lock);
        (void)run_job(helper->job);
        pthread_mutex_lock(&helper->lock);
        if (helper->state == LEFT)
            end_left(helper);
        set_state(helper, DONE);
    }
    pthread_mutex_unlock(&helper->lock);
    return SYMM_OK;
}

static void *helper_main(void *arg)
{
    struct symm_helper *helper = arg;

    symm__log_rank(helper->rank);
    if (symm__engine_within(helper->ctx, false, serve, helper) != SYMM_OK) {
        pthread_mutex_lock(&helper->lock);
        set_state(helper, BROKEN);
        pthread_mutex_unlock(&helper->lock);
    }
    return NULL;
}

/* Waits until the thread's device is current. */
static bool has_begun(struct symm_helper *helper)
{
    bool broken;

    pthread_mutex_lock(&helper->lock);
    while (helper->state == STARTING)
        pthread_cond_wait(&helper->changed, &helper->lock);
    broken = helper->state == BROKEN;
    pthread_mutex_unlock(&helper->lock);
    return !broken;
}

static symm_status helper_create(symm_ctx *ctx, struct symm_helper **made)
{
    struct symm_helper *helper = calloc(1, sizeof(*helper));
    pthread_condattr_t monotonic;
    int error;

    if (!helper)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a thread of %s",
                          ctx->engine->version);
    helper->ctx = ctx;
    helper->rank = ctx->rank;
    helper->left = ctx->engine->helpers->left;
    pthread_mutex_init(&helper->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&helper->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    error = symm__thread_start(&helper->thread, helper_main, helper);
    if (error) {
        helper_free(helper);
        return symm__fail_errno(SYMM_ERR_SYSTEM, error, "cannot start a thread for %s",
                                ctx->engine->version);
    }
    if (!has_begun(helper)) {
        pthread_join(helper->thread, NULL);
        helper_free(helper);
        return symm__fail(SYMM_ERR_SYSTEM,
                          "a thread for %s cannot make the device of rank %d current",
                          ctx->engine->version, ctx->rank);
    }
    *made = helper;
    return SYMM_OK;
}

/* ---- A context's threads --------------------------------------------------------- */

static void give(struct symm_helpers *helpers, struct symm_helper *helper)
{
    pthread_mutex_lock(&helpers->lock);
    helper->next = helpers->idle;
    helpers->idle = helper;
    pthread_mutex_unlock(&helpers->lock);
}

static struct symm_helper *take(struct symm_helpers *helpers)
{
    struct symm_helper *helper;

    pthread_mutex_lock(&helpers->lock);
    helper = helpers->idle;
    if (helper)
        helpers->idle = helper->next;
    pthread_mutex_unlock(&helpers->lock);
    return helper;
}

static symm_status add(symm_ctx *ctx)
{
    struct symm_helper *helper;
    symm_status status = helper_create(ctx, &helper);

    if (status == SYMM_OK)
        give(ctx->engine->helpers, helper);
    return status;
}

symm_status symm__helpers_open(symm_ctx *ctx)
{
    struct symm_helpers *helpers;
    symm_status status = SYMM_OK;

    if (!ctx->engine->ops->blocks || ctx->engine->helpers)
        return SYMM_OK;
    helpers = calloc(1, sizeof(*helpers));
    if (helpers)
        helpers->left = calloc(1, sizeof(*helpers->left));
    if (!helpers || !helpers->left) {
        free(helpers);
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the threads of %s",
                          ctx->engine->version);
    }
    pthread_mutex_init(&helpers->lock, NULL);
    ctx->engine->helpers = helpers;
    for (int i = 0; i < SPARE && status == SYMM_OK; i++)
        status = add(ctx);
    if (status != SYMM_OK)
        (void)symm__helpers_close(ctx);
    return status;
}

bool symm__helpers_close(symm_ctx *ctx)
{
    struct symm_helpers *helpers = ctx->engine->helpers;
    struct symm_helper *helper;
    double until = symm__now() + RETURN_SECONDS;
    int left;

    if (!helpers)
        return true;
    while ((helper = take(helpers)) != NULL) {
        pthread_mutex_lock(&helper->lock);
        set_state(helper, STOPPING);
        pthread_mutex_unlock(&helper->lock);
        pthread_join(helper->thread, NULL);
        helper_free(helper);
    } /* A job that waited for a dead peer mostly returns a moment later. */
    while ((left = __atomic_load_n(helpers->left, __ATOMIC_ACQUIRE)) > 0 &&
           symm__now() < until)
        symm__sleep(SLICE_SECONDS);
    pthread_mutex_destroy(&helpers->lock);
    if (left == 0) /* else the thread decrements it later */
        free(helpers->left);
    free(helpers);
    ctx->engine->helpers = NULL;
    return left == 0;
}

/* ---- Jobs ------------------------------------------------------------------------ */

symm_status symm__helper_start(symm_ctx *ctx, struct symm_helper_job *job,
                               struct symm_helper **helper)
{
    symm_status status = SYMM_OK;

    *helper = NULL;
    if (!ctx->engine->helpers)
        return symm__engine_within(ctx, false, run_job, job);
    *helper = take(ctx->engine->helpers);
    if (!*helper)
        status = helper_create(ctx, helper);
    if (status != SYMM_OK)
        return status;
    pthread_mutex_lock(&(*helper)->lock);
    (*helper)->job = job;
    set_state(*helper, RUNNING);
    pthread_mutex_unlock(&(*helper)->lock);
    return SYMM_OK;
}

bool symm__helper_wait(struct symm_helper *helper, const struct symm_engine_wait *wait,
                       symm_status *status)
{
    bool done;

    *status = SYMM_OK;
    if (!helper)
        return true;
    pthread_mutex_lock(&helper->lock);
    while (helper->state == RUNNING && *status == SYMM_OK &&
           symm__now() < wait->until) {
        const struct timespec slice = symm__until(SLICE_SECONDS);

        pthread_cond_timedwait(&helper->changed, &helper->lock, &slice);
        if (helper->state != RUNNING || !wait->stop)
            continue;
        pthread_mutex_unlock(&helper->lock);
        *status = wait->stop(wait->stop_arg);
        pthread_mutex_lock(&helper->lock);
    }
    done = helper->state == DONE;
    pthread_mutex_unlock(&helper->lock);
    return done;
}

bool symm__helper_end(symm_ctx *ctx, struct symm_helper *helper)
{
    char sentence[SYMM_ERROR_BYTES];
    bool done;

    if (!helper)
        return true;
    pthread_mutex_lock(&helper->lock);
    done = helper->state == DONE;
    if (!done)
        __atomic_fetch_add(helper->left, 1, __ATOMIC_RELAXED);
    set_state(helper, done ? IDLE : LEFT);
    if (!done)
        pthread_detach(helper->thread);
    pthread_mutex_unlock(&helper->lock); /* once it is LEFT, the thread may free it */
    if (done) {
        give(ctx->engine->helpers, helper);
        return true;
    }
    symm__error_save(sentence);
    (void)add(ctx); /* else the next job makes its thread */
    symm__error_restore(sentence);
    return false;
}

bool symm__helper_run(symm_ctx *ctx, struct symm_helper_job *job,
                      const struct symm_engine_wait *wait, symm_status *status)
{
    struct symm_helper *helper;
    bool done;

    *status = symm__helper_start(ctx, job, &helper);
    if (*status != SYMM_OK) { /* the job never began: the same as a failure */
        job->status = *status;
        snprintf(job->sentence, sizeof(job->sentence), "%s", symm_last_error());
        return true;
    }
    (void)symm__helper_wait(helper, wait, status);
    done = symm__helper_end(ctx, helper);
    if (!done)
        return false;
    *status =
        job->status == SYMM_OK ? SYMM_OK : symm__fail_quiet(job->status, job->sentence);
    return true;
}
