/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda_stream.c - streams: a queue and a thread that runs its operations in order. The
 * NULL stream of a context waits for all its blocking streams, and they wait for it. A
 * destroyed stream still runs its queued operations.
 */
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fake_cuda_private.h"

pthread_cond_t fake_progress = PTHREAD_COND_INITIALIZER;
static __thread bool in_host_function;
static CUstream ended; /* streams: their handles are used again */
static uint64_t ids;

void simt_launch(void (*kernel)(struct symm_cuda_args),
                 const struct symm_cuda_args *args, unsigned blocks, unsigned threads);

bool fake_in_host_function(void)
{
    return in_host_function;
}

void fake_host_call(CUhostFn function, void *arg)
{
    in_host_function = true;
    function(arg);
    in_host_function = false;
}

/* ---- Marks ----------------------------------------------------------------------- */

struct fake_mark *fake_mark_new(void)
{
    struct fake_mark *mark = calloc(1, sizeof(*mark));

    if (!mark)
        fake_die("no memory");
    mark->refs = 1;
    return mark;
}

void fake_mark_drop(struct fake_mark *mark)
{
    if (mark && --mark->refs == 0)
        free(mark);
}

/* The caller holds a reference. */
void fake_mark_wait(struct fake_mark *mark)
{
    while (!mark->done)
        pthread_cond_wait(&fake_progress, &fake_mutex);
}

void fake_mark_set(struct fake_mark *mark)
{
    clock_gettime(CLOCK_MONOTONIC, &mark->time);
    mark->done = true;
    pthread_cond_broadcast(&fake_progress);
}

/* ---- Operations ------------------------------------------------------------------ */

void fake_op_hold(struct fake_op *op)
{
    if (op->mark)
        op->mark->refs++;
    if (op->graph)
        op->graph->refs++;
}

void fake_op_drop(struct fake_op *op)
{
    fake_mark_drop(op->mark);
    if (op->graph)
        fake_graph_drop(op->graph);
    free(op->owned);
    free(op);
}

static bool word_arrived(const struct fake_op *op)
{
    uint32_t word = __atomic_load_n((uint32_t *)op->to, __ATOMIC_ACQUIRE);

    switch (op->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return (int32_t)(word - op->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return word == op->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (word & op->value) != 0;
    default: /* NOR */
        return ~(word | op->value) != 0;
    }
}

static void wait_for_word(const struct fake_op *op)
{
    struct timespec pause = {0, 50000};

    for (int polls = 0; !word_arrived(op); polls++) {
        if (polls < 100)
            sched_yield();
        else
            nanosleep(&pause, NULL);
    }
}

/* Zeros are holes where the memory is a file's: most of it is never touched, and a page that
 * is costs more than all else of a small job. */
static void fill(const struct fake_op *op)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)op->to,
                    end = begin + op->bytes;
    const uintptr_t low = (begin + page - 1) / page * page, high = end / page * page;

    if (op->value == 0 && low < high &&
        madvise((void *)low, high - low, MADV_REMOVE) == 0) {
        memset(op->to, 0, low - begin);
        memset((void *)high, 0, end - high);
        return;
    }
    if (op->value == 0xff && fake_ones_later(op->to, op->bytes))
        return;
    memset(op->to, (int)op->value, op->bytes);
}

static void copy(const struct fake_op *op)
{
    for (size_t i = 0; i == 0 || i < op->rows; i++)
        memmove((char *)op->to + i * op->to_pitch,
                (const char *)op->from + i * op->from_pitch, op->bytes);
}

