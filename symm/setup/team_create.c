/* SPDX-License-Identifier: MIT */
/*
 * team_create.c - see team_create.h.
 *
 * Each rank shows its call in its own control page, and reads the pages of the others:
 *
 *     HERE          is in the call, and waits for the others
 *     LOCKED(n)     has locked its context for the last rank's call n
 *     LEAVING(n)    is about to unlock it again
 *     DECIDING      the last rank only: looks whether all are LOCKED for its call
 *     DECIDED(slot) the last rank: all are. Another rank: has read that
 *     FAILED        is over; the page has the sentence, and the calls that fail with it
 *
 * The last rank is that of the highest world rank. Ranks lock in the order of their world ranks,
 * once all are here: so calls with lists that overlap do not hold locks that the others need in
 * a circle. A split or a rendezvous of another thread can still close such a circle, so a rank
 * that has held its lock for a while unlocks and begins anew.
 *
 * The last rank alone decides. A rank that wants to unlock stores LEAVING, then reads the last
 * rank's word; the last rank stores DECIDING, then reads all words. All accesses are sequentially
 * consistent, so one of the two sees the other: either the last rank finds that not all are
 * LOCKED, or the rank that leaves finds DECIDING and waits for the decision. LOCKED names the
 * last rank's call by its number, so a word left by an earlier call is never counted.
 */
#include "setup/team_create.h"

#include <stdio.h>
#include <string.h>

#include "core/control_wait.h"
#include "core/earlier.h"
#include "core/failure.h"
#include "setup/team_object.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/rank_text.h"
#include "util/status.h"
#include "util/text.h"

#define LOOK_SECONDS   2e-4 /* between two reads of the others' pages */
#define HOLD_SECONDS   0.02 /* a lock is held at first, for the others to lock theirs */
#define DECIDE_SECONDS 1.0  /* for the last rank to read all words */
#define CROSS_SECONDS                                                                  \
    0.2 /* for all of a list to come before a difference is an error */

#define GET(from)       __atomic_load_n(&(from), __ATOMIC_SEQ_CST)
#define SET(to, value)  __atomic_store_n(&(to), (value), __ATOMIC_SEQ_CST)
#define STAMPS          0xffffffu
#define STAMP_OF(word)  ((uint32_t)((word) >> 40))
#define NUMBER_OF(word) ((uint32_t)((word) >> 16) & STAMPS)
#define STATE_OF(word)  ((enum state)((word)&0xffff))

#define LIST_END 17 /* bytes for one rank more and " ..." */

enum state { NONE, HERE, LOCKED, LEAVING, DECIDING, DECIDED, FAILED };

static uint64_t word_of(uint32_t stamp, uint32_t number, enum state state)
{
    return (uint64_t)stamp << 40 | (uint64_t)(number & STAMPS) << 16 | state;
}

static bool is_waiting(uint64_t word)
{
    return STATE_OF(word) >= HERE && STATE_OF(word) <= DECIDING;
}

/* ---- This rank's page ---------------------------------------------------------------- */

static void set_text(struct symm_creation *page, const char *text)
{
    uint64_t words[sizeof(page->text) / sizeof(page->text[0])] = {0};

    (void)symm__fit((char *)words, sizeof(words), text);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        SET(page->text[i], words[i]);
}

static const char *get_text(const struct symm_creation *page,
                            char text[sizeof(page->text)])
{
    for (size_t i = 0; i < sizeof(page->text) / sizeof(page->text[0]); i++) {
        uint64_t word = GET(page->text[i]);

        memcpy(text + i * sizeof(word), &word, sizeof(word));
    }
    return symm__printable(text, sizeof(page->text));
}

void symm__create_prepare(struct symm_create *create, const symm_team *parent,
                          const int *ranks, int size, int key)
{
    char name[64], list[256];
    size_t used = 0;
    int cut = 0; /* ranks that are not listed */

    memset(create, 0, sizeof(*create));
    create->parent = parent;
    create->size = size;
    create->hold = HOLD_SECONDS;
    for (int m = 0; m < size; m++) {
        create->world_rank[m] = parent->world_rank[ranks[m]];
        if (ranks[m] == parent->rank)
            create->rank = m;
        if (create->world_rank[m] > create->world_rank[create->last])
            create->last = m;
        if (used + LIST_END < sizeof(list))
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d",
                                     m ? " " : "[", create->world_rank[m]);
        else if (cut++ == 0)
            snprintf(list + used, sizeof(list) - used, " ...");
    }
    create->series = symm__fnv(SYMM_FNV_BASIS, &parent->uid, sizeof(parent->uid));
    create->series = symm__fnv(create->series, &key, sizeof(key));
    create->list = symm__fnv(create->series, create->world_rank,
                             (size_t)size * sizeof(*create->world_rank));
    snprintf(create->what, sizeof(create->what), "%s] of %s with key %d", list,
             symm__team_name(parent, name, sizeof(name)), key);
}

