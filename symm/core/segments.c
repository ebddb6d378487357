/* SPDX-License-Identifier: MIT */
/*
 * segments.c - a team's range of the heap: own segments, and every peer's mapped beside them.
 *
 * Own memory grows by segments of whole granules, locally. On a device a segment is an allocation
 * of the driver, and no buffer is part of two: what others register of a buffer (NCCL, an RDMA
 * library) they register by allocation. Sharing is one exchange that
 * carries all new segments of all ranks, then one that reports whether every rank could map
 * them: if one could not, all undo it. (If the second exchange itself ends differently on two
 * ranks, by a death or the deadline, the next sharing is refused.) Members on other hosts send no
 * descriptors: those of this rank's domain are mapped by fabric handles. Members of other domains
 * take part: only the end of their memory is compared. Refuses: segments outside the team's
 * range, not of whole granules, or not adjoining what that rank shared before; a rank whose
 * segments do not cover the pad, the scratch, the plan's arena and every live buffer of the team.
 * Every rank refuses in the same step.
 */
#include "core/segments.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/device_ops.h"
#include "core/registered.h"
#include "core/team.h"
#include "core/trace.h"
#include "util/status.h"

/* One member's part of the exchange: this head, then `segments` of wire_segment, then their fabric
 * handles, where the sender's domain is over several hosts, then what registered.c sends of
 * registered memory. Descriptors come in the same order; they reach ranks of one host. */
struct wire_head {
    uint64_t digest;
    uint64_t segments;
    uint64_t registered; /* bytes */
    uint64_t end;        /* of all segments, in the heap */
    /* bytes of each segment's fabric handle, after all segments; 0: none */
    uint64_t handle;
};

struct wire_segment {
    uint64_t offset, bytes;
};

static char *own_address(const symm_team *team, int member, size_t offset)
{
    const symm_ctx *ctx = team->ctx;

    return symm__heap_base(ctx, team->world_rank[member]) + offset;
}

size_t symm__memory_committed(const symm_team *team)
{
    const struct symm_segment *last;

    if (team->segment_count == 0)
        return team->begin;
    last = &team->segments[team->segment_count - 1];
    return last->offset + last->bytes;
}

static symm_status segments_reserve(symm_team *team)
{
    size_t capacity = team->segment_capacity ? 2 * team->segment_capacity : 8;
    struct symm_segment *grown;

    if (team->segment_count < team->segment_capacity)
        return SYMM_OK;
    grown = realloc(team->segments, capacity * sizeof(*grown));
    if (!grown)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of %zu segments",
                          capacity);
    team->segments = grown;
    team->segment_capacity = capacity;
    return SYMM_OK;
}

/* Bytes at the beginning of the segment at `from` that are never used. A team over hosts does not
 * use the slots of its pad: its local teams run its collectives. The slots of 4,096 ranks on one
 * machine take 7 GiB. */
static size_t unused_bytes(const symm_team *team, size_t from)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return team->spans && from == team->begin && !team->ctx->device_ops
               ? offsetof(struct symm_pad, signals) / page * page
               : 0;
}

symm_status symm__memory_grow(symm_team *team, size_t end)
{
    symm_ctx *ctx = team->ctx;
    size_t from = symm__memory_committed(team), granule = ctx->granularity, bytes;
    struct symm_segment *segment;
    symm_status status;
    char *at;

    if (end <= from)
        return SYMM_OK;
    status = segments_reserve(team);
    if (status != SYMM_OK)
        return status;
    bytes = (end - from + granule - 1) / granule * granule;
    if (bytes > team->end - from)
        bytes = team->end - from;
    if (ctx->device_ops) {
        status = symm__heap_edge(&team->heap, from + bytes);
        if (status != SYMM_OK)
            return status;
    }
    segment = &team->segments[team->segment_count];
    at = own_address(team, team->rank, from);
    status = ctx->ops->commit(ctx->backend, at, bytes, unused_bytes(team, from),
                              &segment->handle);
    if (status != SYMM_OK) {
        symm__heap_edge_drop(&team->heap, from + bytes);
        return status;
    }
    segment->offset = from;
    segment->bytes = bytes;
    team->segment_count++;
    symm__trace_segment(ctx, SYMM_TRACE_ALLOC, at, bytes);
    return SYMM_OK;
}