void fake_run(const struct fake_op *op)
{
    if (sim_driver_operation)
        sim_driver_operation(op->kind == FAKE_OP_KERNEL ? op->name : NULL);
    switch (op->kind) {
    case FAKE_OP_KERNEL:
        simt_launch(op->kernel, &op->args, op->blocks, op->threads);
        break;
    case FAKE_OP_COPY:
        copy(op);
        break;
    case FAKE_OP_FILL:
        fill(op);
        break;
    case FAKE_OP_HOST:
        fake_host_call(op->host, op->to);
        break;
    case FAKE_OP_WRITE:
        __atomic_store_n((uint32_t *)op->to, op->value, __ATOMIC_RELEASE);
        break;
    case FAKE_OP_WAIT:
        wait_for_word(op);
        break;
    case FAKE_OP_GRAPH:
        for (const struct fake_op *o = op->graph->first; o; o = o->next)
            fake_run(o);
        break;
    default: /* marks are for queues alone */
        break;
    }
}

void fake_step(const struct fake_op *op)
{
    if (op->kind == FAKE_OP_AWAIT) {
        fake_mark_wait(op->mark);
    } else if (op->kind != FAKE_OP_MARK) {
        pthread_mutex_unlock(&fake_mutex);
        fake_run(op);
        pthread_mutex_lock(&fake_mutex);
    }
}

/* ---- Handles ---------------------------------------------------------------------- */

/* Not listed. The handle of a stream that has ended comes back before a new one is made. */
static CUstream stream_new(CUcontext context, unsigned flags)
{
    CUstream s = ended;

    if (s) {
        ended = s->ended;
        memset(s, 0, sizeof(*s));
    } else {
        s = calloc(1, sizeof(*s));
    }
    if (!s)
        fake_die("no memory");
    s->context = context;
    s->flags = flags;
    s->id = ++ids;
    s->end = &s->first;
    pthread_cond_init(&s->work, NULL);
    fake_model_stream(s);
    return s;
}

/* It has no worker, or this is the worker's last act. */
static void stream_end(CUstream s)
{
    pthread_cond_destroy(&s->work);
    s->ended = ended;
    ended = s;
}

/* ---- Queues ---------------------------------------------------------------------- */

static void *worker(void *arg)
{
    CUstream s = arg;
    struct fake_model *const model = s->context->model;

    if (sim_driver_stream)
        sim_driver_stream();
    pthread_mutex_lock(&fake_mutex);
    for (;;) {
        struct fake_op *op = s->first;

        if (!op && s->destroyed)
            break;
        if (!op) {
            pthread_cond_wait(&s->work, &fake_mutex);
            continue;
        }
        if (model && op->kind == FAKE_OP_KERNEL) { /* fake_model_move takes it */
            pthread_cond_wait(&fake_progress, &fake_mutex);
            continue;
        }
        s->first = op->next;
        if (!s->first)
            s->end = &s->first;
        s->busy = true;
        if (model)
            fake_model_step(s, op);
        else
            fake_step(op);
        s->busy = false;
        if (op->kind == FAKE_OP_MARK)
            fake_mark_set(op->mark);
        fake_op_drop(op);
        if (model)
            fake_model_move(model);
    }
    if (model)
        fake_model_drain(s);
    s->context->dying--;
    pthread_cond_broadcast(&fake_progress);
    stream_end(s);
    pthread_mutex_unlock(&fake_mutex);
    return NULL;
}

void fake_thread(void *(*function)(void *arg), void *arg)
{
    pthread_attr_t attributes;
    sigset_t all, old;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, (size_t)1 << 20);
    if (pthread_create(&thread, &attributes, function, arg) != 0)
        fake_die("no thread");
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void queue(CUstream s, const struct fake_op *op)
{
    struct fake_op *copy = malloc(sizeof(*copy));

    if (!copy)
        fake_die("no memory");
    *copy = *op;
    copy->next = NULL;
    fake_op_hold(copy);
    *s->end = copy;
    s->end = &copy->next;
    if (!s->started)
        fake_thread(worker, s);
    s->started = true;
    if (s->context->model)
        fake_model_queue(s, copy); /* which may begin it */
    pthread_cond_signal(&s->work);
}