/* Shows this call to the others, in a free page. */
static symm_status join(struct symm_create *create)
{
    symm_ctx *ctx = create->parent->ctx;
    struct symm_creation *page = symm__own_control(ctx)->creation;
    uint64_t members = 0;
    bool same = false;

    pthread_mutex_lock(&ctx->creations);
    for (int e = 0; e < SYMM_CREATIONS; e++) {
        uint64_t word = GET(page[e].word);
        /* pages in turn, so that a failure stays in its page for long */
        int turn = (int)((ctx->creation_stamp + (uint32_t)e) % SYMM_CREATIONS);

        same = same || (STATE_OF(word) >= HERE && STATE_OF(word) <= DECIDED &&
                        GET(page[e].series) == create->series);
        word = GET(page[turn].word);
        if (!create->own && (STATE_OF(word) == NONE || STATE_OF(word) == FAILED))
            create->own = &page[turn];
    }
    if (!same && create->own) {
        ctx->creation_stamp = (ctx->creation_stamp + 1) & STAMPS;
        ctx->creation_stamp += ctx->creation_stamp == 0;
        create->stamp = ctx->creation_stamp;
        for (int m = 0; m < create->size; m++)
            members |= UINT64_C(1) << ctx->local_of[create->world_rank[m]];
        SET(create->own->word, 0);
        SET(create->own->series, create->series);
        SET(create->own->list, create->list);
        SET(create->own->members, members);
        set_text(create->own, create->what);
        SET(create->own->word, word_of(create->stamp, 0, HERE));
    }
    pthread_mutex_unlock(&ctx->creations);
    if (same)
        return symm__fail(
            SYMM_ERR_BUSY,
            "symm_team_create of %s: another thread of rank %d is in such a "
            "call with this key; calls at the same time have different keys",
            create->what, ctx->rank);
    if (!create->own)
        return symm__fail(SYMM_ERR_BUSY,
                          "symm_team_create of %s: rank %d is in %d such calls already",
                          create->what, ctx->rank, SYMM_CREATIONS);
    return SYMM_OK;
}

/* Ends the call with symm_last_error(), and with it the calls of the ranks that wait in it. own:
 * the failure is this rank's alone. */
static void publish(const struct symm_create *create, symm_status status, bool own)
{
    symm_ctx *ctx = create->parent->ctx;
    struct symm_creation *page = create->own;
    char text[SYMM_ERROR_BYTES + 128];

    /* The sentence of such a failure does not name the rank. */
    snprintf(text, sizeof(text), "%s", symm_last_error());
    if (own)
        snprintf(text, sizeof(text), "rank %d failed in symm_team_create of %s: %s",
                 ctx->rank, create->what, symm_last_error());
    pthread_mutex_lock(&ctx->creations); /* until then no other thread takes the page */
    SET(page->word, 0);
    set_text(page, text);
    for (int p = 0; p < SYMM_MAX_LOCAL_RANKS; p++)
        SET(page->fails[p], 0);
    for (int m = 0; m < create->size; m++) {
        const struct symm_seen *seen = &create->seen[m];

        SET(page->fails[ctx->local_of[create->world_rank[m]]],
            is_waiting(seen->word)        ? STAMP_OF(seen->word)
            : status == SYMM_ERR_MISMATCH ? create->against[m]
                                          : 0);
    }
    SET(page->word, word_of(create->stamp, (uint32_t)-status, FAILED));
    pthread_mutex_unlock(&ctx->creations);
}

void symm__create_end(struct symm_create *create)
{
    SET(create->own->word, 0);
}

/* ---- The others ---------------------------------------------------------------------- */

/* Reads a member's pages of this parent and key. *failure: a page whose failure ends this call,
 * too. */
