/* SPDX-License-Identifier: MIT */
/*
 * emit_calls.c - the third part of the emitted source: a rank joins, allocates,
 * and makes the calls of each period.
 *
 * The first stream of the program is the host's default stream, whose calls are over when
 * they return; the others are streams of the library.
 *
 * The texts stand as they are emitted, where $ and a letter are replaced (see
 * symm_plan_emit_write).
 */
#include "tool/emit.h"

/* clang-format off */

static const char struct_code[] =
    "#define TRY(call)                                                                      \\\n"
    "    do {                                                                               \\\n"
    "        const symm_status status_ = (call);                                            \\\n"
    "        if (status_ != SYMM_OK)                                                        \\\n"
    "            return status_;                                                            \\\n"
    "    } while (0)\n"
    "\n"
    "struct rank;\n"
    "\n"
    "/* What the writes and checks of one op are called with. */\n"
    "struct task {\n"
    "    struct rank *r;\n"
    "    const struct op *op;\n"
    "    size_t checked, wrong;\n"
    "};\n"
    "\n"
    "struct rank {\n"
    "    symm_ctx *ctx;\n"
    "    symm_team *team;\n"
    "    int rank, period;\n"
    "    symm_buffer *buffers[BUFFERS];\n"
    "    struct task tasks[OPS];\n";

static const char queue_fields[] =
    "    void *streams[STREAMS];    /* [0] is NULL: calls on it are over when they return */\n"
    "    symm_work *works[2 * OPS]; /* of this period's calls on the other streams */\n"
    "    int work_count;\n";

static const char write_code[] =
    "static void write_buffer(void *arg)\n"
    "{\n"
    "    const struct task *task = arg;\n"
    "    const struct rank *r = task->r;\n"
    "    const struct op *op = task->op;\n"
    "    void *to = symm_buffer_ptr(r->buffers[op->out]);\n"
    "\n"
    "    for (size_t i = 0; i < op->count; i++)\n"
    "        store(to, op->dtype, i, known((int)(op - ops), r->rank, r->period, i));\n"
    "}\n"
    "\n";

static const char check_code[] =
    "/* Compares up to 8192 elements, others in each period, with what the op `index` left. */\n"
    "static void check(struct task *task, const void *found, int index)\n"
    "{\n"
    "    const struct rank *r = task->r;\n"
    "    const struct op *op = task->op;\n"
    "    const size_t step = 1 + op->check / 8192, size = symm_dtype_size(op->dtype);\n"
    "\n"
    "    for (size_t i = (size_t)r->period % step; i < op->check; i += step) {\n"
    "        const double wanted = left_by(index, op->in, r->rank, r->period, i);\n"
    "        uint64_t bits;\n"
    "\n"
    "        store(&bits, op->dtype, 0, wanted);\n"
    "        task->checked++;\n"
    "        if (memcmp((const char *)found + i * size, &bits, size) == 0)\n"
    "            continue;\n"
    "        if (task->wrong++ > 0)\n"
    "            continue;\n"
    "        fprintf(stderr, \"%s: rank %d, period %d, ops[%d]: element %zu is %g, not %g\\n\",\n"
    "                program, r->rank, r->period, (int)(op - ops), i,\n"
    "                load(found, op->dtype, i), wanted);\n"
    "    }\n"
    "}\n"
    "\n";

static const char read_code[] =
    "static void check_buffer(void *arg)\n"
    "{\n"
    "    struct task *task = arg;\n"
    "    const struct op *op = task->op;\n"
    "\n"
    "    check(task, symm_buffer_ptr(task->r->buffers[op->in]), op->from);\n"
    "}\n"
    "\n";

static const char result_code[] =
    "static void check_result(void *arg)\n"
    "{\n"
    "    struct task *task = arg;\n"
    "\n"
    "    check(task, $X, (int)(task->op - ops));\n"
    "}\n"
    "\n";

