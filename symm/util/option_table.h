/* SPDX-License-Identifier: MIT */
/*
 * option_table.h - every SYMM_* variable in one table: name, kind, default, help; and the
 * older names that some have, which are read where the new one is not set.
 *
 * symm_option_at and symm_env(7) show this table; a test compares them. The look-up cannot
 * fail and reports nothing, so the log can use it; options.h parses values.
 */
#ifndef SYMM_UTIL_OPTION_TABLE_H
#define SYMM_UTIL_OPTION_TABLE_H

/* X(id, KIND, default, help) for the variable SYMM_<id>; KIND: STRING BYTES SECONDS INTEGER */
#define SYMM_OPTION_MAP(X)                                                             \
    X(BACKEND, STRING, "",                                                             \
      "backend to use: host or cuda; default the best that works")                     \
    X(CUDA_LIBRARY, STRING, "libcuda.so.1",                                            \
      "the CUDA driver's library, a name or a path")                                   \
    X(KERNELS, STRING, "",                                                             \
      "folder with MODULE.fatbin files, used instead of the built-in CUDA kernels")    \
    X(MULTICAST, INTEGER, "0",                                                         \
      "1: CUDA teams use NVLink multicast where all their devices have it")            \
    X(FABRIC, INTEGER, "0",                                                            \
      "1: CUDA ranks of several hosts in one NVLink domain map each other's memory")   \
    X(OVERSUBSCRIBE, INTEGER, "0",                                                     \
      "1: ranks may share CUDA devices, in turns or by MPS; for tests")                \
    X(EXCLUSIVE, INTEGER, "0",                                                         \
      "1: the program's calls on CUDA are on one stream; no room is kept for others")  \
    X(PROCESSORS, INTEGER, "0",                                                        \
      "the fewest multiprocessors that a stream of this rank's calls on CUDA has")     \
    X(ENGINE, STRING, "auto",                                                          \
      "what moves data that symmetric memory does not reach: auto, none, nccl, mpi, "  \
      "or the path of a plug-in")                                                      \
    X(NCCL_LIB, STRING, "libnccl.so.2", "NCCL's library, a name or a path")            \
    X(NCCL_REGISTER, INTEGER, "0", "1: symmetric memory is registered with NCCL")      \
    X(NCCL_WINDOW, INTEGER, "0",                                                       \
      "1: a rendezvous makes symmetric memory a window of NCCL")                       \
    X(P2P_PAIRS, INTEGER, "0",                                                         \
      "1: two ranks that send and receive get a communicator of their own")            \
    X(CHUNKS, INTEGER, "1",                                                            \
      "long calls over hosts on CUDA: 0 in one piece, 1 in chunks where that is "      \
      "predicted to be faster, 2 all in chunks")                                       \
    X(RANK, INTEGER, "", "this process's rank; with SYMM_WORLD_SIZE and SYMM_JOB_ID")  \
    X(WORLD_SIZE, INTEGER, "", "number of ranks of the job")                           \
    X(LOCAL_RANK, INTEGER, "", "this process's rank on its host")                      \
    X(LOCAL_WORLD_SIZE, INTEGER, "", "number of ranks on this host")                   \
    X(JOB_ID, STRING, "", "names the job's bootstrap; equal on all ranks and unique")  \
    X(SECRET, STRING, "", "32 hex digits that every rank of the job must show")        \
    X(JOB_SECRET, STRING, "", "another name of SYMM_SECRET")                           \
    X(JOB_SECRET_FILE, STRING, "",                                                     \
      "file of mode 0600 that holds the secret, where no variable does")               \
    X(BOOTSTRAP_PORT, INTEGER, "",                                                     \
      "port at which rank 0 listens for the other hosts of a job")                     \
    X(BOOTSTRAP_ADDR, STRING, "",                                                      \
      "name or address of rank 0's host; default MASTER_ADDR, or Slurm's first node")  \
    X(STORE, STRING, "",                                                               \
      "host:port of symmrun's store, used where SYMM_BOOTSTRAP asks")                  \
    X(HOST_ID, STRING, "",                                                             \
      "names the host that this rank counts as being on; default the system's own")    \
    X(HOST_ADDRESS, STRING, "",                                                        \
      "this host's numeric address, by which ranks of other hosts reach this one")     \
    X(SOCKET_IFNAME, STRING, "",                                                       \
      "interfaces by which ranks of other hosts reach this one, as in NCCL's "         \
      "variable")                                                                      \
    X(PORT_RANGE, STRING, "",                                                          \
      "ports at which ranks listen for other hosts, as 30000-30099")                   \
    X(BOOTSTRAP, STRING, "local", "how ranks connect: local (by job key) or store")    \
    X(RUNTIME_DIR, STRING, "",                                                         \
      "where the bootstrap's socket lies; default "                                    \
      "XDG_RUNTIME_DIR, else /tmp")                                                    \
    X(INIT_TIMEOUT, SECONDS, "60", "how long symm_init waits for all ranks")           \
    X(TIMEOUT, SECONDS, "30", "how long a call waits for its peers")                   \
    X(QUEUE_TIMEOUT, SECONDS, "",                                                      \
      "CUDA: how long a call waits for a peer that has queued it; default ten "        \
      "timeouts, 0: for ever")                                                         \
    X(HEAP_BYTES, BYTES, "1T", "address space that each rank reserves")                \
    X(TEAM_BYTES, BYTES, "2G", "address space of a team made by split")                \
    X(CHECK, STRING, "",                                                               \
      "plan: calls must come in a loaded plan's order, freed bytes become NaN")        \
    X(RECORD, STRING, "",                                                              \
      "folder into which each rank writes what it did, for symm-plan merge")           \
    X(PLAN, STRING, "", "plan that symm_init loads for the world")                     \
    X(SIGHT, INTEGER, "",                                                              \
      "0: tools see nothing of the ranks; 1: they see how long calls take, too")       \
    X(METRICS_FILE, STRING, "",                                                        \
      "file of counters in Prometheus' text format; %r is the rank, %p the process")   \
    X(METRICS_INTERVAL, SECONDS, "5", "between two writings of SYMM_METRICS_FILE")     \
    X(DUMP, STRING, "",                                                                \
      "folder in which each rank leaves its last calls when a team fails")             \
    X(TRACE, STRING, "",                                                               \
      "folder, or file with %r, for a trace of calls that Perfetto shows")             \
    X(TRACE_SAMPLE, INTEGER, "1", "one call in so many is in the trace")               \
    X(TRACE_LIMIT, INTEGER, "1000000", "calls that a rank's trace has at most")        \
    X(EPOCH_START, INTEGER, "0",                                                       \
      "first epoch of every channel; for tests of the wrap")                           \
    X(COSTS, STRING, "",                                                               \
      "cost table of symm-perf --tune, by which algorithms are chosen")                \
    X(ISA, STRING, "",                                                                 \
      "reductions' instruction set: c, avx2 or avx512; default the best")              \
    X(SPIN, INTEGER, "200", "polls of a wait before it yields its core")               \
    X(LOG, STRING, "warn", "lines to log: error, warn, info or debug")                 \
    X(LOG_FILE, STRING, "", "file for log lines; %r is the rank, %p the process")

/* X(id, older): SYMM_<older> is an alias of SYMM_<id>. */
#define SYMM_OPTION_ALIAS_MAP(X)                                                       \
    X(TIMEOUT, DEADLINE)                                                               \
    X(INIT_TIMEOUT, INIT_DEADLINE)

enum symm_option {
#define SYMM_OPTION_ENUM(id, kind, fallback, help) SYMM_OPTION_##id,
    SYMM_OPTION_MAP(SYMM_OPTION_ENUM)
#undef SYMM_OPTION_ENUM
        SYMM_OPTION_COUNT
};

struct symm_option_row {
    const char *name; /* "SYMM_TIMEOUT" */
    const char *kind; /* "string", "bytes", "seconds" or "integer" */
    const char *fallback;
    const char *help;
};

extern const struct symm_option_row symm__options[SYMM_OPTION_COUNT];

/* The variable that gives the option's value: its alias if that alone is set. */
const char *symm__option_name(enum symm_option option);
/* The value in the environment; NULL if the variable is unset or empty. */
const char *symm__option_set(enum symm_option option);
/* The environment's value, else the default; NULL if there is neither (empty = unset). */
const char *symm__option(enum symm_option option);

#endif
