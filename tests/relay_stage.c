/* SPDX-License-Identifier: MIT */
/* relay_stage.c - see relay_stage.h. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <sys/socket.h>

#include "relay_stage.h"

#include <cmocka.h>

const uint8_t good_key[SYMM_SIPHASH_KEY] = "0123456789abcde";

static void listen_at(struct job *job, int host)
{
    struct sockaddr_in any = {.sin_family = AF_INET,
                              .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct symm_address address = {.bytes = sizeof(any)};

    memcpy(&address.at, &any, sizeof(any));
    job->listener[host] = symm__address_listen(&address);
    assert_true(job->listener[host] >= 0);
    memcpy(&any, &address.at, sizeof(any));
    job->at[host].family = 4;
    job->at[host].port = any.sin_port;
    memcpy(job->at[host].bytes, &any.sin_addr, 4);
    snprintf(job->at[host].name, sizeof(job->at[host].name), "host-%c", 'a' + host);
}

void job_open(struct job *job, const char *hosts)
{
    memset(job, 0, sizeof(*job));
    job->ranks = (int)strlen(hosts);
    job->odd = job->victim = job->other = NOBODY;
    job->timeout = HARNESS_AMPLE;
    job->bytes = 64;
    job->shared = plane_shared(sizeof(*job->shared));
    plane_open(&job->plane);
    for (int r = 0; r < job->ranks; r++) {
        job->host_of[r] = hosts[r] - 'a';
        if (job->host_of[r] == job->hosts)
            listen_at(job, job->hosts++);
        job->local_size[job->host_of[r]]++;
    }
    job->fds = job->hosts;
    for (int a = 0; a < job->ranks; a++)
        for (int b = a; b < job->ranks; b++) {
            int fd[2] = {-1, -1};

            if (a != b && job->host_of[a] == job->host_of[b]) {
                assert_int_equal(
                    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
                job->fds += 2;
            }
            job->pair[a][b] = fd[0];
            job->pair[b][a] = fd[1];
        }
    job->plane.given = job->fds;
}

void job_free_fds(struct job *job)
{
    for (int h = 0; h < job->hosts; h++)
        if (job->listener[h] >= 0)
            close(job->listener[h]);
    for (int a = 0; a < job->ranks; a++)
        for (int b = 0; b < job->ranks; b++)
            if (job->pair[a][b] >= 0)
                close(job->pair[a][b]);
}

void job_start(struct job *job, plane_body body)
{
    for (int r = 0; r < job->ranks + job->strangers; r++)
        plane_start(&job->plane, body, r, job);
    job_free_fds(job);
}

void job_run(struct job *job, plane_body body)
{
    job_start(job, body);
    assert_int_equal(plane_wait(&job->plane), 0);
}

void job_close(struct job *job)
{
    plane_close(&job->plane);
    munmap(job->shared, sizeof(*job->shared));
}

int side_open(struct side *side, int rank, struct job *job, const uint8_t *key)
{
    int host = job->host_of[rank], count = 0;
    struct symm_relay_config config = {.rank = rank,
                                       .ranks = job->ranks,
                                       .host = host,
                                       .hosts = job->hosts,
                                       .host_of = job->host_of,
                                       .at = job->at,
                                       .local = side->local,
                                       .local_fd = side->local_fd,
                                       .listener = job->listener[host],
                                       .key = key};

    if (!getenv("RELAY_LOUD"))
        symm_log_sink(plane_quiet, NULL);
    memset(side, 0, sizeof(*side));
    side->job = job;
    side->rank = rank;
    for (int h = 0; h < job->hosts; h++)
        side->leaders[h] = NOBODY;
    for (int r = 0; r < job->ranks; r++) {
        if (job->host_of[r] == host) {
            side->local[count] = r;
            side->local_fd[count++] = job->pair[rank][r];
        }
        if (side->leaders[job->host_of[r]] < 0)
            side->leaders[job->host_of[r]] = r;
    }
    config.local_size = count;
    for (int h = 0; h < job->hosts; h++)
        if (h != host)
            close(job->listener[h]);
    for (int a = 0; a < job->ranks; a++)
        for (int b = 0; b < job->ranks; b++)
            if (a != rank && job->pair[a][b] >= 0)
                close(job->pair[a][b]);
    PLANE_CHECK(symm__relay_open(&config, &side->relay) == SYMM_OK);
    return 0;
}

void side_close(struct side *side)
{
    double start = symm__now();

    symm__relay_close(side->relay);
    atomic_store(&side->job->shared->ended[side->rank], symm__now() - start);
    for (int r = 0; r < side->job->ranks; r++)
        if (side->job->pair[side->rank][r] >= 0)
            close(side->job->pair[side->rank][r]);
}

static uint8_t byte_of(uint32_t sequence, int host, size_t i)
{
    return (uint8_t)(sequence * 7 + (uint32_t)host * 31 + i * 3 + i / 251);
}

symm_status allgather(struct side *side, const int32_t *leaders, int hosts,
                      double timeout, int *code)
{
    const struct job *job = side->job;
    int host = job->host_of[side->rank];
    size_t bytes = job->bytes + (size_t)host;
    uint8_t *mine = malloc(bytes);
    double now = symm__now();
    struct symm_relay_exchange x = {.what = "split (world)",
                                    .tag = 5,
                                    .sequence = side->sequence++,
                                    .leaders = leaders,
                                    .hosts = hosts,
                                    .bytes = mine,
                                    .bytes_count = bytes,
                                    .start = now,
                                    .until = now + timeout};
    struct symm_relay_result result;
    symm_status status;

    for (size_t i = 0; i < bytes; i++)
        mine[i] = byte_of(x.sequence, host, i);
    status = symm__relay_exchange(side->relay, &x, &result);
    for (int p = 0; p < hosts && status == SYMM_OK; p++) {
        int from = job->host_of[leaders[p]];

        if (result.parts[p].bytes != job->bytes + (size_t)from)
            *code = __LINE__;
        for (size_t i = 0; i < result.parts[p].bytes && *code == 0; i++)
            if (result.parts[p].data[i] != byte_of(x.sequence, from, i))
                *code = __LINE__;
    }
    symm__relay_result_finish(&result);
    free(mine);
    return status;
}

bool leads(const struct side *side)
{
    return side->leaders[side->job->host_of[side->rank]] == side->rank;
}

int await(const atomic_int *counter, int wanted)
{
    for (double until = symm__now() + HARNESS_AMPLE; atomic_load(counter) < wanted;) {
        PLANE_CHECK(symm__now() < until);
        symm__sleep(0.0005);
    }
    return 0;
}

int side_meet(struct side *side, int rank, struct job *job, struct plane_result *result,
              int *code)
{
    PLANE_CHECK(side_open(side, rank, job, good_key) == 0);
    if (leads(side))
        plane_note(result,
                   allgather(side, side->leaders, job->hosts, job->timeout, code));
    atomic_fetch_add(&job->shared->ready, 1);
    PLANE_CHECK(await(&job->shared->ready, job->ranks) == 0);
    return 0;
}

void assert_error(const struct job *job, int rank, symm_status status, const char *text)
{
    const struct plane_result *result = &job->plane.results[rank];

    if (result->status != status || !strstr(result->error, text))
        fail_msg("rank %d: %s, \"%s\"; expected %s, \"%s\"", rank,
                 symm_status_name(result->status), result->error,
                 symm_status_name(status), text);
}
