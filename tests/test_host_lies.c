/* SPDX-License-Identifier: MIT */
/*
 * test_host_lies.c - a rank sends false data in the exchanges of symm_init, a split or a
 * rendezvous: all other ranks refuse in that step, with an error that names the rank. On a
 * peer's control page only the words of symm_team_shrink are writable.
 */
#include "harness.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"
#include "oob/peer.h"

#define RANKS 3

enum lie {
    NO_PIDFD,
    NULL_DEVICE,
    PROC_FOLDER,
    SILENT_FAIL,
    BLANK_FAIL,
    NUL_FAIL,
    NUL_DATA,
    ESCAPE,
    NONE_AT_START,
    NONE_AT_SPLIT,
    NONE_AT_RENDEZVOUS,
    DONE_LATER,
    DONE_EARLIER,
    LIES
};

static const struct {
    const char *step;
    symm_status status;
    const char *says; /* beside the liar's rank */
} expected[LIES] = {
    {"the start of the job", SYMM_ERR_REFUSED, ""},
    {"the start of the job", SYMM_ERR_REFUSED, ""},
    {"the start of the job", SYMM_ERR_REFUSED, ""},
    {"the start of the job", SYMM_ERR_NOMEM, "without its reason"},
    {"the start of the job", SYMM_ERR_NOMEM, "without its reason"},
    {"the start of the job", SYMM_ERR_NOMEM, "without its reason"},
    {"the start of the job", SYMM_ERR_NOMEM, "without its reason"},
    {"the start of the job", SYMM_ERR_NOMEM, "all is well"},
    {"the start of a team (world", SYMM_ERR_REFUSED, "shares memory up to"},
    {"the start of a team (team", SYMM_ERR_REFUSED, "shares memory up to"},
    {"rendezvous (world", SYMM_ERR_REFUSED, "shares memory up to"},
    {"rendezvous (world", SYMM_ERR_DAMAGED, "rank 2 sent a damaged message in rendez"},
    {"rendezvous (world", SYMM_ERR_MISMATCH, "rank 2 is at \"rendezvous: have all"},
};

static int lie = -1; /* what this rank lies about; -1: nothing */

/* One DONE of another exchange, to rank 0 alone: rank 1 ends this exchange well. */
static bool lies_once(void)
{
    return lie == DONE_LATER || lie == DONE_EARLIER;
}

static int other_fd(void)
{
    return lie == NO_PIDFD      ? memfd_create("x", MFD_CLOEXEC)
           : lie == NULL_DEVICE ? open("/dev/null", O_RDWR | O_CLOEXEC)
                                : open("/proc/self", O_RDONLY | O_CLOEXEC);
}

/* Changes copies of what goes out: head, body, descriptors. */
static void change(struct symm_oob_head *head, struct iovec *body, int *fds, int *count)
{
    static char evil[] = "all is well\n\033[2K\033]0;owned\007", blank[] = "  \t\n ",
                nul[] = "\0why";
    static uint64_t words[5];

    if (lies_once()) {
        head->sequence += lie == DONE_LATER ? 1u : -1u;
        lie = -1;
        return;
    }
    if (lie <= PROC_FOLDER) {
        if (*count == 2)
            fds[1] = other_fd(); /* stays open: the rank ends soon */
        return;
    }
    if (body->iov_len < 40) /* the exchange that confirms the step: no segment in it */
        return;
    *count = 0;
    head->fds_total = head->fds_here = 0;
    if (lie <= ESCAPE) {
        head->kind = lie == NUL_DATA ? 1 : 3; /* FAIL, or a part that failed */
        head->status = SYMM_ERR_NOMEM;
        *body = lie == ESCAPE        ? (struct iovec){evil, sizeof(evil) - 1}
                : lie == BLANK_FAIL  ? (struct iovec){blank, sizeof(blank) - 1}
                : lie == SILENT_FAIL ? (struct iovec){evil, 0}
                                     : (struct iovec){nul, sizeof(nul) - 1};
    } else {
        /* digest, segments, registered bytes, end, bytes of handles: no segment */
        memcpy(words, body->iov_base, sizeof(words));
        words[1] = words[2] = words[3] = words[4] = 0;
        *body = (struct iovec){words, sizeof(words)};
    }
    head->bytes_here = (uint32_t)body->iov_len;
    head->bytes_total = body->iov_len;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct symm_oob_head head;
    struct msghdr sent = *message;
    struct iovec parts[2] = {{&head, sizeof(head)}, {NULL, 0}};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 64)];
    } control = {0};
    int fds[64], count = 0;
    struct cmsghdr *c = CMSG_FIRSTHDR(message);

    if (lie < 0 || message->msg_iov[0].iov_len != sizeof(head))
        return syscall(SYS_sendmsg, fd, message, flags);
    memcpy(&head, message->msg_iov[0].iov_base, sizeof(head));
    if (head.kind != (lies_once() ? SYMM_OOB_DONE : SYMM_OOB_DATA) ||
        strncmp(head.what, expected[lie].step, strlen(expected[lie].step)) != 0)
        return syscall(SYS_sendmsg, fd, message, flags);
    if (message->msg_iovlen > 1)
        parts[1] = message->msg_iov[1];
    if (c) {
        count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), (size_t)count * sizeof(int));
    }
    change(&head, &parts[1], fds, &count);
    sent.msg_iov = parts;
    sent.msg_iovlen = parts[1].iov_len ? 2 : 1;
    sent.msg_control = count ? control.bytes : NULL;
    sent.msg_controllen = count ? CMSG_SPACE((size_t)count * sizeof(int)) : 0;
    if (count > 0) {
        c = &control.align;
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof(int));
    }
    return syscall(SYS_sendmsg, fd, &sent, flags);
}

