/* SPDX-License-Identifier: MIT */
/* error_where.c - see error_where.h. */
#include "cuda/error_where.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/failure.h"
#include "cuda/channel.h"

const char *symm__cuda_tag_text(const symm_team *team, int member, uint32_t tag,
                                uint32_t step, char *text, size_t bytes)
{
    struct symm_site site;

    if (symm__cuda_site_of(team, member, tag, &site))
        return symm__site_text(&site, step, text, bytes);
    if (tag == 0)
        snprintf(text, bytes, "no call yet");
    else
        snprintf(text, bytes, "a site that is no longer known (tag %08x) step %u", tag,
                 step);
    return text;
}

const char *symm__cuda_where_text(const symm_team *team,
                                  const struct symm_cuda_facts *facts, char *text,
                                  size_t bytes)
{
    const int peer = symm__members_first(&facts->missing);
    const void *stream;
    char name[48];

    if (!symm__is_signal(facts))
        return symm__cuda_channel_text(&team->channel[facts->channel], text, bytes);
    text[0] = '\0';
    if (symm__is_exchange(facts) && facts->workspace != 0)
        snprintf(text, bytes, " in the workspace at offset %" PRIu64, facts->workspace);
    if (facts->signal >= SYMM_SIGNALS || peer < 0 || peer >= team->local_size)
        return text;
    stream =
        __atomic_load_n(&team->cuda->waiting[peer][facts->signal], __ATOMIC_RELAXED);
    snprintf(text, bytes, " on %s", symm__cuda_stream_text(stream, name, sizeof(name)));
    return text;
}
