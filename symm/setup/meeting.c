/* SPDX-License-Identifier: MIT */
/*
 * meeting.c - see meeting.h.
 *
 * Each rank shows its call in its own control page, and reads the pages of the others:
 *
 *     HERE          waits for the others
 *     LOCKED(n)     has locked its context for the last rank's call n
 *     LEAVING(n)    is about to unlock it again
 *     DECIDING      the last rank only: looks whether all are LOCKED for its call
 *     DECIDED(slot) the last rank: they are. Another: has seen that
 *     FAILED        is over; the page has the sentence, and the calls that it is to end
 *
 * The last rank is that of the highest world rank. Ranks lock in the order of their world ranks,
 * once all are here: so calls with lists that overlap do not hold locks that the others need in
 * a circle. A split or a rendezvous of another thread can still close one, so a rank that has
 * held its lock for a while lets go and begins anew.
 *
 * The last rank alone decides. A rank that wants to leave says LEAVING, then reads the last
 * rank's word; the last rank says DECIDING, then reads all words. All accesses are sequentially
 * consistent, so one of the two sees the other: either the last rank finds that not all are
 * LOCKED, or the rank that leaves finds DECIDING and awaits what comes of it. LOCKED names the
 * last rank's call by its number, so what an earlier call has left behind is never counted.
 */
#include "setup/meeting.h"

#include <stdio.h>
#include <string.h>

#include "setup/team_object.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/rank_text.h"
#include "util/status.h"
#include "util/text.h"

#define LOOK_SECONDS 2e-4 /* between two looks at the others */
#define HOLD_SECONDS 0.02 /* a lock is held at first, for the others to lock theirs */
#define CROSS_SECONDS                                                                  \
    0.2 /* for all of a list to come before a difference is an error */

#define GET(from)       __atomic_load_n(&(from), __ATOMIC_SEQ_CST)
#define SET(to, value)  __atomic_store_n(&(to), (value), __ATOMIC_SEQ_CST)
#define STAMPS          0xffffffu
#define STAMP_OF(word)  ((uint32_t)((word) >> 40))
#define NUMBER_OF(word) ((uint32_t)((word) >> 16) & STAMPS)
#define STATE_OF(word)  ((enum state)((word)&0xffff))

enum state { NONE, HERE, LOCKED, LEAVING, DECIDING, DECIDED, FAILED };

static uint64_t word_of(uint32_t stamp, uint32_t number, enum state state)
{
    return (uint64_t)stamp << 40 | (uint64_t)(number & STAMPS) << 16 | state;
}

static bool is_waiting(uint64_t word)
{
    return STATE_OF(word) >= HERE && STATE_OF(word) <= DECIDING;
}

/* ---- The own page -------------------------------------------------------------------- */

static void set_text(struct symm_meeting *page, const char *text)
{
    uint64_t words[sizeof(page->text) / sizeof(page->text[0])] = {0};

    snprintf((char *)words, sizeof(words), "%s", text);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        SET(page->text[i], words[i]);
}

static const char *get_text(const struct symm_meeting *page,
                            char text[sizeof(page->text)])
{
    for (size_t i = 0; i < sizeof(page->text) / sizeof(page->text[0]); i++) {
        uint64_t word = GET(page->text[i]);

        memcpy(text + i * sizeof(word), &word, sizeof(word));
    }
    return symm__printable(text, sizeof(page->text));
}

void symm__meet_prepare(struct symm_meet *meet, const symm_team *parent,
                        const int *ranks, int size, int key)
{
    char name[64], list[256];
    size_t used = 0;

    memset(meet, 0, sizeof(*meet));
    meet->parent = parent;
    meet->size = size;
    meet->hold = HOLD_SECONDS;
    for (int m = 0; m < size; m++) {
        meet->world_rank[m] = parent->world_rank[ranks[m]];
        if (ranks[m] == parent->rank)
            meet->rank = m;
        if (meet->world_rank[m] > meet->world_rank[meet->last])
            meet->last = m;
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d",
                                 m ? " " : "[", meet->world_rank[m]);
    }
    meet->series = symm__fnv(SYMM_FNV_BASIS, &parent->uid, sizeof(parent->uid));
    meet->series = symm__fnv(meet->series, &key, sizeof(key));
    meet->list = symm__fnv(meet->series, meet->world_rank,
                           (size_t)size * sizeof(*meet->world_rank));
    snprintf(meet->what, sizeof(meet->what), "%s] of %s with key %d", list,
             symm__team_name(parent, name, sizeof(name)), key);
}

