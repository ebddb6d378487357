/* SPDX-License-Identifier: MIT */
/*
 * main.c - the tool symm-info: reports the library and the machine it runs on.
 *
 * Sections: the library, CUDA, the job by the launcher's variables, the options, the limits
 * of the process, the machine. The tool uses public headers and symm/util, joins no job,
 * and needs no other rank. --json prints the same as one JSON object. --probe also proves
 * the library's needs by use (probe.c).
 * Exit status: 0; 1 if the job's variables are wrong, the library cannot be used or a
 * proof failed; 2 for a wrong command line.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <symm/symm.h>

#include "symm/tools.h"
#include "tools/common/args.h"
#include "tools/symm-info/dump.h"
#include "tools/symm-info/info.h"
#include "util/emit.h"
#include "util/text.h"

/* Each section is written by one function: as members of the map that is open in `emit`, or,
 * if `emit` is NULL, as lines of text. */
struct selection {
    bool json, probe, hosts;
    double timeout; /* of hosts; 0: the library's */
    bool library, cuda, job, options, limits, topology;
};

/* ---- The library ----------------------------------------------------------------- */

/* The flags of /proc/cpuinfo that matter to reductions. */
static void read_features(char *text, size_t bytes)
{
    static const char *const wanted[] = {
        "sse4_2",      "avx",      "f16c",     "fma",      "avx2",
        "avx512f",     "avx512bw", "avx512dq", "avx512vl", "avx512_bf16",
        "neon",        "asimd",    "asimdhp",  "bf16",     "sve",
        "avx512_fp16", "amx_bf16", "sve2",     "svebf16",
    };
    char *line = NULL, flag[32];
    size_t line_bytes = 0, used = 0;
    FILE *file = fopen("/proc/cpuinfo", "re");

    text[0] = '\0';
    if (file == NULL)
        return;
    while (getline(&line, &line_bytes, file) > 0)
        if (strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0) {
            line[strcspn(line, "\n")] = ' '; /* so that each flag is between spaces */
            for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
                snprintf(flag, sizeof(flag), " %s ", wanted[i]);
                if (strstr(line, flag) != NULL && used + strlen(flag) < bytes)
                    used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                             used > 0 ? " " : "", wanted[i]);
            }
            break; /* the flags of one processor suffice */
        }
    free(line);
    fclose(file);
}

static void emit_library(struct symm_emit *emit, const symm_info *info,
                         const char *error, const char *compiler, const char *machine,
                         const char *features)
{
    symm__emit_key_string(emit, "version", symm_version());
    symm__emit_key(emit, "build");
    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "compiler", compiler);
    symm__emit_key_string(emit, "machine", machine);
    symm__emit_end_map(emit);
    symm__emit_key_bool(emit, "usable", error == NULL);
    symm__emit_key_string(emit, "error", error);
    symm__emit_key_string(emit, "backend", info->backend);
    symm__emit_key_string(emit, "why_backend", info->why_backend);
    symm__emit_key_string(emit, "isa", info->isa);
    symm__emit_key_string(emit, "processor_features", features);
    symm__emit_key_unsigned(emit, "heap_bytes", info->heap_bytes);
    symm__emit_key_unsigned(emit, "granularity", info->granularity);
    symm__emit_key_unsigned(emit, "scratch_bytes", info->scratch_bytes);
}

static void print_library(FILE *file, const symm_info *info, const char *error,
                          const char *compiler, const char *machine,
                          const char *features)
{
    char heap[32], segment[32], scratch[32];

    fprintf(file, "libsymm %s\n", symm_version());
    fprintf(file, "  built with   %s for %s\n", compiler, machine);
    if (error != NULL) {
        fprintf(file, "  NOT USABLE   %s\n", error);
        return;
    }
    fprintf(file, "  backend      %s (%s)\n", info->backend, info->why_backend);
    fprintf(file, "  reductions   %s; this processor has: %s\n", info->isa, features);
    fprintf(file, "  heap         %s of address space a rank, segments of %s or more\n",
            symm__size_text(info->heap_bytes, heap, sizeof(heap)),
            symm__size_text(info->granularity, segment, sizeof(segment)));
    if (info->scratch_bytes > 0)
        fprintf(file, "  scratch      %s of device memory for a team's kernels\n",
                symm__size_text(info->scratch_bytes, scratch, sizeof(scratch)));
    fprintf(file, "  peers        ranks of one host use each other's memory by loads, "
                  "stores and atomics\n               (symm-info --probe proves it)\n");
}

