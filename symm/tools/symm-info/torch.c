/* SPDX-License-Identifier: MIT */
/*
 * torch.c - the calls of each rank as a pickle in the format of PyTorch's flight recorder
 * (version 2.10, that of PyTorch 2.11), for torch.distributed.flight_recorder.fr_trace.
 *
 * Each channel of a team is a process group. Operations have NCCL's names; a fused norm is an
 * all_reduce. One-sided calls are left out, and so are exchanges over sockets.
 *
 * Sends and receives: fr_trace asks every member of a group for its part in each number. So the
 * messages from one rank to another are a group of these two, in which the k-th send and the k-th
 * receive have number k. A message that only one of the two has in its list is given if the other
 * has not got that far. It is left out if it may have left the other's list; and so are all of a
 * pair that may have other messages in between, as part of a batch or received from any rank.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/symm-info/dump.h"
#include "util/emit.h"
#include "util/file.h"

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

/* ---- Messages between two ranks ---------------------------------------------------------- */

struct message {
    const struct symm_sight_rank *rank;
    const struct symm_sight_call *call;
    const struct symm_sight_site *site;
    int from, to; /* ranks of the job */
};

/* A send or a receive with a peer that is named. */
static bool is_message(const struct symm_sight_rank *rank,
                       const struct symm_sight_call *call, struct message *message)
{
    const struct symm_sight_site *site = symm__sight_site(rank->page, call->site);
    bool sends = site && strcmp(site->op, "send") == 0;

    if (!site || site->channel != SYMM_SIGHT_PAIRS || site->root < 0 ||
        site->root == rank->page->rank || call->epoch == 0 ||
        !(sends || strcmp(site->op, "recv") == 0))
        return false;
    *message = (struct message){.rank = rank,
                                .call = call,
                                .site = site,
                                .from = sends ? rank->page->rank : site->root,
                                .to = sends ? site->root : rank->page->rank};
    return true;
}

/* Has the rank batches in the team, or receives from any rank? */
static bool mixes(const struct symm_sight_rank *rank, uint32_t team_uid)
{
    for (int i = 0; i < SYMM_SIGHT_CALLS; i++) {
        const struct symm_sight_call *call = &rank->page->call[i];
        const struct symm_sight_site *site =
            call->word ? symm__sight_site(rank->page, call->site) : NULL;

        if (site && site->channel == SYMM_SIGHT_PAIRS && site->team_uid == team_uid &&
            site->root < 0)
            return true;
    }
    return false;
}

static bool is_same_pair(const struct message *a, const struct message *b)
{
    return a->site->team_uid == b->site->team_uid && a->from == b->from &&
           a->to == b->to;
}

/* Does the other rank have the message's other end, or will it, as far as its list says? */
static bool is_told_by(const struct symm_sight_rank *other,
                       const struct message *message)
{
    const uint64_t kept = SYMM_SIGHT_CALLS - 1;
    bool any = false, ahead = true;

    for (int i = 0; i < SYMM_SIGHT_CALLS; i++) {
        struct message theirs;

        if (other->page->call[i].word == 0 ||
            !is_message(other, &other->page->call[i], &theirs) ||
            !is_same_pair(&theirs, message))
            continue;
        if (theirs.call->epoch == message->call->epoch)
            return true;
        any = true;
        ahead = ahead && (int32_t)(message->call->epoch - theirs.call->epoch) > 0;
    }
    return any ? ahead : other->page->calls <= kept && other->page->left_out == 0;
}

static bool is_told(const struct symm_sight_ranks *ranks, const struct message *message)
{
    const struct symm_sight_page *page = message->rank->page;

    if (mixes(message->rank, message->site->team_uid))
        return false;
    for (int r = 0; r < ranks->count; r++)
        if (ranks->rank[r].page->rank == message->site->root &&
            strcmp(ranks->rank[r].page->job, page->job) == 0)
            return !mixes(&ranks->rank[r], message->site->team_uid) &&
                   is_told_by(&ranks->rank[r], message);
    return true; /* it is missing: fr_trace says so */
}

/* The rank's messages, oldest first. Returns how many. */
static int messages_of(const struct symm_sight_ranks *ranks,
                       const struct symm_sight_rank *rank,
                       struct message messages[SYMM_SIGHT_CALLS])
{
    const struct symm_sight_call *list[SYMM_SIGHT_CALLS];
    int count = 0;

