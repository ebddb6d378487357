/* SPDX-License-Identifier: MIT */
/*
 * torch.c - the calls of each rank as a pickle in the format of PyTorch's flight recorder
 * (version 2.10, that of PyTorch 2.11), for torch.distributed.flight_recorder.fr_trace.
 *
 * Each channel of a team is a process group. Operations have NCCL's names; a fused norm is an
 * all_reduce. What has no step (puts, signals, sends and receives) is left out, and so are
 * exchanges over sockets.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/symm-info/dump.h"
#include "util/emit.h"

#define VERSION "2.10"

/* What an operation is in the recorder, and how many elements go in and out, in counts. */
static const struct {
    const char *op, *name;
    bool in_by_size, out_by_size; /* the count times the team's size */
} operations[] = {
    {"all_reduce", "all_reduce", false, false},
    {"all_reduce_norm", "all_reduce", false, false},
    {"reduce_scatter", "_reduce_scatter_base", true, false},
    {"all_gather", "_all_gather_base", false, true},
    {"broadcast", "broadcast", false, false},
    {"all_to_all", "all_to_all", true, true},
    {"barrier", "all_reduce_barrier", false, false},
};

static int operation_of(const struct symm_sight_site *site)
{
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
        if (strcmp(site->op, operations[i].op) == 0)
            return (int)i;
    return -1;
}

static const char *dtype_name(const char *dtype)
{
    static const char *const names[][2] = {
        {"float32", "Float"},
        {"float64", "Double"},
        {"float16", "Half"},
        {"bfloat16", "BFloat16"},
        {"int8", "Char"},
        {"uint8", "Byte"},
        {"int16", "Short"},
        {"int32", "Int"},
        {"int64", "Long"},
        {"uint16", "UInt16"},
        {"uint32", "UInt32"},
        {"uint64", "UInt64"},
        {"float8_e4m3", "Float8_e4m3fn"},
        {"float8_e5m2", "Float8_e5m2"},
        {"bool", "Bool"},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(dtype, names[i][0]) == 0)
            return names[i][1];
    return *dtype ? dtype : "Float";
}

static bool is_group(const struct dump_sequence *sequence)
{
    return sequence->channel != SYMM_SIGHT_CONTROL && sequence->steps > 0;
}

static void group_name(const struct dump_sequence *sequence, char *name, size_t bytes)
{
    snprintf(name, bytes, "%08" PRIx32 ".%" PRIu32, sequence->team_uid,
             sequence->channel);
}

static const struct symm_sight_team *team_of(const struct dump_sequence *sequence)
{
    const struct symm_sight_team *team = NULL;

    for (int r = 0; r < sequence->ranks && !team; r++)
        team = symm__sight_team_of(sequence->lane[r].rank->page, sequence->team_uid);
    return team;
}

static void group_text(const struct dump_sequence *sequence, char *text, size_t bytes)
{
    const struct symm_sight_team *team = team_of(sequence);

    if (team && team->name[0])
        snprintf(text, bytes, "%s", team->name);
    else if (team && team->number > 0)
        snprintf(text, bytes, "team %" PRIu32, team->number);
    else
        snprintf(text, bytes, team ? "world" : "undefined");
}

/* "[0, 1, 2]": the members, or, of a team that is gone, the ranks that had calls. */
static void group_ranks(const struct dump_sequence *sequence, char *text, size_t bytes)
{
    const struct symm_sight_team *team = team_of(sequence);
    const int count =
        team && team->size <= SYMM_SIGHT_MEMBERS ? team->size : sequence->ranks;
    size_t used = (size_t)snprintf(text, bytes, "[");

    for (int r = 0; r < count && used + 16 < bytes; r++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", r ? ", " : "",
                                 count == sequence->ranks && !team
                                     ? sequence->lane[r].rank->page->rank
                                 : team && team->size <= SYMM_SIGHT_MEMBERS
                                     ? team->member[r]
                                     : sequence->lane[r].rank->page->rank);
    snprintf(text + used, bytes - used, "]");
}

