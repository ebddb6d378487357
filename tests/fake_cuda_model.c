/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda_model.c - the resources of a device: which blocks are resident, and which
 * operations block others (FAKE_CUDA_MODEL=1). Without the model a kernel runs as soon as its
 * stream reaches it.
 *
 * Multiprocessors. Until it ends, a block occupies threads, registers and a slot of one
 * multiprocessor, the one with the most free threads. Kernels are served in the order in
 * which they became ready, the highest priority first: while a block of the first kernel
 * does not fit, no later kernel gets resources. A resident block that waits lets others run,
 * but keeps its resources. Blocks of a cluster get room together; GPCs are not modelled.
 *
 * Dependent launch. A kernel with the programmatic attribute becomes ready when every block
 * of the previous kernel, which must be the previous operation of its stream, has executed
 * launch_dependents or has ended. Its blocks become resident then, and pass
 * griddepcontrol.wait when the previous kernel has completed (simt_block.h).
 *
 * Hardware queues. A context has CUDA_DEVICE_MAX_CONNECTIONS of them; the k-th stream uses
 * queue k modulo their number, the NULL stream the first. A queue is processed in the order
 * of submission, over all streams. An operation that its stream has not reached blocks all
 * later ones of the queue; a kernel leaves the queue when it is ready, even if it does not
 * fit yet. So a waiting kernel blocks its queue only if an operation follows it; a wait for
 * a word or an event blocks its queue until it ends.
 *
 * One context of one process has the device for itself. Shared memory is not counted. Copies
 * use copy engines, of which there are always enough.
 */
#include "fake_cuda_private.h"
#include "simt_block.h"

#define MOST_THREADS   2048u /* of a multiprocessor */
#define MOST_REGISTERS 65536u
#define MOST_BLOCKS    32u
#define MOST_QUEUES    32
#define WARP           32u

enum block_state { PENDING, READY, RUNNING, GIVEN_UP, ENDED };

struct block {
    unsigned char state; /* of a cluster: its first block's */
    unsigned short processor;
    bool triggered;
};

/* A kernel from when it is ready until nobody asks for it any more. */
struct fake_grid {
    struct fake_grid
        *next; /* of the model, until it completes; in the order of readiness */
    int refs;
    struct fake_model *model;
    struct fake_op op;
    struct fake_grid *before; /* that it depends on; NULL: none, or completed */
    unsigned admitted, ready, ended;
    unsigned open; /* blocks that have triggered or ended */
    unsigned runners, stalled;
    struct block block[];
};

struct processor {
    unsigned threads, registers, blocks; /* taken */
};

struct fake_model {
    int ordinal, queues;
    int streams;         /* made so far */
    uint64_t operations; /* submitted so far */
    struct fake_grid *grids, **end;
    struct {
        struct fake_op *first, **end;
    } queue[MOST_QUEUES];
    struct processor processor[];
};

/* Threads run the blocks of a grid one after another; where a block waits, another thread
 * goes on with the next. */
struct request {
    struct request *next;
    struct fake_grid *grid;
};

struct run {
    struct simt_watch watch; /* first */
    struct fake_grid *grid;
    unsigned block;
    bool stalled;
};

static pthread_cond_t requested = PTHREAD_COND_INITIALIZER;
static struct request *requests, **requests_end = &requests;
static unsigned pending, idle;

/* ---- Room ------------------------------------------------------------------------ */

/* Registers come in eights for each thread of a warp. */
static unsigned registers_of(int registers, unsigned threads)
{
    return ((unsigned)registers + 7) / 8 * 8 * ((threads + WARP - 1) / WARP * WARP);
}

/* The small kernels of the tests take 32, the library's and the one that stands for NCCL's
 * what the settings say, but never more than a compiler would allow a block of this size. */
int fake_registers(const char *kernel, unsigned threads)
{
    int most = (int)(MOST_REGISTERS / ((threads + WARP - 1) / WARP * WARP) / 8 * 8);
    bool small =
        strncmp(kernel, "simt_", 5) == 0 && strcmp(kernel, "simt_user_meet") != 0;
    int registers = small ? 32 : fake_settings.registers;

    return registers < most ? registers : most;
}

int fake_occupancy(int registers, unsigned threads)
{
    unsigned blocks = MOST_REGISTERS / registers_of(registers, threads);
    unsigned by_threads = MOST_THREADS / ((threads + WARP - 1) / WARP * WARP);

    blocks = blocks < by_threads ? blocks : by_threads;
    return (int)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}