/* Shows the call to the others. */
static symm_status join(struct symm_meet *meet)
{
    symm_ctx *ctx = meet->parent->ctx;
    struct symm_meeting *page = ctx->control[ctx->rank]->meeting;
    uint64_t members = 0;
    bool same = false;

    pthread_mutex_lock(&ctx->meetings);
    for (int e = 0; e < SYMM_MEETINGS; e++) {
        uint64_t word = GET(page[e].word);
        /* by turns, so that a failure stays there for the others to read */
        int turn = (int)((ctx->meeting_stamp + (uint32_t)e) % SYMM_MEETINGS);

        same = same || (STATE_OF(word) >= HERE && STATE_OF(word) <= DECIDED &&
                        GET(page[e].series) == meet->series);
        word = GET(page[turn].word);
        if (!meet->own && (STATE_OF(word) == NONE || STATE_OF(word) == FAILED))
            meet->own = &page[turn];
    }
    if (!same && meet->own) {
        ctx->meeting_stamp = (ctx->meeting_stamp + 1) & STAMPS;
        ctx->meeting_stamp += ctx->meeting_stamp == 0;
        meet->stamp = ctx->meeting_stamp;
        for (int m = 0; m < meet->size; m++)
            members |= UINT64_C(1) << meet->world_rank[m];
        SET(meet->own->word, 0);
        SET(meet->own->series, meet->series);
        SET(meet->own->list, meet->list);
        SET(meet->own->members, members);
        set_text(meet->own, meet->what);
        SET(meet->own->word, word_of(meet->stamp, 0, HERE));
    }
    pthread_mutex_unlock(&ctx->meetings);
    if (same)
        return symm__fail(
            SYMM_ERR_BUSY,
            "symm_team_create of %s: another thread of rank %d is in such a "
            "call with this key; calls at the same time have different keys",
            meet->what, ctx->rank);
    if (!meet->own)
        return symm__fail(SYMM_ERR_BUSY,
                          "symm_team_create of %s: rank %d is in %d such calls already",
                          meet->what, ctx->rank, SYMM_MEETINGS);
    return SYMM_OK;
}

/* The call is over, for the reason in symm_last_error(), and so are those that wait with it. */
static void publish(const struct symm_meet *meet, symm_status status)
{
    symm_ctx *ctx = meet->parent->ctx;
    struct symm_meeting *page = meet->own;

    pthread_mutex_lock(&ctx->meetings); /* until then no other thread takes the page */
    SET(page->word, 0);
    set_text(page, symm_last_error());
    for (int r = 0; r < SYMM_MAX_RANKS; r++)
        SET(page->fails[r], 0);
    for (int m = 0; m < meet->size; m++) {
        const struct symm_seen *seen = &meet->seen[m];

        SET(page->fails[meet->world_rank[m]],
            is_waiting(seen->word)        ? STAMP_OF(seen->word)
            : status == SYMM_ERR_MISMATCH ? meet->against[m]
                                          : 0);
    }
    SET(page->word, word_of(meet->stamp, (uint32_t)-status, FAILED));
    pthread_mutex_unlock(&ctx->meetings);
}

void symm__meet_end(struct symm_meet *meet)
{
    SET(meet->own->word, 0);
}

/* ---- The others ---------------------------------------------------------------------- */

/* Reads what a rank shows of this parent and key. *failure: one that is this call's, too. */
static void see(struct symm_meet *meet, int member, const struct symm_meeting **failure)
{
    const symm_ctx *ctx = meet->parent->ctx;
    const struct symm_control *control = ctx->control[meet->world_rank[member]];
    struct symm_seen *seen = &meet->seen[member];
    const struct symm_meeting *fails = NULL;

    *seen = (struct symm_seen){0};
    for (int e = 0; e < SYMM_MEETINGS; e++) {
        const struct symm_meeting *page = &control->meeting[e];
        uint64_t word = GET(page->word), series = GET(page->series),
                 list = GET(page->list), members = GET(page->members);
        bool mine = GET(page->fails[ctx->rank]) == meet->stamp;

        if (series != meet->series || GET(page->word) != word)
            continue; /* the next look finds one that changes just now */
        fails = STATE_OF(word) == FAILED && mine ? page : fails;
        if (STATE_OF(word) < HERE || STATE_OF(word) > DECIDED)
            continue;
        if (list == meet->list) {
            seen->page = page;
            seen->word = word;
        } else if (is_waiting(word)) {
            seen->other = page;
            seen->other_word = word;
            seen->other_members = members;
        }
    }
    if (!fails)
        return;
    *failure = fails;
    *seen =
        (struct symm_seen){0}; /* what it does after that is not to fail with mine */
}

