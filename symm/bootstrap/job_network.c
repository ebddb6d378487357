/* SPDX-License-Identifier: MIT */
/*
 * job_network.c - how the ranks of a job find each other over a network: the job's secret, rank
 * 0's port, symmrun's store.
 *
 * Guarantees that no sentence shows a secret. Refuses a file of a secret that others may read.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bootstrap/job_private.h"
#include "net/siphash.h"
#include "util/hash.h"
#include "util/status.h"

/* What a file of the user alone holds, without the line's end. */
static symm_status secret_of_file(const char *path, char *text, size_t bytes)
{
    struct stat about;
    /* NONBLOCK: the open of a pipe waits for one that writes */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t got;

    if (fd < 0)
        return symm__fail_errno(SYMM_ERR_JOB, errno, "SYMM_JOB_SECRET_FILE='%.200s'",
                                path);
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) ||
        about.st_uid != geteuid() || (about.st_mode & 077) != 0) {
        close(fd);
        return symm__fail(SYMM_ERR_JOB,
                          "SYMM_JOB_SECRET_FILE='%.200s': must be a file of this user "
                          "that nobody else may read (chmod 600)",
                          path);
    }
    got = read(fd, text, bytes - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    return SYMM_OK;
}

/* 32 hex digits. The error does not show the value: it is a secret even if misspelt. */
symm_status symm__job_read_secret(struct symm_job *job)
{
    const char *file = variable("SYMM_JOB_SECRET_FILE");
    const char *name = variable("SYMM_SECRET") ? "SYMM_SECRET" : "SYMM_JOB_SECRET";
    const char *text = variable(name);
    char held[128];
    size_t length;

    if (!text && file) {
        symm_status status = secret_of_file(file, held, sizeof(held));

        if (status != SYMM_OK)
            return status;
        name = "what is in SYMM_JOB_SECRET_FILE";
        text = held;
    }
    job->has_secret = text != NULL;
    if (!text)
        return SYMM_OK;
    length = strlen(text);
    if (length != 2 * SYMM_SECRET_BYTES ||
        strspn(text, "0123456789abcdefABCDEF") != length)
        return symm__fail(SYMM_ERR_JOB,
                          "%s (%zu characters, not shown): must be %d hex digits", name,
                          length, 2 * SYMM_SECRET_BYTES);
    for (int i = 0; i < SYMM_SECRET_BYTES; i++) {
        unsigned byte;

        if (sscanf(text + 2 * i, "%2x", &byte) == 1)
            job->secret[i] = (uint8_t)byte;
    }
    return SYMM_OK;
}

/* The first host of "node[01-04,07]-ib,login1" or "rack[2-3]n[10,12]": of each bracket the first
 * number. */
static void first_node(const char *list, char *name, size_t bytes)
{
    bool inside = false, taken = false; /* of a bracket; its first number */
    size_t used = 0;

    for (; *list && (inside || *list != ','); list++) {
        if (*list == '[' || *list == ']') {
            inside = *list == '[';
            taken = false;
        } else if (inside && (*list == '-' || *list == ',')) {
            taken = true;
        } else if (!taken && used + 1 < bytes) {
            name[used++] = *list;
        }
    }
    name[used] = '\0';
}

/* Where rank 0 listens, if the job says so: SYMM_BOOTSTRAP_PORT at the host that the job or the
 * launcher names. */
symm_status symm__job_read_root(struct symm_job *job)
{
    const char *host = variable("SYMM_BOOTSTRAP_ADDR");
    const char *nodes = either("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
    const char *port = variable("SYMM_BOOTSTRAP_PORT");
    char node[256] = "";
    int number;
    symm_status status;

    const char *group = either("GROUP_RANK", "SLURM_NODEID");
    /* Not TORCHELASTIC_RESTART_COUNT: each agent counts the failures of its own host's ranks, so
     * one job has several. An agent ends its ranks before it comes to the next rendezvous. */
    static const char *const series[] = {"SYMM_JOB_ID", "TORCHELASTIC_RUN_ID",
                                         "SLURM_JOB_ID", "SLURM_STEP_ID",
                                         "SLURM_RESTART_COUNT"};

    job->series = SYMM_FNV_BASIS;
    for (size_t i = 0; i < sizeof(series) / sizeof(series[0]); i++)
        job->series = symm__fnv_text(job->series ^ i,
                                     variable(series[i]) ? variable(series[i]) : "");
    snprintf(job->node, sizeof(job->node), "%.23s", group ? group : "");
    job->root[0] = '\0';
    if (!port)
        return SYMM_OK;
    status = symm__job_number("SYMM_BOOTSTRAP_PORT", 1, 65535, &number);
    if (status != SYMM_OK)
        return status;
    if (!host)
        host = variable("MASTER_ADDR");
    if (!host && nodes && strcmp(job->source, "slurm") == 0) {
        first_node(nodes, node, sizeof(node));
        host = node;
    }
    if (!host)
        return symm__fail(
            SYMM_ERR_JOB,
            "SYMM_BOOTSTRAP_PORT is set, but nothing says where rank 0 is: "
            "set SYMM_BOOTSTRAP_ADDR to its host's name or address");
    if (strlen(host) > 255)
        return symm__fail(SYMM_ERR_JOB,
                          "the name of rank 0's host has more than 255 "
                          "characters: '%.40s...'",
                          host);
    /* an address of IPv6, unless it has its brackets */
    snprintf(job->root, sizeof(job->root),
             strchr(host, ':') && host[0] != '[' ? "[%s]:%d" : "%s:%d", host, number);
    return SYMM_OK;
}

symm_status symm__job_read_store(struct symm_job *job)
{
    const char *text = variable("SYMM_STORE");
    size_t length = text ? strlen(text) : 0;

    if (length >= sizeof(job->store))
        return symm__fail(SYMM_ERR_JOB,
                          "SYMM_STORE='%.40s...': must be host:port, at most "
                          "%zu characters",
                          text, sizeof(job->store) - 1);
    if (text)
        memcpy(job->store, text, length);
    job->store[length] = '\0';
    return SYMM_OK;
}

symm_status symm__job_no_secret(void)
{
    return symm__fail(
        SYMM_ERR_JOB,
        "a job over several hosts needs a secret, by which its ranks know "
        "each other: set SYMM_JOB_SECRET to the same 32 hex digits on all "
        "ranks (openssl rand -hex 16 makes them), or "
        "SYMM_JOB_SECRET_FILE to a file of mode 0600 that holds them");
}

void symm__job_series_key(const uint8_t secret[SYMM_SECRET_BYTES], uint64_t series,
                          enum symm_series_use use, uint8_t key[SYMM_SECRET_BYTES])
{
    const uint64_t text[2] = {htobe64(series), htobe64((uint64_t)use)};
    const struct symm_siphash_tag tag = symm__siphash(secret, text, sizeof(text));

    _Static_assert(SYMM_SIPHASH_TAG == SYMM_SECRET_BYTES, "a tag is a key");
    memcpy(key, tag.bytes, SYMM_SECRET_BYTES);
}

symm_status symm__job_network(struct symm_job *job)
{
    symm_status status = symm__job_read_secret(job);

    return status == SYMM_OK ? symm__job_read_root(job) : status;
}