static bool has_room(const struct processor *p, const struct fake_op *op)
{
    return p->blocks < MOST_BLOCKS && p->threads + op->threads <= MOST_THREADS &&
           p->registers + registers_of(op->registers, op->threads) <= MOST_REGISTERS;
}

/* Negative: none has room. */
static int find_processor(const struct fake_model *model, const struct fake_op *op)
{
    const struct fake_green *green = op->stream ? op->stream->green : NULL;
    const int first = green ? green->first : 0;
    const int end = green ? green->first + green->count : fake_settings.share;
    int best = -1;

    for (int i = first; i < end; i++)
        if (has_room(&model->processor[i], op) &&
            (best < 0 || model->processor[i].threads < model->processor[best].threads))
            best = i;
    return best;
}

static void take_room(struct fake_grid *grid, unsigned block, int processor)
{
    struct processor *p = &grid->model->processor[processor];

    p->threads += grid->op.threads;
    p->registers += registers_of(grid->op.registers, grid->op.threads);
    p->blocks++;
    grid->block[block].processor = (unsigned short)processor;
}

static void give_room(struct fake_grid *grid, unsigned block)
{
    struct processor *p = &grid->model->processor[grid->block[block].processor];

    p->threads -= grid->op.threads;
    p->registers -= registers_of(grid->op.registers, grid->op.threads);
    p->blocks--;
}

/* ---- Grids ----------------------------------------------------------------------- */

static void drop(struct fake_grid *grid)
{
    if (grid && --grid->refs == 0)
        free(grid);
}

bool fake_model_works(const struct fake_grid *grid)
{
    return grid->ended < grid->op.blocks;
}

static void *runner(void *arg);

static void request_runner(struct fake_grid *grid)
{
    struct request *request = calloc(1, sizeof(*request));

    if (!request)
        fake_die("no memory");
    grid->refs++;
    grid->runners++;
    request->grid = grid;
    *requests_end = request;
    requests_end = &request->next;
    if (++pending <= idle) {
        pthread_cond_signal(&requested);
        return;
    }
    fake_thread(runner, NULL);
}

/* There is a thread for what is ready, unless one comes to it without waiting. */
static void provide_runner(struct fake_grid *grid)
{
    if (grid->ready > 0 && grid->runners == grid->stalled)
        request_runner(grid);
}

/* The grid whose next block is the next to get room. */
static struct fake_grid *next_grid(const struct fake_model *model)
{
    struct fake_grid *best = NULL;

    for (struct fake_grid *g = model->grids; g; g = g->next)
        if (g->admitted < g->op.blocks && (!best || g->op.priority < best->op.priority))
            best = g;
    return best;
}

/* For the cluster that begins with `block`. */
static bool take_cluster(struct fake_grid *grid, unsigned block)
{
    for (unsigned i = 0; i < grid->op.cluster; i++) {
        int processor = find_processor(grid->model, &grid->op);

        if (processor < 0) {
            while (i-- > 0)
                give_room(grid, block + i);
            return false;
        }
        take_room(grid, block + i, processor);
    }
    return true;
}

static void admit(struct fake_model *model)
{
    struct fake_grid *grid;

    while ((grid = next_grid(model)) != NULL) {
        if (!take_cluster(grid, grid->admitted))
            return;
        grid->block[grid->admitted].state = READY;
        grid->admitted += grid->op.cluster;
        grid->ready++;
        provide_runner(grid);
    }
}

/* For a kernel that is ready. `before` still runs, or is NULL. */
static struct fake_grid *grid_new(const struct fake_op *op, struct fake_grid *before)
{
    struct fake_model *model = op->stream->context->model;
    struct fake_grid *grid =
        calloc(1, sizeof(*grid) + op->blocks * sizeof(grid->block[0]));

    if (!grid)
        fake_die("no memory");
    grid->refs = 2; /* the model's and the stream's */
    grid->model = model;
    grid->op = *op;
    grid->before = before;
    if (before)
        before->refs++;
    fake_op_hold(&grid->op); /* its graph lives until it completes */
    *model->end = grid;
    model->end = &grid->next;
    admit(model);
    return grid;
}

static void complete(struct fake_grid *grid)
{
    struct fake_model *model = grid->model;
    struct fake_grid **link = &model->grids;

    if (grid->op.graph)
        fake_graph_drop(grid->op.graph);
    grid->op.graph = NULL;
    while (*link != grid)
        link = &(*link)->next;
    *link = grid->next;
    if (model->end == &grid->next)
        model->end = link;
    for (struct fake_grid *g = model->grids; g; g = g->next) {
        if (g->before != grid)
            continue;
        g->before = NULL;
        for (unsigned b = 0; b < g->admitted; b++) {
            if (g->block[b].state != GIVEN_UP)
                continue;
            g->block[b].state = READY;
            g->ready++;
        }
        provide_runner(g);
        drop(grid);
    }
    drop(grid);
}