/* Opens a context of a job of one rank, to show what the library chooses here. */
static bool show_library(FILE *file, struct symm_emit *emit)
{
#if defined(__clang__)
    static const char compiler[] = "clang " __clang_version__;
#else
    static const char compiler[] = "gcc " __VERSION__;
#endif
    char job[64],
        features[512]; /* of the processor; only those that reductions may use */
    symm_info info = {.size = sizeof(info)};
    symm_ctx *ctx = NULL;
    struct utsname name = {0};

    uname(&name);
    read_features(features, sizeof(features));
    snprintf(job, sizeof(job), "symm-info-%ld", (long)getpid());
    const symm_config config = {.size = sizeof(config), .world_size = 1, .job_id = job};
    symm_status status = symm_init(&config, &ctx);
    if (status == SYMM_OK)
        status = symm_ctx_info(ctx, &info);
    const char *error = status == SYMM_OK ? NULL : symm_last_error();
    if (emit != NULL)
        emit_library(emit, &info, error, compiler, name.machine, features);
    else
        print_library(file, &info, error, compiler, name.machine, features);
    symm_finalize(ctx);
    return status == SYMM_OK;
}

/* ---- The job --------------------------------------------------------------------- */

static bool show_job(FILE *file, struct symm_emit *emit)
{
    symm_job_info job = {.size = sizeof(job)};
    bool good = symm_job_detect(&job) == SYMM_OK;

    if (emit != NULL) {
        symm__emit_key(emit, "job");
        symm__emit_begin_map(emit);
        symm__emit_key_string(emit, "error", good ? NULL : symm_last_error());
        if (good) {
            symm__emit_key_string(emit, "source", job.source);
            symm__emit_key_signed(emit, "rank", job.rank);
            symm__emit_key_signed(emit, "world_size", job.world_size);
            symm__emit_key_signed(emit, "local_rank", job.local_rank);
            symm__emit_key_signed(emit, "local_size", job.local_size);
            symm__emit_key_string(emit, "key", job.key);
        }
        symm__emit_end_map(emit);
    } else if (good) {
        fprintf(file, "job\n  launcher     %s\n", job.source);
        fprintf(file, "  rank         %d of %d; on this host %d of %d\n", job.rank,
                job.world_size, job.local_rank, job.local_size);
        fprintf(file, "  key          %s\n", job.key);
    } else {
        fprintf(file, "job\n  WRONG        %s\n", symm_last_error());
    }
    return good;
}

/* ---- The options ----------------------------------------------------------------- */

/* Hides the job's secret, which only its ranks may know. */
static const char *shown_value(const symm_option_info *option)
{
    return option->value != NULL && args_is_secret(option->name) ? "(set, not shown)"
                                                                 : option->value;
}

static void print_options(FILE *file, bool all)
{
    symm_option_info option = {.size = sizeof(option)};
    int set = 0;

    fprintf(file, "options (environment variables)\n");
    for (int i = 0; symm_option_at(i, &option) == SYMM_OK; i++) {
        const char *value = shown_value(&option);
        set += value != NULL;
        if (value == NULL && !all)
            continue;
        fprintf(file, "  %-22s %s", option.name, value != NULL ? value : "(not set)");
        if (option.fallback[0] != '\0')
            fprintf(file, "  [default %s]", option.fallback);
        fprintf(file, "\n");
        if (all)
            fprintf(file, "  %-22s %s: %s\n", "", option.kind, option.help);
    }
    if (set == 0 && !all)
        fprintf(file, "  none is set; symm-info --options lists all\n");
}