static void see(struct symm_create *create, int member,
                const struct symm_creation **failure)
{
    const symm_ctx *ctx = create->parent->ctx;
    const struct symm_control *control =
        symm__near_control(ctx, create->world_rank[member]);
    struct symm_seen *seen = &create->seen[member];
    const struct symm_creation *fails = NULL;

    *seen = (struct symm_seen){0};
    for (int e = 0; e < SYMM_CREATIONS; e++) {
        const struct symm_creation *page = &control->creation[e];
        uint64_t word = GET(page->word), series = GET(page->series),
                 list = GET(page->list), members = GET(page->members);
        bool mine = GET(page->fails[ctx->local_rank]) == create->stamp;

        if (series != create->series || GET(page->word) != word)
            continue; /* the page is being changed: the next read finds it */
        fails = STATE_OF(word) == FAILED && mine ? page : fails;
        if (STATE_OF(word) < HERE || STATE_OF(word) > DECIDED)
            continue;
        if (list == create->list) {
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
    /* that rank's later calls must not fail with this one */
    *seen = (struct symm_seen){0};
}

/* Returns another rank's failure, with its sentence. */
static symm_status adopt(const struct symm_create *create,
                         const struct symm_creation *page)
{
    char text[sizeof(page->text)];
    uint64_t word = GET(page->word);

    get_text(page, text);
    if (STATE_OF(word) != FAILED || GET(page->word) != word)
        return symm__fail(SYMM_ERR_ABORTED,
                          "symm_team_create of %s: another rank has failed",
                          create->what);
    return symm__fail_quiet(symm__peer_status(-(int32_t)NUMBER_OF(word)), text);
}

/* The place of a member that has finalized, with its status and why; -1: none. */
static int find_finished(const struct symm_create *create, symm_status *status,
                         const char **why)
{
    const symm_ctx *ctx = create->parent->ctx;

    for (int m = 0; m < create->size; m++) {
        int rank = create->world_rank[m];

        if (m == create->rank || !symm__rank_finished(ctx, rank))
            continue;
        *status = symm__rank_check(ctx, rank, why);
        if (*status != SYMM_OK)
            return m;
    }
    return -1;
}

/* The place of a member that is in a symm_team_shrink of the parent that this rank has not made:
 * it will not make this call. -1: none. */
static int find_shrinking(const struct symm_create *create)
{
    for (int m = 0; m < create->size; m++)
        if (m != create->rank && !is_waiting(create->seen[m].word) &&
            symm__team_shrinks(create->parent, create->world_rank[m]))
            return m;
    return -1;
}

/* Fails if a member has gone. A member may have finalized because a rank died that is not in the
 * list: so deaths are looked for after finalized members, then among all ranks of the parent. */
static symm_status find_dead(const struct symm_create *create)
{
    const symm_team *parent = create->parent;
    const int *ranks = create->world_rank;
    symm_status left = SYMM_OK, death;
    const char *why = NULL, *how;
    char earlier[SYMM_EARLIER_TEXT_BYTES] = "";
    int at = find_finished(create, &left, &why), count = create->size, dead;

    if (at < 0) {
        at = find_shrinking(create);
        left = SYMM_ERR_ABORTED;
        why = "has gone on to symm_team_shrink of the parent";
    }
    if (at >= 0) {
        ranks = parent->world_rank;
        count = parent->size;
    }
    death = symm__death_among(parent->ctx, ranks, count, &dead, &how);
    if (death == SYMM_OK && at < 0)
        return SYMM_OK;
    if (death != SYMM_OK)
        return symm__fail(death, "rank %d %s during symm_team_create of %s",
                          ranks[dead], how, create->what);
    return symm__fail(left, "rank %d %s during symm_team_create of %s%s",
                      create->world_rank[at], why, create->what,
                      symm__earlier_text(parent->ctx, create->world_rank[at], earlier));
}

/* Does the member's other call fail, as soon as the member sees that? It may be slower than this
 * rank, which was in the same call, has seen the failure, and makes the next one. The call has failed
 * with one of this rank, or a rank of its list has gone. */
static bool is_over(const struct symm_create *create, int member)
{
    const uint64_t members = create->seen[member].other_members;
    const symm_team *parent = create->parent;
    const symm_ctx *ctx = parent->ctx;
    const struct symm_creation *page = symm__own_control(ctx)->creation;
    const int local = ctx->local_of[create->world_rank[member]];
    const uint32_t stamp = STAMP_OF(create->seen[member].other_word);
    const char *why;
    int at;

    for (int e = 0; e < SYMM_CREATIONS; e++)
        if (STATE_OF(GET(page[e].word)) == FAILED && GET(page[e].fails[local]) == stamp)
            return true;
    for (int i = 0; i < parent->size; i++) {
        const int rank = parent->world_rank[i];

        if (symm__is_far(ctx, rank) || !(members >> ctx->local_of[rank] & 1))
            continue;
        if (symm__rank_finished(ctx, rank) || symm__team_shrinks(parent, rank) ||
            symm__death_among(ctx, &rank, 1, &at, &why) != SYMM_OK)
            return true;
    }
    return false;
}

/* The place of a member that is in this call, and for which `member` waits in another one; -1:
 * none. */
static int awaited(const struct symm_create *create, int member)
{
    const struct symm_seen *seen = &create->seen[member];
    const symm_ctx *ctx = create->parent->ctx;

    for (int m = 0; m < create->size && seen->other && !seen->word; m++)
        if ((seen->other_members >> ctx->local_of[create->world_rank[m]] & 1) &&
            (m == create->rank || is_waiting(create->seen[m].word)))
            return m;
    return -1;
}

/* Fails if two ranks wait for each other with different lists: that never ends. */
static symm_status find_crossing(struct symm_create *create)
{
    char text[sizeof(create->own->text)];
    int one = -1, other = -1;

    for (int m = 0; m < create->size; m++) {
        int here = awaited(create, m);
        uint32_t stamp;

        if (here >= 0 && is_over(create, m))
            here = -1;
        stamp = here < 0 ? 0 : STAMP_OF(create->seen[m].other_word);
        if (stamp != create->against[m])
            create->crossed = symm__now();
        create->against[m] = stamp;
        one = here < 0 ? one : here;
        other = here < 0 ? other : m;
    }
    if (other < 0 || symm__now() - create->crossed < CROSS_SECONDS)
        return SYMM_OK;
    get_text(create->seen[other].other, text);
    return symm__fail(SYMM_ERR_MISMATCH,
                      "symm_team_create: rank %d waits with %.200s, but rank %d with "
                      "%.200s, and each lists the other",
                      create->world_rank[one], create->what, create->world_rank[other],
                      text);
}

/* Reads the pages of all members. Fails if this call cannot succeed any more. */
static symm_status look(struct symm_create *create)
{
    const struct symm_creation *failure = NULL;
    symm_status status;

    for (int m = 0; m < create->size; m++)
        if (m != create->rank)
            see(create, m, &failure);
    if (failure)
        return adopt(create, failure);
    status = find_dead(create);
    return status == SYMM_OK ? find_crossing(create) : status;
}

/* The error of a deadline that has passed. */
static symm_status late(const struct symm_create *create)
{
    const symm_ctx *ctx = create->parent->ctx;
    int missing[SYMM_MAX_LOCAL_RANKS] = {0}, count = 0, busy = create->rank;
    char names[200];

    for (int m = 0; m < create->size; m++)
        if (m != create->rank && !is_waiting(create->seen[m].word))
            missing[count++] = create->world_rank[m];
        else if (m != create->rank && STATE_OF(create->seen[m].word) == HERE)
            busy = m;
    if (count == 0)
        return symm__fail(SYMM_ERR_TIMEOUT,
                          "rank %d is in symm_team_create of %s, but another of its "
                          "threads splits a team or is in a rendezvous since %.3g s",
                          create->world_rank[busy], create->what, ctx->timeout);
    symm__ranks_text(missing, count, names, sizeof(names));
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "%s %s not come to symm_team_create of %s within %.3g s: stopped, "
        "busy elsewhere, or in need of a longer timeout (SYMM_TIMEOUT)?",
        names, count == 1 ? "has" : "have", create->what, ctx->timeout);
}

/* ---- Together ------------------------------------------------------------------------ */

/* Has the last rank decided? Then this rank records the decision. */
static bool see_decision(struct symm_create *create)
{
    uint64_t word = GET(create->last_page->word);

    if (STATE_OF(word) != DECIDED || STAMP_OF(word) != create->number)
        return false;
    create->slot = (int)NUMBER_OF(word);
    create->decided = true;
    SET(create->own->word, word_of(create->stamp, 0, DECIDED));
    return true;
}

/* Unlocks the context, unless the last rank has decided. */
static void leave(struct symm_create *create)
{
    const uint64_t deciding = word_of(create->number, 0, DECIDING);

    if (!create->locked || create->decided)
        return;
    if (create->rank != create->last) {
        SET(create->own->word, word_of(create->stamp, create->number, LEAVING));
        /* Bounded: a last rank that is stopped here and decides later fails in the exchange
         * that starts the team, which this rank does not make. */
        for (double until = symm__now() + DECIDE_SECONDS;
             GET(create->last_page->word) == deciding && symm__now() < until &&
             find_dead(create) == SYMM_OK;)
            symm__sleep(LOOK_SECONDS);
        if (see_decision(create))
            return;
        SET(create->own->word, word_of(create->stamp, 0, HERE));
    }
    create->locked = false;
    pthread_mutex_unlock(&create->parent->ctx->lock);
}

/* The last rank, with its context locked: are all the others', too? */
static symm_status decide(struct symm_create *create)
{
    const symm_ctx *ctx = create->parent->ctx;
    const struct symm_creation *failure = NULL;
    struct symm_slots taken = symm__team_slots(ctx), theirs;
    bool all = true;
    symm_status status = SYMM_OK;

    SET(create->own->word, word_of(create->stamp, 0, DECIDING));
    for (int m = 0; m < create->size; m++) {
        if (m == create->rank)
            continue;
        see(create, m, &failure);
        all = all && STATE_OF(create->seen[m].word) == LOCKED &&
              NUMBER_OF(create->seen[m].word) == create->stamp;
        if (!all)
            continue;
        theirs = symm__slots_load(&create->seen[m].page->taken);
        symm__slots_join(&taken, &theirs);
    }
    if (all)
        status = symm__team_slot(ctx, &taken, create->size, &create->slot);
    create->decided = all && status == SYMM_OK;
    SET(create->own->word, create->decided
                               ? word_of(create->stamp, (uint32_t)create->slot, DECIDED)
                               : word_of(create->stamp, 0, HERE));
    return status;
}

/* Is it this rank's turn to lock? Then all are here, and those of lower world ranks have
 * locked. */
static bool is_turn(const struct symm_create *create, uint32_t number)
{
    for (int m = 0; m < create->size; m++) {
        uint64_t word = create->seen[m].word;

        if (m != create->rank && !is_waiting(word))
            return false;
        if (create->world_rank[m] < create->world_rank[create->rank] &&
            (STATE_OF(word) != LOCKED || NUMBER_OF(word) != number))
            return false;
    }
    return true;
}

/* Locks the context when it is this rank's turn; unlocks it when that has lasted too long. */
static symm_status step(struct symm_create *create)
{
    symm_ctx *ctx = create->parent->ctx;
    bool last = create->rank == create->last;
    uint32_t number = last ? create->stamp : STAMP_OF(create->seen[create->last].word);
    symm_status status = SYMM_OK;

    if (create->locked) {
        if (!see_decision(create) && symm__now() - create->since > create->hold) {
            leave(create);
            create->hold = create->hold < 1 ? 2 * create->hold : create->hold;
        }
        return SYMM_OK;
    }
    if (!is_turn(create, number) || pthread_mutex_trylock(&ctx->lock) != 0)
        return SYMM_OK;
    create->locked = true;
    create->since = symm__now();
    create->number = number;
    create->last_page = last ? create->own : create->seen[create->last].page;
    if (last) {
        status = decide(create);
        leave(create);
    } else {
        const struct symm_slots taken = symm__team_slots(ctx);

        symm__slots_store(&create->own->taken, &taken);
        SET(create->own->word, word_of(create->stamp, number, LOCKED));
    }
    return status;
}

/* Shows tools which ranks have not come. */
static void show_awaited(const struct symm_create *create,
                         struct symm_control_wait *wait)
{
    int ranks[SYMM_MAX_LOCAL_RANKS], count = 0;

    for (int m = 0; m < create->size; m++)
        if (m != create->rank && !is_waiting(create->seen[m].word))
            ranks[count++] = create->world_rank[m];
    symm__control_wait_for(wait, ranks, count);
}

symm_status symm__create_agree(struct symm_create *create, symm_status mine)
{
    struct symm_control_wait wait = symm__control_wait(
        create->parent->ctx, create->parent->uid, "team_create", NULL);
    double until = symm__now() + create->parent->ctx->timeout;
    char sentence[SYMM_ERROR_BYTES];
    symm_status status;

    symm__error_save(sentence);
    status = join(create);
    if (status != SYMM_OK)
        return status;
    while (status == SYMM_OK && !create->decided) {
        status = look(create);
        if (mine != SYMM_OK)
            status = symm__fail_quiet(mine, sentence);
        if (status == SYMM_OK && symm__now() >= until)
            status = late(create);
        if (status == SYMM_OK)
            status = step(create);
        if (status == SYMM_OK && !create->decided) {
            show_awaited(create, &wait);
            symm__sleep(LOOK_SECONDS);
        }
    }
    symm__control_wait_end(&wait);
    if (status != SYMM_OK) {
        leave(create);
        if (!create->decided)
            publish(create, status, mine != SYMM_OK);
    }
    return create->decided ? SYMM_OK : status;
}