/* Another rank's failure becomes this one's. */
static symm_status adopt(const struct symm_meet *meet, const struct symm_meeting *page)
{
    char text[sizeof(page->text)];
    uint64_t word = GET(page->word);

    get_text(page, text);
    if (STATE_OF(word) != FAILED || GET(page->word) != word)
        return symm__fail(SYMM_ERR_ABORTED,
                          "symm_team_create of %s: another rank has failed",
                          meet->what);
    return symm__fail_quiet(symm__peer_status(-(int32_t)NUMBER_OF(word)), text);
}

static symm_status find_dead(const struct symm_meet *meet)
{
    const symm_ctx *ctx = meet->parent->ctx;

    for (int m = 0; m < meet->size; m++) {
        int rank = meet->world_rank[m];
        const char *why;
        symm_status status = m == meet->rank
                                 ? SYMM_OK
                                 : symm__process_check(&ctx->process[rank],
                                                       &ctx->control[rank]->live, &why);

        if (status != SYMM_OK)
            return symm__fail(status, "rank %d %s during symm_team_create of %s", rank,
                              why, meet->what);
    }
    return SYMM_OK;
}

/* Does that rank wait, with another list, for one that waits here? Which, or -1. */
static int awaited(const struct symm_meet *meet, int member)
{
    const struct symm_seen *seen = &meet->seen[member];

    for (int m = 0; m < meet->size && seen->other && !seen->word; m++)
        if ((seen->other_members >> meet->world_rank[m] & 1) &&
            (m == meet->rank || is_waiting(meet->seen[m].word)))
            return m;
    return -1;
}

/* Ranks that wait for each other with different lists never end. */
static symm_status find_crossing(struct symm_meet *meet)
{
    char text[sizeof(meet->own->text)];
    int one = -1, other = -1;

    for (int m = 0; m < meet->size; m++) {
        int here = awaited(meet, m);
        uint32_t stamp = here < 0 ? 0 : STAMP_OF(meet->seen[m].other_word);

        if (stamp != meet->against[m])
            meet->crossed = symm__now();
        meet->against[m] = stamp;
        one = here < 0 ? one : here;
        other = here < 0 ? other : m;
    }
    if (other < 0 || symm__now() - meet->crossed < CROSS_SECONDS)
        return SYMM_OK;
    get_text(meet->seen[other].other, text);
    return symm__fail(SYMM_ERR_MISMATCH,
                      "symm_team_create: rank %d waits with %.200s, but rank %d with "
                      "%.200s, and each lists the other",
                      meet->world_rank[one], meet->what, meet->world_rank[other], text);
}

static symm_status look(struct symm_meet *meet)
{
    const struct symm_meeting *failure = NULL;
    symm_status status;

    for (int m = 0; m < meet->size; m++)
        if (m != meet->rank)
            see(meet, m, &failure);
    if (failure)
        return adopt(meet, failure);
    status = find_dead(meet);
    return status == SYMM_OK ? find_crossing(meet) : status;
}

static symm_status late(const struct symm_meet *meet)
{
    const symm_ctx *ctx = meet->parent->ctx;
    int missing[SYMM_MAX_RANKS] = {0}, count = 0, busy = meet->rank;
    char names[200];

    for (int m = 0; m < meet->size; m++)
        if (m != meet->rank && !is_waiting(meet->seen[m].word))
            missing[count++] = meet->world_rank[m];
        else if (m != meet->rank && STATE_OF(meet->seen[m].word) == HERE)
            busy = m;
    if (count == 0)
        return symm__fail(
            SYMM_ERR_TIMEOUT,
            "rank %d has come to symm_team_create of %s, but another of its "
            "threads splits a team or is in a rendezvous since %.3g s",
            meet->world_rank[busy], meet->what, ctx->timeout);
    symm__ranks_text(missing, count, names, sizeof(names));
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "%s %s not come to symm_team_create of %s within %.3g s: stopped, "
        "busy elsewhere, or in need of a longer timeout (SYMM_TIMEOUT)?",
        names, count == 1 ? "has" : "have", meet->what, ctx->timeout);
}

/* ---- Together ------------------------------------------------------------------------ */

/* Has the last rank decided? Then so have I. */
static bool see_decision(struct symm_meet *meet)
{
    uint64_t word = GET(meet->last_page->word);

    if (STATE_OF(word) != DECIDED || STAMP_OF(word) != meet->number)
        return false;
    meet->slot = (int)NUMBER_OF(word);
    meet->decided = true;
    SET(meet->own->word, word_of(meet->stamp, 0, DECIDED));
    return true;
}