/* What is sent to the members. */
struct message {
    struct wire_head *head; /* with all that follows it; owned */
    size_t bytes;
    int *fds; /* owned; those in it are the segments' and the registrations' */
    int fds_count;
};

/* Bytes of what comes before the registrations. */
static size_t segments_bytes(const struct wire_head *head)
{
    return sizeof(*head) +
           (size_t)head->segments * (sizeof(struct wire_segment) + head->handle);
}

static size_t first_new(const symm_team *team)
{
    size_t first = 0;

    while (first < team->segment_count &&
           team->segments[first].offset < team->extent[team->local_rank])
        first++;
    return first;
}

/* The fabric handles of the segments from that one on. */
static symm_status handles_write(const symm_team *team, size_t first, uint8_t *handles)
{
    const symm_ctx *ctx = team->ctx;
    symm_status status = SYMM_OK;

    for (size_t i = first; i < team->segment_count && status == SYMM_OK; i++)
        status = ctx->ops->fabric->handle(
            ctx->backend, own_address(team, team->rank, team->segments[i].offset),
            handles + (i - first) * SYMM_FABRIC_BYTES);
    return status;
}

/* Own new segments and registrations; returns a message that is freed in any case. */
static symm_status pack(const symm_team *team, uint64_t digest, struct message *message)
{
    size_t first = first_new(team), fresh = team->segment_count - first, registered = 0;
    const size_t handle = team->ctx->wide ? SYMM_FABRIC_BYTES : 0;
    int *more = NULL, more_count = 0, sent = team->ctx->thread_group ? 0 : (int)fresh;
    void *tail = NULL;
    struct wire_segment *wire;
    symm_status status =
        symm__registered_pack(team, &tail, &registered, &more, &more_count);

    if (status != SYMM_OK)
        return status;
    if (fresh + (size_t)more_count > SYMM_EXCHANGE_MAX_FDS) {
        status = symm__fail(SYMM_ERR_OVERFLOW,
                            "%zu new segments at one rendezvous, more than %d; "
                            "rendezvous more often",
                            fresh + (size_t)more_count, SYMM_EXCHANGE_MAX_FDS);
        goto out;
    }
    message->bytes =
        sizeof(*message->head) + fresh * (sizeof(*wire) + handle) + registered;
    message->head = calloc(1, message->bytes);
    message->fds = calloc(fresh + (size_t)more_count + 1, sizeof(*message->fds));
    if (!message->head || !message->fds) {
        status =
            symm__fail(SYMM_ERR_NOMEM, "no memory for a list of %zu segments", fresh);
        goto out;
    }
    *message->head = (struct wire_head){.digest = digest,
                                        .segments = fresh,
                                        .registered = registered,
                                        .end = symm__memory_committed(team),
                                        .handle = handle};
    wire = (struct wire_segment *)(message->head + 1);
    for (size_t i = 0; i < fresh; i++) {
        wire[i].offset = team->segments[first + i].offset;
        wire[i].bytes = team->segments[first + i].bytes;
        message->fds[i] = team->segments[first + i].handle;
    }
    if (handle > 0)
        status = handles_write(team, first, (uint8_t *)(wire + fresh));
    if (registered > 0)
        memcpy((uint8_t *)(wire + fresh) + fresh * handle, tail, registered);
    if (more_count > 0)
        memcpy(message->fds + sent, more, (size_t)more_count * sizeof(*more));
    message->fds_count = sent + more_count; /* threads share the mapping itself */
out:
    free(tail);
    free(more);
    return status;
}

