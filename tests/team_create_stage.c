/* SPDX-License-Identifier: MIT */
/* team_create_stage.c - see team_create_stage.h. */
#include <string.h>

#include "team_create_stage.h"

#define COUNT 700

struct harness job(struct shared *s, int ranks, harness_body body)
{
    struct harness h;
    memset(&h, 0, sizeof(h));
    memset(s, 0, sizeof(*s));
    s->victim = -1;
    h.ranks = ranks;
    h.timeout = HARNESS_SOON;
    h.body = body;
    h.arg = s;
    return h;
}

int check_sums(symm_team *team, const int *ranks, int n, void *stream, int salt)
{
    symm_call call = {.size = sizeof(call), .stream = stream};
    int64_t in[COUNT], out[COUNT], wanted = 0;
    symm_work *work = NULL;
    CHECK(symm_team_size(team) == n);
    for (int m = 0; m < n; m++) {
        CHECK(symm_team_world_rank(team, m) == ranks[m]);
        wanted += (int64_t)(ranks[m] + 1) << salt % 30;
    }
    for (int i = 0; i < COUNT; i++)
        in[i] = ((int64_t)(ranks[symm_team_rank(team)] + 1) << salt % 30) + i;
    CHECK_OK(symm_all_reduce(team, in, out, COUNT, SYMM_INT64, SYMM_SUM, &call, &work));
    CHECK_OK(symm_work_synchronize(work, 0));
    symm_work_release(work);
    for (int i = 0; i < COUNT; i++)
        CHECK_MESSAGE(out[i] == wanted + (int64_t)i * n, "element %d of %d ranks: %lld",
                      i, n, (long long)out[i]);
    return 0;
}

int check_memory(symm_team *team)
{
    symm_buffer *buffer;
    int n = symm_team_size(team), me = symm_team_rank(team);
    CHECK_OK(symm_buffer_alloc(team, 4096, &buffer));
    CHECK_OK(symm_rendezvous(team));
    int *ints = symm_buffer_ptr(buffer), value = 100 + me;
    CHECK_OK(symm_put_signal(team, ints, &value, sizeof(value), (me + 1) % n, 3, NULL,
                             NULL));
    CHECK_OK(symm_signal_wait(team, (me + n - 1) % n, 3, NULL, NULL));
    CHECK(ints[0] == 100 + (me + n - 1) % n);
    CHECK_OK(symm_barrier(team, NULL, NULL));
    symm_buffer_release(buffer);
    return 0;
}
