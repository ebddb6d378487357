/* SPDX-License-Identifier: MIT */
/*
 * main.c - the tool symm-info: reports the library and the machine it runs on.
 *
 * Sections: the library, CUDA, the job by the launcher's variables, the options, the limits
 * of the process, the machine. The tool uses public headers only, joins no job, and needs
 * no other rank. --json prints the same as one JSON object. --probe also proves the
 * library's needs by use (probe.c).
 * Exit status: 0; 1 if the job's variables are wrong, the library cannot be used or a
 * proof failed; 2 for a wrong command line.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <symm/symm.h>

#include "symm/tools.h"
#include "tools/symm-info/info.h"

struct selection {
    bool json, probe;
    bool library, cuda, job, options, limits, topology;
};

/* ---- JSON ------------------------------------------------------------------------ */

/* Bytes of the well-formed UTF-8 sequence at s, 0 if there is none. */
static size_t utf8_sequence(const unsigned char *s)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t count = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : 4;
    uint32_t point = s[0];

    if (count == 1)
        return 1;
    if (count == 4 && s[0] >> 3 != 30)
        return 0;
    point &= 0xffU >> (count + 1);
    for (size_t i = 1; i < count; i++) {
        if (s[i] >> 6 != 2) /* stops at NUL, too */
            return 0;
        point = point << 6 | (s[i] & 0x3fU);
    }
    if (point < lowest[count] || point > 0x10ffff ||
        (point >= 0xd800 && point < 0xe000))
        return 0;
    return count;
}

void symm__info_json_string(FILE *file, const char *text)
{
    if (text == NULL) {
        fputs("null", file);
        return;
    }
    fputc('"', file);
    for (const unsigned char *s = (const unsigned char *)text; *s != 0;) {
        size_t count = utf8_sequence(s);
        if (*s == '"' || *s == '\\')
            fprintf(file, "\\%c", *s);
        else if (*s < 0x20)
            fprintf(file, "\\u%04x", *s);
        else if (count == 0)
            fputs("\\ufffd", file);
        else
            fwrite(s, 1, count, file);
        s += count > 0 ? count : 1;
    }
    fputc('"', file);
}

/* `,\n "key": ` of a member; the first of an object has no comma. */
static void json_key(FILE *file, bool *first, int indent, const char *key)
{
    fprintf(file, "%s\n%*s\"%s\": ", *first ? "" : ",", indent, "", key);
    *first = false;
}

static void json_member(FILE *file, bool *first, int indent, const char *key,
                        const char *text)
{
    json_key(file, first, indent, key);
    symm__info_json_string(file, text);
}

static void json_number(FILE *file, bool *first, int indent, const char *key,
                        uint64_t value)
{
    json_key(file, first, indent, key);
    fprintf(file, "%llu", (unsigned long long)value);
}

/* "256 GiB" */
static const char *size_text(uint64_t bytes, char *text, size_t text_bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    double value = (double)bytes;

    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    snprintf(text, text_bytes, "%.4g %s", value, units[unit]);
    return text;
}

/* ---- The library ----------------------------------------------------------------- */

struct library {
    char compiler[128];
    char machine[sizeof(((struct utsname *)NULL)->machine)];
    char features[512]; /* of the processor; only those that reductions may use */
    bool usable;        /* symm_init works */
    char error[512];    /* why not */
    char backend[16], isa[16], why_backend[256];
    size_t heap_bytes, granularity, scratch_bytes;
};

