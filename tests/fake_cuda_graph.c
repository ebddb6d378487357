/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda_graph.c - capture of streams into graphs. A graph is the list of operations in
 * the order of their capture, which is an order that the streams and events of the capture
 * allow; a launch replays it as one operation. A stream that an event brought into a capture
 * must be joined to the origin by another event before the capture ends.
 */
#include "fake_cuda_private.h"

struct CUgraph_st {
    struct fake_object object;
    struct fake_graph *graph;
};

struct CUgraphExec_st {
    struct fake_object object;
    struct fake_graph *graph;
};

/* References of a graph to a user object. */
struct fake_held {
    struct fake_held *next;
    CUuserObject object;
    unsigned count;
};

struct CUuserObject_st {
    struct fake_object object;
    CUhostFn destroy;
    void *ptr;
    unsigned refs;
};

static struct fake_capture *captures;
static uint64_t capture_ids;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* ---- User objects ---------------------------------------------------------------- */

static void *destroy_object(void *arg)
{
    CUuserObject object = arg;

    fake_host_call(object->destroy, object->ptr);
    free(object);
    return NULL;
}

/* Its destructor runs on a thread of the driver. */
static void object_drop(CUuserObject object, unsigned count)
{
    if (object->refs < count)
        fake_die("a user object with %u references loses %u", object->refs, count);
    object->refs -= count;
    if (object->refs > 0)
        return;
    fake_unlist(object);
    fake_thread(destroy_object, object);
}

