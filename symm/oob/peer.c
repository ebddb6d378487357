/* SPDX-License-Identifier: MIT */
/*
 * peer.c - see peer.h.
 *
 * What is received is copied once, into private memory, and checked before use; totals
 * are checked against the maxima before anything is allocated for them.
 */
#include "oob/peer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/message.h"
#include "util/clock.h"
#include "util/rank_text.h"
#include "util/text.h"

#define OOB_TELL_SECONDS 0.02 /* for all members to take a FAIL */
/* For a peer's next packet, if it moves on: it may look for what ends its exchange every 0.256 s
 * only, and have to wait for a processor. Half of a shorter timeout, but not less than the least. */
#define OOB_MOVE_SECONDS 0.5
#define OOB_MOVE_LEAST   0.05

/* ---- Out ------------------------------------------------------------------------- */

static struct symm_oob_head oob_head(const struct symm_oob_run *run,
                                     enum symm_oob_kind kind, symm_status status)
{
    struct symm_oob_head head = {
        .magic = SYMM_OOB_MAGIC,
        .version = SYMM_OOB_VERSION,
        .kind = (uint16_t)kind,
        .tag = run->exchange->tag,
        .sequence = run->sequence,
        .rank = run->oob->rank,
        .status = status,
    };
    (void)snprintf(head.what, sizeof(head.what), "%s", run->exchange->what);
    return head;
}

/* Reports a failed exchange to a member, once. */
static enum symm_seqpacket oob_tell(const struct symm_oob_run *run,
                                    struct symm_oob_past *past, int rank, double until)
{
    uint64_t bit = symm__oob_bit(run->oob, rank);
    if ((past->unreported & bit) == 0)
        return SYMM_SEQPACKET_OK;
    struct symm_oob_head head = oob_head(
        run, (past->blamed & bit) != 0 ? SYMM_OOB_BLAME : SYMM_OOB_FAIL, past->status);
    head.tag = past->tag;
    head.sequence = past->sequence;
    head.bytes_here = (uint32_t)strlen(past->sentence);
    head.bytes_total = past->other_tag;
    head.fds_total = past->other_sequence;
    struct iovec parts[2] = {symm__seqpacket_part(&head, sizeof(head)),
                             symm__seqpacket_part(past->sentence, head.bytes_here)};
    enum symm_seqpacket wire = symm__oob_out(run->oob, rank, parts, 2, NULL, 0, until);
    if (wire == SYMM_SEQPACKET_OK)
        past->unreported &= ~bit;
    return wire;
}

static enum symm_seqpacket oob_tell_past(const struct symm_oob_run *run, int rank)
{
    enum symm_seqpacket wire = SYMM_SEQPACKET_OK;
    for (unsigned i = 0; i < SYMM_OOB_PAST && wire == SYMM_SEQPACKET_OK; i++)
        wire = oob_tell(run, &run->oob->past[i], rank, 0);
    return wire;
}

/* A member that has died, or whose team has failed; NULL: none. */
static struct symm_oob_peer *oob_find_dead(const struct symm_oob_run *run)
{
    const struct symm_oob *oob = run->oob;
    for (int i = 0; i < run->exchange->count && oob->alive != NULL; i++) {
        struct symm_oob_peer *peer = &run->peers[i];
        if (i != run->self && !oob->alive(oob->alive_arg, peer->rank) &&
            !symm__oob_left(oob, peer->rank))
            return peer;
    }
    return NULL;
}

symm_status symm__oob_dead(const struct symm_oob_run *run, struct symm_oob_peer *peer,
                           const char *how)
{
    char earlier[SYMM_EARLIER_TEXT_BYTES];
    peer->dead = true;
    if (symm__oob_left(run->oob, peer->rank)) {
        /* Asked after `finished`: the peer may have finalized because another rank died. */
        struct symm_oob_peer *other = oob_find_dead(run);
        how = other != NULL ? "died" : "has finalized its context";
        peer = other != NULL ? other : peer;
        peer->dead = true;
    }
    return symm__fail(SYMM_ERR_PEER_DEAD, "rank %d %s during %s%s", peer->rank, how,
                      run->exchange->what,
                      symm__oob_earlier(run->oob, peer->rank, earlier));
}