/* The flags of /proc/cpuinfo that matter to reductions. */
static void read_features(char *text, size_t bytes)
{
    static const char *const wanted[] = {
        "sse4_2",      "avx",      "f16c",     "fma",      "avx2",
        "avx512f",     "avx512bw", "avx512dq", "avx512vl", "avx512_bf16",
        "neon",        "asimd",    "asimdhp",  "bf16",     "sve",
        "avx512_fp16", "amx_bf16", "sve2",     "svebf16",
    };
    char *line = NULL;
    size_t line_bytes = 0, used = 0;
    FILE *file = fopen("/proc/cpuinfo", "re");

    text[0] = '\0';
    if (file == NULL)
        return;
    while (getline(&line, &line_bytes, file) > 0) {
        if (strncmp(line, "flags", 5) != 0 && strncmp(line, "Features", 8) != 0)
            continue;
        char *save = NULL;
        for (char *word = strtok_r(line, " \t:\n", &save); word != NULL;
             word = strtok_r(NULL, " \t:\n", &save)) {
            for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
                if (strcmp(word, wanted[i]) == 0 && used + strlen(word) + 2 < bytes)
                    used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                             used > 0 ? " " : "", word);
            }
        }
        break; /* the flags of one processor suffice */
    }
    free(line);
    fclose(file);
}

/* Opens a context of a job of one rank and reads its choices. */
static void try_library(struct library *library)
{
    char job[64];
    symm_info info = {.size = sizeof(info)};
    symm_ctx *ctx = NULL;

    snprintf(job, sizeof(job), "symm-info-%ld", (long)getpid());
    const symm_config config = {.size = sizeof(config), .world_size = 1, .job_id = job};
    symm_status status = symm_init(&config, &ctx);
    if (status == SYMM_OK)
        status = symm_ctx_info(ctx, &info);
    library->usable = status == SYMM_OK;
    if (library->usable) {
        snprintf(library->backend, sizeof(library->backend), "%s", info.backend);
        snprintf(library->isa, sizeof(library->isa), "%s", info.isa);
        snprintf(library->why_backend, sizeof(library->why_backend), "%s",
                 info.why_backend);
        library->heap_bytes = info.heap_bytes;
        library->granularity = info.granularity;
        library->scratch_bytes = info.scratch_bytes;
    } else {
        snprintf(library->error, sizeof(library->error), "%s", symm_last_error());
    }
    symm_finalize(ctx);
}

static void read_library(struct library *library)
{
    struct utsname name;

    memset(library, 0, sizeof(*library));
#if defined(__clang__)
    snprintf(library->compiler, sizeof(library->compiler), "clang %s",
             __clang_version__);
#else
    snprintf(library->compiler, sizeof(library->compiler), "gcc %s", __VERSION__);
#endif
    if (uname(&name) == 0)
        memcpy(library->machine, name.machine, sizeof(library->machine));
    read_features(library->features, sizeof(library->features));

    try_library(library);
}

static bool print_library(FILE *file)
{
    struct library library;
    char heap[32], segment[32], scratch[32];

    read_library(&library);
    fprintf(file, "libsymm %s\n", symm_version());
    fprintf(file, "  built with   %s for %s\n", library.compiler, library.machine);
    if (library.usable) {
        fprintf(file, "  backend      %s (%s)\n", library.backend, library.why_backend);
        fprintf(file, "  reductions   %s; this processor has: %s\n", library.isa,
                library.features);
        fprintf(file,
                "  heap         %s of address space a rank, segments of %s or more\n",
                size_text(library.heap_bytes, heap, sizeof(heap)),
                size_text(library.granularity, segment, sizeof(segment)));
        if (library.scratch_bytes > 0)
            fprintf(file, "  scratch      %s of device memory for a team's kernels\n",
                    size_text(library.scratch_bytes, scratch, sizeof(scratch)));
        fprintf(file,
                "  peers        ranks of one host use each other's memory by loads, "
                "stores and atomics\n               (symm-info --probe proves it)\n");
    } else {
        fprintf(file, "  NOT USABLE   %s\n", library.error);
    }
    return library.usable;
}

