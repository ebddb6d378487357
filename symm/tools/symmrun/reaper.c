/* SPDX-License-Identifier: MIT */
/*
 * reaper.c - nothing of the job outlives a killed symmrun.
 *
 * The ranks themselves die with symmrun (PR_SET_PDEATHSIG), but what they have started
 * does not. So a small process in a session (setsid) of its own holds the read end of a
 * pipe: symmrun tells it each rank's process group, and its end of the pipe closes when
 * symmrun dies, however that happens. A last number 0 means that symmrun ended by
 * itself.
 */
#include "tools/symmrun/symmrun.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Closes symmrun's descriptors: a reader of symmrun's output waits for their last copy. */
static void let_go(int keep)
{
    int null_fd = open("/dev/null", O_RDWR);

    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        if (null_fd >= 0)
            dup2(null_fd, fd);
        else
            close(fd);
    }
    /* Without close_range (before Linux 5.9) descriptors above `keep` stay open. */
    syscall(SYS_close_range, keep + 1, ~0u, 0);
    for (int fd = STDERR_FILENO + 1; fd < keep; fd++)
        close(fd);
}

__attribute__((noreturn)) static void keep(int fd, struct symmrun_runtime runtime)
{
    static pid_t groups[SYMMRUN_RANKS_MAX];
    int count = 0;
    sigset_t all;
    pid_t group;
    ssize_t got;

    setsid();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "symmrun-reaper");
    let_go(fd);
    for (;;) {
        got = read(fd, &group, sizeof(group));
        if (got == (ssize_t)sizeof(group) && group == 0)
            _exit(0);
        if (got == (ssize_t)sizeof(group) && count < SYMMRUN_RANKS_MAX)
            groups[count++] = group;
        else if (got >= 0 || errno != EINTR)
            break;
    }
    for (int i = 0; i < count; i++)
        kill(-groups[i], SIGKILL);
    for (int tries = 0, i = 0; i < count && tries < 40; tries++) {
        while (i < count && kill(-groups[i], 0) != 0)
            i++;
        symm__sleep(0.005);
    }
    runtime.lock = -1; /* let_go has closed it */
    symmrun_runtime_remove(&runtime);
    _exit(0);
}

bool symmrun_reaper_start(struct symmrun_reaper *reaper,
                          const struct symmrun_runtime *runtime)
{
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    pid = fork();
    if (pid == 0) {
        close(ends[1]);
        keep(ends[0], *runtime);
    }
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return false;
    }
    *reaper = (struct symmrun_reaper){.pid = pid, .fd = ends[1]};
    return true;
}

void symmrun_reaper_add(struct symmrun_reaper *reaper, pid_t group)
{
    /* A reaper that is gone (killed) takes the protection with it, nothing else. */
    ssize_t written = write(reaper->fd, &group, sizeof(group));

    (void)written;
}

void symmrun_reaper_dismiss(struct symmrun_reaper *reaper)
{
    if (reaper->pid == 0)
        return;
    symmrun_reaper_add(reaper, 0);
    close(reaper->fd);
    while (waitpid(reaper->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    reaper->pid = 0;
}