/* Unlocks the context, unless the last rank has decided meanwhile. */
static void leave(struct symm_meet *meet)
{
    const uint64_t deciding = word_of(meet->number, 0, DECIDING);

    if (!meet->locked || meet->decided)
        return;
    if (meet->rank != meet->last) {
        SET(meet->own->word, word_of(meet->stamp, meet->number, LEAVING));
        while (GET(meet->last_page->word) == deciding && find_dead(meet) == SYMM_OK)
            symm__sleep(LOOK_SECONDS);
        if (see_decision(meet))
            return;
        SET(meet->own->word, word_of(meet->stamp, 0, HERE));
    }
    meet->locked = false;
    pthread_mutex_unlock(&meet->parent->ctx->lock);
}

/* The last rank, with its context locked: are all the others', too? */
static symm_status decide(struct symm_meet *meet)
{
    const symm_ctx *ctx = meet->parent->ctx;
    const struct symm_meeting *failure = NULL;
    uint64_t taken = symm__team_slots(ctx);
    bool all = true;
    symm_status status = SYMM_OK;

    SET(meet->own->word, word_of(meet->stamp, 0, DECIDING));
    for (int m = 0; m < meet->size; m++) {
        if (m == meet->rank)
            continue;
        see(meet, m, &failure);
        all = all && STATE_OF(meet->seen[m].word) == LOCKED &&
              NUMBER_OF(meet->seen[m].word) == meet->stamp;
        taken |= all ? GET(meet->seen[m].page->taken) : 0;
    }
    if (all)
        status = symm__team_slot(ctx, taken, meet->size, &meet->slot);
    meet->decided = all && status == SYMM_OK;
    SET(meet->own->word, meet->decided
                             ? word_of(meet->stamp, (uint32_t)meet->slot, DECIDED)
                             : word_of(meet->stamp, 0, HERE));
    return status;
}

/* Is it my turn to lock? Then all are here, and those of lower world ranks have. */
static bool is_turn(const struct symm_meet *meet, uint32_t number)
{
    for (int m = 0; m < meet->size; m++) {
        uint64_t word = meet->seen[m].word;

        if (m != meet->rank && !is_waiting(word))
            return false;
        if (meet->world_rank[m] < meet->world_rank[meet->rank] &&
            (STATE_OF(word) != LOCKED || NUMBER_OF(word) != number))
            return false;
    }
    return true;
}

static symm_status step(struct symm_meet *meet)
{
    symm_ctx *ctx = meet->parent->ctx;
    bool last = meet->rank == meet->last;
    uint32_t number = last ? meet->stamp : STAMP_OF(meet->seen[meet->last].word);
    symm_status status = SYMM_OK;

    if (meet->locked) {
        if (!see_decision(meet) && symm__now() - meet->since > meet->hold) {
            leave(meet);
            meet->hold = meet->hold < 1 ? 2 * meet->hold : meet->hold;
        }
        return SYMM_OK;
    }
    if (!is_turn(meet, number) || pthread_mutex_trylock(&ctx->lock) != 0)
        return SYMM_OK;
    meet->locked = true;
    meet->since = symm__now();
    meet->number = number;
    meet->last_page = last ? meet->own : meet->seen[meet->last].page;
    if (last) {
        status = decide(meet);
        leave(meet);
    } else {
        SET(meet->own->taken, symm__team_slots(ctx));
        SET(meet->own->word, word_of(meet->stamp, number, LOCKED));
    }
    return status;
}

symm_status symm__meet(struct symm_meet *meet, symm_status mine)
{
    double until = symm__now() + meet->parent->ctx->timeout;
    char sentence[SYMM_ERROR_BYTES];
    symm_status status;

    symm__error_save(sentence);
    status = join(meet);
    if (status != SYMM_OK)
        return status;
    while (status == SYMM_OK && !meet->decided) {
        status = look(meet);
        if (mine != SYMM_OK)
            status = symm__fail_quiet(mine, sentence);
        if (status == SYMM_OK && symm__now() >= until)
            status = late(meet);
        if (status == SYMM_OK)
            status = step(meet);
        if (status == SYMM_OK && !meet->decided)
            symm__sleep(LOOK_SECONDS);
    }
    if (status != SYMM_OK) {
        leave(meet);
        if (!meet->decided)
            publish(meet, status);
    }
    return meet->decided ? SYMM_OK : status;
}