static const struct dump_lane *lane_of(const struct dump_sequence *sequence,
                                       const struct symm_sight_rank *rank)
{
    for (int r = 0; r < sequence->ranks; r++)
        if (sequence->lane[r].rank == rank)
            return &sequence->lane[r];
    return NULL;
}

/* ---- Entries ------------------------------------------------------------------------------ */

static void emit_sizes(struct symm_emit *emit, const char *key, uint64_t count)
{
    symm__emit_key(emit, key);
    symm__emit_begin_list(emit);
    symm__emit_begin_list(emit);
    symm__emit_unsigned(emit, count);
    symm__emit_end_list(emit);
    symm__emit_end_list(emit);
}

static void emit_dtypes(struct symm_emit *emit, const char *key, const char *dtype)
{
    symm__emit_key(emit, key);
    symm__emit_begin_list(emit);
    symm__emit_string(emit, dtype_name(dtype));
    symm__emit_end_list(emit);
}

static const char *state_name(unsigned state)
{
    return state == SYMM_SIGHT_DONE     ? "completed"
           : state == SYMM_SIGHT_QUEUED ? "scheduled"
                                        : "started";
}

/* A frame that tells the site: fr_trace prints it. */
static void emit_frames(struct symm_emit *emit, const struct symm_sight_site *site)
{
    symm__emit_key(emit, "frames");
    symm__emit_begin_list(emit);
    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "name", site->name[0] ? site->name : site->op);
    symm__emit_key_string(emit, "filename", "libsymm site");
    symm__emit_key_signed(emit, "line", 0);
    symm__emit_end_map(emit);
    symm__emit_end_list(emit);
}

static void emit_times(struct symm_emit *emit, const struct symm_sight_rank *rank,
                       const struct symm_sight_call *call)
{
    const uint64_t begin = symm__sight_ns(rank->page, &rank->now, call->begin);
    const uint64_t end = symm__sight_ns(rank->page, &rank->now, call->end);
    const uint64_t real = rank->page->opened_real_ns - rank->page->opened_ns;

    symm__emit_key_unsigned(emit, "time_created_ns", begin ? begin + real : 0);
    symm__emit_key(emit, "time_discovered_started_ns");
    if (begin)
        symm__emit_unsigned(emit, begin + real);
    else
        symm__emit_string(emit, NULL);
    symm__emit_key(emit, "time_discovered_completed_ns");
    if (end)
        symm__emit_unsigned(emit, end + real);
    else
        symm__emit_string(emit, NULL);
}

static void emit_entry(struct symm_emit *emit, const struct dump_sequence *sequence,
                       const struct dump_lane *lane, int step, uint64_t record)
{
    const struct symm_sight_call *call = lane->call[step];
    const struct symm_sight_site *site = symm__sight_site(lane->rank->page, call->site);
    const int op = operation_of(site);
    const struct symm_sight_team *team = team_of(sequence);
    const uint64_t size = (uint64_t)(team ? team->size : sequence->ranks);
    char name[32], profiling[64], text[96];

    group_name(sequence, name, sizeof(name));
    group_text(sequence, text, sizeof(text));
    snprintf(profiling, sizeof(profiling), "nccl:%s", operations[op].name);
    symm__emit_begin_map(emit);
    symm__emit_key_unsigned(emit, "record_id", record);
    symm__emit_key_unsigned(emit, "pg_id", sequence->team_uid);
    symm__emit_key(emit, "process_group");
    symm__emit_begin_list(emit);
    symm__emit_string(emit, name);
    symm__emit_string(emit, text);
    symm__emit_end_list(emit);
    symm__emit_key_signed(emit, "collective_seq_id", step + 1);
    symm__emit_key_signed(emit, "p2p_seq_id", 0);
    symm__emit_key_signed(emit, "op_id", step + 1);
    symm__emit_key_string(emit, "profiling_name", profiling);
    emit_sizes(emit, "input_sizes",
               site->count * (operations[op].in_by_size ? size : 1));
    emit_sizes(emit, "output_sizes",
               site->count * (operations[op].out_by_size ? size : 1));
    emit_dtypes(emit, "input_dtypes", site->dtype);
    emit_dtypes(emit, "output_dtypes", site->dtype);
    symm__emit_key_string(emit, "state", state_name(call->word & 0xff));
    emit_times(emit, lane->rank, call);
    symm__emit_key_bool(emit, "retired", (call->word & 0xff) == SYMM_SIGHT_DONE);
    symm__emit_key_signed(emit, "timeout_ms", 0);
    symm__emit_key_bool(emit, "is_p2p", false);
    emit_frames(emit, site);
    symm__emit_end_map(emit);
}