    for (int i = symm__sight_calls(rank->page, list); i-- > 0;)
        if (is_message(rank, list[i], &messages[count]) &&
            is_told(ranks, &messages[count]))
            count++;
    return count;
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

struct entry {
    const char *group, *text; /* name and description of the process group */
    const char *name;         /* of the operation */
    uint32_t team_uid;
    int64_t number; /* in the group, from 1 */
    bool message;   /* between two ranks */
    uint64_t in, out;
};

static void emit_entry(struct symm_emit *emit, const struct symm_sight_rank *rank,
                       const struct symm_sight_call *call, const struct entry *entry,
                       uint64_t record)
{
    const struct symm_sight_site *site = symm__sight_site(rank->page, call->site);
    char profiling[64];

    snprintf(profiling, sizeof(profiling), "nccl:%s", entry->name);
    symm__emit_begin_map(emit);
    symm__emit_key_unsigned(emit, "record_id", record);
    symm__emit_key_unsigned(emit, "pg_id", entry->team_uid);
    symm__emit_key(emit, "process_group");
    symm__emit_begin_list(emit);
    symm__emit_string(emit, entry->group);
    symm__emit_string(emit, entry->text);
    symm__emit_end_list(emit);
    symm__emit_key_signed(emit, "collective_seq_id", entry->number);
    symm__emit_key_signed(emit, "p2p_seq_id", entry->message ? entry->number : 0);
    symm__emit_key_signed(emit, "op_id", entry->number);
    symm__emit_key_string(emit, "profiling_name", profiling);
    emit_sizes(emit, "input_sizes", entry->in);
    emit_sizes(emit, "output_sizes", entry->out);
    emit_dtypes(emit, "input_dtypes", site->dtype);
    emit_dtypes(emit, "output_dtypes", site->dtype);
    symm__emit_key_string(emit, "state", state_name(call->word & 0xff));
    emit_times(emit, rank, call);
    symm__emit_key_bool(emit, "retired", (call->word & 0xff) == SYMM_SIGHT_DONE);
    symm__emit_key_signed(emit, "timeout_ms", 0);
    symm__emit_key_bool(emit, "is_p2p", entry->message);
    emit_frames(emit, site);
    symm__emit_end_map(emit);
}

static void emit_collectives(struct symm_emit *emit,
                             const struct dump_sequence *sequence,
                             const struct dump_lane *lane, uint64_t *record)
{
    const struct symm_sight_team *team = team_of(sequence);
    const uint64_t size = (uint64_t)(team ? team->size : sequence->ranks);
    char name[32], text[96];

    group_name(sequence, name, sizeof(name));
    group_text(sequence, text, sizeof(text));
    for (int step = 0; step < sequence->steps; step++) {
        const struct symm_sight_call *call = lane->call[step];
        const struct symm_sight_site *site =
            call ? symm__sight_site(lane->rank->page, call->site) : NULL;
        const int op = site ? operation_of(site) : -1;

        if (op < 0)
            continue;
        emit_entry(emit, lane->rank, call,
                   &(struct entry){
                       .group = name,
                       .text = text,
                       .name = operations[op].name,
                       .team_uid = sequence->team_uid,
                       .number = step + 1,
                       .in = site->count * (operations[op].in_by_size ? size : 1),
                       .out = site->count * (operations[op].out_by_size ? size : 1)},
                   (*record)++);
    }
}

static void pair_name(const struct message *message, char *name, size_t bytes)
{
    snprintf(name, bytes, "%08" PRIx32 ".%d.%d", message->site->team_uid, message->from,
             message->to);
}

static void pair_text(const struct message *message, char *text, size_t bytes)
{
    snprintf(text, bytes, "messages from rank %d to rank %d", message->from,
             message->to);
}

static void emit_message(struct symm_emit *emit, const struct message *message,
                         uint64_t record)
{
    const bool sends = message->rank->page->rank == message->from;
    const int place = message->from < message->to ? 0 : 1; /* of the sender */
    char group[48], text[64], name[32];

    pair_name(message, group, sizeof(group));
    pair_text(message, text, sizeof(text));
    if (sends)
        snprintf(name, sizeof(name), "send %d->%d", place, 1 - place);
    else
        snprintf(name, sizeof(name), "recv %d<-%d", 1 - place, place);
    emit_entry(emit, message->rank, message->call,
               &(struct entry){.group = group,
                               .text = text,
                               .name = name,
                               .team_uid = message->site->team_uid,
                               .number = message->call->epoch,
                               .message = true,
                               .in = message->site->count,
                               .out = message->site->count},
               record);
}

/* ---- Files -------------------------------------------------------------------------------- */

static void emit_group(struct symm_emit *emit, const char *name, const char *text,
                       const char *ranks)
{
    symm__emit_key(emit, name);
    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "name", name);
    symm__emit_key_string(emit, "desc", text);
    symm__emit_key_string(emit, "ranks", ranks);
    symm__emit_end_map(emit);
}

