/* SPDX-License-Identifier: MIT */
/* control_wait.c - see control_wait.h. */
#include "core/control_wait.h"

#include "util/clock.h"
#include "util/hash.h"

#define SHOWN_SECONDS 0.005

struct symm_control_wait symm__control_wait(const symm_ctx *ctx, uint32_t team_uid,
                                            const char *op, const char *name)
{
    return (struct symm_control_wait){.sight = ctx->sight,
                                      .what = {.op = op,
                                               .name = name,
                                               .team_uid = team_uid,
                                               .channel = SYMM_SIGHT_CONTROL,
                                               .root = -1,
                                               .signal = -1,
                                               .since = ctx->sight ? symm__now() : 0}};
}

void symm__control_wait_for(struct symm_control_wait *wait, const int *ranks, int count)
{
    if (!wait->sight)
        return;
    if (!wait->shown && symm__now() - wait->what.since >= SHOWN_SECONDS)
        wait->shown = symm__sight_wait_begin(wait->sight, &wait->what, wait->step);
    symm__sight_wait_for(wait->sight, wait->shown, ranks, count);
}

void symm__control_wait_end(struct symm_control_wait *wait)
{
    symm__sight_wait_end(wait->sight, wait->shown);
    wait->shown = NULL;
}

static void show_late(void *arg, const int *ranks, int count)
{
    symm__control_wait_for(arg, ranks, count);
}

symm_status symm__control_exchange(symm_ctx *ctx, uint32_t team_uid, const char *name,
                                   const struct symm_exchange *exchange,
                                   struct symm_oob_message *messages)
{
    struct symm_control_wait wait = symm__control_wait(ctx, team_uid, "exchange", name);
    struct symm_exchange seen = *exchange;
    uint64_t number = 0;
    symm_status status;

    if (!ctx->sight)
        return symm__exchange(&ctx->oob, exchange, messages);
    wait.step = exchange->sequence + 1; /* 0 is none */
    wait.what.key = symm__mix(symm__fnv_text(SYMM_FNV_BASIS ^ team_uid, name));
    number = symm__sight_begin(ctx->sight, symm__sight_find(ctx->sight, &wait.what),
                               wait.step, SYMM_SIGHT_RUNNING);
    seen.late = show_late;
    seen.late_arg = &wait;
    status = symm__exchange(&ctx->oob, &seen, messages);
    symm__control_wait_end(&wait);
    symm__sight_end(ctx->sight, number,
                    status == SYMM_OK ? SYMM_SIGHT_DONE : SYMM_SIGHT_FAILED);
    return status;
}