static void emit_options(struct symm_emit *emit)
{
    symm_option_info option = {.size = sizeof(option)};

    symm__emit_key(emit, "options");
    symm__emit_begin_list(emit);
    for (int i = 0; symm_option_at(i, &option) == SYMM_OK; i++) {
        symm__emit_begin_map(emit);
        symm__emit_key_string(emit, "name", option.name);
        symm__emit_key_string(emit, "kind", option.kind);
        symm__emit_key_string(emit, "default", option.fallback);
        symm__emit_key_string(emit, "value", shown_value(&option));
        symm__emit_key_string(emit, "help", option.help);
        symm__emit_end_map(emit);
    }
    symm__emit_end_list(emit);
}

/* ---- Limits ---------------------------------------------------------------------- */

static const struct {
    unsigned resource;
    const char *key, *name, *why;
    bool bytes;
} limits[] = {
    {RLIMIT_NOFILE, "open_files", "open files", "sockets, and segments while exchanged",
     false},
    {RLIMIT_AS, "address_space", "address space", "must hold every rank's heap", true},
    {RLIMIT_MEMLOCK, "locked_memory", "locked memory",
     "nothing is locked by the host backend", true},
};
#define LIMITS (sizeof(limits) / sizeof(limits[0]))

static void limit_text(rlim_t value, bool bytes, char *text, size_t text_bytes)
{
    if (value == RLIM_INFINITY)
        snprintf(text, text_bytes, "unlimited");
    else if (bytes)
        symm__size_text(value, text, text_bytes);
    else
        snprintf(text, text_bytes, "%llu", (unsigned long long)value);
}

/* Tries a memfd, which segments need. error: "" if it works, else the failed step. */
static void try_memfd(char *error, size_t bytes)
{
    const size_t size = 1 << 16;
    const char *step = "memfd_create";
    int fd = memfd_create("symm-info", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *memory = MAP_FAILED;

    error[0] = '\0';
    if (fd >= 0 && (step = "ftruncate", ftruncate(fd, (off_t)size) == 0) &&
        (step = "mmap", (memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
                                       fd, 0)) != MAP_FAILED)) {
        memset(memory, 1, size);
    } else {
        snprintf(error, bytes, "%s: %s", step, strerror(errno));
    }
    if (memory != MAP_FAILED)
        munmap(memory, size);
    if (fd >= 0)
        close(fd);
}

static const char *const overcommit_modes[] = {
    "0 (heuristic)", "1 (always)",
    "2 (strict: segments count against CommitLimit, reserved address space not)"};

static void show_limits(FILE *file, struct symm_emit *emit)
{
    char error[128], soft[32], hard[32], mode[16];
    struct rlimit value;
    int overcommit = -1; /* cannot be read */

    if (emit != NULL) {
        symm__emit_key(emit, "limits");
        symm__emit_begin_map(emit);
    } else {
        fprintf(file, "limits\n");
    }
    for (size_t i = 0; i < LIMITS; i++) {
        if (getrlimit(limits[i].resource, &value) != 0)
            continue;
        limit_text(value.rlim_cur, limits[i].bytes, soft, sizeof(soft));
        limit_text(value.rlim_max, limits[i].bytes, hard, sizeof(hard));
        if (emit == NULL)
            fprintf(file, "  %-13s %s (at most %s): %s\n", limits[i].name, soft, hard,
                    limits[i].why);
        else if (value.rlim_cur == RLIM_INFINITY)
            symm__emit_key_string(emit, limits[i].key, NULL);
        else
            symm__emit_key_unsigned(emit, limits[i].key, value.rlim_cur);
    }
    if (symm__read_text(mode, sizeof(mode), "/proc/sys/vm/overcommit_memory") > 0 &&
        mode[0] >= '0' && mode[0] <= '2')
        overcommit = mode[0] - '0';
    try_memfd(error, sizeof(error));
    if (emit != NULL) {
        symm__emit_key_signed(emit, "overcommit_memory", overcommit);
        symm__emit_key_string(emit, "memfd_create", error[0] == '\0' ? "works" : error);
        symm__emit_end_map(emit);
    } else {
        fprintf(file, "  overcommit    %s\n  memfd_create  %s\n",
                overcommit < 0 ? "not readable" : overcommit_modes[overcommit],
                error[0] == '\0' ? "works; the size of /dev/shm does not matter"
                                 : error);
    }
}

