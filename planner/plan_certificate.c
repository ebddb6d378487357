/* SPDX-License-Identifier: MIT */
/*
 * plan_certificate.c - for every two buffers that share bytes, and for each buffer and
 * itself a period later, what orders the last accesses to one before the first write of
 * the other. The vocabulary is in docs/planner.md.
 *
 * The clock before a first write says, for every stream of every rank, not only how far it
 * has come for certain but also what brought that knowledge: the last wait, barrier or
 * completion on the way. Those names are the entry; being ordered by the stream or a depend
 * alone is said only where nothing else is needed.
 */
#include <stdlib.h>
#include <string.h>

#include "plan_private.h"
#include "program_private.h"
#include "status.h"

#define MAX_VIAS 8 /* named in one entry; what is beyond is not needed to be found */

struct certifier {
    struct plan_private *plan;
    const struct lifetimes *lives;
    const char **before, **after; /* by buffer: BUFFER@LABEL */
    const char **names;           /* by via: its name, when it was asked for */
    struct {
        uint32_t vias[MAX_VIAS];
        int count;
        const char *text;
    } recent; /* the last combination, which the next one often repeats */
    size_t room;
};

static const char *name_via(struct certifier *certifier, uint32_t via)
{
    static const char *const kinds[] = {"stream",     "depend", "entry", "exit",
                                        "completion", "wait",   "?",     "?"};
    const symm_program *program = certifier->lives->order->program;
    const uint32_t kind = via & 7;

    if (kind == VIA_STREAM || kind == VIA_DEPEND)
        return kinds[kind];
    if (!certifier->names[via])
        certifier->names[via] = symm__pool_format(
            &certifier->plan->pool, "%s.%s", program->ops[via >> 3].site, kinds[kind]);
    return certifier->names[via];
}

/* Sorted, each once. What is the stream's or a depend's goes if there is anything else. */
static int collect(const struct certifier *certifier, int a, int b, int periods,
                   uint32_t *vias)
{
    const struct lifetimes *lives = certifier->lives;
    const int owners = lives->order->owner_count;
    uint32_t local = VIA_STREAM;
    int count = 0;

    for (int i = 0; i < owners; i++) {
        const struct mark *clock = symm__order_first(lives->order, b, periods, i);
        const int end = lives->last_start[a * owners + i + 1];
        for (int l = lives->last_start[a * owners + i]; l < end; l++) {
            uint32_t via = clock[lives->last[l].chain].via;
            int at = 0;
            if ((via & 7) == VIA_STREAM || (via & 7) == VIA_DEPEND) {
                local = (via & 7) == VIA_DEPEND ? (uint32_t)VIA_DEPEND : local;
                continue;
            }
            while (at < count && vias[at] < via)
                at++;
            if ((at < count && vias[at] == via) || count == MAX_VIAS)
                continue;
            memmove(vias + at + 1, vias + at, (size_t)(count - at) * sizeof(*vias));
            vias[at] = via;
            count++;
        }
    }
    if (count == 0)
        vias[count++] = local;
    return count;
}

/* NULL: memory is exhausted. */
static const char *name_order(struct certifier *certifier, int a, int b, int periods)
{
    uint32_t vias[MAX_VIAS + 1];
    int count = collect(certifier, a, b, periods, vias);
    const char *text;

    if (count == 1)
        return name_via(certifier, vias[0]);
    if (certifier->recent.count == count &&
        memcmp(certifier->recent.vias, vias, (size_t)count * sizeof(*vias)) == 0)
        return certifier->recent.text;
    text = name_via(certifier, vias[0]);
    for (int i = 1; i < count && text; i++) {
        const char *more = name_via(certifier, vias[i]);
        text = more ? symm__pool_format(&certifier->plan->pool, "%s, %s", text, more)
                    : NULL;
    }
    memcpy(certifier->recent.vias, vias, (size_t)count * sizeof(*vias));
    certifier->recent.count = text ? count : 0;
    certifier->recent.text = text;
    return text;
}

static bool add_entry(struct certifier *certifier, int a, int b, int periods)
{
    symm_plan *plan = &certifier->plan->plan;
    const bool loop = certifier->lives->order->program->loop;
    symm_plan_entry *entry;

    if (plan->certificate_count == certifier->room) {
        size_t room = 2 * certifier->room + 256;
        symm_plan_entry *grown = realloc(plan->certificate, room * sizeof(*grown));
        if (!grown)
            return false;
        plan->certificate = grown;
        certifier->room = room;
    }
    entry = &plan->certificate[plan->certificate_count++];
    *entry = (symm_plan_entry){.before = certifier->before[a],
                               .after = certifier->after[b],
                               .ordered_by = name_order(certifier, a, b, periods)};
    if (loop && a != b)
        entry->next_period = name_order(certifier, b, a, 1);
    return entry->ordered_by && (!loop || a == b || entry->next_period);
}

static bool share(const symm_plan_buffer *a, const symm_plan_buffer *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Labels of the last access of a life and of its first write. */
static bool name_accesses(struct certifier *certifier)
{
    const struct order *order = certifier->lives->order;
    const symm_program *program = order->program;

    for (int b = 0; b < program->buffer_count; b++) {
        const int start = order->touch_start[b], end = order->touch_start[b + 1];
        const int first = order->first_touch[b];
        const int write = order->first_write[b];
        int last = first > start && program->loop ? first - 1 : end - 1;
        if (end == start)
            continue;
        certifier->before[b] = symm__pool_format(
            &certifier->plan->pool, "%s@%s", program->buffers[b].name,
            symm__access_label(program, &order->accesses[order->touch[last]]));
        certifier->after[b] = symm__pool_format(
            &certifier->plan->pool, "%s@%s", program->buffers[b].name,
            symm__access_label(
                program, &order->accesses[order->touch[write < 0 ? start : write]]));
        if (!certifier->before[b] || !certifier->after[b])
            return false;
    }
    return true;
}

static bool certify(struct certifier *certifier)
{
    const struct lifetimes *lives = certifier->lives;
    const symm_plan *plan = &certifier->plan->plan;
    const bool loop = lives->order->program->loop;

    for (int a = 0; a < lives->count; a++) {
        if (loop && lives->order->first_write[a] >= 0 && !add_entry(certifier, a, a, 1))
            return false;
        for (int b = a + 1; b < lives->count; b++) {
            if (!share(&plan->buffers[a], &plan->buffers[b]))
                continue;
            bool forward = symm__lives_before(lives, a, b, 0);
            if (!add_entry(certifier, forward ? a : b, forward ? b : a, 0))
                return false;
        }
    }
    return true;
}

symm_status symm__plan_certify(struct plan_private *plan, const struct lifetimes *lives)
{
    struct certifier certifier = {.plan = plan, .lives = lives};
    const size_t buffers = (size_t)lives->count + 1;
    const size_t vias = ((size_t)lives->order->program->op_count + 1) * 8;
    bool good;

    certifier.before = calloc(buffers, sizeof(*certifier.before));
    certifier.after = calloc(buffers, sizeof(*certifier.after));
    certifier.names = calloc(vias, sizeof(*certifier.names));
    good = certifier.before && certifier.after && certifier.names &&
           name_accesses(&certifier) && certify(&certifier);
    free(certifier.before);
    free(certifier.after);
    free(certifier.names);
    return good ? SYMM_OK : symm__program_nomem(lives->order->program);
}