/* A packet that is a head alone. *owed: is false once it was sent. */
static enum symm_seqpacket oob_say(const struct symm_oob_run *run, int rank,
                                   enum symm_oob_kind kind, bool *owed)
{
    struct symm_oob_head head = oob_head(run, kind, SYMM_OK);
    struct iovec part = symm__seqpacket_part(&head, sizeof(head));
    enum symm_seqpacket wire = SYMM_SEQPACKET_OK;
    if (*owed)
        wire = symm__oob_out(run->oob, rank, &part, 1, NULL, 0, 0);
    *owed = *owed && wire != SYMM_SEQPACKET_OK;
    return wire;
}

/* The next packet for the peer: reports of older failures first, then ASK or AGAIN, then a packet
 * of this rank's part, or DONE. */
static enum symm_seqpacket oob_send_packet(const struct symm_oob_run *run,
                                           struct symm_oob_peer *peer)
{
    struct symm_oob_head head = oob_head(run, SYMM_OOB_DATA, run->mine);
    size_t bytes = run->bytes_count - peer->sent_bytes;
    int fds = run->fds_count - peer->sent_fds;
    if (peer->sent) {
        bool owed = true;
        enum symm_seqpacket said = oob_say(run, peer->rank, SYMM_OOB_DONE, &owed);
        peer->told = !owed;
        return said;
    }
    enum symm_seqpacket wire = oob_tell_past(run, peer->rank);
    if (wire == SYMM_SEQPACKET_OK)
        wire = oob_say(run, peer->rank, SYMM_OOB_ASK, &peer->asks);
    if (wire == SYMM_SEQPACKET_OK)
        wire = oob_say(run, peer->rank, SYMM_OOB_AGAIN, &peer->repeats);
    if (wire != SYMM_SEQPACKET_OK)
        return wire;
    bytes = bytes < SYMM_OOB_CHUNK ? bytes : SYMM_OOB_CHUNK;
    fds = fds < SYMM_SEQPACKET_MAX_FDS ? fds : SYMM_SEQPACKET_MAX_FDS;
    head.bytes_total = run->bytes_count;
    head.fds_total = (uint32_t)run->fds_count;
    head.bytes_here = (uint32_t)bytes;
    head.fds_here = (uint32_t)fds;
    struct iovec parts[2] = {symm__seqpacket_part(&head, sizeof(head))};
    if (bytes > 0)
        parts[1] =
            symm__seqpacket_part((const char *)run->bytes + peer->sent_bytes, bytes);
    wire = symm__oob_out(run->oob, peer->rank, parts, bytes > 0 ? 2 : 1,
                         fds > 0 ? run->fds + peer->sent_fds : NULL, fds, 0);
    if (wire != SYMM_SEQPACKET_OK)
        return wire;
    peer->sent_bytes += bytes;
    peer->sent_fds += fds;
    peer->sent =
        peer->sent_bytes == run->bytes_count && peer->sent_fds == run->fds_count;
    return wire;
}

bool symm__oob_owes(const struct symm_oob_run *run, const struct symm_oob_peer *peer)
{
    return !peer->sent || (run->all_got && !peer->told);
}

symm_status symm__oob_send(struct symm_oob_run *run, struct symm_oob_peer *peer,
                           bool *progress)
{
    for (int i = 0; i < SYMM_OOB_BURST && peer->can_send; i++) {
        if (!symm__oob_owes(run, peer))
            break;
        switch (oob_send_packet(run, peer)) {
        case SYMM_SEQPACKET_OK:
            *progress = true;
            break;
        case SYMM_SEQPACKET_AGAIN:
            peer->crowded = errno == ETOOMANYREFS;
            peer->can_send = false;
            break;
        case SYMM_SEQPACKET_CLOSED:
            /* The peer may have sent a reason, also after its DONE: that arrives before the
             * hang-up. */
            peer->can_send = false;
            peer->can_recv = true;
            if (peer->done) {
                symm_status status = symm__oob_recv(run, peer, progress);
                return status != SYMM_OK ? status
                                         : symm__oob_dead(run, peer, "died or hung up");
            }
            break;
        default:
            return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                    "rank %d sending to rank %d in %s", run->oob->rank,
                                    peer->rank, run->exchange->what);
        }
    }
    return SYMM_OK;
}

