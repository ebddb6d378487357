/* SPDX-License-Identifier: MIT */
/*
 * explain.c - symm_explain: in one sentence, which path a team's last call took, and why.
 */
#include <stdio.h>
#include <string.h>

#include "core/device_ops.h"
#include "core/team.h"
#include "engine/runtime.h"
#include "memory/team_plan.h"
#include "util/status.h"

static const char *barriers_text(uint32_t barriers)
{
    static const char *const texts[] = {"no barriers", "entry barrier", "exit barrier",
                                        "both barriers"};

    return texts[barriers & 3];
}

/* " (2.1 us by the table, two_shot_push 2.9 us)" after the reason. */
static void explain_costs(const struct symm_estimate *estimate, char *text,
                          size_t bytes)
{
    char next[64] = "";

    if (estimate->next_us > 0)
        snprintf(next, sizeof(next), ", %s %.3g us",
                 symm_algorithm_name(estimate->next), estimate->next_us);
    snprintf(text, bytes, " (%.3g us by the %s%s)", estimate->us,
             estimate->measured ? "table" : "model", next);
}

const char *symm_explain(symm_team *team)
{
    static _Thread_local char explanation[1024];
    const struct symm_team_channel *channel;
    const struct symm_prepared_call *entry;
    const char *path;
    int used;

    if (symm__team_check(team) != SYMM_OK)
        return symm_last_error();
    path = __atomic_load_n(&team->last_path, __ATOMIC_RELAXED);
    if (path)
        return path;
    channel = &team->channel[__atomic_load_n(&team->last_channel, __ATOMIC_RELAXED)];
    entry = channel->last;
    if (!entry)
        return "no call has been made on this team";
    used =
        snprintf(explanation, sizeof(explanation),
                 "%s of %zu bytes over %d ranks took %s on the %s backend: %s",
                 symm__kind_name((enum symm_kind)entry->args.site.kind),
                 entry->args.bytes, team->size, symm_algorithm_name(entry->algorithm),
                 team->ctx->ops->name, entry->reason);
    if (entry->args.norm.rows > 0 && entry->part == 0 && used > 0 &&
        (size_t)used < sizeof(explanation))
        used += snprintf(explanation + used, sizeof(explanation) - (size_t)used,
                         "; this sums, and each rank does the rest apart");
    if (entry->algorithm == SYMM_ALGORITHM_ENGINE && used > 0 &&
        (size_t)used < sizeof(explanation))
        used += snprintf(explanation + used, sizeof(explanation) - (size_t)used,
                         " (%s)", team->ctx->engine->version);
    if (entry->estimate.us > 0 && used > 0 && (size_t)used < sizeof(explanation))
        explain_costs(&entry->estimate, explanation + used,
                      sizeof(explanation) - (size_t)used);
    used = (int)strlen(explanation);
    if (entry->planned)
        snprintf(explanation + used, sizeof(explanation) - (size_t)used,
                 " (planned: %s, %s)",
                 symm_algorithm_name(entry->planned->op->algorithm),
                 barriers_text(entry->args.barriers));
    used = (int)strlen(explanation);
    if (team->device_ops && !team->hierarchy)
        team->device_ops->explain(channel, explanation + used,
                                  sizeof(explanation) - (size_t)used);
    used = (int)strlen(explanation);
    if (team->far && team->ctx->why_domain[0])
        snprintf(explanation + used, sizeof(explanation) - (size_t)used,
                 "; NVLink domain: %s", team->ctx->why_domain);
    return explanation;
}
