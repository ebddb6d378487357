/* SPDX-License-Identifier: MIT */
/*
 * open.c - the beginning and the end of a rank's page, see sight.h, and of the files made of it.
 *
 * The page's memory is not allocated in advance: a rank pays for the sites, teams and calls that
 * it has. Its size is sealed, so a reader cannot be made to fault.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sight/metrics.h"
#include "sight/metrics_file.h"
#include "sight/sight.h"
#include "sight/trace_file.h"
#include "util/log.h"
#include "util/memory_room.h"
#include "util/options.h"
#include "util/status.h"

#define SEALS       (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define NEVER_TIMED UINT64_MAX
#define SAMPLED     (~(UINT64_MAX / SYMM_METRICS_SAMPLE)) /* the upper bits */

/* ---- The page ------------------------------------------------------------------------ */

void symm__sight_job(const char *job, char *name, size_t bytes)
{
    snprintf(name, bytes, "%s", job);
    for (char *c = name; *c; c++)
        if (!((*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') ||
              (*c >= 'A' && *c <= 'Z') || *c == '.' || *c == '-'))
            *c = '_';
}

/* "symm-JOB-RANK" */
static void page_name(const struct symm_sight_config *config, char *name, size_t bytes)
{
    char job[64];

    symm__sight_job(config->job, job, sizeof(job));
    snprintf(name, bytes, "symm-%s-%d", job, config->rank);
}

/* errno on failure. */
static int page_create(const char *name, int *fd, struct symm_sight_page **page)
{
    const size_t bytes = sizeof(**page);
    uint64_t limit;
    void *at;
    int error;

    if (!symm__file_size_fits(bytes, &limit))
        return EFBIG;
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0)
        return errno;
    if (ftruncate(*fd, (off_t)bytes) != 0 || fcntl(*fd, F_ADD_SEALS, SEALS) != 0)
        goto err_fd;
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (at == MAP_FAILED)
        goto err_fd;
    *page = at;
    return 0;

err_fd:
    error = errno;
    close(*fd);
    return error;
}

static uint64_t real_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void page_fill(struct symm_sight *sight, const struct symm_sight_config *config)
{
    struct symm_sight_page *page = sight->page;

    page->layout = SYMM_SIGHT_LAYOUT;
    page->bytes = sizeof(*page);
    page->rank = config->rank;
    page->size = config->size;
    page->pid = (int32_t)getpid();
    page->ticks_tsc = sight->tsc;
    page->times = sight->untimed == 0;
    snprintf(page->job, sizeof(page->job), "%s", config->job);
    snprintf(page->host, sizeof(page->host), "%s", config->host);
    snprintf(page->backend, sizeof(page->backend), "%s", config->backend);
    snprintf(page->version, sizeof(page->version), "%s", symm_version());
    page->opened_real_ns = real_ns();
    page->opened_ns = symm__ticks_ns();
    page->opened_ticks = symm__sight_ticks(sight);
    /* release: a reader that finds the mark finds the head filled */
    __atomic_store_n(&page->magic, SYMM_SIGHT_MAGIC, __ATOMIC_RELEASE);
}

/* Refuses files for tools with SYMM_SIGHT=0: they are made of the page, which there is none of
 * then. */
static symm_status refuse_files(void)
{
    static const enum symm_option files[] = {SYMM_OPTION_METRICS_FILE, SYMM_OPTION_DUMP,
                                             SYMM_OPTION_TRACE};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (symm__option(files[i]))
            return symm__fail(SYMM_ERR_INVALID,
                              "%s is set, and SYMM_SIGHT=0 leaves out what it is made "
                              "of; unset one of them",
                              symm__options[files[i]].name);
    return SYMM_OK;
}

/* Which calls are timed, and by which clock: a trace by the one that the ranks of a host share. */
static void take_times(struct symm_sight *sight, bool all)
{
    const bool trace = symm__option(SYMM_OPTION_TRACE) != NULL;

    sight->tsc = !trace && symm__ticks_steady();
    if (all || trace)
        sight->untimed = 0;
    else if (symm__option(SYMM_OPTION_METRICS_FILE))
        sight->untimed = SAMPLED;
    else
        sight->untimed = NEVER_TIMED;
}

symm_status symm__sight_open(const struct symm_sight_config *config,
                             struct symm_sight **sight)
{
    struct symm_sight *made;
    int64_t level = 0;
    char name[96];
    bool given = symm__option(SYMM_OPTION_SIGHT) != NULL;
    symm_status status = SYMM_OK;
    int error;

    *sight = NULL;
    if (given)
        status = symm__option_integer(SYMM_OPTION_SIGHT, 0, 1, &level);
    if (status != SYMM_OK)
        return status;
    if (given && level == 0)
        return refuse_files();
    made = calloc(1, sizeof(*made));
    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for what tools see of the rank");
    page_name(config, name, sizeof(name));
    error = page_create(name, &made->fd, &made->page);
    if (error) {
        free(made);
        symm__log(SYMM_LOG_WARN,
                  "tools see nothing of rank %d: no memory for its "
                  "page: %s",
                  config->rank, strerror(error));
        return SYMM_OK;
    }
    take_times(made, level == 1);
    pthread_mutex_init(&made->lock, NULL);
    page_fill(made, config);
    status = symm__sight_save_open(made, config);
    if (status == SYMM_OK)
        status = symm__metrics_open(made, config);
    if (status == SYMM_OK)
        status = symm__trace_open(made);
    symm__sight_hooks_open(made);
    if (status == SYMM_OK)
        status = symm__sight_start(made);
    if (status != SYMM_OK) {
        symm__sight_close(made);
        return status;
    }
    *sight = made;
    return SYMM_OK;
}

void symm__sight_finish(struct symm_sight *sight)
{
    if (sight)
        __atomic_store_n(&sight->page->finished, 1, __ATOMIC_RELEASE);
}

void symm__sight_close(struct symm_sight *sight)
{
    if (!sight)
        return;
    symm__sight_stop(sight);
    symm__sight_hooks_close(sight);
    symm__metrics_close(sight->metrics);
    symm__trace_close(sight->trace);
    munmap(sight->page, sizeof(*sight->page));
    close(sight->fd);
    pthread_mutex_destroy(&sight->lock);
    free(sight->dump);
    free(sight);
}
