/* SPDX-License-Identifier: MIT */
/*
 * report_write.c - symm_cuda_write: the report on CUDA as text for people or as JSON.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/report.h"
#include "symm/tools.h"
#include "util/status.h"

static void text_device(FILE *file, const struct symm_cuda_report *report, int index)
{
    const struct symm_cuda_reported *r = &report->device[index];

    fprintf(file,
            "  device %-5d %s, %d.%d, %d multiprocessors, %.1f GiB, at %s%s%s%s\n",
            index, r->device.name, r->device.major, r->device.minor,
            r->device.processors, (double)r->memory / (double)(1 << 30), r->device.bus,
            r->posix ? "" : "; NO POSIX handles", r->fabric ? "; fabric" : "",
            r->multicast ? "; multicast" : "");
    if (r->node >= 0)
        fprintf(file, "  %-12s NUMA node %d, PUs %s\n", "  near", r->node, r->cpus);
    else
        fprintf(file, "  %-12s %s%s\n", "  near", r->cpus[0] ? "PUs " : "not known",
                r->cpus);
}

/* Which devices reach which: a row for each. */
static void text_peers(FILE *file, const struct symm_cuda_report *report)
{
    for (int i = 0; i < report->count && report->count > 1; i++) {
        fprintf(file, "  %-12s %2d:", i == 0 ? "reaches" : "", i);
        for (int j = 0; j < report->count; j++)
            fprintf(file, " %s",
                    i == j                      ? "."
                    : report->device[i].peer[j] ? "yes"
                                                : "NO");
        fprintf(file, "\n");
    }
}

static void write_text(FILE *file, const struct symm_cuda_report *report, bool probe)
{
    if (!probe) {
        fprintf(file, "CUDA\n");
        if (report->version > 0)
            fprintf(file, "  driver       %d.%d from %s\n", report->version / 1000,
                    report->version % 1000 / 10, report->library);
        if (report->why[0])
            fprintf(file, "  not usable   %s\n", report->why);
        if (report->kernels[0])
            fprintf(file, "  kernels      %s\n", report->kernels);
        for (int i = 0; i < report->count; i++)
            text_device(file, report, i);
        text_peers(file, report);
    }
    for (int i = 0; i < report->proof_count; i++)
        fprintf(file, "%-4s  %-10s  %s\n", report->proof[i].good ? "ok" : "FAIL",
                report->proof[i].name, report->proof[i].text);
}

static void json_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            fprintf(file, "\\u%04x", c < 0x20 ? c : 0xfffd);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

static void json_device(FILE *file, const struct symm_cuda_report *report, int index)
{
    const struct symm_cuda_reported *r = &report->device[index];
    bool first = true;

    fprintf(file, "%s{\"name\": ", index ? ", " : "");
    json_string(file, r->device.name);
    fprintf(file, ", \"bus\": ");
    json_string(file, r->device.bus);
    fprintf(file, ", \"numa_node\": ");
    if (r->node >= 0)
        fprintf(file, "%d", r->node);
    else
        fprintf(file, "null");
    fprintf(file, ", \"pus\": ");
    if (r->cpus[0])
        json_string(file, r->cpus);
    else
        fprintf(file, "null");
    fprintf(file,
            ", \"capability\": \"%d.%d\", \"multiprocessors\": %d, \"memory\": %llu, "
            "\"posix_handles\": %s, \"fabric_attribute\": %s, "
            "\"multicast_attribute\": %s, \"reaches\": [",
            r->device.major, r->device.minor, r->device.processors,
            (unsigned long long)r->memory, r->posix ? "true" : "false",
            r->fabric ? "true" : "false", r->multicast ? "true" : "false");
    for (int j = 0; j < report->count; j++) {
        if (!r->peer[j])
            continue;
        fprintf(file, "%s%d", first ? "" : ", ", j);
        first = false;
    }
    fprintf(file, "]}");
}

static void write_json(FILE *file, const struct symm_cuda_report *report, bool probe)
{
    fprintf(file, "{\"usable\": %s, \"error\": ", report->why[0] ? "false" : "true");
    if (report->why[0])
        json_string(file, report->why);
    else
        fprintf(file, "null");
    fprintf(file, ", \"library\": ");
    json_string(file, report->library);
    fprintf(file, ", \"driver\": %d, \"kernels\": ", report->version);
    json_string(file, report->kernels);
    fprintf(file, ", \"devices\": [");
    for (int i = 0; i < report->count; i++)
        json_device(file, report, i);
    fprintf(file, "]");
    for (int i = 0; probe && i < report->proof_count; i++) {
        fprintf(file, "%s{\"proof\": \"%s\", \"ok\": %s, \"text\": ",
                i ? ", " : ", \"probe\": [", report->proof[i].name,
                report->proof[i].good ? "true" : "false");
        json_string(file, report->proof[i].text);
        fprintf(file, "}%s", i + 1 == report->proof_count ? "]" : "");
    }
    fprintf(file, "}");
}

static symm_status write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t count = write(fd, text, bytes);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                    "symm_cuda_write: writing the report on CUDA");
        text += count;
        bytes -= (size_t)count;
    }
    return SYMM_OK;
}

symm_status symm_cuda_write(int fd, const char *format, bool probe)
{
    struct symm_cuda_report *report;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file;
    symm_status status = SYMM_OK;
    bool json = format && strcmp(format, "json") == 0;

    if (!json && (!format || strcmp(format, "text") != 0))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_cuda_write: format '%s' is neither text nor json",
                          format ? format : "(NULL)");
    report = calloc(1, sizeof(*report));
    file = open_memstream(&text, &bytes);
    if (!report || !file) {
        status = symm__fail(SYMM_ERR_NOMEM, "no memory for the report on CUDA");
        goto out;
    }
    symm__cuda_report(report, probe);
    if (json)
        write_json(file, report, probe);
    else
        write_text(file, report, probe);
    for (int i = 0; i < report->proof_count; i++)
        if (!report->proof[i].good)
            status = symm__fail(SYMM_ERR_UNSUPPORTED, "%s: %s", report->proof[i].name,
                                report->proof[i].text);
out:
    if (file && fclose(file) != 0 && status == SYMM_OK)
        status = symm__fail(SYMM_ERR_NOMEM, "no memory for the report on CUDA");
    if (text && bytes > 0) {
        symm_status written = write_all(fd, text, bytes);

        status = status == SYMM_OK ? written : status;
    }
    free(text);
    free(report);
    return status;
}
