/* SPDX-License-Identifier: MIT */
/*
 * record.h - SYMM_RECORD: what this rank did, as one file that symm-plan merge reads.
 *
 * A recorder belongs to one context. Each successful call of the API appends one event;
 * symm_record_period cuts the events into segments, of which three are kept: those before
 * the first period, the first whole period, and those since the last cut. Every later
 * period is compared with the first one and dropped, so memory does not grow with time.
 * symm_finalize writes the file; until then the file says that it is not complete. Nothing here
 * ever fails a call of the program: what cannot be recorded becomes the file's `trouble`, a
 * sentence with which the merge refuses it.
 * Without SYMM_RECORD there is no recorder, and each hook is one branch.
 */
#ifndef SYMM_RECORD_RECORD_H
#define SYMM_RECORD_RECORD_H

#include "core/context.h"
#include "symm/norm.h"
#include "symm/record_kinds.h"

#define SYMM_RECORD_STREAMS 64
#define SYMM_RECORD_EVENTS  1000000 /* of one segment; a program has no more ops */

/* Compared as bytes: made from zeroes, so that padding is alike. */
struct symm_record_event {
    uint8_t kind, dtype, op;
    uint8_t forced;           /* the call names its algorithm */
    int16_t stream, on, team; /* indices; on: of a depend */
    int32_t peer, signal;     /* peer: of one-sided calls; the root of a broadcast */
    int32_t site;             /* index of its name; -1: none */
    int32_t in, out;          /* indices of buffers; -1: other memory, or none */
    uint64_t in_at, out_at;   /* bytes from the buffer's start */
    uint64_t count;           /* elements as the call counts; else bytes */
    /* all_reduce_norm: see struct symm_record_norm */
    uint32_t hidden;
    uint8_t part, quant, constant, reads, writes;
};

struct symm_record_segment {
    struct symm_record_event *events; /* owned */
    size_t count, room;
};

struct symm_record_buffer {
    uint64_t alloc_id;
    int16_t team;
    bool described; /* at least one annotation names it */
    bool varies;    /* its id was placed again with another shape */
    bool reached;   /* the program has a peer's address of it: unseen accesses */
    symm_dtype dtype;
    int ndim;
    int64_t shape[16], stride[16];
    size_t bytes;
};

/* A live buffer's place in the heap; the list is sorted by offset. */
struct symm_record_place {
    size_t offset, bytes;
    int32_t buffer;
};

struct symm_record_team {
    char name[64];
    int size, splits; /* splits: of this team, so far */
    int *ranks;       /* [size]; of the world; owned */
};

struct symm_recorder {
    symm_ctx *ctx;
    struct symm_recorder *next; /* of the process */
    uint64_t serial;            /* unique in the process */
    uint64_t job;               /* random, the same on all ranks */
    char *path;                 /* owned */
    pthread_mutex_t lock;       /* of all below */
    char trouble[SYMM_RECORD_BYTES];
    struct symm_record_team *teams; /* owned */
    int team_count;
    int16_t team_of[SYMM_MAX_TEAMS]; /* by slot; -1: none */
    void *streams[SYMM_RECORD_STREAMS];
    uint64_t done[SYMM_RECORD_STREAMS]; /* events on each stream, ever */
    int stream_count;
    struct symm_record_buffer *buffers; /* owned */
    int32_t buffer_count;
    struct symm_record_place *places; /* owned */
    size_t place_count, place_room;
    char **sites; /* owned, and their texts */
    int32_t site_count;
    size_t team_room, buffer_room, site_room;
    int32_t *site_slots; /* open hash of indices, -1: empty; a power of two; owned */
    size_t site_slot_count;
    struct symm_record_segment head, period, current;
    uint64_t periods; /* calls of symm_record_period that counted */
    int16_t period_team;
};

/* record.c */
/* A random number if SYMM_RECORD is set, else 0: rank 0's becomes the name of the job. */
uint64_t symm__record_key(void);
/* Opens the file; without SYMM_RECORD it does nothing. Errors name file and errno. */
symm_status symm__record_open(symm_ctx *ctx, uint64_t job) SYMM_MUST_CHECK;
/* Writes the file and frees the recorder. `forked`: frees memory only. */
void symm__record_close(symm_ctx *ctx, bool forked);
/* Keeps the first sentence. */
void symm__record_trouble(struct symm_recorder *recorder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* event.c: appends; each takes the lock */
/* What an event of an all_reduce_norm's row has beside its `in` and `out`. */
struct symm_record_norm {
    int part; /* its place in the row */
    size_t hidden;
    symm_norm_quant quant;
    bool constant;                   /* SYMM_NORM_CONSTANT */
    symm_record_array reads, writes; /* which arrays; SYMM_RECORD_ARRAYS: none */
};
struct symm_record_call {
    symm_record_kind kind;
    const symm_team *team;
    const void *in, *out;       /* NULL: none */
    size_t in_bytes, out_bytes; /* what is touched from there on */
    size_t count;
    symm_dtype dtype;
    symm_op op;
    int peer, signal;
    const char *site;
    const char *algorithm; /* NULL: the library chooses */
    const void *stream;
    const struct symm_record_norm *norm; /* NULL: it is no all_reduce_norm */
};
/* Records one call, or the row of an all_reduce_norm without other events between. work: NULL, or
 * the call's handle, which gets the call's place in its stream. */
void symm__record_calls(const struct symm_record_call *calls, int count,
                        symm_work *work);
/* Records that a stream waits for a handle: a depend, if nothing has followed the call on its
 * stream. */
void symm__record_wait(const symm_work *work, const void *stream);
void symm__record_depend(struct symm_recorder *recorder, const void *stream,
                         const void *on);
void symm__record_period(struct symm_recorder *recorder, const symm_team *team);

/* table.c: what events refer to. These five take the lock: */
/* Records a team that no split has made; origin: "world", "shrunk", "created". */
void symm__record_team(const symm_team *team, const char *origin);
/* A split of `parent` was made, with or without a new team for this rank. */
void symm__record_split(const symm_team *parent, const symm_team *team);
void symm__record_buffer(const symm_buffer *buffer);
void symm__record_unplace(const symm_buffer *buffer);
void symm__record_reached(const symm_buffer *buffer);
/* These are called with the lock held. Room for one more element of a list; false: memory is
 * exhausted, which is noted. */
bool symm__record_grow(struct symm_recorder *recorder, void **list, size_t count,
                       size_t *room, size_t bytes);
int symm__record_stream(struct symm_recorder *recorder, const void *stream);
int32_t symm__record_site(struct symm_recorder *recorder, const char *site);
/* The first live buffer that holds a byte of [ptr, ptr + bytes), or ptr itself if bytes is
 * 0: an index into places; -1: none. */
ptrdiff_t symm__record_find(const struct symm_recorder *recorder, const void *ptr,
                            size_t bytes);
size_t symm__record_offset(const struct symm_recorder *recorder, const void *ptr);

/* write.c */
/* Writes to a new file and renames it; complete: the rank came to its end. */
symm_status symm__record_write(const struct symm_recorder *recorder,
                               bool complete) SYMM_MUST_CHECK;

/* Is this context's rank recorded? */
static inline bool symm__is_recorded(const symm_ctx *ctx)
{
    return __builtin_expect(ctx->recorder != NULL, 0);
}

#endif