static const char works_code[] =
    "/* Where the handle of a call goes. Calls on the first stream tell how they ended by what\n"
    " * they return, those on the others by their handles. */\n"
    "static symm_work **next_work(struct rank *r, const struct op *op)\n"
    "{\n"
    "    return op->stream == 0 ? NULL : &r->works[r->work_count++];\n"
    "}\n"
    "\n"
    "/* The streams of a program need not meet between periods. Here they do, to be asked how\n"
    " * each call ended. */\n"
    "static symm_status end_period(struct rank *r)\n"
    "{\n"
    "    const double seconds = 3600; /* each call has a deadline of its own */\n"
    "\n"
    "    for (int s = 1; s < STREAMS; s++)\n"
    "        TRY(symm_stream_synchronize(r->ctx, r->streams[s], seconds));\n"
    "    for (int i = 0; i < r->work_count; i++) {\n"
    "        TRY(symm_work_synchronize(r->works[i], seconds));\n"
    "        symm_work_release(r->works[i]);\n"
    "        r->works[i] = NULL;\n"
    "    }\n"
    "    r->work_count = 0;\n"
    "    return SYMM_OK;\n"
    "}\n"
    "\n";

static const char collective_begin[] =
    "static symm_status collective(struct rank *r, const struct op *op)\n"
    "{\n"
    "    const symm_call call = $C;\n"
    "    symm_team *team = $T;\n"
    "    symm_work **work = $W;\n"
    "    const void *in = symm_buffer_ptr(r->buffers[op->in]);\n";

static const char put_code[] =
    "/* The barrier tells that the peer is done with what the put overwrites. With a plan it\n"
    " * does nothing where something else tells that. */\n"
    "static symm_status put(struct rank *r, const struct op *op)\n"
    "{\n"
    "    const symm_call call = $C;\n"
    "    const int rank = r->rank, size = $S;\n"
    "    const int peer = ($P + op->shift) % size;\n"
    "    symm_team *team = $T;\n"
    "    const void *src = symm_buffer_ptr(r->buffers[op->in]);\n"
    "    void *dst = symm_buffer_ptr(r->buffers[op->out]);\n"
    "\n"
    "    TRY(symm_barrier(team, &call, $W));\n"
    "    return symm_put_signal(team, dst, src, op->count * symm_dtype_size(op->dtype), peer,\n"
    "                           op->signal, &call, $W);\n"
    "}\n"
    "\n";

static const char wait_code[] =
    "static symm_status wait_for(struct rank *r, const struct op *op)\n"
    "{\n"
    "    const symm_call call = $C;\n"
    "    const struct op *sent = &ops[op->put];\n"
    "    const int rank = r->rank, size = $S;\n"
    "    const int peer = ($P - sent->shift + size) % size;\n"
    "\n"
    "    return symm_signal_wait($T, peer, sent->signal, &call);\n"
    "}\n"
    "\n";

static const char allocate_begin[] =
    "static symm_status allocate(struct rank *r)\n"
    "{\n"
    "    for (int b = 0; b < BUFFERS; b++)\n"
    "        TRY(symm_empty_strided_p2p(r->team, buffers[b].dims, buffers[b].shape,\n"
    "                                   buffers[b].stride, buffers[b].dtype,\n"
    "                                   buffers[b].alloc_id, &r->buffers[b]));\n";

static const char allocate_inputs[] =
    "    for (int b = 0; b < BUFFERS; b++) {\n"
    "        const size_t size = symm_dtype_size(buffers[b].dtype);\n"
    "        const size_t count = symm_buffer_bytes(r->buffers[b]) / size;\n"
    "        for (size_t i = 0; buffers[b].input && i < count; i++)\n"
    "            store(symm_buffer_ptr(r->buffers[b]), buffers[b].dtype, i,\n"
    "                  known(OPS + b, r->rank, 0, i));\n"
    "    }\n";

static const char allocate_teams[] =
    "    r->teams[0] = r->team;\n"
    "    for (int g = 1; g < GROUPS; g++) {\n"
    "        const int list = index_of(g, r->rank) / group_size[g];\n"
    "        TRY(symm_team_split(r->team, list, place_of(g, r->rank), &r->teams[g]));\n"
    "    }\n";

static const char allocate_streams[] =
    "    for (int s = 1; s < STREAMS; s++)\n"
    "        TRY(symm_stream_create(r->ctx, &r->streams[s]));\n";

static const char allocate_end[] =
    "    for (int i = 0; i < OPS; i++)\n"
    "        r->tasks[i] = (struct task){.r = r, .op = &ops[i]};\n"
    "    return SYMM_OK;\n"
    "}\n"
    "\n";