/* Checks the head of a member's message; what follows it is checked one by one. */
static symm_status unpack(const symm_team *team, int member,
                          const struct symm_oob_message *message,
                          struct wire_head *head)
{
    if (message->bytes_count >= sizeof(*head)) {
        memcpy(head, message->bytes, sizeof(*head));
        if (head->segments <= SYMM_EXCHANGE_MAX_FDS &&
            (head->handle == 0 || head->handle == SYMM_FABRIC_BYTES) &&
            head->registered <= SYMM_EXCHANGE_MAX_BYTES &&
            message->bytes_count == segments_bytes(head) + head->registered &&
            (team->ctx->thread_group || member == team->rank ||
             symm__is_far(team->ctx, team->world_rank[member]) ||
             (head->registered > 0 ? (uint64_t)message->fds_count >= head->segments
                                   : (uint64_t)message->fds_count == head->segments)))
            return SYMM_OK;
    }
    return symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed list of segments",
                      team->world_rank[member]);
}

/* Adds the ranks to the sentence of the backend, which does not know them. */
static symm_status import_failed(const symm_team *team, int member, uint64_t offset,
                                 symm_status status)
{
    char sentence[SYMM_ERROR_BYTES];

    snprintf(sentence, sizeof(sentence),
             "rank %d cannot map the segment of rank %d at offset %llu: %s",
             team->ctx->rank, team->world_rank[member], (unsigned long long)offset,
             symm_last_error());
    return symm__fail_quiet(status, sentence);
}

/* A segment of a peer, which ranks of other hosts know by its fabric handle. */
static symm_status map_one(const symm_team *team, int place,
                           const struct symm_oob_message *message,
                           const struct wire_head *head, size_t index, char *at,
                           size_t bytes)
{
    const symm_ctx *ctx = team->ctx;
    const size_t handles =
        sizeof(*head) + (size_t)head->segments * sizeof(struct wire_segment);

    if (ctx->thread_group)
        return ctx->ops->reach(ctx->backend, at, bytes);
    if (!symm__team_far_at(team, place))
        return ctx->ops->import(ctx->backend, message->fds[index], at, bytes);
    if (head->handle == 0)
        return symm__fail(SYMM_ERR_REFUSED, "it came without a fabric handle");
    return ctx->ops->fabric->import(
        ctx->backend, (const uint8_t *)message->bytes + handles + index * head->handle,
        at, bytes);
}

/* Maps one segment of the member at that place. */
static symm_status import_one(symm_team *team, int place,
                              const struct symm_oob_message *message,
                              const struct wire_head *head, size_t index)
{
    symm_ctx *ctx = team->ctx;
    const int member = team->local[place];
    struct wire_segment wire;
    symm_status status;

    memcpy(&wire,
           (char *)message->bytes + sizeof(struct wire_head) + index * sizeof(wire),
           sizeof(wire));
    if (wire.offset != team->extent[place] || wire.bytes == 0 ||
        wire.bytes % ctx->granularity != 0 || wire.bytes > team->end - wire.offset)
        return symm__fail(
            SYMM_ERR_REFUSED,
            "rank %d shares a segment at offset %llu of %llu bytes where one "
            "at %zu was expected",
            team->world_rank[member], (unsigned long long)wire.offset,
            (unsigned long long)wire.bytes, team->extent[place]);
    if (member != team->rank) {
        char *at = own_address(team, member, wire.offset);

        status = map_one(team, place, message, head, index, at, wire.bytes);
        if (status != SYMM_OK)
            return import_failed(team, member, wire.offset, status);
    }
    team->extent[place] += wire.bytes;
    return SYMM_OK;
}

