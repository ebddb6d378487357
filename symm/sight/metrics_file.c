/* SPDX-License-Identifier: MIT */
/* metrics_file.c - see metrics_file.h. */
#include "sight/metrics_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sight/metrics.h"
#include "util/file.h"
#include "util/file_name.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"

/*
 * Seconds of a tick, measured once, between the opening and the first file that comes later: with a
 * rate that is measured anew each time a sum of seconds could decrease.
 */
static void measure(struct symm_sight *sight)
{
    struct symm_metrics *metrics = sight->metrics;
    const struct symm_sight_page *page = sight->page;
    const uint64_t ns = symm__ticks_ns(), ticks = symm__sight_ticks(sight);

    if (metrics->tick_seconds > 0 || ns - page->opened_ns < 1000000 ||
        ticks <= page->opened_ticks)
        return;
    metrics->tick_seconds =
        1e-9 * (double)(ns - page->opened_ns) / (double)(ticks - page->opened_ticks);
}

/* NULL: errno. The caller frees it. */
static char *make_text(struct symm_sight *sight, size_t *bytes)
{
    struct symm_metrics *metrics = sight->metrics;
    char *text = NULL;
    FILE *file = open_memstream(&text, bytes);

    if (!file)
        return NULL;
    measure(sight);
    pthread_mutex_lock(&sight->lock);
    symm__metrics_sum(metrics, sight->page);
    pthread_mutex_unlock(&sight->lock);
    if (metrics->heap)
        (void)metrics->heap(metrics->heap_arg, &metrics->heap_used,
                            &metrics->heap_committed);
    symm__metrics_print(file, metrics, sight->page);
    if (fclose(file) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* 0 or errno. */
static int replace_file(struct symm_sight *sight)
{
    struct symm_metrics *metrics = sight->metrics;
    size_t bytes = 0;
    char *text = make_text(sight, &bytes);
    int error, fd;

    if (!text)
        return errno;
    /* What a killed rank has left there, or another user has put there. */
    (void)unlink(metrics->draft);
    fd = open(metrics->draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0644);
    if (fd < 0)
        error = errno;
    else
        error = symm__file_finish(fd, symm__write_all(fd, text, bytes), metrics->draft,
                                  metrics->path);
    free(text);
    return error;
}

void symm__metrics_write(struct symm_sight *sight)
{
    struct symm_metrics *metrics = sight->metrics;
    const int error = replace_file(sight);

    if (error && !metrics->told)
        symm__log(SYMM_LOG_WARN, "the metrics of rank %d are not written to %s: %s",
                  sight->page->rank, metrics->path, strerror(error));
    metrics->told = error != 0;
}

/* The rename would put a file in the place of a device (/dev/null), a pipe or a link. */
static symm_status check_place(const char *path)
{
    struct stat is;

    if (lstat(path, &is) != 0 || S_ISREG(is.st_mode))
        return SYMM_OK;
    return symm__fail(SYMM_ERR_INVALID,
                      "SYMM_METRICS_FILE: '%.300s' is no regular file, and would be "
                      "replaced by one; name a file, or unset the variable for none",
                      path);
}

static symm_status take_names(struct symm_metrics *metrics, const char *pattern,
                              const struct symm_sight_config *config)
{
    const size_t room = sizeof(metrics->path);

    if (config->size > 1 && !symm__file_name_varies(pattern))
        return symm__fail(SYMM_ERR_INVALID,
                          "SYMM_METRICS_FILE='%.200s': %d ranks would write one file; "
                          "put %%r, the rank, into the name",
                          pattern, config->size);
    if (!symm__file_name(pattern, config->rank, metrics->path, room) ||
        snprintf(metrics->draft, room, "%.*s.%d.tmp", (int)room - 32, metrics->path,
                 config->rank) >= (int)room - 1)
        return symm__fail(SYMM_ERR_INVALID, "SYMM_METRICS_FILE: the name is too long");
    if (check_place(metrics->path) != SYMM_OK)
        return SYMM_ERR_INVALID;
    return symm__option_seconds(SYMM_OPTION_METRICS_INTERVAL, &metrics->interval);
}

symm_status symm__metrics_open(struct symm_sight *sight,
                               const struct symm_sight_config *config)
{
    const char *pattern = symm__option(SYMM_OPTION_METRICS_FILE);
    struct symm_metrics *made;
    symm_status status;
    int error;

    if (!pattern)
        return SYMM_OK;
    made = calloc(1, sizeof(*made) + (size_t)config->size * sizeof(made->wait[0]));
    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the metrics of a rank");
    status = take_names(made, pattern, config);
    if (status != SYMM_OK) {
        free(made);
        return status;
    }
    made->size = config->size;
    made->heap = config->heap;
    made->heap_arg = config->heap_arg;
    made->sample = sight->untimed == 0 ? 1 : SYMM_METRICS_SAMPLE;
    sight->metrics = made;
    error = replace_file(sight);
    if (error)
        return symm__fail_errno(SYMM_ERR_SYSTEM, error,
                                "SYMM_METRICS_FILE: rank %d cannot write '%.300s'",
                                config->rank, made->path);
    return SYMM_OK;
}

void symm__metrics_close(struct symm_metrics *metrics)
{
    free(metrics);
}