static const char run_code[] =
    "static symm_status run(struct rank *r, const char *plan)\n"
    "{\n"
    "    if (plan)\n"
    "        TRY(symm_plan_load(r->team, plan));\n"
    "    TRY(allocate(r));\n"
    "    for (r->period = 0; r->period < PERIODS; r->period++) {\n"
    "        for (int i = 0; i < OPS; i++)\n"
    "            TRY(run_op(r, i));\n";

static const char main_code[] =
    "    }\n"
    "    return SYMM_OK;\n"
    "}\n"
    "\n"
    "int main(int argc, char **argv)\n"
    "{\n"
    "    static struct rank r;\n"
    "    const symm_config config = {.size = sizeof(config), .backend = \"host\"};\n"
    "    size_t checked = 0, wrong = 0;\n"
    "    symm_status status;\n"
    "\n"
    "    if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {\n"
    "        fprintf(stderr, \"usage: %s [PLAN.json]\\n\", argv[0]);\n"
    "        return 2;\n"
    "    }\n"
    "    status = symm_init(&config, &r.ctx);\n"
    "    if (status == SYMM_OK) {\n"
    "        r.team = symm_team_world(r.ctx);\n"
    "        r.rank = symm_team_rank(r.team);\n"
    "        if (symm_team_size(r.team) != WORLD) {\n"
    "            fprintf(stderr, \"%s: found a job of %d ranks, allowed: %d\\n\", program,\n"
    "                    symm_team_size(r.team), WORLD);\n"
    "            symm_finalize(r.ctx);\n"
    "            return 2;\n"
    "        }\n"
    "        status = run(&r, argc == 2 ? argv[1] : NULL);\n"
    "    }\n"
    "    if (status != SYMM_OK)\n"
    "        fprintf(stderr, \"%s: rank %d: %s\\n\", program, r.rank, symm_last_error());\n"
    "    symm_finalize(r.ctx); /* runs what a failure has left on streams */\n"
    "    for (int i = 0; i < OPS; i++) {\n"
    "        checked += r.tasks[i].checked;\n"
    "        wrong += r.tasks[i].wrong;\n"
    "    }\n"
    "    if (status == SYMM_OK)\n"
    "        printf(\"%s: rank %d: %zu elements compared, %zu wrong\\n\", program, r.rank,\n"
    "               checked, wrong);\n"
    "    return status != SYMM_OK || wrong > 0;\n"
    "}\n";

static const struct {
    symm_program_kind kind;
    const char *text;
} collectives[] = {
    {SYMM_PROGRAM_ALL_REDUCE,
    "    case ALL_REDUCE:\n"
    "        return symm_all_reduce(team, in, out, op->count, op->dtype, op->reduce, &call,\n"
    "                               work);\n"},
    {SYMM_PROGRAM_REDUCE_SCATTER,
    "    case REDUCE_SCATTER:\n"
    "        return symm_reduce_scatter(team, in, out, op->count, op->dtype, op->reduce,\n"
    "                                   &call, work);\n"},
    {SYMM_PROGRAM_ALL_GATHER,
    "    case ALL_GATHER:\n"
    "        return symm_all_gather(team, in, out, op->count, op->dtype, &call, work);\n"},
    {SYMM_PROGRAM_BROADCAST,
    "    case BROADCAST:\n"
    "        return symm_broadcast(team, in, out, op->count, op->dtype, op->root, &call,\n"
    "                              work);\n"},
    {SYMM_PROGRAM_ALL_TO_ALL,
    "    case ALL_TO_ALL:\n"
    "        return symm_all_to_all(team, in, out, op->count, op->dtype, &call, work);\n"},
};

/* clang-format on */

static void put_text(const struct emit *emit, bool wanted, const char *text)
{
    if (wanted)
        symm_plan_emit_write(emit, text);
}

static bool has_collectives(const struct emit *emit)
{
    for (size_t i = 0; i < sizeof(collectives) / sizeof(collectives[0]); i++)
        if (emit->kinds[collectives[i].kind])
            return true;
    return false;
}

