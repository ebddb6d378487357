/* SPDX-License-Identifier: MIT */
/*
 * symmrun.h - the parts of the launcher: options, ranks, output, the store, the reaper.
 *
 * symmrun is one process with one thread and one poll loop: nothing here blocks, except
 * the writes of files that --log-dir asks for. Times are points of the monotonic clock
 * in seconds; "for ever" is SYMMRUN_NEVER.
 */
#ifndef SYMM_TOOLS_SYMMRUN_SYMMRUN_H
#define SYMM_TOOLS_SYMMRUN_SYMMRUN_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "util/clock.h"

#define SYMMRUN_NEVER        1e300
#define SYMMRUN_RANKS_MAX    4096
#define SYMMRUN_SECRET_BYTES 16

/* The time of poll, rounded up, at most 1000 s; -1: for ever. */
int symmrun_milliseconds(double until);

/* ---- Options: options.c ---------------------------------------------------------- */

struct symmrun_options {
    int ranks;              /* of this node */
    int nodes, node;        /* how many, and which is this one */
    const char *rendezvous; /* HOST:PORT of node 0; NULL: one node */
    const char *log_dir;    /* NULL: print */
    bool tee;
    double timeout; /* seconds; 0: none */
    double grace;   /* seconds */
    bool bind;
    bool prefix;
    bool verbose;
    char **program; /* argv of the ranks, ends in NULL */
};

/* -1: go on; else the exit status: help was printed, or a mistake was explained. */
int symmrun_options_parse(struct symmrun_options *options, int argc, char **argv);

/* ---- Output: output.c ------------------------------------------------------------ */

/* Bytes on their way to stdout or stderr of symmrun. Zeroed with fd set = empty. */
struct symmrun_queue {
    int fd;
    bool closed; /* nothing can be written any more: further output is dropped */
    int error;   /* errno of the failed write; 0: none, or it was reported */
    char *data;
    size_t begin, end, capacity;
};

/* The output of one rank to stdout or stderr. */
struct symmrun_stream {
    int fd;        /* -1: ended */
    int log_fd;    /* -1: no file */
    int log_error; /* errno: the file is incomplete; 0: it is not, or this was printed */
    int rank;      /* -1: no prefix */
    struct symmrun_queue *to;
    char *line; /* the received part of an incomplete line */
    size_t used, capacity;
};

/* Appends; what does not fit into memory is dropped. */
void symmrun_queue_put(struct symmrun_queue *queue, const char *bytes, size_t count);
bool symmrun_queue_full(const struct symmrun_queue *queue); /* stop reading for it */
void symmrun_queue_flush(struct symmrun_queue *queue); /* writes without waiting */
/* Reads the available output and queues whole lines. */
void symmrun_stream_read(struct symmrun_stream *stream);
void symmrun_stream_close(
    struct symmrun_stream *stream); /* queues a last, unended line */

/* ---- The store: store.c ---------------------------------------------------------- */

struct symmrun_store;
struct symmrun_nodes;

/* NULL: errno. Listens on 127.0.0.1. Serves ranks `first` to `first + ranks - 1` of `world`;
 * the blocks of other ranks come from `nodes`, NULL if there are none. */
struct symmrun_store *symmrun_store_create(int first, int ranks, int world,
                                           const uint8_t secret[SYMMRUN_SECRET_BYTES],
                                           struct symmrun_nodes *nodes);
/* All blocks of the world, in rank order, for the round that waits. number: the round's, as
 * given to symmrun_nodes_blocks. */
void symmrun_store_fulfil(struct symmrun_store *store, uint32_t number,
                          const void *data, size_t bytes);
void symmrun_store_destroy(struct symmrun_store *store);
int symmrun_store_port(const struct symmrun_store *store);
/* A listener on 127.0.0.1, at any free port; -1: errno. */
int symmrun_store_listen(int *port);
/* The descriptors to poll; *count <= symmrun_store_most. */
size_t symmrun_store_most(const struct symmrun_store *store);
void symmrun_store_watch(struct symmrun_store *store, struct pollfd *fds,
                         size_t *count);
