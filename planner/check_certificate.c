/* SPDX-License-Identifier: MIT */
/*
 * check_certificate.c - that the plan accounts for every pair of buffers that share bytes,
 * and says nothing untrue: each entry names buffers and ops that are there and go together,
 * and a barrier that it names is one that the plan keeps. Whether the order exists at all
 * is proved elsewhere, from the ops themselves (check_order.c).
 */
#include "check.h"

#include <stdlib.h>
#include <string.h>

struct name {
    const char *text;
    int index;
};

struct names {
    struct name *list;
    int count;
};

struct pair {
    int low, high; /* buffers, low <= high */
    bool next_period;
};

struct certificate {
    struct check *c;
    struct names buffers, sites;
    struct pair *pairs; /* of the entries, sorted */
    size_t pair_count;
    bool *renewed; /* by buffer: overwritten each period */
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    return x->low != y->low     ? (x->low < y->low ? -1 : 1)
           : x->high != y->high ? (x->high < y->high ? -1 : 1)
                                : 0;
}

static int find_name(const struct names *names, const char *text, size_t length)
{
    int low = 0, high = names->count;

    while (low < high) {
        const int middle = low + (high - low) / 2;
        const char *name = names->list[middle].text;
        int order = strncmp(name, text, length);
        if (order == 0 && name[length] != '\0')
            order = 1;
        if (order == 0)
            return names->list[middle].index;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static bool touches(const struct check_op *op, int buffer, const char *what)
{
    for (int k = 0; k < op->access_count; k++)
        if (op->accesses[k].buffer == buffer &&
            (op->planned ||
             strcmp(what, op->accesses[k].write ? "write" : "read") == 0))
            return true;
    return false;
}

/* The buffer of BUFFER@SITE, BUFFER@write or BUFFER@read if the op touches it, else -1.
 * Names may contain @. */
static int find_moment(const struct certificate *all, const char *text)
{
    for (const char *at = strchr(text, '@'); at; at = strchr(at + 1, '@')) {
        const int buffer = find_name(&all->buffers, text, (size_t)(at - text));
        const int site = find_name(&all->sites, at + 1, strlen(at + 1));
        if (buffer < 0)
            continue;
        if (site >= 0 && touches(&all->c->ops[site], buffer, at + 1))
            return buffer;
        for (int i = 0; i < all->c->op_count; i++)
            if (!all->c->ops[i].planned && touches(&all->c->ops[i], buffer, at + 1))
                return buffer;
    }
    return -1;
}

/* Without a site there is the order of a stream, and depends; both must be in the program. */
static bool is_local(const struct certificate *all, const char *text, size_t length)
{
    const symm_program *program = all->c->program;

    if (length != 6 || memcmp(text, "depend", length) != 0)
        return length == 6 && memcmp(text, "stream", length) == 0;
    for (int i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == SYMM_PROGRAM_DEPEND)
            return true;
    return false;
}

/* SITE.entry and the like must be in the plan. */
static bool is_true(const struct certificate *all, const char *text, size_t length)
{
    const char *dot = memrchr(text, '.', length), *word = dot ? dot + 1 : text;
    const int site = dot ? find_name(&all->sites, text, (size_t)(dot - text)) : -1;
    const size_t rest = length - (size_t)(word - text);

    if (!dot || site < 0)
        return !dot && is_local(all, text, length);
    const struct check_op *op = &all->c->ops[site];
    return (op->entry && rest == 5 && memcmp(word, "entry", rest) == 0) ||
           (op->exit && rest == 4 && memcmp(word, "exit", rest) == 0) ||
           (op->wait >= 0 && rest == 4 && memcmp(word, "wait", rest) == 0) ||
           ((op->pushed || op->inside) && rest == 10 &&
            memcmp(word, "completion", rest) == 0);
}

/* Names with ", " between; a site's name may contain that, so long ones are tried first. */
static bool check_ordered_by(const struct certificate *all, const char *text)
{
    size_t length = text ? strlen(text) : 0;

    while (length > 0 && !is_true(all, text, length)) {
        for (length--; length > 0 && strncmp(text + length, ", ", 2) != 0; length--)
            ;
    }
    if (text && length == 0)
        return symm__check_refuse(
            all->c, "the certificate relies on \"%s\", which the plan does not have",
            text);
    return !text || text[length] == '\0' ||
           check_ordered_by(all, text + length + strlen(", "));
}

static bool read_entries(struct certificate *all)
{
    const symm_plan *plan = all->c->plan;

    for (size_t i = 0; i < plan->certificate_count; i++) {
        const symm_plan_entry *entry = &plan->certificate[i];
        const int a = find_moment(all, entry->before),
                  b = find_moment(all, entry->after);
        if (a < 0 || b < 0)
            return symm__check_refuse(
                all->c,
                "the certificate's entry %zu names %s, which is no op on a buffer", i,
                a < 0 ? entry->before : entry->after);
        if (!check_ordered_by(all, entry->ordered_by) ||
            !check_ordered_by(all, entry->next_period))
            return false;
        all->pairs[all->pair_count++] =
            (struct pair){a < b ? a : b, a < b ? b : a, entry->next_period != NULL};
    }
    qsort(all->pairs, all->pair_count, sizeof(*all->pairs), compare_pairs);
    return true;
}

static const struct pair *find_pair(const struct certificate *all, int low, int high)
{
    const struct pair key = {low, high, false};

    return bsearch(&key, all->pairs, all->pair_count, sizeof(key), compare_pairs);
}

static bool check_pairs(const struct certificate *all)
{
    const symm_plan *plan = all->c->plan;
    const bool loop = all->c->program->loop;

    for (int i = 0; i < plan->buffer_count; i++)
        for (int j = i; j < plan->buffer_count; j++) {
            const symm_plan_buffer *a = &plan->buffers[i], *b = &plan->buffers[j];
            const bool shared = i == j ? loop && all->renewed[i]
                                       : a->offset < b->offset + b->bytes &&
                                             b->offset < a->offset + a->bytes;
            const struct pair *pair = shared ? find_pair(all, i, j) : NULL;
            if (shared && !pair)
                return symm__check_refuse(
                    all->c, "the certificate has no entry for buffer%s %s%s%s",
                    i == j ? "" : "s", a->name, i == j ? "" : " and ",
                    i == j ? " against itself in the next period" : b->name);
            if (shared && loop && i != j && !pair->next_period)
                return symm__check_refuse(all->c,
                                          "the certificate's entry for buffers %s and "
                                          "%s does not say what orders "
                                          "them in the next period",
                                          a->name, b->name);
        }
    return true;
}

static bool prepare(struct certificate *all)
{
    struct check *c = all->c;
    const size_t buffers = (size_t)c->program->buffer_count + 1;

    all->buffers.list = calloc(buffers, sizeof(struct name));
    all->sites.list = calloc((size_t)c->op_count + 1, sizeof(struct name));
    all->pairs = calloc(c->plan->certificate_count + 1, sizeof(*all->pairs));
    all->renewed = calloc(buffers, sizeof(*all->renewed));
    if (!all->buffers.list || !all->sites.list || !all->pairs || !all->renewed)
        return symm__check_nomem(c);
    for (int i = 0; i < c->program->buffer_count; i++)
        all->buffers.list[all->buffers.count++] =
            (struct name){c->program->buffers[i].name, i};
    for (int i = 0; i < c->op_count; i++) {
        const struct check_op *op = &c->ops[i];
        if (op->planned)
            all->sites.list[all->sites.count++] = (struct name){op->op->site, i};
        for (int k = 0; k < op->access_count; k++)
            all->renewed[op->accesses[k].buffer] |= op->accesses[k].write;
    }
    qsort(all->buffers.list, (size_t)all->buffers.count, sizeof(struct name),
          compare_names);
    qsort(all->sites.list, (size_t)all->sites.count, sizeof(struct name),
          compare_names);
    return true;
}

bool symm__check_certificate(struct check *c)
{
    struct certificate all = {.c = c};
    const bool good = prepare(&all) && read_entries(&all) && check_pairs(&all);

    free(all.buffers.list);
    free(all.sites.list);
    free(all.pairs);
    free(all.renewed);
    return good;
}