static void write_struct(const struct emit *emit)
{
    put_text(emit, true, struct_code);
    put_text(emit, emit->teams, "    symm_team *teams[GROUPS];\n");
    put_text(emit, emit->queues, queue_fields);
    put_text(emit, emit->results,
             emit->queues
                 ? "    double results[STREAMS][LARGEST_RESULT / sizeof(double) + 1];\n"
                 : "    double result[LARGEST_RESULT / sizeof(double) + 1];\n");
    put_text(emit, true, "};\n\n");
}

static void write_collective(const struct emit *emit)
{
    put_text(emit, true, collective_begin);
    if (!emit->results)
        put_text(emit, true,
                 "    void *out = symm_buffer_ptr(r->buffers[op->out]);\n\n");
    else
        put_text(emit, true,
                 "    void *out = $Y;\n\n    if (op->out != PRIVATE)\n"
                 "        out = symm_buffer_ptr(r->buffers[op->out]);\n");
    put_text(emit, true, "    switch (op->kind) {\n");
    for (size_t i = 0; i < sizeof(collectives) / sizeof(collectives[0]); i++)
        put_text(emit, emit->kinds[collectives[i].kind], collectives[i].text);
    put_text(emit, true, "    default:\n        return SYMM_OK;\n    }\n}\n\n");
}

static void write_run_op(const struct emit *emit)
{
    const bool *kinds = emit->kinds;

    put_text(emit, true,
             "static symm_status run_op(struct rank *r, int index)\n{\n"
             "    const struct op *op = &ops[index];\n");
    put_text(emit, kinds[SYMM_PROGRAM_WRITE] || emit->reads || emit->shown,
             "    struct task *task = &r->tasks[index];\n");
    put_text(emit, true, "\n    switch (op->kind) {\n");
    put_text(emit, kinds[SYMM_PROGRAM_WRITE],
             "    case WRITE:\n"
             "        return symm_stream_call(r->ctx, $N, write_buffer, task);\n");
    put_text(emit, emit->reads,
             "    case READ:\n"
             "        return symm_stream_call(r->ctx, $N, check_buffer, task);\n");
    put_text(emit, kinds[SYMM_PROGRAM_PUT],
             "    case PUT:\n        return put(r, op);\n");
    put_text(emit, kinds[SYMM_PROGRAM_WAIT],
             "    case WAIT:\n        return wait_for(r, op);\n");
    put_text(
        emit, kinds[SYMM_PROGRAM_DEPEND],
        "    case DEPEND: /* calls on the first stream are over already */\n"
        "        if (op->on != 0)\n"
        "            TRY(symm_stream_synchronize(r->ctx, r->streams[op->on], 0));\n"
        "        return SYMM_OK;\n");
    put_text(emit, true, "    default:\n");
    put_text(emit, has_collectives(emit), "        TRY(collective(r, op));\n");
    put_text(emit, true, "        break;\n    }\n");
    put_text(emit, emit->shown,
             "    if (op->check > 0)\n"
             "        return symm_stream_call(r->ctx, $N, check_result, task);\n");
    put_text(emit, true, "    return SYMM_OK;\n}\n\n");
}

void symm_plan_emit_calls(const struct emit *emit)
{
    write_struct(emit);
    put_text(emit, emit->kinds[SYMM_PROGRAM_WRITE], write_code);
    put_text(emit, emit->reads || emit->shown, check_code);
    put_text(emit, emit->reads, read_code);
    put_text(emit, emit->shown, result_code);
    put_text(emit, emit->queues, works_code);
    if (has_collectives(emit))
        write_collective(emit);
    put_text(emit, emit->kinds[SYMM_PROGRAM_PUT], put_code);
    put_text(emit, emit->kinds[SYMM_PROGRAM_WAIT], wait_code);
    write_run_op(emit);
    put_text(emit, true, allocate_begin);
    put_text(emit, emit->inputs, allocate_inputs);
    put_text(emit, true, "    TRY(symm_rendezvous(r->team));\n");
    put_text(emit, emit->teams, allocate_teams);
    put_text(emit, emit->queues, allocate_streams);
    put_text(emit, true, allocate_end);
    put_text(emit, true, run_code);
    put_text(emit, emit->queues, "        TRY(end_period(r));\n");
    put_text(emit, true, main_code);
}
