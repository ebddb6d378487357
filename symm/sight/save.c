/* SPDX-License-Identifier: MIT */
/*
 * save.c - the flight recorder: what tools see of the rank, left in a file when a team fails
 * (SYMM_DUMP), in the format that symm-info dump writes and reads.
 *
 * The file JOB.rankR.json is written beside its place and renamed, so it is whole or absent.
 * A later failure replaces it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sight/dump.h"
#include "sight/sight.h"
#include "util/file.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"

symm_status symm__sight_save_open(struct symm_sight *sight,
                                  const struct symm_sight_config *config)
{
    const char *folder = symm__option(SYMM_OPTION_DUMP);
    char job[64];

    if (!folder)
        return SYMM_OK;
    if (access(folder, W_OK | X_OK) != 0)
        return symm__fail_errno(SYMM_ERR_INVALID, errno,
                                "SYMM_DUMP '%.200s', the folder for what ranks leave "
                                "when they fail",
                                folder);
    symm__sight_job(config->job, job, sizeof(job));
    if (asprintf(&sight->dump, "%s/%s.rank%d.json", folder, job, config->rank) < 0) {
        sight->dump = NULL;
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the file of SYMM_DUMP");
    }
    return SYMM_OK;
}

const char *symm__sight_saved(const struct symm_sight *sight)
{
    return sight ? sight->dump : NULL;
}

/* errno, or 0. */
static int write_page(const char *beside, const char *path,
                      const struct symm_sight_page *page)
{
    const struct symm_sight_now now = symm__sight_now();
    const struct symm_sight_process process = {.pid = (int)getpid(),
                                               .command = program_invocation_short_name,
                                               .state = "running"};
    struct symm_emit emit;
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0)
        return errno;
    symm__emit_init_fd(&emit, SYMM_EMIT_JSON, fd);
    symm__emit_begin_map(&emit);
    symm__emit_key_string(&emit, "format", SYMM_DUMP_FORMAT);
    symm__emit_key_string(&emit, "written_by", symm_version());
    symm__emit_key(&emit, "ranks");
    symm__emit_begin_list(&emit);
    symm__sight_dump(&emit, page, &now, &process);
    symm__emit_end_list(&emit);
    symm__emit_end_map(&emit);
    return symm__file_finish(fd, symm__emit_finish(&emit), beside, path);
}

/* Two threads may save at a time: each has a file of its own until it is whole. */
static int save(const struct symm_sight *sight, struct symm_sight_page *page)
{
    const char *why = symm__sight_read(sight->fd, page);
    char *beside = NULL;
    int error;

    if (why) /* the page is this rank's own: only its memory can be wrong */
        return EIO;
    if (asprintf(&beside, "%s.%ld", sight->dump, (long)gettid()) < 0)
        return ENOMEM;
    error = write_page(beside, sight->dump, page);
    /* left by a process that was killed; the name is free at the next failure */
    if (error == EEXIST)
        (void)unlink(beside);
    free(beside);
    return error;
}

void symm__sight_save(struct symm_sight *sight)
{
    struct symm_sight_page *page;
    int error;

    if (!symm__sight_saved(sight))
        return;
    page = malloc(sizeof(*page));
    error = page ? save(sight, page) : ENOMEM;
    free(page);
    if (error)
        symm__log(SYMM_LOG_ERROR, "SYMM_DUMP: %s cannot be written: %s", sight->dump,
                  strerror(error));
}