static struct symm_oob_past *oob_remember(struct symm_oob *oob, uint64_t tag,
                                          uint32_t sequence)
{
    struct symm_oob_past *past = &oob->past[oob->past_count++ % SYMM_OOB_PAST];
    *past = (struct symm_oob_past){.tag = tag, .sequence = sequence};
    return past;
}

void symm__oob_abandon(struct symm_oob_run *run, symm_status status)
{
    const struct symm_exchange *exchange = run->exchange;
    double until = symm__now() + OOB_TELL_SECONDS;
    struct symm_oob_past *past = oob_remember(run->oob, exchange->tag, run->sequence);
    past->status = status;
    past->blamed = run->blamed;
    past->other_tag = run->other_tag;
    past->other_sequence = run->other_sequence;
    (void)snprintf(past->sentence, sizeof(past->sentence), "%s", symm_last_error());
    for (int i = 0; i < exchange->count; i++) {
        if (i == run->self || (run->peers != NULL && run->peers[i].dead))
            continue;
        if (status == SYMM_ERR_TIMEOUT && run->peers != NULL && !run->peers[i].got_any)
            past->blamed |= symm__oob_bit(run->oob, exchange->members[i]);
        past->unreported |= symm__oob_bit(run->oob, exchange->members[i]);
        (void)oob_tell(run, past, exchange->members[i], until);
    }
}

/* ---- In -------------------------------------------------------------------------- */

static bool oob_is_fail(const struct symm_oob_head *head)
{
    return head->kind == SYMM_OOB_FAIL || head->kind == SYMM_OOB_BLAME;
}

static bool oob_is_past(const struct symm_oob *oob, const struct symm_oob_head *head)
{
    for (unsigned i = 0; i < SYMM_OOB_PAST && i < oob->past_count; i++) {
        if (oob->past[i].tag == head->tag && oob->past[i].sequence == head->sequence)
            return true;
    }
    return false;
}

static bool oob_is_current(const struct symm_oob_run *run,
                           const struct symm_oob_head *head)
{
    return head->tag == run->exchange->tag && head->sequence == run->sequence;
}

/* Of those with its tag: has its sender abandoned this exchange for a later one? */
static bool oob_is_later(const struct symm_oob_run *run,
                         const struct symm_oob_head *head)
{
    return (int32_t)(head->sequence - run->sequence) > 0;
}

/* Of those before this one: is it one that this rank never made, since a restart has led past it?
 * Others have abandoned it, and gone on. */
static bool oob_is_skipped(const struct symm_oob_run *run,
                           const struct symm_oob_head *head)
{
    return (int32_t)(head->sequence - run->exchange->sequence) >= 0;
}

static symm_status oob_damaged(const struct symm_oob_run *run,
                               const struct symm_oob_peer *peer, const char *why)
{
    return symm__fail(SYMM_ERR_DAMAGED, "rank %d sent a damaged message in %s: %s",
                      peer->rank, run->exchange->what, why);
}

/* The first packet of a part: checks its totals, and makes room for the part. */
static symm_status oob_begin(struct symm_oob_run *run, struct symm_oob_peer *peer,
                             const struct symm_oob_head *head)
{
    struct symm_oob_message *message = &run->messages[peer - run->peers];
    bool failed = head->status != SYMM_OK;
    if (head->bytes_total > (failed ? SYMM_ERROR_BYTES : SYMM_EXCHANGE_MAX_BYTES) ||
        head->fds_total > (failed ? 0 : SYMM_EXCHANGE_MAX_FDS))
        return oob_damaged(run, peer, "it is larger than any part may be");
    size_t bytes = (size_t)head->bytes_total;
    peer->got_any = true;
    peer->fds_total = (int)head->fds_total;
    peer->status = failed ? symm__peer_status(head->status) : SYMM_OK;
    if (bytes > 0)
        message->bytes = malloc(bytes);
    if (peer->fds_total > 0)
        message->fds = malloc((size_t)peer->fds_total * sizeof(int));
    if ((bytes > 0 && message->bytes == NULL) ||
        (peer->fds_total > 0 && message->fds == NULL))
        return symm__fail(
            SYMM_ERR_NOMEM,
            "rank %d has no memory for the %zu bytes and %d descriptors that "
            "rank %d sends in %s",
            run->oob->rank, bytes, peer->fds_total, peer->rank, run->exchange->what);
    message->bytes_count = bytes;
    return SYMM_OK;
}

