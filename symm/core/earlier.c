/* SPDX-License-Identifier: MIT */
/* earlier.c - see earlier.h. */
#include "core/earlier.h"

#include <stdio.h>
#include <string.h>

#include "util/status.h"
#include "util/text.h"

#define BEFORE " had failed before: "

void symm__earlier_keep(symm_ctx *ctx, const char *sentence)
{
    const char *quoted = sentence ? strstr(sentence, BEFORE) : NULL;

    pthread_mutex_lock(&ctx->earlier_lock);
    (void)symm__fit(ctx->earlier, sizeof(ctx->earlier),
                    quoted     ? quoted + strlen(BEFORE)
                    : sentence ? sentence
                               : "");
    pthread_mutex_unlock(&ctx->earlier_lock);
}

void symm__earlier_keep_last(symm_ctx *ctx)
{
    char sentence[SYMM_ERROR_BYTES];

    symm__error_save(sentence);
    symm__earlier_keep(ctx, sentence);
}

void symm__earlier_show(symm_ctx *ctx)
{
    struct symm_control *control = symm__own_control(ctx);

    if (!control)
        return;
    pthread_mutex_lock(&ctx->earlier_lock);
    memcpy(control->earlier, ctx->earlier, sizeof(control->earlier));
    pthread_mutex_unlock(&ctx->earlier_lock);
}

const char *symm__earlier_text(const symm_ctx *ctx, int world_rank,
                               char text[SYMM_EARLIER_TEXT_BYTES])
{
    const struct symm_control *control = symm__control(ctx, world_rank);
    char earlier[SYMM_EARLIER_BYTES];

    _Static_assert(SYMM_EARLIER_TEXT_BYTES >= SYMM_EARLIER_BYTES + 40, "it fits");
    text[0] = '\0';
    /* The page is written before the mark, and not after it. */
    if (!control || !symm__process_finished(&control->live))
        return text;
    memcpy(earlier, control->earlier, sizeof(earlier));
    if (symm__printable(earlier, sizeof(earlier))[0])
        snprintf(text, SYMM_EARLIER_TEXT_BYTES, "; rank %d" BEFORE "%s", world_rank,
                 earlier);
    return text;
}