static void end_cluster(struct fake_grid *grid, unsigned first)
{
    struct fake_model *model = grid->model;

    for (unsigned b = first; b < first + grid->op.cluster; b++) {
        give_room(grid, b);
        grid->block[b].state = ENDED;
        grid->ended++;
        grid->open += !grid->block[b].triggered;
    }
    admit(model);
    if (grid->ended == grid->op.blocks)
        complete(grid);
    fake_model_move(model);
}

/* ---- Blocks ---------------------------------------------------------------------- */

static void stalled(struct simt_watch *watch)
{
    struct run *run = (struct run *)(void *)watch;

    pthread_mutex_lock(&fake_mutex);
    run->stalled = true;
    run->grid->stalled++;
    provide_runner(run->grid);
    pthread_mutex_unlock(&fake_mutex);
}

static void triggered(struct simt_watch *watch)
{
    const struct run *run = (struct run *)(void *)watch;
    struct block *block = &run->grid->block[run->block + simt_cluster_member()];

    if (block->triggered) /* by a thread of this block, which runs here */
        return;
    pthread_mutex_lock(&fake_mutex);
    block->triggered = true;
    if (++run->grid->open == run->grid->op.blocks)
        fake_model_move(run->grid->model);
    pthread_mutex_unlock(&fake_mutex);
}

static bool may_pass(struct simt_watch *watch)
{
    const struct run *run = (struct run *)(void *)watch;
    bool may;

    pthread_mutex_lock(&fake_mutex);
    may = run->grid->before == NULL;
    pthread_mutex_unlock(&fake_mutex);
    return may;
}

static void run_cluster(struct fake_grid *grid, unsigned b)
{
    struct run run = {
        .watch = {stalled, triggered, may_pass}, .grid = grid, .block = b};
    const struct fake_op *op = &grid->op;
    bool ended;

    grid->block[b].state = RUNNING;
    grid->ready--;
    pthread_mutex_unlock(&fake_mutex);
    ended = simt_cluster(op->kernel, &op->args, op->blocks, op->threads, b, &run.watch);
    pthread_mutex_lock(&fake_mutex);
    grid->stalled -= run.stalled;
    if (ended) {
        end_cluster(grid, b);
        return;
    }
    grid->block[b].state = grid->before ? GIVEN_UP : READY;
    grid->ready += !grid->before;
}

static void *runner(void *arg)
{
    pthread_mutex_lock(&fake_mutex);
    for (;;) {
        struct request *request;
        struct fake_grid *grid;

        idle++;
        while (!requests)
            pthread_cond_wait(&requested, &fake_mutex);
        idle--;
        request = requests;
        requests = request->next;
        if (!requests)
            requests_end = &requests;
        pending--;
        grid = request->grid;
        free(request);
        for (unsigned b = 0; grid->ready > 0; b = (b + 1) % grid->op.blocks)
            if (grid->block[b].state == READY)
                run_cluster(grid, b);
        grid->runners--;
        drop(grid);
    }
    return arg;
}

/* ---- Streams and queues ---------------------------------------------------------- */

void fake_model_stream(CUstream s)
{
    struct fake_model *model = s->context->model;

    if (model && s != s->context->legacy)
        s->queue = ++model->streams % model->queues;
}

void fake_model_queue(CUstream s, struct fake_op *op)
{
    struct fake_model *model = s->context->model;

    op->queue_next = NULL;
    op->stream = s;
    op->number = model->operations++;
    if (op->soft)
        return;
    *model->queue[s->queue].end = op;
    model->queue[s->queue].end = &op->queue_next;
    fake_model_move(model);
}

/* The operation is the first of its queue, and leaves it. */
static void leave_queue(const struct fake_op *op)
{
    struct fake_model *model = op->stream->context->model;
    const int q = op->stream->queue;

    if (op->soft)
        return;
    model->queue[q].first = op->queue_next;
    if (!op->queue_next)
        model->queue[q].end = &model->queue[q].first;
}

void fake_model_drain(CUstream s)
{
    while (s->grid && fake_model_works(s->grid))
        pthread_cond_wait(&fake_progress, &fake_mutex);
    drop(s->grid);
    s->grid = NULL;
}