/* A packet of the part that is awaited. *taken: the message now owns its descriptors. */
static symm_status oob_take(struct symm_oob_run *run, struct symm_oob_peer *peer,
                            const struct symm_oob_head *head, const int *fds,
                            bool *taken)
{
    struct symm_oob_message *message = &run->messages[peer - run->peers];
    if (!peer->got_any) {
        symm_status status = oob_begin(run, peer, head);
        if (status != SYMM_OK)
            return status;
    }
    if (head->bytes_total != message->bytes_count ||
        head->fds_total != (uint32_t)peer->fds_total)
        return oob_damaged(run, peer, "its packets announce different totals");
    if (head->bytes_here > message->bytes_count - peer->got_bytes ||
        head->fds_here > (uint32_t)(peer->fds_total - message->fds_count))
        return oob_damaged(run, peer, "more came than was announced");
    if (head->bytes_here > 0)
        memcpy((char *)message->bytes + peer->got_bytes, run->scratch,
               head->bytes_here);
    if (head->fds_here > 0)
        memcpy(message->fds + message->fds_count, fds, head->fds_here * sizeof(int));
    *taken = true;
    peer->got_bytes += head->bytes_here;
    message->fds_count += (int)head->fds_here;
    peer->got = peer->got_bytes == message->bytes_count &&
                message->fds_count == peer->fds_total;
    if (!peer->got && head->bytes_here == 0 && head->fds_here == 0)
        return oob_damaged(run, peer, "an empty packet came where more was announced");
    return SYMM_OK;
}

/* The member has all parts, so it has also sent all of its own. */
static symm_status oob_done(const struct symm_oob_run *run, struct symm_oob_peer *peer,
                            const struct symm_oob_head *head)
{
    if (!peer->got || head->bytes_here != 0 || head->fds_here != 0)
        return oob_damaged(run, peer, "it was done before its part was complete");
    peer->done = true;
    return SYMM_OK;
}

/* The exchange has failed on that member, which has logged it. Its sentence may be of a third
 * rank, or false: so the error names the rank that reported it. */
static symm_status oob_relay(const struct symm_oob_run *run,
                             const struct symm_oob_peer *peer,
                             const struct symm_oob_head *head)
{
    char text[SYMM_ERROR_BYTES], told[SYMM_ERROR_BYTES + 32];
    size_t bytes = head->bytes_here;
    bytes = bytes < sizeof(text) - 1 ? bytes : sizeof(text) - 1;
    memcpy(text, run->scratch, bytes);
    text[bytes] = '\0';
    (void)snprintf(told, sizeof(told), "rank %d reports: %s", peer->rank,
                   symm__reason(text, sizeof(text)));
    return symm__fail_quiet(symm__peer_status(head->status), told);
}

symm_status symm__oob_mismatch(struct symm_oob_run *run,
                               const struct symm_oob_peer *peer)
{
    /* Of the peer's part only the head is used; the rest must not disturb a later exchange. */
    (void)oob_remember(run->oob, peer->other_tag, peer->other_sequence);
    run->blamed = symm__oob_bit(run->oob, peer->rank);
    run->other_tag = peer->other_tag;
    run->other_sequence = peer->other_sequence;
    return symm__fail(SYMM_ERR_MISMATCH,
                      "rank %d is at \"%s\" (number %" PRIu32 ") where rank %d is at "
                      "\"%s\" (number %" PRIu32 "): all ranks must make the same "
                      "calls in the same order",
                      peer->rank, peer->other_what, peer->other_sequence,
                      run->oob->rank, run->exchange->what, run->sequence);
}

double symm__oob_patience(const struct symm_oob_run *run,
                          const struct symm_oob_peer *peer, double now)
{
    double most = 0.5 * run->exchange->timeout;
    most = most < OOB_MOVE_SECONDS ? most : OOB_MOVE_SECONDS;
    most = most > OOB_MOVE_LEAST ? most : OOB_MOVE_LEAST;
    return peer->elsewhere ? peer->since + most - now : (double)INFINITY;
}