/* Serves what poll found in the same array, and what is overdue. */
void symmrun_store_serve(struct symmrun_store *store, const struct pollfd *fds,
                         size_t count);
double symmrun_store_due(const struct symmrun_store *store); /* when to serve again */

/* ---- The directory of the ranks' bootstrap: runtime.c ------------------------------ */

#define SYMMRUN_RUNTIME_PATH 72

struct symmrun_runtime {
    char path
        [SYMMRUN_RUNTIME_PATH]; /* "": the user has named one, or none can be made */
    int lock;                   /* the directory, locked while the job runs; -1 */
};

/* Also removes what killed jobs of this user have left. */
void symmrun_runtime_make(struct symmrun_runtime *runtime);
void symmrun_runtime_remove(struct symmrun_runtime *runtime);

/* ---- The out-of-memory killer: memory.c ------------------------------------------ */

struct symmrun_memory {
    char path[512];    /* of the file that counts */
    const char *limit; /* name of the file beside it that has the limit; NULL: none */
    long long kills;   /* before the first rank; -1: not known */
};

void symmrun_memory_begin(struct symmrun_memory *memory);
/* Whether the killer has ended a process since `begin`. The text begins with "; ". */
bool symmrun_memory_struck(const struct symmrun_memory *memory, char *text,
                           size_t bytes);

/* ---- The reaper: reaper.c -------------------------------------------------------- */

/*
 * A process that outlives a killed symmrun by a moment, kills the ranks' process groups
 * then, and removes the directory of their bootstrap.
 */
struct symmrun_reaper {
    pid_t pid; /* 0: none */
    int fd;    /* of a pipe to the reaper: closed when symmrun ends, however it ends */
};

/* False: errno. */
bool symmrun_reaper_start(struct symmrun_reaper *reaper,
                          const struct symmrun_runtime *runtime);
void symmrun_reaper_add(struct symmrun_reaper *reaper, pid_t group);
void symmrun_reaper_dismiss(
    struct symmrun_reaper *reaper); /* it ends without killing */

/* ---- Starting one rank: spawn.c -------------------------------------------------- */

/* What all ranks are started with. */
struct symmrun_job {
    const struct symmrun_options *options;
    char id[33];                    /* SYMM_JOB_ID */
    char secret[33];                /* SYMM_SECRET */
    char store[32];                 /* SYMM_STORE */
    char port[16];                  /* MASTER_PORT */
    char master[64];                /* MASTER_ADDR */
    char address[64];               /* SYMM_HOST_ADDRESS; "": one node */
    struct symmrun_runtime runtime; /* SYMM_RUNTIME_DIR */
    bool bind;
    sigset_t signals;                          /* as symmrun was started with */
    struct sigaction pipe_action, file_action; /* of SIGPIPE and SIGXFSZ */
    struct rlimit files;
    int failure_fd; /* where a child that cannot become its program writes why */
};

/* Why a child could not become its program. One write: smaller than PIPE_BUF. */
struct symmrun_failure {
    int rank;
    int error;     /* errno */
    char what[64]; /* "cannot run", "cannot set ..." */
};

/* Forks; out and err become the child's streams and stay open here. -1: errno. */
pid_t symmrun_spawn(const struct symmrun_job *job, int rank, int out, int err);

/* ---- After the job: calls.c ------------------------------------------------------ */

/* Compares, on stderr, the calls that the ranks of a failed job left in SYMM_DUMP. */
void symmrun_calls_show(const struct symmrun_job *job);

/* ---- The running job: watch.c ---------------------------------------------------- */

enum symmrun_phase {
    SYMMRUN_RUNNING,
    SYMMRUN_ASKED,      /* a failure or a signal: the ranks may end by themselves */
    SYMMRUN_TERMINATED, /* SIGTERM was sent */
    SYMMRUN_KILLED,     /* SIGKILL was sent */
    SYMMRUN_DRAINING,   /* all ranks have ended: their output's ends may still come */
    SYMMRUN_SWEPT,      /* what the ranks left behind was killed, too */
    SYMMRUN_OVER
};