/* May the kernel, the first of its queue, leave it? */
static bool is_ready(const struct fake_op *op)
{
    const struct CUstream_st *s = op->stream;

    if (op->kind != FAKE_OP_KERNEL || s->first != op || s->busy)
        return false;
    if (!s->grid || !fake_model_works(s->grid))
        return true;
    return op->dependent && s->grid->open == s->grid->op.blocks;
}

static void issue(struct fake_op *op)
{
    CUstream s = op->stream;
    struct fake_grid *before = s->grid;

    s->first = op->next;
    if (!s->first)
        s->end = &s->first;
    s->grid = grid_new(op, before && fake_model_works(before) ? before : NULL);
    drop(before);
    leave_queue(op);
    fake_op_drop(op);
}

/* Kernels leave their queues in the order in which they were submitted, if they are ready:
 * here, and not on the streams' threads, so that this order does not depend on those. */
void fake_model_move(struct fake_model *model)
{
    struct fake_op *next;

    do {
        next = NULL;
        for (int q = 0; q < model->queues; q++) {
            struct fake_op *op = model->queue[q].first;

            if (op && is_ready(op) && (!next || op->number < next->number))
                next = op;
        }
        if (next)
            issue(next);
    } while (next);
    pthread_cond_broadcast(&fake_progress);
}

void fake_model_step(CUstream s, struct fake_op *op)
{
    const bool waits = op->kind == FAKE_OP_WAIT || op->kind == FAKE_OP_AWAIT;
    struct fake_model *model = s->context->model;

    while (!op->soft && model->queue[s->queue].first != op)
        pthread_cond_wait(&fake_progress, &fake_mutex);
    fake_model_drain(s);
    if (!waits)
        leave_queue(op);
    fake_model_move(model);
    fake_step(op);
    if (waits)
        leave_queue(op);
}

CUresult fake_model_open(CUcontext context)
{
    const uint64_t queues =
        fake_env("CUDA_DEVICE_MAX_CONNECTIONS", fake_settings.mps ? 2 : 8);
    struct fake_model *model;

    if (fake_env("FAKE_CUDA_MODEL", 0) == 0)
        return CUDA_SUCCESS;
    model = calloc(1, sizeof(*model) +
                          (size_t)fake_settings.share * sizeof(model->processor[0]));
    if (!model)
        return CUDA_ERROR_OUT_OF_MEMORY;
    model->ordinal = context->ordinal;
    model->queues = queues < 1 ? 1 : queues > MOST_QUEUES ? MOST_QUEUES : (int)queues;
    model->end = &model->grids;
    for (int q = 0; q < model->queues; q++)
        model->queue[q].end = &model->queue[q].first;
    context->model = model;
    return CUDA_SUCCESS;
}

/* ---- In words -------------------------------------------------------------------- */

static void write_model(FILE *out, const struct fake_model *model)
{
    static const char *const names[] = {[FAKE_OP_KERNEL] = "kernel",
                                        [FAKE_OP_COPY] = "copy",
                                        [FAKE_OP_FILL] = "fill",
                                        [FAKE_OP_HOST] = "function",
                                        [FAKE_OP_WRITE] = "write",
                                        [FAKE_OP_WAIT] = "wait",
                                        [FAKE_OP_GRAPH] = "graph",
                                        [FAKE_OP_MARK] = "event",
                                        [FAKE_OP_AWAIT] = "wait for an event"};

    for (const struct fake_grid *g = model->grids; g; g = g->next)
        fprintf(out,
                "device %d: %s, %u x %u: %u resident, %u ended, %u not admitted%s\n",
                model->ordinal, g->op.name, g->op.blocks, g->op.threads,
                g->admitted - g->ended, g->ended, g->op.blocks - g->admitted,
                g->before ? ", depends on the one in front" : "");
    for (int q = 0; q < model->queues; q++) {
        const struct fake_op *op = model->queue[q].first;
        int count = 0;

        for (const struct fake_op *o = op; o; o = o->queue_next)
            count++;
        if (op)
            fprintf(out, "device %d: queue %d: %d operations, the first: %s%s%s\n",
                    model->ordinal, q, count, names[op->kind], op->name ? " " : "",
                    op->name ? op->name : "");
    }
}

FAKE_API void fake_cuda_state(FILE *out)
{
    FAKE_LOCKED;

    for (int i = 0; i < fake_settings.devices; i++)
        if (fake_contexts[i].model)
            write_model(out, fake_contexts[i].model);
}