/* A packet of another exchange is thrown away: this rank may come there later. */
static symm_status oob_miss(const struct symm_oob_run *run,
                            const struct symm_oob_head *head)
{
    return symm__oob_miss(run->oob, head, oob_is_fail(head) ? run->scratch : NULL);
}

/* The peer has sent a packet of another exchange: is it there? */
static void oob_see_elsewhere(struct symm_oob_peer *peer,
                              const struct symm_oob_head *head)
{
    if (peer->elsewhere && peer->other_tag == head->tag &&
        peer->other_sequence == head->sequence)
        return;
    peer->elsewhere = true;
    peer->other_tag = head->tag;
    peer->other_sequence = head->sequence;
    memcpy(peer->other_what, head->what, sizeof(peer->other_what));
    peer->since = symm__now();
}

/* ---- What came too early --------------------------------------------------------- */

/* Was a part of the peer for this exchange thrown away before this rank came? Then it is asked
 * for. */
static void oob_ask(const struct symm_oob_run *run, struct symm_oob_peer *peer)
{
    const struct symm_oob_missed *missed = symm__oob_missed(run->oob, peer->rank);
    if (missed == NULL || oob_is_fail(&missed->head) ||
        !oob_is_current(run, &missed->head) ||
        !symm__same_step(missed->head.what, run->exchange->what))
        return;
    peer->asks = peer->asked = true;
    symm__oob_missed_drop(run->oob, peer->rank);
}

/* The peer asks for this rank's part from its beginning. */
static symm_status oob_repeat(const struct symm_oob_run *run,
                              struct symm_oob_peer *peer)
{
    if (peer->repeated || peer->got)
        return oob_damaged(run, peer, "it asks for a part that it has");
    peer->repeats = peer->repeated = true;
    peer->sent = false;
    peer->sent_bytes = 0;
    peer->sent_fds = 0;
    return SYMM_OK;
}

/* What the peer had asked for begins. */
static symm_status oob_repeated(const struct symm_oob_run *run,
                                struct symm_oob_peer *peer)
{
    if (!peer->asked)
        return oob_damaged(run, peer, "it repeats what it was not asked for");
    peer->asked = false;
    return SYMM_OK;
}

/* Restarts the exchange under the higher number that a member has reached: that member has
 * abandoned the lower ones. */
static void oob_restart(struct symm_oob_run *run, uint32_t sequence)
{
    (void)oob_remember(run->oob, run->exchange->tag, run->sequence);
    run->sequence = sequence;
    run->all_got = run->given_up = false;
    for (int i = 0; i < run->exchange->count; i++) {
        const struct symm_oob_peer *old = &run->peers[i];
        if (i == run->self)
            continue;
        symm__oob_messages_finish(&run->messages[i], 1);
        run->peers[i] = (struct symm_oob_peer){
            .rank = old->rank, .fd = old->fd, .can_send = true, .can_recv = true};
        oob_ask(run, &run->peers[i]);
    }
}

/* FAIL of this exchange. Had the peer left before this rank arrived? */
static symm_status oob_failed(struct symm_oob_run *run,
                              const struct symm_oob_peer *peer,
                              const struct symm_oob_head *head)
{
    symm_status status = oob_relay(run, peer, head);
    if (head->kind != SYMM_OOB_BLAME || status != SYMM_ERR_TIMEOUT ||
        (!run->exchange->again && symm__same_step(head->what, run->exchange->what)))
        return status;
    run->given_up = true;
    (void)snprintf(run->why, sizeof(run->why), "%s", symm_last_error());
    return SYMM_OK;
}