FAKE_API CUresult CUDAAPI cuUserObjectCreate(CUuserObject *object, void *ptr,
                                             CUhostFn destroy, unsigned refs,
                                             unsigned flags)
{
    FAKE_ENTER(FAKE_INIT);
    CUuserObject made;

    if (!destroy || refs == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    made = fake_new(FAKE_USER_OBJECT, sizeof(*made));
    made->destroy = destroy;
    made->ptr = ptr;
    made->refs = refs;
    *object = made;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuUserObjectRetain(CUuserObject object, unsigned count)
{
    FAKE_ENTER(FAKE_INIT);

    fake_expect(FAKE_USER_OBJECT, object);
    if (count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    object->refs += count;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned count)
{
    FAKE_ENTER_FREE(FAKE_INIT);

    fake_expect(FAKE_USER_OBJECT, object);
    if (count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    object_drop(object, count);
    return later;
}

/* A graph, or the one that a running capture makes. */
static void expect_graph(CUgraph graph)
{
    for (const struct fake_capture *c = captures; c; c = c->next)
        if (c->handle == graph)
            return;
    fake_expect(FAKE_GRAPH, graph);
}

/* What was instantiated of the graph, and launches of that, keep the references, too. */
FAKE_API CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object,
                                                  unsigned count, unsigned flags)
{
    FAKE_ENTER(FAKE_INIT);
    struct fake_held *held;

    expect_graph(graph);
    fake_expect(FAKE_USER_OBJECT, object);
    if (count == 0 || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0)
        object->refs += count;
    held = calloc(1, sizeof(*held));
    if (!held)
        fake_die("no memory");
    held->object = object;
    held->count = count;
    held->next = graph->graph->held;
    graph->graph->held = held;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject object,
                                                   unsigned count)
{
    FAKE_ENTER_FREE(FAKE_INIT);

    expect_graph(graph);
    for (struct fake_held *held = graph->graph->held; held; held = held->next) {
        if (held->object != object || held->count < count)
            continue;
        held->count -= count;
        object_drop(object, count);
        return later;
    }
    fake_die("a graph has no %u references to the user object %p", count,
             (void *)object);
}

/* ---- Lists of operations --------------------------------------------------------- */

struct fake_graph *fake_graph_new(void)
{
    struct fake_graph *graph = calloc(1, sizeof(*graph));

    if (!graph)
        fake_die("no memory");
    graph->refs = 1;
    graph->end = &graph->first;
    return graph;
}

void fake_graph_drop(struct fake_graph *graph)
{
    if (--graph->refs > 0)
        return;
    for (struct fake_op *op = graph->first, *next; op; op = next) {
        next = op->next;
        fake_op_drop(op);
    }
    for (struct fake_held *held = graph->held, *next; held; held = next) {
        next = held->next;
        object_drop(held->object, held->count);
        free(held);
    }
    free(graph);
}

void fake_graph_add(struct fake_graph *graph, const struct fake_op *op)
{
    struct fake_op *copy = malloc(sizeof(*copy));

    if (!copy)
        fake_die("no memory");
    *copy = *op;
    copy->next = NULL;
    fake_op_hold(copy);
    *graph->end = copy;
    graph->end = &copy->next;
}

/* ---- Captures -------------------------------------------------------------------- */

/* The call is one that could touch what is being captured. */
CUresult fake_capture_unsafe(void)
{
    for (struct fake_capture *c = captures; c; c = c->next) {
        bool mine = pthread_equal(c->thread, pthread_self()) != 0;

        if (c->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
            thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
            continue;
        if (mine || (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                     c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
            c->invalid = true;
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return CUDA_SUCCESS;
}

CUresult fake_capture_break(CUstream stream)
{
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult fake_capture_add(CUstream stream, const struct fake_op *op)
{
    struct fake_capture *c = stream->capture;

    if (c->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    fake_graph_add(c->graph, op);
    stream->capture_last = ++c->count;
    stream->after.node[0] = (CUgraphNode)(uintptr_t)c->count;
    stream->after.count = 1;
    return CUDA_SUCCESS;
}

/* As a GPU's driver: what the others lead to stays among them. */
static void follow_also(struct fake_nodes *after, const struct fake_nodes *others)
{
    for (size_t i = 0; i < others->count; i++) {
        size_t k = 0;

        while (k < after->count && after->node[k] != others->node[i])
            k++;
        if (k == FAKE_NODES)
            fake_die("an operation of a capture follows more than %d", FAKE_NODES);
        after->node[k] = others->node[i];
        after->count += k == after->count;
    }
}

CUresult fake_capture_record(CUstream stream, CUevent event)
{
    struct fake_capture *c = stream->capture;

    if (c->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    fake_mark_drop(event->mark);
    event->mark = NULL;
    event->captured = true;
    event->capture = c;
    event->capture_stream = stream;
    event->capture_number = c->count;
    event->after = stream->after;
    return CUDA_SUCCESS;
}

CUresult fake_capture_join(CUstream stream, CUevent event)
{
    struct fake_capture *c = event->capture;
    CUstream from = event->capture_stream;

    if (c->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream == stream->context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (stream->capture && stream->capture != c) {
        c->invalid = stream->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (!stream->capture) {
        stream->capture = c;
        stream->capture_last = stream->capture_joined = 0;
        stream->after.count = 0;
    } else if (from != c->origin) { /* its work is now this stream's, too */
        stream->capture_last = ++c->count;
    }
    if (from && from != stream && event->capture_number > from->capture_joined)
        from->capture_joined = event->capture_number;
    follow_also(&stream->after, &event->after);
    return CUDA_SUCCESS;
}

/* The stream is destroyed. */
void fake_capture_forget(CUstream stream)
{
    stream->capture->invalid = true;
    if (stream->capture->origin == stream)
        fake_die("the stream %p is destroyed before its cuStreamEndCapture",
                 (void *)stream);
    for (struct fake_object *o = fake_first(FAKE_EVENT); o; o = o->next) {
        CUevent event = (CUevent)(void *)o;

        if (event->capture_stream == stream)
            event->capture_stream = NULL;
    }
}

/* Takes the capture apart; true: every stream of it was joined. */
static bool dissolve(struct fake_capture *c)
{
    struct fake_capture **link = &captures;
    bool joined = true;

    for (struct fake_object *o = fake_first(FAKE_STREAM); o; o = o->next) {
        CUstream s = (CUstream)(void *)o;

        if (s->capture != c)
            continue;
        if (s != c->origin && s->capture_joined < s->capture_last)
            joined = false;
        s->capture = NULL;
    }
    for (struct fake_object *o = fake_first(FAKE_EVENT); o; o = o->next) {
        CUevent event = (CUevent)(void *)o;

        if (event->capture == c) {
            event->capture = NULL;
            event->capture_stream = NULL;
        }
    }
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    return joined;
}

FAKE_API CUresult CUDAAPI cuStreamBeginCapture(CUstream stream,
                                               CUstreamCaptureMode mode)
{
    FAKE_ENTER(FAKE_CURRENT);
    CUresult result = fake_stream_of(&stream);
    struct fake_capture *c;

    if (result != CUDA_SUCCESS)
        return result;
    if (stream == stream->context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    c = calloc(1, sizeof(*c));
    if (!c)
        fake_die("no memory");
    c->origin = stream;
    c->mode = mode;
    c->thread = pthread_self();
    c->graph = fake_graph_new();
    c->id = ++capture_ids;
    c->handle = calloc(1, sizeof(*c->handle));
    if (!c->handle)
        fake_die("no memory");
    c->handle->graph = c->graph;
    c->next = captures;
    captures = c;
    stream->capture = c;
    stream->after.count = 0;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    FAKE_ENTER_FREE(FAKE_CURRENT);
    CUresult result = fake_stream_of(&stream);
    struct fake_capture *c;
    bool joined, invalid;

    if (result != CUDA_SUCCESS)
        return result;
    c = stream->capture;
    if (!c)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        !pthread_equal(c->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    joined = dissolve(c);
    invalid = c->invalid;
    *graph = NULL;
    if (invalid || !joined || later != CUDA_SUCCESS) {
        fake_graph_drop(c->graph);
        free(c->handle);
    } else {
        fake_list(FAKE_GRAPH, c->handle);
        *graph = c->handle;
    }
    free(c);
    if (later != CUDA_SUCCESS)
        return later;
    return invalid  ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
           : joined ? CUDA_SUCCESS
                    : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

FAKE_API CUresult CUDAAPI cuStreamIsCapturing(CUstream stream,
                                              CUstreamCaptureStatus *status)
{
    FAKE_ENTER(FAKE_CURRENT);
    CUresult result = fake_stream_of(&stream);

    if (result != CUDA_SUCCESS)
        return result;
    for (struct fake_object *o = fake_first(FAKE_STREAM); o; o = o->next) {
        CUstream other = (CUstream)(void *)o;

        if (stream == stream->context->legacy && other->capture &&
            (other->flags & CU_STREAM_NON_BLOCKING) == 0)
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    *status = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12040
FAKE_API CUresult CUDAAPI cuStreamGetCaptureInfo(
    CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
    const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count)
{
    static const CUgraphEdgeData plain[FAKE_NODES];
    CUresult result = cuStreamIsCapturing(stream, status);
    FAKE_LOCKED;

    if (result != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return result;
    result = fake_stream_of(&stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (edges ? !nodes : nodes != NULL)
        fake_die("%s: give nodes and edges, or neither", __func__);
    if (nodes)
        *nodes = stream->after.node;
    if (edges)
        *edges = plain;
    if (count)
        *count = stream->after.count;
    if (id)
        *id = stream->capture->id;
    if (graph)
        *graph = stream->capture->handle;
    return CUDA_SUCCESS;
}
#endif

FAKE_API CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    FAKE_ENTER(FAKE_INIT);
    CUstreamCaptureMode old = thread_mode;

    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* ---- Graphs ---------------------------------------------------------------------- */

FAKE_API CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *exec, CUgraph graph,
                                             unsigned long long flags)
{
    FAKE_ENTER(FAKE_CURRENT);

    fake_expect(FAKE_GRAPH, graph);
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *exec = fake_new(FAKE_GRAPH_EXEC, sizeof(**exec));
    (*exec)->graph = graph->graph;
    graph->graph->refs++;
    return CUDA_SUCCESS;
}

FAKE_API CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    FAKE_ENTER(FAKE_CURRENT);
    struct fake_op op = {.kind = FAKE_OP_GRAPH};
    CUresult result = fake_stream_of(&stream);

    fake_expect(FAKE_GRAPH_EXEC, exec);
    if (result != CUDA_SUCCESS)
        return result;
    op.graph = exec->graph;
    return fake_submit(stream, &op);
}

FAKE_API CUresult CUDAAPI cuGraphDestroy(CUgraph graph)
{
    FAKE_ENTER_FREE(FAKE_INIT);

    fake_expect(FAKE_GRAPH, graph);
    fake_graph_drop(graph->graph);
    fake_delete(graph);
    return later;
}

FAKE_API CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec)
{
    FAKE_ENTER_FREE(FAKE_INIT);

    fake_expect(FAKE_GRAPH_EXEC, exec);
    fake_graph_drop(exec->graph);
    fake_delete(exec);
    return later;
}