static void emit_pair(struct symm_emit *emit, const struct message *message)
{
    char name[48], text[64], ranks[32];

    pair_name(message, name, sizeof(name));
    pair_text(message, text, sizeof(text));
    snprintf(ranks, sizeof(ranks), "[%d, %d]", message->from, message->to);
    emit_group(emit, name, text, ranks);
}

static void emit_groups(struct symm_emit *emit, const struct symm_sight_rank *rank,
                        const struct dump_sequences *sequences,
                        const struct message *messages, int count)
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
        emit_group(emit, name, text, ranks);
    }
    for (int i = 0; i < count; i++) {
        bool first = true;

        for (int j = 0; j < i && first; j++)
            first = !is_same_pair(&messages[i], &messages[j]);
        if (first)
            emit_pair(emit, &messages[i]);
    }
    symm__emit_end_map(emit);
}

static void emit_rank(struct symm_emit *emit, const struct symm_sight_ranks *ranks,
                      const struct symm_sight_rank *rank,
                      const struct dump_sequences *sequences)
{
    struct message messages[SYMM_SIGHT_CALLS];
    const int count = messages_of(ranks, rank, messages);
    uint64_t record = 0;

    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "version", VERSION);
    emit_groups(emit, rank, sequences, messages, count);
    symm__emit_key(emit, "pg_status");
    symm__emit_begin_map(emit);
    symm__emit_end_map(emit);
    symm__emit_key(emit, "entries");
    symm__emit_begin_list(emit);
    for (int s = 0; s < sequences->count; s++) {
        const struct dump_sequence *sequence = &sequences->sequence[s];
        const struct dump_lane *lane =
            is_group(sequence) ? lane_of(sequence, rank) : NULL;

        if (lane)
            emit_collectives(emit, sequence, lane, &record);
    }
    for (int i = 0; i < count; i++)
        emit_message(emit, &messages[i], record++);
    symm__emit_end_list(emit);
    symm__emit_end_map(emit);
}

bool symm__dump_torch(const char *folder, const struct symm_sight_ranks *ranks,
                      const struct dump_sequences *sequences)
{
    for (int i = 1; i < ranks->count; i++)
        if (strcmp(ranks->rank[i].page->job, ranks->rank[0].page->job) != 0) {
            fprintf(stderr, "symm-info: there are ranks of several jobs, and fr_trace "
                            "takes one: --job JOB\n");
            return false;
        }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "symm-info: %s cannot be made: %s\n", folder, strerror(errno));
        return false;
    }
    for (int i = 0; i < ranks->count; i++) {
        const struct symm_sight_rank *rank = &ranks->rank[i];
        struct symm_file file;
        struct symm_emit emit;
        char path[4096];
        int fd, error = 0;

        snprintf(path, sizeof(path), "%.4000s/rank%d", folder, rank->page->rank);
        fd = symm__file_begin(&file, path);
        if (fd < 0) {
            error = errno;
        } else {
            symm__emit_init_fd(&emit, SYMM_EMIT_PICKLE, fd);
            emit_rank(&emit, ranks, rank, sequences);
            error = symm__emit_finish(&emit);
            if (close(fd) != 0 && error == 0)
                error = errno;
            error = symm__file_end(&file, error);
        }
        if (error) {
            fprintf(stderr, "symm-info: %s cannot be written: %s\n", path,
                    strerror(error));
            return false;
        }
    }
    return true;
}