static bool json_library(FILE *file, bool *first)
{
    struct library library;
    bool inner = true;

    read_library(&library);
    json_member(file, first, 1, "version", symm_version());
    json_key(file, first, 1, "build");
    fprintf(file, "{");
    json_member(file, &inner, 2, "compiler", library.compiler);
    json_member(file, &inner, 2, "machine", library.machine);
    fprintf(file, "\n }");
    json_key(file, first, 1, "usable");
    fprintf(file, "%s", library.usable ? "true" : "false");
    json_member(file, first, 1, "error", library.usable ? NULL : library.error);
    json_member(file, first, 1, "backend", library.usable ? library.backend : NULL);
    json_member(file, first, 1, "why_backend",
                library.usable ? library.why_backend : NULL);
    json_member(file, first, 1, "isa", library.usable ? library.isa : NULL);
    json_member(file, first, 1, "processor_features", library.features);
    json_number(file, first, 1, "heap_bytes", library.heap_bytes);
    json_number(file, first, 1, "granularity", library.granularity);
    json_number(file, first, 1, "scratch_bytes", library.scratch_bytes);
    return library.usable;
}

/* ---- The job --------------------------------------------------------------------- */

static bool print_job(FILE *file)
{
    symm_job_info job = {.size = sizeof(job)};

    fprintf(file, "job\n");
    if (symm_job_detect(&job) != SYMM_OK) {
        fprintf(file, "  WRONG        %s\n", symm_last_error());
        return false;
    }
    fprintf(file, "  launcher     %s\n", job.source);
    fprintf(file, "  rank         %d of %d; on this host %d of %d\n", job.rank,
            job.world_size, job.local_rank, job.local_size);
    fprintf(file, "  key          %s\n", job.key);
    return true;
}

static bool json_job(FILE *file, bool *first)
{
    symm_job_info job = {.size = sizeof(job)};
    bool inner = true, good = symm_job_detect(&job) == SYMM_OK;

    json_key(file, first, 1, "job");
    fprintf(file, "{");
    json_member(file, &inner, 2, "error", good ? NULL : symm_last_error());
    if (good) {
        json_member(file, &inner, 2, "source", job.source);
        json_number(file, &inner, 2, "rank", (uint64_t)job.rank);
        json_number(file, &inner, 2, "world_size", (uint64_t)job.world_size);
        json_number(file, &inner, 2, "local_rank", (uint64_t)job.local_rank);
        json_number(file, &inner, 2, "local_size", (uint64_t)job.local_size);
        json_member(file, &inner, 2, "key", job.key);
    }
    fprintf(file, "\n }");
    return good;
}

/* ---- The options ----------------------------------------------------------------- */