/* What the member has registered, after its segments. */
static symm_status map_registered(symm_team *team, int member,
                                  const struct symm_oob_message *message,
                                  const struct wire_head *head)
{
    bool fds = !team->ctx->thread_group && member != team->rank;
    size_t at = segments_bytes(head);

    return symm__registered_map(team, member, (char *)message->bytes + at,
                                head->registered,
                                fds ? message->fds + head->segments : NULL,
                                fds ? message->fds_count - (int)head->segments : 0);
}

/* Maps what the members of this domain sent. On error team->extent has what is mapped. */
static symm_status import_all(symm_team *team, struct symm_oob_message *messages)
{
    for (int p = 0; p < team->local_size; p++) {
        const int m = team->local[p];
        struct wire_head head;
        symm_status status = unpack(team, m, &messages[m], &head);

        for (size_t i = 0; status == SYMM_OK && i < head.segments; i++)
            status = import_one(team, p, &messages[m], &head, i);
        if (status == SYMM_OK && head.registered > 0 && !symm__team_far_at(team, p))
            status = map_registered(team, m, &messages[m], &head);
        if (status != SYMM_OK)
            return status;
    }
    return SYMM_OK;
}

/* Offset that the memory of every member must reach: pad, scratch, arena, live buffers.
 * The digests agree, so that it is the same on all members. */
static size_t extent_needed(const symm_team *team)
{
    size_t needed = team->heap.begin;

    if (team->plan_end > needed)
        needed = team->plan_end;
    for (size_t i = 0; i < team->buffer_count; i++) {
        const symm_buffer *buffer = team->buffers[i];

        if (!buffer->registration && buffer->offset + buffer->bytes > needed)
            needed = buffer->offset + buffer->bytes;
    }
    return needed;
}

/* What the members have sent, summed up. */
struct survey {
    size_t fresh;   /* segments and registrations */
    size_t end;     /* the lowest end of a member's memory, as reported */
    size_t far_end; /* the lowest end among members of other domains, */
    int far_member; /* and that member; -1: there are none */
};

static symm_status survey_all(const symm_team *team,
                              const struct symm_oob_message *messages,
                              uint64_t *digests, struct survey *survey)
{
    *survey = (struct survey){.end = SIZE_MAX, .far_end = SIZE_MAX, .far_member = -1};
    for (int m = 0; m < team->size; m++) {
        struct wire_head head;
        symm_status status = unpack(team, m, &messages[m], &head);

        if (status != SYMM_OK)
            return status;
        digests[m] = head.digest;
        survey->fresh += head.segments + head.registered;
        survey->end = head.end < survey->end ? head.end : survey->end;
        if (head.end >= survey->far_end || symm__team_place(team, m) >= 0)
            continue;
        survey->far_end = head.end;
        survey->far_member = m;
    }
    return SYMM_OK;
}

/* The member whose memory ends first, and where. */
static int find_least(const symm_team *team, const struct survey *survey, size_t *end)
{
    int least = survey->far_member;

    *end = survey->far_end;
    for (int p = 0; p < team->local_size; p++)
        if (least < 0 || team->extent[p] < *end) {
            *end = team->extent[p];
            least = team->local[p];
        }
    return least;
}

/* A member that is short would leave its peers' pointers unmapped. */
static symm_status check_extents(const symm_team *team, const struct survey *survey)
{
    size_t end;
    const int m = find_least(team, survey, &end);

    if (end >= extent_needed(team))
        return SYMM_OK;
    return symm__fail(SYMM_ERR_REFUSED,
                      "rank %d shares memory up to offset %zu, but the team's pad and "
                      "buffers reach %zu; does that rank run this version of libsymm, "
                      "undamaged?",
                      team->world_rank[m], end, extent_needed(team));
}

static void import_undo(symm_team *team, const size_t *before)
{
    symm_ctx *ctx = team->ctx;

    for (int p = 0; p < team->local_size; p++) {
        if (!ctx->thread_group && p != team->local_rank && team->extent[p] > before[p])
            ctx->ops->unmap(ctx->backend, own_address(team, team->local[p], before[p]),
                            team->extent[p] - before[p]);
        team->extent[p] = before[p];
    }
}

