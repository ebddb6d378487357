/* SPDX-License-Identifier: MIT */
/*
 * spawn.c - from fork to exec: what makes a process a rank.
 *
 * The child dies when symmrun does, leads a process group of its own, gets torchrun's
 * variables and symmrun's (job id, secret, store), is bound to its share of the cores,
 * and starts with the signal mask, dispositions and limits that symmrun was started
 * with. No descriptor of symmrun's passes over exec. What goes wrong is written to
 * job->failure_fd before the child exits with 127.
 */
#include "tools/symmrun/symmrun.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "symm/symm.h"
#include "symm/tools.h"

__attribute__((noreturn)) static void give_up(const struct symmrun_job *job, int rank,
                                              const char *what)
{
    struct symmrun_failure failure = {.rank = rank, .error = errno};
    ssize_t written;

    snprintf(failure.what, sizeof(failure.what), "%s", what);
    written = write(job->failure_fd, &failure, sizeof(failure));
    (void)written;
    _exit(127);
}

/* Is there the pipe of an MPS daemon where CUDA looks for it? */
static bool has_mps(void)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[PATH_MAX];
    const int length = snprintf(path, sizeof(path), "%s/control",
                                folder && *folder ? folder : "/tmp/nvidia-mps");

    return length > 0 && (size_t)length < sizeof(path) && access(path, F_OK) == 0;
}

/* Hardware queues for each of so many ranks: CUDA's default of 8 is few for streams that wait for
 * peers. With MPS the ranks on a device take them from one pool. On H200 it has more than 112, and
 * too few for 8 ranks with 16 each. */
static int queues_for(int ranks)
{
    const int most = 32, part = 96 / ranks;

    if (!has_mps() || part > most)
        return most;
    return part > 2 ? part : 2;
}

static bool set_environment(const struct symmrun_job *job, int rank)
{
    /* A job around this one may have set them; they would win over what is set here. */
    static const char *const strangers[] = {"SYMM_RANK", "SYMM_WORLD_SIZE",
                                            "SYMM_LOCAL_RANK", "SYMM_LOCAL_WORLD_SIZE",
                                            "TORCHELASTIC_USE_AGENT_STORE"};
    const int local = job->options->ranks, nodes = job->options->nodes,
              node = job->options->node;
    const struct {
        const char *name;
        int number;
    } numbers[] = {{"RANK", node * local + rank},
                   {"LOCAL_RANK", rank},
                   {"ROLE_RANK", node * local + rank},
                   {"WORLD_SIZE", nodes * local},
                   {"LOCAL_WORLD_SIZE", local},
                   {"ROLE_WORLD_SIZE", nodes * local},
                   {"GROUP_RANK", node},
                   {"GROUP_WORLD_SIZE", nodes},
                   {"TORCHELASTIC_RESTART_COUNT", 0},
                   {"TORCHELASTIC_MAX_RESTARTS", 0}};
    const char *const texts[][2] = {
        {"ROLE_NAME", "default"},     {"TORCHELASTIC_RUN_ID", job->id},
        {"MASTER_ADDR", job->master}, {"MASTER_PORT", job->port},
        {"SYMM_JOB_ID", job->id},     {"SYMM_SECRET", job->secret},
        {"SYMM_STORE", job->store}};
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    bool done = true;
    char text[16];

    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++)
        done = unsetenv(strangers[i]) == 0 && done;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        snprintf(text, sizeof(text), "%d", numbers[i].number);
        done = setenv(numbers[i].name, text, 1) == 0 && done;
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        done = setenv(texts[i][0], texts[i][1], 1) == 0 && done;
    if (job->address[0] != '\0') /* the user's own wins */
        done = setenv("SYMM_HOST_ADDRESS", job->address, 0) == 0 && done;
    if (job->runtime.path[0] != '\0')
        done = setenv("SYMM_RUNTIME_DIR", job->runtime.path, 1) == 0 && done;
    snprintf(text, sizeof(text), "%d", queues_for(local));
    if (!connections || !*connections)
        done = setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 1) == 0 && done;
    return done;
}

/*
 * Rank 0 has symmrun's stdin, unless that is a terminal: its process group is not the
 * terminal's foreground group, so that a read would stop it for ever.
 */
static bool set_stdin(int rank)
{
    int fd;
    bool done;

    if (rank == 0 && !isatty(STDIN_FILENO))
        return true;
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    done = dup2(fd, STDIN_FILENO) >= 0;
    close(fd);
    return done;
}

static void bind_rank(const struct symmrun_job *job, int rank)
{
    char where[160] = "";

    /* A rank that is not bound is slower, not wrong: never a reason to stop. */
    if (symm_bind_self(rank, job->options->ranks, where, sizeof(where)) != SYMM_OK) {
        if (job->options->verbose)
            dprintf(STDERR_FILENO, "symmrun: not bound: %s\n", symm_last_error());
    } else if (job->options->verbose) {
        dprintf(STDERR_FILENO, "symmrun: bound to %s\n", where);
    }
}

__attribute__((noreturn)) static void
become_rank(const struct symmrun_job *job, int rank, pid_t parent, int out, int err)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        give_up(job, rank, "cannot ask to die with symmrun");
    if (getppid() != parent)
        _exit(127); /* symmrun died before the line above took effect */
    if (setpgid(0, 0) != 0)
        give_up(job, rank, "cannot make a process group");
    if (!set_stdin(rank) || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(err, STDERR_FILENO) < 0)
        give_up(job, rank, "cannot set up the streams");
    if (!set_environment(job, rank))
        give_up(job, rank, "cannot set the environment");
    if (job->bind)
        bind_rank(job, rank);
    setrlimit(RLIMIT_NOFILE, &job->files);
    sigaction(SIGPIPE, &job->pipe_action, NULL);
    sigaction(SIGXFSZ, &job->file_action, NULL);
    signal(SIGINT, SIG_DFL); /* a shell's background ignores it, but symmrun passes it on */
    sigprocmask(SIG_SETMASK, &job->signals, NULL);
    execvp(job->options->program[0], job->options->program);
    give_up(job, rank, "cannot run");
}

pid_t symmrun_spawn(const struct symmrun_job *job, int rank, int out, int err)
{
    pid_t parent = getpid();
    pid_t pid = fork();

    if (pid == 0)
        become_rank(job, rank, parent, out, err);
    /* As in the child: the group must exist before a signal is sent to it. */
    if (pid > 0)
        setpgid(pid, pid);
    return pid;
}