/* Hides the job's secret, which only its ranks may know. */
static const char *shown_value(const symm_option_info *option)
{
    if (option->value != NULL && strcmp(option->name, "SYMM_SECRET") == 0)
        return "(set, not shown)";
    return option->value;
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

static void json_options(FILE *file, bool *first)
{
    symm_option_info option = {.size = sizeof(option)};

    json_key(file, first, 1, "options");
    fprintf(file, "[");
    for (int i = 0; symm_option_at(i, &option) == SYMM_OK; i++) {
        bool inner = true;
        fprintf(file, "%s\n  {", i == 0 ? "" : ",");
        json_member(file, &inner, 3, "name", option.name);
        json_member(file, &inner, 3, "kind", option.kind);
        json_member(file, &inner, 3, "default", option.fallback);
        json_member(file, &inner, 3, "value", shown_value(&option));
        json_member(file, &inner, 3, "help", option.help);
        fprintf(file, "\n  }");
    }
    fprintf(file, "\n ]");
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
        size_text(value, text, text_bytes);
    else
        snprintf(text, text_bytes, "%llu", (unsigned long long)value);
}

/* -1: cannot be read. */
static int read_overcommit(void)
{
    int value = -1;
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "re");

    if (file != NULL) {
        if (fscanf(file, "%d", &value) != 1)
            value = -1;
        fclose(file);
    }
    return value;
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

static const char *overcommit_text(int mode)
{
    switch (mode) {
    case 0:
        return "0 (heuristic)";
    case 1:
        return "1 (always)";
    case 2:
        return "2 (strict: segments count against CommitLimit, reserved address space "
               "not)";
    default:
        return "not readable";
    }
}

static void print_limits(FILE *file)
{
    char error[128];

    fprintf(file, "limits\n");
    for (size_t i = 0; i < LIMITS; i++) {
        struct rlimit value;
        char soft[32], hard[32];
        if (getrlimit(limits[i].resource, &value) != 0)
            continue;
        limit_text(value.rlim_cur, limits[i].bytes, soft, sizeof(soft));
        limit_text(value.rlim_max, limits[i].bytes, hard, sizeof(hard));
        fprintf(file, "  %-13s %s (at most %s): %s\n", limits[i].name, soft, hard,
                limits[i].why);
    }
    fprintf(file, "  overcommit    %s\n", overcommit_text(read_overcommit()));
    try_memfd(error, sizeof(error));
    fprintf(file, "  memfd_create  %s\n",
            error[0] == '\0' ? "works; the size of /dev/shm does not matter" : error);
}

static void json_limits(FILE *file, bool *first)
{
    bool inner = true;
    char error[128];

    json_key(file, first, 1, "limits");
    fprintf(file, "{");
    for (size_t i = 0; i < LIMITS; i++) {
        struct rlimit value;
        if (getrlimit(limits[i].resource, &value) != 0)
            continue;
        json_key(file, &inner, 2, limits[i].key);
        if (value.rlim_cur == RLIM_INFINITY)
            fprintf(file, "null"); /* no limit */
        else
            fprintf(file, "%llu", (unsigned long long)value.rlim_cur);
    }
    json_key(file, &inner, 2, "overcommit_memory");
    fprintf(file, "%d", read_overcommit());
    try_memfd(error, sizeof(error));
    json_member(file, &inner, 2, "memfd_create", error[0] == '\0' ? "works" : error);
    fprintf(file, "\n }");
}

/* ---- The machine ----------------------------------------------------------------- */

/* Copies the output of write_to to file; prefix begins each line. *good: write_to
 * succeeded. Returns false if it wrote nothing. */
static bool copy_written(FILE *file,
                         symm_status (*write_to)(int fd, const char *format),
                         const char *format, const char *prefix, bool *good)
{
    FILE *copy = tmpfile();
    char line[4096];
    bool begins = true;

    *good = false;
    if (copy == NULL)
        return false;
    *good = write_to(fileno(copy), format) == SYMM_OK;
    if (fseek(copy, 0, SEEK_END) != 0 || ftell(copy) == 0) {
        fclose(copy);
        return false;
    }
    rewind(copy);
    while (fgets(line, sizeof(line), copy) != NULL) {
        size_t length = strlen(line);
        fprintf(file, "%s%s", begins ? prefix : "", line);
        begins = length > 0 && line[length - 1] == '\n';
    }
    fclose(copy);
    return true;
}

static symm_status write_cuda(int fd, const char *format)
{
    return symm_cuda_write(fd, format, false);
}

static symm_status write_cuda_proofs(int fd, const char *format)
{
    return symm_cuda_write(fd, format, true);
}

/* Writes the CUDA section; false: a proof failed. */
static bool copy_cuda(FILE *file, const char *format, bool probe)
{
    bool good;

    copy_written(file, probe ? write_cuda_proofs : write_cuda, format, "", &good);
    return good;
}

static bool print_topology(FILE *file)
{
    bool good;

    fprintf(file, "machine\n");
    if (copy_written(file, symm_topology_write, "text", "  ", &good) && good)
        return true;
    fprintf(file, "  NOT KNOWN    %s\n", symm_last_error());
    return false;
}

static bool json_topology(FILE *file, bool *first)
{
    bool good;

    json_key(file, first, 1, "topology");
    if (copy_written(file, symm_topology_write, "json", "", &good) && good)
        return true;
    fprintf(file, "null");
    return false;
}

/* ---- The command ----------------------------------------------------------------- */

static bool print_text(const struct selection *show, FILE *file)
{
    bool good = true;

    if (show->library)
        good = print_library(file) && good;
    if (show->cuda)
        good = copy_cuda(file, "text", false) && good;
    if (show->job)
        good = print_job(file) && good;
    if (show->options)
        print_options(file, !show->library);
    if (show->limits)
        print_limits(file);
    if (show->topology)
        good = print_topology(file) && good;
    if (show->probe)
        good = symm__info_probe(file, false) == 0 && good;
    if (show->probe) /* last: a forked child may not use CUDA that its parent started */
        good = copy_cuda(file, "text", true) && good;
    return good;
}

static bool print_json(const struct selection *show, FILE *file)
{
    bool first = true, good = true;

    fprintf(file, "{");
    json_member(file, &first, 1, "format", "symm-info/1");
    if (show->library)
        good = json_library(file, &first) && good;
    if (show->job)
        good = json_job(file, &first) && good;
    if (show->options)
        json_options(file, &first);
    if (show->limits)
        json_limits(file, &first);
    if (show->topology)
        good = json_topology(file, &first) && good;
    if (show->probe) {
        json_key(file, &first, 1, "probe");
        good = symm__info_probe(file, true) == 0 && good;
    }
    if (show->cuda || show->probe) {
        json_key(file, &first, 1, "cuda");
        good = copy_cuda(file, "json", show->probe) && good;
    }
    fprintf(file, "\n}\n");
    return good;
}

static void usage(FILE *file)
{
    fprintf(file, "usage: symm-info [--json] [--probe] [--cuda] [--job] [--options] "
                  "[--topology]\n"
                  "  --cuda      the CUDA driver, its devices, which reaches which\n"
                  "  --job       the job as the launcher's variables tell it\n"
                  "  --options   every SYMM_* variable\n"
                  "  --topology  the machine\n"
                  "  --probe     prove by use what the library needs (about a second)\n"
                  "  --json      as one JSON object\n"
                  "  --version   the version alone\n"
                  "Without sections: all of them, without the probe.\n");
}

enum {
    OPTION_JSON = 256,
    OPTION_PROBE,
    OPTION_CUDA,
    OPTION_JOB,
    OPTION_OPTIONS,
    OPTION_TOPOLOGY
};

static const struct option flags[] = {
    {"json", no_argument, NULL, OPTION_JSON},
    {"probe", no_argument, NULL, OPTION_PROBE},
    {"cuda", no_argument, NULL, OPTION_CUDA},
    {"job", no_argument, NULL, OPTION_JOB},
    {"options", no_argument, NULL, OPTION_OPTIONS},
    {"topology", no_argument, NULL, OPTION_TOPOLOGY},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct selection *show)
{
    for (int flag; (flag = getopt_long(argc, argv, "hV", flags, NULL)) != -1;) {
        switch (flag) {
        case OPTION_JSON:
            show->json = true;
            break;
        case OPTION_PROBE:
            show->probe = true;
            break;
        case OPTION_CUDA:
            show->cuda = true;
            break;
        case OPTION_JOB:
            show->job = true;
            break;
        case OPTION_OPTIONS:
            show->options = true;
            break;
        case OPTION_TOPOLOGY:
            show->topology = true;
            break;
        case 'h':
            usage(stdout);
            return 0;
        case 'V':
            printf("symm-info %s\n", symm_version());
            return 0;
        default:
            usage(stderr);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "symm-info: '%s' is not an option\n", argv[optind]);
        usage(stderr);
        return 2;
    }
    if (!show->probe && !show->cuda && !show->job && !show->options && !show->topology)
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

/*
 * Opens closed standard streams read-only: a file opened later must not get the stream's
 * number and receive the printed text. With SIGXFSZ ignored, RLIMIT_FSIZE is an error of
 * write(2).
 */
static void guard_streams(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
    signal(SIGXFSZ, SIG_IGN);
}

static int flush_output(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "symm-info: stdout: %s\n", strerror(errno));
    return status == 0 ? 1 : status;
}

int main(int argc, char **argv)
{
    struct selection show = {0};
    int status;

    guard_streams();
    status = parse(argc, argv, &show);
    if (status >= 0)
        return flush_output(status);
    symm_log_sink(drop_line, NULL);
    bool good = show.json ? print_json(&show, stdout) : print_text(&show, stdout);
    return flush_output(good ? 0 : 1);
}