/* A packet of another exchange of the same tag. */
static symm_status oob_renumber(struct symm_oob_run *run, struct symm_oob_peer *peer,
                                const struct symm_oob_head *head, const int *fds,
                                bool *taken)
{
    bool later = oob_is_later(run, head);
    if (oob_is_fail(head) && !later && oob_is_skipped(run, head))
        return SYMM_OK;
    if (oob_is_fail(head))
        /* The peer has failed in a step on the way to this one, and won't arrive. */
        return later ? oob_failed(run, peer, head) : oob_relay(run, peer, head);
    if (later && head->kind == SYMM_OOB_DONE) /* it lacks this rank's part */
        return oob_damaged(run, peer,
                           "it was done with an exchange that has not begun");
    if (!later || head->kind != SYMM_OOB_DATA)
        return SYMM_OK;
    if (!symm__same_step(head->what, run->exchange->what)) {
        oob_see_elsewhere(peer, head);
        return oob_miss(run, head);
    }
    oob_restart(run, head->sequence);
    return oob_take(run, peer, head, fds, taken);
}

/* Is the packet of a step on the way to this exchange: of the exchange before it, or of the first
 * step of an exchange over hosts whose last step this is? */
static bool oob_is_before(const struct symm_oob_run *run,
                          const struct symm_oob_head *head)
{
    const struct symm_exchange *exchange = run->exchange;
    if (exchange->before != 0 && (head->tag & ~SYMM_OOB_HAND_ON) == exchange->before)
        return true;
    return (head->tag | SYMM_OOB_HAND_ON) == exchange->tag &&
           head->sequence == run->sequence;
}

/* A packet of an exchange of another tag. */
static symm_status oob_foreign(struct symm_oob_run *run, struct symm_oob_peer *peer,
                               const struct symm_oob_head *head)
{
    if (!oob_is_fail(head)) {
        oob_see_elsewhere(peer, head);
        return oob_miss(run, head);
    }
    /* The peer has failed there, and will not arrive; or it has thrown this rank's part away. */
    if (oob_is_before(run, head) ||
        (head->kind == SYMM_OOB_BLAME && head->bytes_total == run->exchange->tag &&
         head->fds_total == run->sequence))
        return oob_relay(run, peer, head);
    peer->elsewhere = false; /* it has left */
    return oob_miss(run, head);
}

/* A packet of this exchange. */
static symm_status oob_own(struct symm_oob_run *run, struct symm_oob_peer *peer,
                           const struct symm_oob_head *head, const int *fds,
                           bool *taken)
{
    peer->elsewhere = false;
    switch (head->kind) {
    case SYMM_OOB_DATA:
        if (peer->asked)
            return SYMM_OK;
        return peer->got ? oob_damaged(run, peer, "more came than was announced")
                         : oob_take(run, peer, head, fds, taken);
    case SYMM_OOB_DONE:
        return oob_done(run, peer, head);
    case SYMM_OOB_ASK:
        return oob_repeat(run, peer);
    case SYMM_OOB_AGAIN:
        return oob_repeated(run, peer);
    default:
        return oob_failed(run, peer, head);
    }
}

static symm_status oob_sort(struct symm_oob_run *run, struct symm_oob_peer *peer,
                            const struct symm_oob_head *head, const int *fds,
                            bool *taken)
{
    if (oob_is_current(run, head)) {
        /* Steps of one team have numbers in the order in which each rank makes them. */
        if (head->kind == SYMM_OOB_DATA &&
            !symm__same_step(head->what, run->exchange->what)) {
            oob_see_elsewhere(peer, head);
            return SYMM_OK;
        }
        return oob_own(run, peer, head, fds, taken);
    }
    if (oob_is_past(run->oob, head) || head->kind == SYMM_OOB_ASK ||
        head->kind == SYMM_OOB_AGAIN)
        return SYMM_OK;
    if (run->exchange->agreed)
        return oob_miss(run, head);
    if (head->tag == run->exchange->tag)
        return oob_renumber(run, peer, head, fds, taken);
    return oob_foreign(run, peer, head);
}

/* What was thrown away of member i, of this tag; NULL: nothing. */
static struct symm_oob_missed *oob_missed(const struct symm_oob_run *run, int i)
{
    struct symm_oob_missed *missed =
        i == run->self ? NULL : symm__oob_missed(run->oob, run->exchange->members[i]);
    return missed != NULL && missed->head.tag == run->exchange->tag ? missed : NULL;
}

