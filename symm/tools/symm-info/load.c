/* SPDX-License-Identifier: MIT */
/*
 * load.c - ranks from files of format symm-dump/1, as pages: what reads the pages of running
 * ranks reads them, too. Times become nanoseconds.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sight/dump.h"
#include "tools/symm-info/dump.h"
#include "tools/symm-info/json.h"

#define COPY(to, map, key) snprintf((to), sizeof(to), "%s", json_text((map), (key)))
#define LARGEST            (64l << 20) /* of a file; a rank's dump has some 600 KiB */

static const struct json *first_of(const struct json *map, const char *key)
{
    const struct json *list = json_member(map, key);

    return list && list->kind == JSON_LIST ? list->members : NULL;
}

static uint32_t short_of(const struct json *map, const char *key)
{
    return (uint32_t)json_unsigned(map, key);
}

static void load_teams(struct symm_sight_page *page, const struct json *rank)
{
    for (const struct json *t = first_of(rank, "teams"); t; t = t->next) {
        const uint64_t slot = json_unsigned(t, "slot");
        struct symm_sight_team *team;
        int m = 0;

        if (slot >= SYMM_SIGHT_TEAMS)
            continue;
        team = &page->team[slot];
        team->uid = short_of(t, "uid");
        team->number = short_of(t, "number");
        team->rank = (int32_t)json_signed(t, "rank");
        team->size = (int32_t)json_signed(t, "size");
        COPY(team->name, t, "name");
        for (const struct json *e = first_of(t, "members"); e && m < SYMM_SIGHT_MEMBERS;
             e = e->next)
            team->member[m++] = (int32_t)e->number;
    }
}

static void load_sites(struct symm_sight_page *page, const struct json *rank)
{
    for (const struct json *s = first_of(rank, "sites"); s; s = s->next) {
        const uint32_t id = short_of(s, "id");
        struct symm_sight_site *site = &page->site[id % SYMM_SIGHT_SITES];

        site->id = id;
        site->team_uid = short_of(s, "team");
        site->channel = short_of(s, "channel");
        site->root = (int32_t)json_signed(s, "root");
        site->signal = (int32_t)json_signed(s, "signal");
        site->bytes = json_unsigned(s, "bytes");
        site->count = json_unsigned(s, "count");
        site->fallback = json_unsigned(s, "fallback") != 0;
        site->calls = json_unsigned(s, "calls");
        site->timed = json_unsigned(s, "timed");
        site->ticks = json_unsigned(s, "timed_ns");
        COPY(site->op, s, "op");
        COPY(site->dtype, s, "dtype");
        COPY(site->reduction, s, "reduction");
        COPY(site->algorithm, s, "algorithm");
        COPY(site->reason, s, "reason");
        COPY(site->name, s, "name");
    }
}

static unsigned state_by_name(const char *name)
{
    for (unsigned state = SYMM_SIGHT_QUEUED; state <= SYMM_SIGHT_FAILED; state++)
        if (strcmp(name, symm__sight_state_name(state)) == 0)
            return state;
    return 0;
}

static void load_calls(struct symm_sight_page *page, const struct json *rank)
{
    for (const struct json *c = first_of(rank, "last_calls"); c; c = c->next) {
        const uint64_t number = json_unsigned(c, "number");
        struct symm_sight_call *call = &page->call[number % SYMM_SIGHT_CALLS];

        call->word = number << 8 | state_by_name(json_text(c, "state"));
        call->site = short_of(c, "site");
        call->epoch = short_of(c, "step");
        call->begin = json_unsigned(c, "begin_ns");
        call->end = json_unsigned(c, "end_ns");
    }
}

static void load_waits(struct symm_sight_page *page, const struct json *rank)
{
    struct symm_sight_wait *wait = page->wait;
    struct symm_sight_failure *failure = page->failure;

    for (const struct json *w = first_of(rank, "waits");
         w && wait < page->wait + SYMM_SIGHT_WAITS; w = w->next, wait++) {
        int k = 0;

        wait->since = json_unsigned(w, "since_ns");
        wait->team_uid = short_of(w, "team");
        wait->channel = short_of(w, "channel");
        wait->epoch = short_of(w, "step");
        wait->bytes = json_unsigned(w, "bytes");
        wait->missing = (int32_t)json_signed(w, "missing");
        COPY(wait->op, w, "op");
        COPY(wait->name, w, "name");
        for (const struct json *e = first_of(w, "awaited"); e && k < SYMM_SIGHT_AWAITED;
             e = e->next)
            wait->awaited[k++] = (int32_t)e->number;
        if (wait->missing > k && k < SYMM_SIGHT_AWAITED)
            wait->missing = k;
    }
    for (const struct json *f = first_of(rank, "failures");
         f && failure < page->failure + SYMM_SIGHT_FAILURES; f = f->next, failure++) {
        failure->team_uid = short_of(f, "team");
        failure->status = (int32_t)json_signed(f, "status");
        COPY(failure->sentence, f, "sentence");
    }
}