/* ---- The machine ----------------------------------------------------------------- */

/* The output of write_to, which the caller frees; NULL: there is none. *good: write_to
 * succeeded. */
static char *written_text(symm_status (*write_to)(int fd, const char *format),
                          const char *format, bool *good)
{
    /* No file in a folder: /tmp may be full, or not be there. */
    const int fd = memfd_create("symm-info", MFD_CLOEXEC);
    FILE *copy = fd >= 0 ? fdopen(fd, "w+e") : NULL;
    char *text = NULL;
    size_t bytes = 0;

    *good = false;
    if (copy == NULL) {
        fprintf(stderr, "symm-info: no memory file: %s\n", strerror(errno));
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    *good = write_to(fileno(copy), format) == SYMM_OK;
    rewind(copy);
    if (getdelim(&text, &bytes, '\0', copy) <= 0) {
        free(text);
        text = NULL;
    }
    fclose(copy);
    return text;
}

static symm_status write_cuda(int fd, const char *format)
{
    return symm_cuda_write(fd, format, false);
}

static symm_status write_cuda_proofs(int fd, const char *format)
{
    return symm_cuda_write(fd, format, true);
}

/* false: a proof failed. */
static bool show_cuda(FILE *file, struct symm_emit *emit, bool probe)
{
    bool good;
    char *text = written_text(probe ? write_cuda_proofs : write_cuda,
                              emit != NULL ? "json" : "text", &good);

    if (emit != NULL) {
        symm__emit_key(emit, "cuda");
        symm__emit_json(emit, text != NULL ? text : "null");
    } else if (text != NULL) {
        fputs(text, file);
    }
    free(text);
    return good;
}

static bool show_topology(FILE *file, struct symm_emit *emit)
{
    bool good;
    char *text =
        written_text(symm_topology_write, emit != NULL ? "json" : "text", &good);

    good = good && text != NULL;
    if (emit != NULL) {
        symm__emit_key(emit, "topology");
        symm__emit_json(emit, good ? text : "null");
    } else {
        fprintf(file, "machine\n");
        for (char *save, *line = good ? strtok_r(text, "\n", &save) : NULL;
             line != NULL; line = strtok_r(NULL, "\n", &save))
            fprintf(file, "  %s\n", line);
        if (!good)
            fprintf(file, "  NOT KNOWN    %s\n", symm_last_error());
    }
    free(text);
    return good;
}

/* ---- The command ----------------------------------------------------------------- */

/* As text, or, unless `emit` is NULL, as members of its open map. */
static bool show_all(const struct selection *show, FILE *file, struct symm_emit *emit)
{
    bool good = true;

    if (show->library)
        good = show_library(file, emit) && good;
    if (show->cuda && emit == NULL)
        good = show_cuda(file, NULL, false) && good;
    if (show->job)
        good = show_job(file, emit) && good;
    if (show->options && emit == NULL)
        print_options(file, !show->library);
    else if (show->options)
        emit_options(emit);
    if (show->limits)
        show_limits(file, emit);
    if (show->topology)
        good = show_topology(file, emit) && good;
    if (show->probe)
        good = symm__info_probe(file, emit) == 0 && good;
    /* Last: a forked child may not use CUDA that its parent started. */
    if (show->probe || (show->cuda && emit != NULL))
        good = show_cuda(file, emit, show->probe) && good;
    return good;
}

static bool print_json(const struct selection *show, FILE *file)
{
    struct symm_emit emit;
    bool good;

    symm__emit_init_file(&emit, SYMM_EMIT_JSON, file);
    symm__emit_begin_map(&emit);
    symm__emit_key_string(&emit, "format", "symm-info/1");
    good = show_all(show, file, &emit);
    symm__emit_end_map(&emit);
    return symm__emit_finish(&emit) == 0 && good;
}

static void usage(FILE *file)
{
    fprintf(file,
            "usage: symm-info [--json] [--probe] [--cuda] [--job] [--options] "
            "[--topology]\n"
            "       symm-info --hosts [--timeout SECONDS] [--json]\n"
            "       symm-info dump ...: what running ranks do; see symm-info dump "
            "--help\n"
            "       symm-info trace [-o FILE] DIR: merges a job's traces (SYMM_TRACE)\n"
            "  --cuda      the CUDA driver, its devices, which reaches which\n"
            "  --job       the job as the launcher's variables tell it\n"
            "  --options   every SYMM_* variable\n"
            "  --topology  the machine\n"
            "  --probe     prove by use what the library needs (about a second)\n"
            "  --hosts     by a launcher, on all hosts: reachability, versions and\n"
            "              clocks of the job's hosts\n"
            "  --timeout   how long hosts may take to come (10)\n"
            "  --json      as one JSON object\n"
            "  --version   the version alone\n"
            "Without sections: all of them, without the probe.\n");
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct selection *show)
{
    bool help = false, version = false;
    struct args_option options[] = {
        ARGS_ROW("json", 0, ARGS_FLAG, &show->json),
        ARGS_ROW("probe", 0, ARGS_FLAG, &show->probe),
        ARGS_ROW("hosts", 0, ARGS_FLAG, &show->hosts),
        ARGS_ROW("timeout", 0, ARGS_NUMBER, &show->timeout, .high = 3600),
        ARGS_ROW("cuda", 0, ARGS_FLAG, &show->cuda),
        ARGS_ROW("job", 0, ARGS_FLAG, &show->job),
        ARGS_ROW("options", 0, ARGS_FLAG, &show->options),
        ARGS_ROW("topology", 0, ARGS_FLAG, &show->topology),
        ARGS_ROW("help", 'h', ARGS_STOP, &help),
        ARGS_ROW("version", 'V', ARGS_STOP, &version),
    };
    char error[256];
    int word = args_parse(argc, argv, options, sizeof(options) / sizeof(options[0]),
                          false, error, sizeof(error));

    if (help)
        usage(stdout);
    if (version)
        printf("symm-info %s\n", symm_version());
    if (help || version)
        return 0;
    if (word >= 0 && word < argc)
        snprintf(error, sizeof(error), "'%.100s' is not an option", argv[word]);
    if (word != argc) {
        fprintf(stderr, "symm-info: %s\n", error);
        usage(stderr);
        return 2;
    }
    if (show->hosts
            ? show->probe || show->cuda || show->job || show->options || show->topology
            : show->timeout > 0) {
        fprintf(stderr, "symm-info: %s\n",
                show->hosts ? "--hosts is for all hosts, and does not go with sections"
                            : "--timeout belongs to --hosts");
        usage(stderr);
        return 2;
    }
    if (!show->hosts && !show->probe && !show->cuda && !show->job && !show->options &&
        !show->topology)
        show->library = show->cuda = show->job = show->options = show->limits =
            show->topology = true;
    return -1;
}

/* A log sink: errors are part of the output, so log lines are dropped. */
static void drop_line(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

static int flush_output(int status)
{
    return args_flush("symm-info") || status != 0 ? status : 1;
}

int main(int argc, char **argv)
{
    struct selection show = {0};
    int status;

    args_guard_streams();
    if (argc > 1 && strcmp(argv[1], "dump") == 0)
        return flush_output(symm__info_dump(argc - 1, argv + 1));
    if (argc > 1 && strcmp(argv[1], "trace") == 0)
        return flush_output(symm__info_trace(argc - 1, argv + 1));
    status = parse(argc, argv, &show);
    if (status >= 0)
        return flush_output(status);
    symm_log_sink(drop_line, NULL);
    if (show.hosts)
        return flush_output(symm__info_hosts(stdout, show.json, show.timeout) ? 0 : 1);
    bool good = show.json ? print_json(&show, stdout) : show_all(&show, stdout, NULL);
    return flush_output(good ? 0 : 1);
}
