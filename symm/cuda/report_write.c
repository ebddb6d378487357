/* SPDX-License-Identifier: MIT */
/*
 * report_write.c - symm_cuda_write: the report on CUDA as text for people or as JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/report.h"
#include "symm/tools.h"
#include "util/emit.h"
#include "util/file.h"
#include "util/status.h"

static const char *hex(const uint8_t *bytes, size_t count, char *text)
{
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return text;
}

/* Where the device's memory can be mapped beyond its host, as NVML says. */
static void text_clique(FILE *file, const struct symm_cuda_reported *r)
{
    char cluster[33];

    if (r->fabric && r->no_clique[0])
        fprintf(file, "  %-12s none over hosts: %s\n", "  domain", r->no_clique);
    else if (r->fabric)
        fprintf(file, "  %-12s cluster %s, clique %u\n", "  domain",
                hex(r->clique.cluster, sizeof(r->clique.cluster), cluster),
                r->clique.id);
}

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
    text_clique(file, r);
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

static void emit_device(struct symm_emit *emit, const struct symm_cuda_report *report,
                        const struct symm_cuda_reported *r)
{
    char capability[32], cluster[33];

    snprintf(capability, sizeof(capability), "%d.%d", r->device.major, r->device.minor);
    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "name", r->device.name);
    symm__emit_key_string(emit, "bus", r->device.bus);
    if (r->node >= 0)
        symm__emit_key_signed(emit, "numa_node", r->node);
    else
        symm__emit_key_string(emit, "numa_node", NULL);
    symm__emit_key_string(emit, "pus", r->cpus[0] ? r->cpus : NULL);
    symm__emit_key_string(emit, "capability", capability);
    symm__emit_key_signed(emit, "multiprocessors", r->device.processors);
    symm__emit_key_unsigned(emit, "memory", r->memory);
    symm__emit_key_bool(emit, "posix_handles", r->posix);
    symm__emit_key_bool(emit, "fabric_attribute", r->fabric);
    if (r->fabric && !r->no_clique[0]) {
        symm__emit_key_string(
            emit, "cluster",
            hex(r->clique.cluster, sizeof(r->clique.cluster), cluster));
        symm__emit_key_unsigned(emit, "clique", r->clique.id);
    } else if (r->fabric) {
        symm__emit_key_string(emit, "no_clique", r->no_clique);
    }
    symm__emit_key_bool(emit, "multicast_attribute", r->multicast);
    symm__emit_key(emit, "reaches");
    symm__emit_begin_list(emit);
    for (int j = 0; j < report->count; j++)
        if (r->peer[j])
            symm__emit_signed(emit, j);
    symm__emit_end_list(emit);
    symm__emit_end_map(emit);
}

static int emit_json(FILE *file, const struct symm_cuda_report *report)
{
    struct symm_emit emit;

    symm__emit_init_file(&emit, SYMM_EMIT_JSON, file);
    symm__emit_begin_map(&emit);
    symm__emit_key_bool(&emit, "usable", !report->why[0]);
    symm__emit_key_string(&emit, "error", report->why[0] ? report->why : NULL);
    symm__emit_key_string(&emit, "library", report->library);
    symm__emit_key_signed(&emit, "driver", report->version);
    symm__emit_key_string(&emit, "kernels", report->kernels);
    symm__emit_key(&emit, "devices");
    symm__emit_begin_list(&emit);
    for (int i = 0; i < report->count; i++)
        emit_device(&emit, report, &report->device[i]);
    symm__emit_end_list(&emit);
    if (report->proof_count > 0) {
        symm__emit_key(&emit, "probe");
        symm__emit_begin_list(&emit);
    }
    for (int i = 0; i < report->proof_count; i++) {
        symm__emit_begin_map(&emit);
        symm__emit_key_string(&emit, "proof", report->proof[i].name);
        symm__emit_key_bool(&emit, "ok", report->proof[i].good);
        symm__emit_key_string(&emit, "text", report->proof[i].text);
        symm__emit_end_map(&emit);
    }
    if (report->proof_count > 0)
        symm__emit_end_list(&emit);
    symm__emit_end_map(&emit);
    return symm__emit_finish(&emit);
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
    if (json && emit_json(file, report) != 0)
        status = symm__fail(SYMM_ERR_NOMEM, "no memory for the report on CUDA");
    if (!json)
        write_text(file, report, probe);
    for (int i = 0; i < report->proof_count; i++)
        if (!report->proof[i].good)
            status = symm__fail(SYMM_ERR_UNSUPPORTED, "%s: %s", report->proof[i].name,
                                report->proof[i].text);
out:
    if (file && fclose(file) != 0 && status == SYMM_OK)
        status = symm__fail(SYMM_ERR_NOMEM, "no memory for the report on CUDA");
    if (text && bytes > 0) {
        int error = symm__write_all(fd, text, bytes);

        if (error != 0 && status == SYMM_OK)
            status = symm__fail_errno(SYMM_ERR_SYSTEM, error,
                                      "symm_cuda_write: writing the report on CUDA");
    }
    free(text);
    free(report);
    return status;
}