/* The highest number that a member has reached comes first: a restart forgets the others. */
symm_status symm__oob_resume(struct symm_oob_run *run)
{
    symm_status status = SYMM_OK;
    for (int i = 0; i < run->exchange->count && !run->exchange->agreed; i++) {
        const struct symm_oob_missed *missed = oob_missed(run, i);
        if (missed != NULL && missed->head.kind == SYMM_OOB_DATA &&
            !oob_is_past(run->oob, &missed->head) && oob_is_later(run, &missed->head) &&
            symm__same_step(missed->head.what, run->exchange->what))
            oob_restart(run, missed->head.sequence);
    }
    for (int i = 0; i < run->exchange->count && status == SYMM_OK; i++) {
        const struct symm_oob_missed *missed;
        struct symm_oob_head head;
        bool taken = false;
        oob_ask(run, &run->peers[i]);
        missed = oob_missed(run, i);
        if (missed == NULL)
            continue;
        head = missed->head;
        memcpy(run->scratch, missed->sentence, head.bytes_here);
        symm__oob_missed_drop(run->oob, head.rank);
        status = oob_sort(run, &run->peers[i], &head, NULL, &taken);
    }
    return status;
}

static symm_status oob_recv_packet(struct symm_oob_run *run, struct symm_oob_peer *peer,
                                   bool *progress)
{
    struct symm_oob_head head;
    struct iovec parts[2] = {{.iov_base = &head, .iov_len = sizeof(head)},
                             {.iov_base = run->scratch, .iov_len = SYMM_OOB_CHUNK}};
    int fds[SYMM_SEQPACKET_MAX_FDS], fds_count;
    size_t bytes;
    bool taken = false;
    memset(&head, 0, sizeof(head));
    switch (symm__oob_in(run->oob, peer->rank, parts, 2, &bytes, fds, &fds_count)) {
    case SYMM_SEQPACKET_OK:
        break;
    case SYMM_SEQPACKET_AGAIN:
        peer->can_recv = false;
        return SYMM_OK;
    case SYMM_SEQPACKET_CLOSED:
        return symm__oob_dead(run, peer, "died or hung up");
    case SYMM_SEQPACKET_CUT_FDS:
        return symm__fail_errno(
            SYMM_ERR_SYSTEM, errno,
            "rank %d could not take the descriptors of rank %d in %s "
            "(ulimit -n limits those of a process)",
            run->oob->rank, peer->rank, run->exchange->what);
    case SYMM_SEQPACKET_CUT:
        return oob_damaged(run, peer, "its packet is too long, or altered");
    case SYMM_SEQPACKET_ERROR:
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                "rank %d receiving from rank %d in %s", run->oob->rank,
                                peer->rank, run->exchange->what);
    }
    *progress = true;
    symm_status status = symm__oob_head_check(&head, peer->rank, bytes, fds_count)
                             ? oob_sort(run, peer, &head, fds, &taken)
                             : oob_damaged(run, peer, "it is not of this library");
    if (!taken)
        symm__seqpacket_close(fds, fds_count);
    return status;
}

/*
 * After a member's DONE there may be a FAIL of this exchange, or already the first
 * packet of a later one, which stays in the socket.
 */
static symm_status oob_look(struct symm_oob_run *run, struct symm_oob_peer *peer,
                            bool *progress)
{
    struct symm_oob_head head;
    size_t bytes;
    enum symm_seqpacket wire = symm__oob_peek(run->oob, peer->rank, &head, &bytes);
    if (wire == SYMM_SEQPACKET_AGAIN) {
        peer->can_recv = false;
        return SYMM_OK;
    }
    if (wire == SYMM_SEQPACKET_OK && bytes == sizeof(head) && oob_is_fail(&head) &&
        oob_is_current(run, &head))
        return oob_recv_packet(run, peer, progress);
    peer->settled = true;
    return SYMM_OK;
}

symm_status symm__oob_recv(struct symm_oob_run *run, struct symm_oob_peer *peer,
                           bool *progress)
{
    for (int i = 0; i < SYMM_OOB_BURST && !peer->settled && peer->can_recv; i++) {
        symm_status status = peer->done ? oob_look(run, peer, progress)
                                        : oob_recv_packet(run, peer, progress);
        if (status != SYMM_OK)
            return status;
    }
    return SYMM_OK;
}
