/* SPDX-License-Identifier: MIT */
/*
 * calls.c - after a job that has failed: what its ranks did last, side by side.
 *
 * The ranks leave their calls in the folder SYMM_DUMP; `symm-info dump`, the program beside this one,
 * compares them. Without the folder, a file of this job or that program nothing is said.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/symmrun/symmrun.h"

#define SECONDS_MOST 10 /* for the comparison */

static bool has_calls(const char *folder, const char *job)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool found = false;

    while (dir && !found && (entry = readdir(dir)) != NULL)
        found = strstr(entry->d_name, job) != NULL;
    if (dir)
        closedir(dir);
    return found;
}

/* The program of that name in this program's folder. */
static bool beside(const char *name, char *path, size_t bytes)
{
    ssize_t length = readlink("/proc/self/exe", path, bytes - 1);
    char *end;

    if (length <= 0)
        return false;
    path[length] = '\0';
    end = strrchr(path, '/');
    if (!end || (size_t)(end + 1 - path) + strlen(name) >= bytes)
        return false;
    strcpy(end + 1, name);
    return access(path, X_OK) == 0;
}

void symmrun_calls_show(const struct symmrun_job *job)
{
    const char *folder = getenv("SYMM_DUMP");
    char path[4096];
    pid_t pid;

    if (!folder || !has_calls(folder, job->id) ||
        !beside("symm-info", path, sizeof(path)))
        return;
    fprintf(stderr, "symmrun: the last calls of the ranks (%s):\n", folder);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        alarm(SECONDS_MOST);
        if (sigprocmask(SIG_SETMASK, &job->signals, NULL) == 0 &&
            dup2(STDERR_FILENO, STDOUT_FILENO) >= 0)
            execl(path, "symm-info", "dump", "--job", job->id, folder, (char *)NULL);
        _exit(127);
    }
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
}