/* ---- Files -------------------------------------------------------------------------------- */

static void emit_groups(struct symm_emit *emit, const struct symm_sight_rank *rank,
                        const struct dump_sequences *sequences)
{
    symm__emit_key(emit, "pg_config");
    symm__emit_begin_map(emit);
    for (int s = 0; s < sequences->count; s++) {
        const struct dump_sequence *sequence = &sequences->sequence[s];
        char name[32], text[96], ranks[1024];

        if (!is_group(sequence) || !lane_of(sequence, rank))
            continue;
        group_name(sequence, name, sizeof(name));
        group_text(sequence, text, sizeof(text));
        group_ranks(sequence, ranks, sizeof(ranks));
        symm__emit_key(emit, name);
        symm__emit_begin_map(emit);
        symm__emit_key_string(emit, "name", name);
        symm__emit_key_string(emit, "desc", text);
        symm__emit_key_string(emit, "ranks", ranks);
        symm__emit_end_map(emit);
    }
    symm__emit_end_map(emit);
}

static void emit_rank(struct symm_emit *emit, const struct symm_sight_rank *rank,
                      const struct dump_sequences *sequences)
{
    uint64_t record = 0;

    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "version", VERSION);
    emit_groups(emit, rank, sequences);
    symm__emit_key(emit, "pg_status");
    symm__emit_begin_map(emit);
    symm__emit_end_map(emit);
    symm__emit_key(emit, "entries");
    symm__emit_begin_list(emit);
    for (int s = 0; s < sequences->count; s++) {
        const struct dump_sequence *sequence = &sequences->sequence[s];
        const struct dump_lane *lane =
            is_group(sequence) ? lane_of(sequence, rank) : NULL;

        for (int step = 0; lane && step < sequence->steps; step++)
            if (lane->call[step] &&
                operation_of(symm__sight_site(rank->page, lane->call[step]->site)) >= 0)
                emit_entry(emit, sequence, lane, step, record++);
    }
    symm__emit_end_list(emit);
    symm__emit_end_map(emit);
}

bool symm__dump_torch(const char *folder, const struct symm_sight_ranks *ranks,
                      const struct dump_sequences *sequences)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "symm-info: %s cannot be made: %s\n", folder, strerror(errno));
        return false;
    }
    for (int i = 0; i < ranks->count; i++) {
        const struct symm_sight_rank *rank = &ranks->rank[i];
        struct symm_emit emit;
        char path[4096];
        int fd, error = 0;

        if (strcmp(rank->page->job, ranks->rank[0].page->job) != 0) {
            fprintf(stderr, "symm-info: there are ranks of several jobs, and fr_trace "
                            "takes one: --job JOB\n");
            return false;
        }
        snprintf(path, sizeof(path), "%.4000s/rank%d", folder, rank->page->rank);
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0)
            error = errno;
        if (fd >= 0) {
            symm__emit_init_fd(&emit, SYMM_EMIT_PICKLE, fd);
            emit_rank(&emit, rank, sequences);
            error = symm__emit_finish(&emit);
            if (close(fd) != 0 && error == 0)
                error = errno;
        }
        if (error) {
            fprintf(stderr, "symm-info: %s cannot be written: %s\n", path,
                    strerror(error));
            return false;
        }
    }
    return true;
}