static symm_status go(symm_ctx **ctx, int which)
{
    const int64_t shape = 3 << 20, stride = 1;
    symm_config config = harness_config();
    symm_buffer *buffer = NULL;
    symm_team *team = NULL;
    symm_status status = symm_init(&config, ctx);

    if (status == SYMM_OK && which == NONE_AT_SPLIT)
        status = symm_team_split(symm_team_world(*ctx), 0, harness_rank(), &team);
    if (status == SYMM_OK && which >= NONE_AT_RENDEZVOUS)
        status = symm_empty_strided_p2p(symm_team_world(*ctx), 1, &shape, &stride,
                                        SYMM_FLOAT32, 1, &buffer);
    if (status == SYMM_OK && which >= NONE_AT_RENDEZVOUS)
        status = symm_rendezvous(symm_team_world(*ctx));
    return status;
}

static int body_lie(symm_ctx *ctx, void *arg)
{
    int which = *(int *)arg;
    bool liar = harness_rank() == RANKS - 1;
    symm_status status;

    lie = liar ? which : -1;
    status = go(&ctx, which);
    lie = -1;
    if (!liar) {
        CHECK_STATUS(status, expected[which].status);
        CHECK_ERROR("rank 2");
        CHECK_ERROR(expected[which].says);
        for (const char *c = symm_last_error(); *c; c++)
            CHECK(*c >= ' ' && *c <= '~');
    }
    symm_finalize(ctx);
    return 0;
}

static void lies(void **state)
{
    (void)state;
    for (int which = 0; which < LIES; which++) {
        struct harness h = {
            .ranks = RANKS, .body = body_lie, .arg = &which, .without_ctx = true};

        if (harness_run(&h) != 0)
            fail_msg("lie %d", which);
    }
}

/* Does the kernel write there for this process? The word keeps its value. */
static bool is_writable(void *at)
{
    uint64_t word;
    int fd[2];
    bool can;

    memcpy(&word, at, sizeof(word));
    if (pipe(fd) != 0 || write(fd[1], &word, sizeof(word)) != sizeof(word))
        return true;
    can = read(fd[0], at, sizeof(word)) == sizeof(word);
    close(fd[0]);
    close(fd[1]);
    return can;
}

static int body_pages(symm_ctx *ctx, void *arg)
{
    (void)arg;
    for (int r = 0; r < RANKS; r++) {
        char *page = (char *)symm__control(ctx, r);
        size_t words = offsetof(struct symm_control, consensus_word);

        CHECK(is_writable(
            &symm__near_control(ctx, r)->consensus_word[SYMM_CONSENSUS_WORDS - 1]));
        for (size_t at = 0; at < words && r != harness_rank(); at += 4096)
            CHECK(!is_writable(page + at));
    }
    CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, NULL));
    return 0;
}

static void pages(void **state)
{
    struct harness h = {.ranks = RANKS, .body = body_pages};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lies), cmocka_unit_test(pages)};

    harness_clear_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