struct symmrun_rank {
    pid_t pid; /* 0: was not started */
    bool ended;
    bool by_signal;
    int code;                         /* exit status, or the signal */
    struct symmrun_stream streams[2]; /* stdout, stderr */
};

struct symmrun {
    struct symmrun_options options;
    struct symmrun_job job;
    struct symmrun_rank *ranks; /* [options.ranks] */
    int running;
    enum symmrun_phase phase;
    double next;       /* when the phase ends, SYMMRUN_NEVER: by an event only */
    double timeout_at; /* of --timeout */
    int signals;       /* that asked symmrun to end, so far */
    int last_signal;
    sigset_t held;    /* SIGUSR1, SIGUSR2: for ranks that have not become programs */
    int first_failed; /* rank, -1: none */
    bool timed_out;
    bool not_run; /* the program could not be executed */
    bool broken;  /* symmrun itself has failed */
    bool lost;    /* output of ranks could not be written */
    int signal_fd, failure_fd;
    int log_dir; /* of --log-dir */
    struct symmrun_memory memory;
    struct symmrun_reaper reaper;
    struct symmrun_store *store;
    struct symmrun_nodes *nodes;    /* NULL: one node */
    int node_status;                /* of another node that has failed; 0: none */
    struct symmrun_queue queues[2]; /* stdout, stderr */
};

/* ---- One job over several nodes: nodes.c ----------------------------------------- */

/* Waits for all nodes; sets the job's id, ports and addresses. False: the error was printed. */
bool symmrun_nodes_join(struct symmrun *run, const uint8_t *secret);
void symmrun_nodes_destroy(struct symmrun_nodes *nodes); /* NULL allowed */
/* All blocks of this node's ranks have reached the store. data NULL: this node's round has
 * ended without an answer, so its blocks are taken back. */
void symmrun_nodes_blocks(struct symmrun_nodes *nodes, uint32_t number,
                          const void *data, size_t bytes);
/* This node's job has failed; NULL allowed. */
void symmrun_nodes_failed(struct symmrun_nodes *nodes, int status);
size_t symmrun_nodes_most(const struct symmrun_nodes *nodes);
void symmrun_nodes_watch(const struct symmrun_nodes *nodes, struct pollfd *fds);
void symmrun_nodes_serve(struct symmrun_nodes *nodes, const struct pollfd *fds);

/* ---- The parts of main.c --------------------------------------------------------- */

/* Whether output waits for its reader. */
bool symmrun_output_pending(const struct symmrun *run);

/* log.c. False, -1: after a message. */
bool symmrun_log_open_directory(struct symmrun *run);
int symmrun_log_open(struct symmrun *run, int rank, int which);
/* If the file of that stream is incomplete: reports that once. */
void symmrun_log_check(struct symmrun *run, int rank, int which);

/* prepare.c: all that ranks need. False: errno. run->broken: after a message. */
bool symmrun_prepare(struct symmrun *run);

/* Queues "symmrun: ...\n" for stderr. */
void symmrun_say(struct symmrun *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A signal that ends the job, or SIGUSR1 or SIGUSR2, which the ranks get. */
void symmrun_watch_signal(struct symmrun *run, int signal_number);
void symmrun_watch_children(struct symmrun *run); /* after SIGCHLD */
void symmrun_watch_failure(struct symmrun *run);  /* reads failure_fd */
/* Another node's job has failed, with that status. */
void symmrun_watch_node(struct symmrun *run, int node, int status);
void symmrun_watch_clock(struct symmrun *run); /* ends phases whose time is over */
/* symmrun itself has failed, after a message: ends the job at once. */
void symmrun_watch_break(struct symmrun *run);
int symmrun_watch_status(const struct symmrun *run); /* what symmrun exits with */

#endif
