/* SPDX-License-Identifier: MIT */
/*
 * fake_nccl_data.c - moves data for the fake NCCL, by a box of shared memory for each pair of
 * ranks. Transfers of one group run concurrently; those between the same ranks in one
 * direction run in order.
 */
#include "fake_nccl.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"

void fake_work_add(struct fake_work *work, struct fake_transfer transfer)
{
    if (work->count == work->capacity) {
        work->capacity = work->capacity ? 2 * work->capacity : 16;
        work->transfers =
            realloc(work->transfers, (size_t)work->capacity * sizeof(*work->transfers));
        if (!work->transfers)
            fake_nccl_die("no memory");
    }
    work->transfers[work->count++] = transfer;
}

void fake_work_free(struct fake_work *work)
{
    free(work->transfers);
    free(work->staged);
    free(work);
}

static size_t piece_of(const struct fake_transfer *t)
{
    size_t left = t->bytes - t->done;

    return left < FAKE_BOX_BYTES ? left : FAKE_BOX_BYTES;
}

static bool is_over(const struct fake_transfer *t)
{
    return t->begun && t->done == t->bytes;
}

static bool send_piece(struct fake_box *box, struct fake_transfer *t)
{
    size_t bytes = piece_of(t);

    if (atomic_load(&box->full))
        return false;
    if (bytes > 0)
        memcpy(box->data, t->at + t->done, bytes);
    box->bytes = (uint32_t)bytes;
    box->head = t->head;
    t->done += bytes;
    t->begun = true;
    atomic_store(&box->full, 1);
    return true;
}

static bool receive_piece(const struct fake_comm *comm, struct fake_box *box,
                          struct fake_transfer *t)
{
    size_t bytes = piece_of(t);

    if (!atomic_load(&box->full))
        return false;
    if (box->head.call != t->head.call || box->head.type != t->head.type ||
        box->head.count != t->head.count || box->bytes != bytes)
        fake_nccl_die("rank %d receives %llu elements of type %d, and rank %d sends "
                      "%llu of type %d in %s call",
                      comm->rank, (unsigned long long)t->head.count, t->head.type,
                      t->peer, (unsigned long long)box->head.count, box->head.type,
                      box->head.call == t->head.call ? "the same" : "another");
    if (box->head.registered != t->head.registered)
        fake_nccl_die("rank %d receives %llu bytes in memory that is %sregistered, and "
                      "rank %d sends them from memory that is %sregistered: NCCL would "
                      "wait for ever",
                      comm->rank, (unsigned long long)t->bytes,
                      t->head.registered ? "" : "not ", t->peer,
                      box->head.registered ? "" : "not ");
    if (bytes > 0)
        memcpy(t->at + t->done, box->data, bytes);
    t->done += bytes;
    t->begun = true;
    atomic_store(&box->full, 0);
    return true;
}

/* Is there an earlier one between the same ranks, in the same direction? */
static bool has_to_wait(const struct fake_work *work, int index)
{
    const struct fake_transfer *t = &work->transfers[index];

    for (int i = 0; i < index; i++)
        if (!is_over(&work->transfers[i]) && work->transfers[i].peer == t->peer &&
            work->transfers[i].sends == t->sends)
            return true;
    return false;
}

/* One look at all; how many are not over. */
static int advance(struct fake_work *work, bool *moved)
{
    const struct fake_comm *comm = work->comm;
    int left = 0;

    for (int i = 0; i < work->count; i++) {
        struct fake_transfer *t = &work->transfers[i];
        bool did;

        if (is_over(t))
            continue;
        left++;
        if (has_to_wait(work, i))
            continue;
        did = t->sends
                  ? send_piece(&comm->shared->box[comm->rank][t->peer], t)
                  : receive_piece(comm, &comm->shared->box[t->peer][comm->rank], t);
        *moved = *moved || did;
    }
    return left;
}

static void pause_a_moment(int *idle)
{
    if (++*idle < 100)
        sched_yield();
    else
        symm__sleep(FAKE_NCCL_PAUSE);
}

static void move(struct fake_work *work)
{
    int idle = 0;

    while (!atomic_load(&work->comm->abort)) {
        bool moved = false;

        if (!work->hangs && advance(work, &moved) == 0)
            return;
        if (moved)
            idle = 0;
        else
            pause_a_moment(&idle);
    }
}

static void reduce(const struct fake_work *work)
{
    const void *sources[FAKE_RANKS];
    void *out = work->out;

    for (int r = 0; r < work->comm->size; r++)
        sources[r] = work->staged + (size_t)r * work->elements * work->element;
    if (work->elements > 0)
        work->reduce(&out, 1, sources, work->comm->size, work->elements);
}

static void take_turn(struct fake_work *work)
{
    struct fake_comm *comm = work->comm;

    pthread_mutex_lock(&comm->lock);
    while (work->ticketed && comm->serving != work->ticket)
        pthread_cond_wait(&comm->turn, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

static void pass_turn(struct fake_work *work)
{
    struct fake_comm *comm = work->comm;

    pthread_mutex_lock(&comm->lock);
    if (work->ticketed)
        comm->serving++;
    pthread_cond_broadcast(&comm->turn);
    pthread_mutex_unlock(&comm->lock);
}

void fake_work_run(void *arg)
{
    struct fake_work *work = arg;
    struct fake_comm *comm = work->comm;

    if (work->captured) { /* it runs at each launch of the graph */
        atomic_fetch_add(&comm->flight, 1);
        for (int i = 0; i < work->count; i++) {
            work->transfers[i].begun = false;
            work->transfers[i].done = 0;
        }
    }
    take_turn(work);
    atomic_fetch_add(&comm->running, 1);
    move(work);
    if (work->staged && !atomic_load(&comm->abort))
        reduce(work);
    atomic_fetch_sub(&comm->running, 1);
    pass_turn(work);
    if (!work->captured)
        fake_work_free(work);
    atomic_fetch_sub(&comm->flight, 1);
}