static void shared_done(symm_team *team, const struct survey *survey)
{
    size_t shared;

    (void)find_least(team, survey, &shared);
    /* Calls of other threads read it meanwhile: it must never be too large. */
    __atomic_store_n(&team->shared, shared, __ATOMIC_RELEASE);
    for (size_t i = 0; i < team->segment_count; i++) {
        if (team->segments[i].handle >= 0)
            close(team->segments[i].handle);
        team->segments[i].handle = -1;
    }
}

/* The second step: either all ranks could map everything, or all undo it. */
static symm_status import_agreed(symm_team *team, const char *what, double timeout,
                                 const struct survey *survey)
{
    struct symm_room *room = &team->ctx->room;
    size_t before[SYMM_MAX_PLACES];
    char step[64];
    symm_status status;

    memcpy(before, team->extent, sizeof(before));
    status = import_all(team, room->messages);
    if (status == SYMM_OK)
        status = check_extents(team, survey);
    if (status == SYMM_OK)
        status = symm__registered_check(team);
    /* A name of its own: a rank that has not ended the first step takes no part of this one for
     * one of that. */
    snprintf(step, sizeof(step), "%s: have all mapped all?", what);
    status = symm__team_exchange(
        team, step, timeout, &(struct symm_own_message){.status = status}, room->acks);
    symm__oob_messages_finish(room->acks, team->size);
    if (status != SYMM_OK) {
        import_undo(team, before);
        symm__registered_undo(team);
    }
    return status;
}

symm_status symm__memory_share(symm_team *team, const char *what, double timeout,
                               symm_status mine, uint64_t digest, symm_agree_fn agree)
{
    const struct symm_device_ops *device = team->ctx->device_ops;
    struct symm_room *room = &team->ctx->room;
    struct message message = {0};
    struct survey survey;
    symm_status status;

    if (mine == SYMM_OK)
        mine = pack(team, digest, &message);
    status =
        symm__team_exchange(team, what, timeout,
                            &(struct symm_own_message){.status = mine,
                                                       .bytes = message.head,
                                                       .bytes_count = message.bytes,
                                                       .fds = message.fds,
                                                       .fds_count = message.fds_count},
                            room->messages);
    free(message.head);
    free(message.fds);
    if (status == SYMM_OK)
        status = survey_all(team, room->messages, room->words, &survey);
    if (status == SYMM_OK && agree)
        status = agree(team, room->words);
    /* A rank whose memory is too short is reported to all also if there are no new segments. */
    if (status == SYMM_OK && (survey.fresh > 0 || survey.end < extent_needed(team)))
        status = import_agreed(team, what, timeout, &survey);
    if (status == SYMM_OK) {
        shared_done(team, &survey);
        symm__registered_done(team);
    }
    symm__oob_messages_finish(room->messages, team->size);
    return status == SYMM_OK && device ? device->memory_shared(team, timeout) : status;
}

void symm__memory_release(symm_team *team)
{
    symm_ctx *ctx = team->ctx;

    for (size_t i = 0; i < team->segment_count; i++) {
        struct symm_segment *segment = &team->segments[i];

        symm__trace_segment(ctx, SYMM_TRACE_FREE,
                            own_address(team, team->rank, segment->offset),
                            segment->bytes);
        if (segment->handle >= 0)
            close(segment->handle);
    }
    /* Threads share one mapping that a peer may still read: it lives as long as the group. */
    for (int p = 0; !ctx->thread_group && p < team->local_size; p++) {
        size_t end =
            p == team->local_rank ? symm__memory_committed(team) : team->extent[p];

        if (end > team->begin)
            ctx->ops->unmap(ctx->backend,
                            own_address(team, team->local[p], team->begin),
                            end - team->begin);
    }
    free(team->segments);
    team->segments = NULL;
    team->segment_count = team->segment_capacity = 0;
}