static bool blocking(const struct CUstream_st *s)
{
    return (s->flags & CU_STREAM_NON_BLOCKING) == 0;
}

bool fake_stream_works(const struct CUstream_st *s)
{
    return s->first || s->busy || (s->grid && fake_model_works(s->grid));
}

/* What `s` does next comes after all that `before` has to do now. */
static void order(CUstream s, CUstream before)
{
    struct fake_op op = {.kind = FAKE_OP_MARK, .soft = true};

    if (!before || !fake_stream_works(before))
        return;
    op.mark = fake_mark_new();
    queue(before, &op);
    op.kind = FAKE_OP_AWAIT;
    op.soft = false;
    queue(s, &op);
    fake_mark_drop(op.mark);
}

/* In the model each operation of a graph is one of the stream's. */
static void queue_graph(CUstream s, struct fake_graph *graph)
{
    for (const struct fake_op *o = graph->first; o; o = o->next) {
        struct fake_op op = *o;

        op.owned = NULL; /* the graph's, which the operation keeps alive */
        if (!op.graph)
            op.graph = graph;
        queue(s, &op);
    }
}

/* Takes over op->owned. */
CUresult fake_submit(CUstream s, const struct fake_op *op)
{
    CUstream legacy = s->context->legacy;

    if (s->capture)
        return fake_capture_add(s, op);
    for (struct fake_object *o = fake_first(FAKE_STREAM); s == legacy && o;
         o = o->next) {
        CUstream other = (CUstream)(void *)o;

        if (other->context != s->context || !blocking(other))
            continue;
        if (other->capture) {
            free(op->owned);
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        order(s, other);
    }
    if (s != legacy && blocking(s))
        order(s, legacy);
    if (s->context->model && op->kind == FAKE_OP_GRAPH)
        queue_graph(s, op->graph);
    else
        queue(s, op);
    return CUDA_SUCCESS;
}

/* ---- Streams --------------------------------------------------------------------- */

static CUstream legacy_of(CUcontext context)
{
    if (!context->legacy)
        context->legacy = stream_new(context, CU_STREAM_DEFAULT);
    return context->legacy;
}

/* The stream is unlisted, and ends when it has done what it has. */
static void destroy(CUstream s)
{
    fake_unlist(s);
    s->destroyed = true;
    if (s->started) {
        s->context->dying++;
        pthread_cond_signal(&s->work);
        pthread_cond_broadcast(&fake_progress);
    } else {
        stream_end(s);
    }
}

/* ---- CU_STREAM_PER_THREAD --------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* of a thread's own streams: CUstream[FAKE_DEVICES] */

static void thread_ends(void *value)
{
    CUstream *own = value;

    pthread_mutex_lock(&fake_mutex);
    for (int i = 0; i < FAKE_DEVICES; i++)
        if (own[i])
            destroy(own[i]);
    pthread_mutex_unlock(&fake_mutex);
    free(own);
}

static void make_key(void)
{
    if (pthread_key_create(&key, thread_ends) != 0)
        fake_die("no key for threads");
}

static CUstream own_of_thread(CUcontext context)
{
    CUstream *own;

    pthread_once(&once, make_key);
    own = pthread_getspecific(key);
    if (!own) {
        own = calloc(FAKE_DEVICES, sizeof(CUstream));
        if (!own || pthread_setspecific(key, own) != 0)
            fake_die("no memory");
    }
    if (!own[context->ordinal]) {
        own[context->ordinal] = stream_new(context, CU_STREAM_DEFAULT);
        own[context->ordinal]->of_thread = true;
        fake_list(FAKE_STREAM, own[context->ordinal]);
    }
    return own[context->ordinal];
}

/* ---- Functions of streams --------------------------------------------------------- */

CUresult fake_stream_of(CUstream *stream)
{
    CUcontext context = fake_current();

    if (*stream == NULL || *stream == CU_STREAM_LEGACY) {
        *stream = legacy_of(context);
        return CUDA_SUCCESS;
    }
    if (*stream == CU_STREAM_PER_THREAD) {
        *stream = own_of_thread(context);
        return CUDA_SUCCESS;
    }
    fake_expect(FAKE_STREAM, *stream);
    return (*stream)->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUstream fake_stream_create(CUcontext context, struct fake_green *green, unsigned flags,
                            int priority)
{
    CUstream s = stream_new(context, flags);

    s->green = green;
    s->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority; /* clamped */
    fake_list(FAKE_STREAM, s);
    return s;
}

FAKE_API CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned flags,
                                                     int priority)
{
    FAKE_ENTER(FAKE_CURRENT);

    if ((flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *stream = fake_stream_create(fake_current(), fake_green_of(fake_current_as()),
                                 flags, priority);
    return CUDA_SUCCESS;
}

/* Of the special streams it is the context that is current. */
FAKE_API CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    FAKE_ENTER(FAKE_INIT);
    if (stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) {
        fake_expect(FAKE_STREAM, stream);
        *context = stream->green ? &stream->green->as : stream->context;
        return CUDA_SUCCESS;
    }
    *context = fake_current_as();
    return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

FAKE_API CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
    FAKE_ENTER_FREE(FAKE_INIT);

    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    fake_expect(FAKE_STREAM, stream);
    if (stream->capture)
        fake_capture_forget(stream);
    destroy(stream);
    return later;
}

/* As a GPU's driver: the number of a stream that has gone does not come back. */
FAKE_API CUresult CUDAAPI cuStreamGetId(CUstream stream, unsigned long long *id)
{
    FAKE_ENTER(FAKE_CURRENT);

    FAKE_STREAM_OF(stream);
    if (stream->capture)
        return fake_capture_break(stream);
    *id = stream->id;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuStreamSynchronize(CUstream stream)
{
    FAKE_ENTER_FREE(FAKE_CURRENT);
    struct fake_op op = {.kind = FAKE_OP_MARK, .soft = true};
    CUresult result;

    FAKE_STREAM_OF(stream);
    if (stream->capture)
        return fake_capture_break(stream);
    op.mark = fake_mark_new();
    result = fake_submit(stream, &op);
    if (result == CUDA_SUCCESS)
        fake_mark_wait(op.mark);
    fake_mark_drop(op.mark);
    return result == CUDA_SUCCESS ? later : result;
}

FAKE_API CUresult CUDAAPI cuStreamQuery(CUstream stream)
{
    FAKE_ENTER(FAKE_CURRENT);
    FAKE_STREAM_OF(stream);
    if (stream->capture)
        return fake_capture_break(stream);
    return fake_stream_works(stream) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

void fake_context_wait(CUcontext context)
{
    struct fake_op op = {.kind = FAKE_OP_MARK, .soft = true};
    struct fake_mark *marks[256];
    int count = 0;

    for (struct fake_object *o = fake_first(FAKE_STREAM); o; o = o->next) {
        CUstream s = (CUstream)(void *)o;

        if (s->context != context || s->capture || !fake_stream_works(s))
            continue;
        if (count == 255)
            fake_die("more than 255 streams at work");
        op.mark = marks[count++] = fake_mark_new();
        queue(s, &op);
    }
    if (context->legacy && fake_stream_works(context->legacy)) {
        op.mark = marks[count++] = fake_mark_new();
        queue(context->legacy, &op);
    }
    for (int i = 0; i < count; i++) {
        fake_mark_wait(marks[i]);
        fake_mark_drop(marks[i]);
    }
    while (context->dying > 0)
        pthread_cond_wait(&fake_progress, &fake_mutex);
}

FAKE_API CUresult CUDAAPI cuCtxSynchronize(void)
{
    FAKE_ENTER_FREE(FAKE_CURRENT | FAKE_UNSAFE);

    fake_context_wait(fake_current());
    return later;
}

/* ---- Operations of streams ------------------------------------------------------- */

static bool known(CUdeviceptr address)
{
    struct fake_place place;

    return fake_at(address, &place);
}

/* As a GPU: a source in pageable memory has been read when the call returns, a destination
 * there has been written. In a capture both are touched at each replay. */
FAKE_API CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                        CUstream stream)
{
    FAKE_ENTER(FAKE_CURRENT);
    struct fake_op op = {.kind = FAKE_OP_COPY,
                         .to = (void *)(uintptr_t)to,
                         .from = (const void *)(uintptr_t)from,
                         .bytes = bytes};
    struct fake_op mark = {.kind = FAKE_OP_MARK, .soft = true};
    CUresult result;

    FAKE_STREAM_OF(stream);
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (to == 0 || from == 0)
        return CUDA_ERROR_INVALID_VALUE;
    fake_expect_access(__func__, stream->context->ordinal, to, bytes);
    fake_expect_access(__func__, stream->context->ordinal, from, bytes);
    if (!known(from) && !stream->capture) {
        op.owned = malloc(bytes);
        if (!op.owned)
            return CUDA_ERROR_OUT_OF_MEMORY;
        op.from = memcpy(op.owned, op.from, bytes);
    }
    result = fake_submit(stream, &op);
    if (result != CUDA_SUCCESS || known(to) || stream->capture)
        return result;
    mark.mark = fake_mark_new();
    queue(stream, &mark);
    fake_mark_wait(mark.mark);
    fake_mark_drop(mark.mark);
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value,
                                          size_t bytes, CUstream stream)
{
    FAKE_ENTER(FAKE_CURRENT);
    struct fake_op op = {.kind = FAKE_OP_FILL,
                         .to = (void *)(uintptr_t)to,
                         .value = value,
                         .bytes = bytes};

    FAKE_STREAM_OF(stream);
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (!known(to))
        return CUDA_ERROR_INVALID_VALUE;
    fake_expect_access(__func__, stream->context->ordinal, to, bytes);
    return fake_submit(stream, &op);
}

FAKE_API CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address,
                                               cuuint32_t value, unsigned flags)
{
    FAKE_ENTER(FAKE_CURRENT);
    struct fake_op op = {
        .kind = FAKE_OP_WRITE, .to = (void *)(uintptr_t)address, .value = value};

    FAKE_STREAM_OF(stream);
    if (address % 4 != 0 || flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER ||
        !known(address))
        return CUDA_ERROR_INVALID_VALUE;
    fake_expect_access(__func__, stream->context->ordinal, address, 4);
    return fake_submit(stream, &op);
}

FAKE_API CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address,
                                              cuuint32_t value, unsigned flags)
{
    FAKE_ENTER(FAKE_CURRENT);
    struct fake_op op = {.kind = FAKE_OP_WAIT,
                         .to = (void *)(uintptr_t)address,
                         .value = value,
                         .flags = flags};

    FAKE_STREAM_OF(stream);
    if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) && !fake_settings.flush)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (fake_settings.flush && !(flags & CU_STREAM_WAIT_VALUE_FLUSH))
        fake_die("%s without CU_STREAM_WAIT_VALUE_FLUSH: what peers have put may be "
                 "on its way",
                 __func__);
    op.flags = flags &= ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH;
    if (address % 4 != 0 || flags > CU_STREAM_WAIT_VALUE_NOR || !known(address))
        return CUDA_ERROR_INVALID_VALUE;
    fake_expect_access(__func__, stream->context->ordinal, address, 4);
    return fake_submit(stream, &op);
}

FAKE_API CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function,
                                           void *arg)
{
    FAKE_ENTER(FAKE_CURRENT);
    struct fake_op op = {.kind = FAKE_OP_HOST, .host = function, .to = arg};

    FAKE_STREAM_OF(stream);
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    return fake_submit(stream, &op);
}