static void load_progress(struct symm_sight_page *page, const struct json *rank)
{
    struct symm_sight_progress *progress = page->progress;

    for (const struct json *p = first_of(rank, "progress");
         p && progress < page->progress + SYMM_SIGHT_PROGRESS;
         p = p->next, progress++) {
        progress->team_uid = short_of(p, "team");
        progress->channel = short_of(p, "channel");
        progress->ended = short_of(p, "ended");
        progress->launched = short_of(p, "launched");
        progress->looked = json_unsigned(p, "looked_ns");
    }
}

static const char *load_rank(struct symm_sight_ranks *ranks, const struct json *from)
{
    const struct json *clock = json_member(from, "clock");
    struct symm_sight_rank *rank = symm__sight_ranks_add(ranks);
    struct symm_sight_page *page = rank ? rank->page : NULL;

    if (!page)
        return "holds too many ranks";
    page->magic = SYMM_SIGHT_MAGIC;
    page->layout = SYMM_SIGHT_LAYOUT;
    page->bytes = sizeof(*page);
    page->rank = (int32_t)json_signed(from, "rank");
    page->size = (int32_t)json_signed(from, "size");
    page->pid = (int32_t)json_signed(from, "pid");
    page->times = json_unsigned(from, "timed") != 0;
    page->finished = json_unsigned(from, "finalizing") != 0;
    page->calls = json_unsigned(from, "calls");
    page->left_out = json_unsigned(from, "left_out");
    page->whole = json_unsigned(from, "whole_after");
    page->failures = short_of(from, "failed");
    page->opened_ns = page->opened_ticks = json_unsigned(clock, "opened_ns");
    page->opened_real_ns = json_unsigned(clock, "opened_real_ns");
    COPY(page->job, from, "job");
    COPY(page->host, from, "host");
    COPY(page->backend, from, "backend");
    COPY(page->version, from, "version");
    COPY(rank->command, from, "command");
    rank->pid = page->pid;
    rank->state = symm__sight_process_letter(json_text(from, "process"));
    rank->now.ns = json_unsigned(clock, "now_ns");
    rank->now.real_ns = json_unsigned(clock, "now_real_ns");
    load_teams(page, from);
    load_sites(page, from);
    load_calls(page, from);
    load_waits(page, from);
    load_progress(page, from);
    return symm__sight_check(page);
}

/* ---- Files -------------------------------------------------------------------------------- */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    long bytes = -1;

    if (!file)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0)
        bytes = ftell(file);
    if (bytes >= 0 && bytes <= LARGEST && fseek(file, 0, SEEK_SET) == 0)
        text = calloc((size_t)bytes + 1, 1);
    else if (bytes > LARGEST)
        errno = EFBIG;
    if (text && fread(text, 1, (size_t)bytes, file) != (size_t)bytes) {
        free(text);
        text = NULL;
        errno = EIO;
    }
    fclose(file);
    return text;
}

static bool load_file(const char *path, struct symm_sight_ranks *ranks)
{
    char *text = read_file(path);
    struct json *json;
    const char *why = NULL;
    size_t at;

    if (!text) {
        fprintf(stderr, "symm-info: %s cannot be read: %s\n", path, strerror(errno));
        return false;
    }
    json = json_read(text, &at);
    free(text);
    if (!json) {
        fprintf(stderr, "symm-info: %s is no JSON: byte %zu\n", path, at);
        return false;
    }
    if (strcmp(json_text(json, "format"), SYMM_DUMP_FORMAT) != 0)
        why = "is not of format " SYMM_DUMP_FORMAT;
    for (const struct json *r = first_of(json, "ranks"); r && !why; r = r->next)
        why = load_rank(ranks, r);
    if (why)
        fprintf(stderr, "symm-info: %s %s\n", path, why);
    json_free(json);
    return why == NULL;
}

static int is_dump(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');

    return end && strcmp(end, ".json") == 0;
}

bool symm__dump_load(const char *path, struct symm_sight_ranks *ranks)
{
    struct stat what;
    struct dirent **list;
    bool good = true;
    int count;

    if (stat(path, &what) != 0 || !S_ISDIR(what.st_mode))
        return load_file(path, ranks);
    count = scandir(path, &list, is_dump, alphasort);
    if (count < 0) {
        fprintf(stderr, "symm-info: %s cannot be read: %s\n", path, strerror(errno));
        return false;
    }
    for (int i = 0; i < count; i++) {
        char file[4096];

        if ((size_t)snprintf(file, sizeof(file), "%s/%s", path, list[i]->d_name) >=
            sizeof(file))
            good = false;
        good = good && load_file(file, ranks);
        free(list[i]);
    }
    free(list);
    if (count == 0)
        fprintf(stderr, "symm-info: there is no file *.json in %s\n", path);
    return good && count > 0;
}
