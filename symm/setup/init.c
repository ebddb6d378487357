/* SPDX-License-Identifier: MIT */
/*
 * init.c - what one rank has, from the bootstrap to the end.
 *
 * symm_init: job -> backend -> bootstrap -> places of all ranks -> control page and liveness ->
 * one exchange with all ranks (backend, device and settings compared, control pages and process
 * handles passed) -> domains of ranks whose memory can be mapped -> address space for the heaps
 * of this rank's domain -> world team.
 * Each step that can fail locally fails before the next exchange, so that every rank learns
 * of it. symm_finalize undoes it in reverse order and waits for no peer.
 */
#include "core/team.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bootstrap/bootstrap.h"
#include "core/control_wait.h"
#include "core/device_ops.h"
#include "core/earlier.h"
#include "core/failure.h"
#include "core/segments.h"
#include "core/shared_memory.h"
#include "cuda/backend.h"
#include "engine/runtime.h"
#include "host/host.h"
#include "memory/team_plan.h"
#include "record/record.h"
#include "setup/cost_table_load.h"
#include "setup/domain.h"
#include "setup/handshake.h"
#include "setup/places.h"
#include "setup/settings.h"
#include "setup/team_object.h"
#include "setup/thread_group.h"
#include "sight/sight.h"
#include "symm/device.h"
#include "util/abi.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"
#include "util/streams.h"

#define REPORT_SECONDS                                                                 \
    1.0 /* for the ranks of a host to tell the other hosts of a failure */

static symm_status use_backend(symm_ctx *ctx, const struct symm_backend_ops *ops,
                               const char *why)
{
    symm_status status = ops->open(ctx->job.local_rank, &ctx->backend);

    if (status != SYMM_OK)
        return status;
    ctx->ops = ops;
    ctx->device_ops = ops->device_ops;
    snprintf(ctx->why_backend, sizeof(ctx->why_backend), "%.255s", why);
    symm__log(SYMM_LOG_INFO, "backend %s: %s", ops->name, why);
    return SYMM_OK;
}

/* If the caller names no backend: CUDA where every rank can have a device, or share one, else the
 * host. */
static symm_status best_backend(symm_ctx *ctx)
{
    int local = ctx->job.local_size, devices = 0;
    char why[SYMM_ERROR_BYTES];
    symm_status status = symm__backend_cuda.count(&devices);

    if (status == SYMM_OK && devices < (ctx->oversubscribe ? 1 : local))
        snprintf(why, sizeof(why), "%d ranks of this host see %d CUDA devices", local,
                 devices);
    else if (status == SYMM_OK && local > SYMM_DEVICE_RANKS)
        snprintf(why, sizeof(why), "%d ranks of this host; CUDA takes at most %d",
                 local, SYMM_DEVICE_RANKS);
    else if (status == SYMM_OK &&
             use_backend(ctx, &symm__backend_cuda,
                         devices < local ? "SYMM_OVERSUBSCRIBE: ranks may share devices"
                                         : "each rank has a device") == SYMM_OK)
        return SYMM_OK;
    else
        snprintf(why, sizeof(why), "no CUDA: %s", symm_last_error());
    return use_backend(ctx, &symm__backend_host, why);
}

static symm_status take_backend(symm_ctx *ctx, const symm_config *config)
{
    const char *name =
        config->backend ? config->backend : symm__option(SYMM_OPTION_BACKEND);
    const char *why = config->backend ? "symm_config.backend" : "SYMM_BACKEND";
    int64_t oversubscribe, exclusive = 0, fabric = 0;
    symm_status status =
        symm__option_integer(SYMM_OPTION_OVERSUBSCRIBE, 0, 1, &oversubscribe);

    if (status == SYMM_OK)
        status = symm__option_integer(SYMM_OPTION_EXCLUSIVE, 0, 1, &exclusive);
    if (status == SYMM_OK)
        status = symm__option_integer(SYMM_OPTION_FABRIC, 0, 1, &fabric);
    if (status != SYMM_OK)
        return status;
    ctx->exclusive = exclusive != 0;
    ctx->fabric = fabric != 0;
    ctx->oversubscribe = oversubscribe != 0 && !config->thread_group;
    if (!name)
        return best_backend(ctx);
    if (strcmp(name, "host") == 0)
        return use_backend(ctx, &symm__backend_host, why);
    if (strcmp(name, "cuda") != 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: backend '%.40s' is unknown; there are: host, cuda", why,
                          name);
    return use_backend(ctx, &symm__backend_cuda, why);
}

/* Connects ranks of several hosts: by symmrun's store, or by the allgather of the engine. */
static symm_status bootstrap_hosts(symm_ctx *ctx, const struct symm_bootstrap_run *run,
                                   int *peer_fd)
{
    const struct symm_engine_use *use = ctx->engine;
    symm_bootstrap bootstrap = {.size = sizeof(bootstrap)};

    if (ctx->job.store[0] != '\0')
        return symm__bootstrap_store(run, ctx->job.store, peer_fd);
    if (ctx->job.root[0] != '\0')
        return symm__bootstrap_tree(run, ctx->job.root, ctx->job.node,
                                    ctx->job.local_rank, ctx->job.local_size, peer_fd);
    if (use && use->ops && use->ops->bootstrap(use->engine, &bootstrap) == SYMM_OK)
        return symm__bootstrap_given(run, &bootstrap, peer_fd);
    return symm__fail(
        SYMM_ERR_UNSUPPORTED,
        "the job has %d ranks of which %d are on this host, and no way for ranks of "
        "several hosts to connect: set SYMM_BOOTSTRAP_PORT to a free port of rank 0's "
        "host and SYMM_JOB_SECRET on all ranks, or start it by symmrun --nnodes, or by "
        "mpirun with SYMM_ENGINE=mpi, or set symm_config.bootstrap",
        ctx->job.size, ctx->job.local_size);
}

static symm_status bootstrap_any(symm_ctx *ctx, const symm_config *config,
                                 const struct symm_bootstrap_run *run, int *peer_fd)
{
    const char *how = symm__option(SYMM_OPTION_BOOTSTRAP);

    if (config->thread_group) { /* threads are on one host, whatever its name is */
        symm_status status =
            symm__thread_group_join(config->thread_group, ctx, peer_fd);

        return status == SYMM_OK ? symm__world_alone(run->world, run->size) : status;
    }
    if (config->bootstrap)
        return symm__bootstrap_given(run, config->bootstrap, peer_fd);
    if (how && strcmp(how, "store") == 0)
        return symm__bootstrap_store(run, ctx->job.store, peer_fd);
    if (how && strcmp(how, "local") != 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "SYMM_BOOTSTRAP '%s' is neither local nor store", how);
    if (ctx->job.local_size < ctx->job.size)
        return bootstrap_hosts(ctx, run, peer_fd);
    return symm__bootstrap_local(run, peer_fd);
}

/* Opens the relay to other hosts, if there are any. Takes the world's listener. */
static symm_status open_relay(symm_ctx *ctx, struct symm_world *world)
{
    struct symm_relay_config config = {.rank = ctx->rank,
                                       .ranks = ctx->size,
                                       .host = ctx->host_of[ctx->rank],
                                       .hosts = ctx->hosts,
                                       .host_of = ctx->host_of,
                                       .at = ctx->host_at,
                                       .local = ctx->local,
                                       .local_fd = ctx->local_fd,
                                       .local_size = ctx->local_size,
                                       .listener = world->listener,
                                       .key = world->key};
    int *fds, count;
    bool met = false;
    symm_status status;

    if (ctx->hosts == 1)
        return SYMM_OK;
    for (int i = 0; i < ctx->local_size; i++) {
        ctx->local_fd[i] = ctx->oob.peer_fd[ctx->local[i]];
        met = met || ctx->local_fd[i] >= 0;
    }
    if (!met) /* or the relay would wait for ranks that do not know it: world->failed */
        config.local_size = 1;
    world->listener = -1;
    status = symm__relay_open(&config, &ctx->oob.relay);
    if (status != SYMM_OK)
        return status;
    fds = symm__relay_fds(ctx->oob.relay, &count);
    return symm__forks_add(&ctx->relay_forks, fds, count);
}

/* The job's ranks have found each other: sockets on this host, a relay to other hosts. */
static symm_status open_oob(symm_ctx *ctx, struct symm_world *world, int *peer_fd)
{
    symm_status status;

    symm__oob_init(&ctx->oob, ctx->rank, ctx->size, peer_fd);
    status = symm__places_take(ctx, world);
    if (status != SYMM_OK)
        return status;
    ctx->oob.host_of = ctx->host_of;
    ctx->oob.local_of = ctx->local_of;
    status = ctx->hosts > 1 ? symm__oob_room_open(&ctx->oob, ctx->hosts) : SYMM_OK;
    return status == SYMM_OK ? open_relay(ctx, world) : status;
}

/* Sockets to the ranks of this host, after which oob.peer_fd is set; the places of all ranks.
 * *late: a failure of this host after the other hosts had its entry. */
static symm_status bootstrap(symm_ctx *ctx, const symm_config *config, double timeout,
                             symm_status *late)
{
    struct symm_world world = {.listener = -1};
    struct symm_bootstrap_run run = {
        .rank = ctx->rank,
        .size = ctx->size,
        .key = ctx->job.key,
        .secret = ctx->job.has_secret ? ctx->job.secret : NULL,
        .series = ctx->job.series,
        .timeout = timeout,
        .world = &world,
    };
    int *peer_fd = malloc((size_t)ctx->size * sizeof(*peer_fd));
    symm_status status;

    if (!peer_fd)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for %d sockets", ctx->size);
    for (int r = 0; r < ctx->size; r++)
        peer_fd[r] = -1;
    status = symm__forks_add(&ctx->forks, peer_fd, ctx->size);
    if (status != SYMM_OK) {
        free(peer_fd);
        return status;
    }
    status = bootstrap_any(ctx, config, &run, peer_fd);
    if (status != SYMM_OK) { /* a peer that waits for this rank sees a hang-up */
        symm__forks_remove(&ctx->forks);
        symm__seqpacket_close(peer_fd, ctx->size);
        free(peer_fd);
        return status;
    }
    status = open_oob(ctx, &world, peer_fd);
    *late =
        world.failed == SYMM_OK ? SYMM_OK : symm__fail_quiet(world.failed, world.why);
    symm__world_finish(&world);
    return status;
}

/* Where the control page of a rank on this host is, or will be. */
static struct symm_control *control_of(const symm_ctx *ctx, int rank)
{
    return (struct symm_control *)(void *)(ctx->control_base +
                                           ctx->local_of[rank] * SYMM_CONTROL_BYTES);
}

/* Address space for the control pages of the ranks on this host. */
static symm_status open_pages(symm_ctx *ctx)
{
    void *base;
    symm_status status;

    if (ctx->thread_group)
        return SYMM_OK; /* has it */
    status = symm__shared_reserve((size_t)ctx->local_size * SYMM_CONTROL_BYTES,
                                  "control pages", &base);
    if (status == SYMM_OK)
        ctx->control_base = base;
    return status;
}

/* Makes this rank's control page, and the thread that shows that it lives. */
static symm_status open_control(symm_ctx *ctx)
{
    struct symm_control *control = control_of(ctx, ctx->rank);
    symm_status status =
        symm__shared_create(control, symm__control_bytes(ctx), 0, &ctx->control_handle);

    if (status != SYMM_OK)
        return status;
    control->magic = SYMM_CONTROL_MAGIC;
    control->layout = SYMM_DEVICE_LAYOUT;
    control->rank = ctx->rank;
    ctx->control[ctx->local_rank] = control;
    return symm__liveness_create(&control->live, &ctx->liveness);
}

/* Of a peer's page, of which `bytes` are mapped, other ranks write the middle alone. */
static symm_status protect_control(struct symm_control *control, size_t bytes)
{
    const size_t begin = offsetof(struct symm_control, consensus_word),
                 end = offsetof(struct symm_control, site);

    if (mprotect(control, begin, PROT_READ) == 0 &&
        (bytes < end || mprotect(control->site, bytes - end, PROT_READ) == 0))
        return SYMM_OK;
    return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                            "making a peer's control page read-only");
}

/* Maps a peer's control page and keeps its pidfd. */
static symm_status adopt_peer(symm_ctx *ctx, struct symm_oob_message *message, int rank)
{
    struct symm_control *control = control_of(ctx, rank);
    struct symm_process *process = &ctx->process[ctx->local_of[rank]];
    char sentence[SYMM_ERROR_BYTES];
    symm_status status;

    if (!ctx->thread_group) {
        status = symm__shared_map(message->fds[0], control, symm__control_bytes(ctx));
        if (status != SYMM_OK) {
            snprintf(sentence, sizeof(sentence),
                     "rank %d cannot map the control page of rank %d: %s", ctx->rank,
                     rank, symm_last_error());
            return symm__fail_quiet(status, sentence);
        }
        status = protect_control(control, symm__control_bytes(ctx));
        if (status != SYMM_OK)
            return status;
        if (!symm__process_is(message->fds[1], &process->pid))
            return symm__fail(SYMM_ERR_REFUSED,
                              "what rank %d sent as the descriptor of its process is "
                              "something else (no pidfd)",
                              rank);
        process->pidfd = message->fds[1];
        message->fds[1] = -1;
    }
    if (control->magic != SYMM_CONTROL_MAGIC || control->rank != rank)
        return symm__fail(SYMM_ERR_DAMAGED, "the control page of rank %d is damaged",
                          rank);
    process->tid = __atomic_load_n(&control->live, __ATOMIC_ACQUIRE);
    ctx->control[ctx->local_of[rank]] = control;
    return SYMM_OK;
}

/* Has that rank of this host recorded that the team has failed? */
static bool has_failed(symm_team *team, int rank)
{
    const int place = symm__team_place_of(team, rank);

    return place >= 0 && symm__team_record_of(team, team->local[place]) != SYMM_OK;
}

/* May that rank still take part in the exchange? On another host: its relay has not reported its
 * end, nor a failure of the team. On this host: its process lives, and it has not failed the
 * team. */
static bool link_alive(void *arg, int rank)
{
    symm_ctx *ctx = arg;
    symm_team *team = ctx->in_rendezvous;
    const struct symm_control *control;
    struct symm_relay_report report;
    const char *why;

    if (symm__is_far(ctx, rank))
        return symm__relay_state(ctx->oob.relay, rank) == SYMM_RELAY_ALIVE &&
               !(team && symm__oob_reported(&ctx->oob, team->uid, &report));
    if (team && has_failed(team, rank))
        return false;
    control = symm__near_control(ctx, rank);
    return !control || symm__process_check(symm__process(ctx, rank), &control->live,
                                           &why) != SYMM_ERR_PEER_DEAD;
}

static bool link_finished(void *arg, int rank)
{
    const symm_ctx *ctx = arg;
    const struct symm_control *control = symm__control(ctx, rank);

    return control &&
           __atomic_load_n(&control->live, __ATOMIC_ACQUIRE) == SYMM_LIVE_FINISHED;
}

static const char *link_earlier(void *arg, int rank, char *text)
{
    return symm__earlier_text(arg, rank, text);
}

/*
 * The first exchange of all ranks. `mine`: the outcome of the local steps before it. *adopted:
 * the outcome of mapping the peers' pages here, which the next exchange reports.
 */
static symm_status exchange_handshakes(symm_ctx *ctx, symm_status mine, double timeout,
                                       symm_status *adopted)
{
    struct symm_oob_message *messages = ctx->room.messages;
    struct symm_handshake handshake = symm__handshake(ctx);
    int fds[2] = {ctx->control_handle, -1};
    /* Without its relay this rank can tell those of its host alone, which tell other hosts. */
    const bool near = ctx->hosts > 1 && !ctx->oob.relay;
    struct symm_exchange exchange = {
        .what = "the start of the job",
        .tag = SYMM_CONTROL_MAGIC,
        .before = SYMM_HOSTS_TAG, /* a peer that failed there has said why */
        .members = near ? ctx->local : ctx->room.everyone,
        .count = near ? ctx->local_size : ctx->size,
        .timeout = timeout,
        .bytes = &handshake,
        .bytes_count = symm__handshake_bytes(&handshake),
        .fds = fds,
    };
    symm_status status;

    if (mine == SYMM_OK && !ctx->thread_group) {
        fds[1] = (int)syscall(SYS_pidfd_open, getpid(), 0);
        if (fds[1] < 0)
            mine =
                symm__fail_errno(SYMM_ERR_SYSTEM, errno, "pidfd_open of this process");
        exchange.fds_count = 2;
    }
    exchange.status = mine;
    status = symm__control_exchange(ctx, 0, exchange.what, &exchange, messages);
    if (near &&
        ctx->local[0] != ctx->rank) /* or other hosts hear of its hang-up first */
        symm__oob_wait_closed(&ctx->oob, ctx->local[0], REPORT_SECONDS);
    if (fds[1] >= 0)
        close(fds[1]);
    if (status == SYMM_OK)
        status = symm__handshake_check(ctx, messages);
    for (int r = 0; status == SYMM_OK && *adopted == SYMM_OK && r < ctx->size; r++)
        if (r != ctx->rank && !symm__is_far(ctx, r)) {
            *adopted = symm__handshake_reach(ctx, &messages[r], r);
            if (*adopted == SYMM_OK)
                *adopted = adopt_peer(ctx, &messages[r], r);
        }
    for (int r = 0; r < ctx->size; r++) /* finish closes what was not adopted */
        if (messages[r].fds_count == 2 && messages[r].fds[1] < 0)
            messages[r].fds_count = 1;
    symm__oob_messages_finish(messages, ctx->size);
    return status;
}

/* Loads the plan of SYMM_PLAN, as if the program began by that. The world's first rendezvous
 * checks that all ranks have the same plan. */
static symm_status load_plan(symm_ctx *ctx)
{
    const char *path = symm__option(SYMM_OPTION_PLAN);
    char sentence[SYMM_ERROR_BYTES];
    symm_status status = path ? symm__plan_load(ctx->teams[0], path) : SYMM_OK;

    if (status == SYMM_OK)
        return SYMM_OK;
    snprintf(sentence, sizeof(sentence), "SYMM_PLAN: %s", symm_last_error());
    return symm__fail_quiet(status, sentence);
}

/* Opens the rank's page for tools, by which they find the rank from the bootstrap on. Threads
 * that share a group are a job of their own without a key: the process names it. */
static symm_status open_sight(symm_ctx *ctx, bool threads)
{
    char host[64] = "", process[32];
    const struct symm_sight_config config = {.job = threads ? process : ctx->job.key,
                                             .host = host,
                                             .backend = ctx->ops->name,
                                             .rank = ctx->rank,
                                             .size = ctx->size,
                                             .heap = symm__heap_usage,
                                             .heap_arg = ctx};

    snprintf(process, sizeof(process), "threads:%d", (int)getpid());
    if (gethostname(host, sizeof(host) - 1) != 0)
        snprintf(host, sizeof(host), "?");
    return symm__sight_open(&config, &ctx->sight);
}

/* Everything after the bootstrap; on error the caller finalizes. */
static symm_status open_all(symm_ctx *ctx, const symm_config *config, double until)
{
    uint64_t last;
    symm_status loaded = symm__engine_load(ctx), adopted = SYMM_OK, late = SYMM_OK;
    /* Which ranks are awaited is not known before they are connected. */
    const struct symm_sight_what about = {
        .op = "bootstrap", .channel = SYMM_SIGHT_CONTROL, .root = -1, .signal = -1};
    struct symm_sight_wait *seen = symm__sight_wait_begin(ctx->sight, &about, 0);
    symm_status status = bootstrap(ctx, config, until - symm__now(), &late);

    symm__sight_wait_end(ctx->sight, seen);
    if (status != SYMM_OK && !ctx->local)
        return status; /* no rank waits for this one */
    if (status == SYMM_OK)
        status = late == SYMM_OK ? loaded : late;
    if (status == SYMM_OK)
        status = open_pages(ctx);
    if (status == SYMM_OK)
        status = open_control(ctx);
    status = exchange_handshakes(ctx, status, until - symm__now(), &adopted);
    if (status != SYMM_OK)
        return status;
    ctx->oob.alive = link_alive;
    ctx->oob.finished = link_finished;
    ctx->oob.earlier = link_earlier;
    ctx->oob.alive_arg = ctx;
    status = symm__domain_open(ctx, until - symm__now(), adopted, &adopted, &last);
    if (status != SYMM_OK)
        return status;
    if (adopted == SYMM_OK)
        adopted = symm__record_open(ctx, ctx->record_job);
    pthread_mutex_lock(&ctx->lock); /* a device's watchdog reads teams from now on */
    status = symm__team_create_world(ctx, last, adopted, until - symm__now());
    pthread_mutex_unlock(&ctx->lock);
    if (ctx->control_handle >= 0)
        close(ctx->control_handle);
    ctx->control_handle = -1;
    if (status == SYMM_OK && symm__is_recorded(ctx))
        symm__record_team(ctx->teams[0], "world");
    return status == SYMM_OK ? load_plan(ctx) : status;
}

static symm_status ctx_create(const symm_config *config, symm_ctx **ctx)
{
    symm_ctx *c = calloc(1, sizeof(*c));
    symm_status status;

    if (!c)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a context");
    c->control_handle = -1;
    c->generation = 1;
    for (int i = 0; i < SYMM_MAX_LOCAL_RANKS; i++)
        c->process[i].pidfd = -1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->creations, NULL);
    pthread_mutex_init(&c->registry, NULL);
    pthread_mutex_init(&c->earlier_lock, NULL);
    symm__notifier_open(&c->notifier);
    status = symm__ctx_life_open(c);
    if (status == SYMM_OK)
        status = symm__settings_job(c, config);
    if (status == SYMM_OK && c->job.size > SYMM_RANKS_MAX)
        status = symm__fail(SYMM_ERR_UNSUPPORTED, "%d ranks; a job has up to %d",
                            c->job.size, SYMM_RANKS_MAX);
    if (status == SYMM_OK) {
        c->rank = c->job.rank;
        c->size = c->job.size;
        symm__log_rank(c->rank);
        status = take_backend(c, config);
    }
    if (status == SYMM_OK)
        status = symm__room_open(c);
    if (status == SYMM_OK) {
        c->granularity = c->ops->granularity(c->backend);
        status = symm__settings_take(c, config);
    }
    if (status == SYMM_OK)
        status = symm__costs_load(c);
    if (status == SYMM_OK)
        status = open_sight(c, config->thread_group != NULL);
    if (status != SYMM_OK) {
        symm_finalize(c);
        return status;
    }
    *ctx = c;
    return SYMM_OK;
}

symm_status symm_init(const symm_config *given, symm_ctx **ctx)
{
    symm_config config = {.size = sizeof(config)};
    symm_bootstrap bootstrap;
    symm_ctx *c = NULL;
    char before[SYMM_ERROR_BYTES];
    double timeout;
    symm_status status = SYMM_OK;

    if (!ctx)
        return symm__fail_null("symm_init", "ctx");
    symm__streams_guard();
    symm__error_save(before); /* a backend or an engine may have been tried in vain */
    if (given)
        status = symm__struct_take("symm_config", given, &config, sizeof(config));
    if (status == SYMM_OK && config.bootstrap) {
        status = symm__struct_take("symm_bootstrap", config.bootstrap, &bootstrap,
                                   sizeof(bootstrap));
        config.bootstrap = &bootstrap;
    }
    if (status != SYMM_OK)
        return status;
    timeout = config.init_timeout;
    if (!(timeout >= 0) || !(timeout <= SYMM_LONGEST_SECONDS))
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_config: init_timeout is %g; it is a number of seconds up to "
            "%g, 0 for the default",
            timeout, SYMM_LONGEST_SECONDS);
    if (timeout == 0)
        status = symm__option_seconds(SYMM_OPTION_INIT_TIMEOUT, &timeout);
    if (status == SYMM_OK)
        status = ctx_create(&config, &c);
    if (status != SYMM_OK)
        return status;
    status = open_all(c, &config, symm__now() + timeout);
    if (status != SYMM_OK) {
        symm_finalize(c);
        return status;
    }
    symm__error_restore(before);
    *ctx = c;
    return SYMM_OK;
}

/* This rank may finalize because of a death that the relay's thread has not seen yet. */
static void report_deaths(symm_ctx *ctx)
{
    const char *why;

    for (int i = 0; ctx->oob.relay && i < ctx->local_size; i++) {
        const int rank = ctx->local[i];
        const struct symm_control *control = symm__near_control(ctx, rank);

        if (rank != ctx->rank && control &&
            symm__process_died(symm__process(ctx, rank), &control->live, &why) ==
                SYMM_ERR_PEER_DEAD)
            symm__relay_saw_death(ctx->oob.relay, rank);
    }
}

static void link_close(symm_ctx *ctx, bool forked)
{
    report_deaths(ctx);
    symm__forks_remove(&ctx->relay_forks);
    symm__forks_remove(&ctx->forks);
    if (!forked) /* a watchdog may look at what has come: symm__team_late_text */
        pthread_mutex_lock(&ctx->lock);
    symm__oob_finish(&ctx->oob);
    if (!forked)
        pthread_mutex_unlock(&ctx->lock);
}

void symm_finalize(symm_ctx *ctx)
{
    bool forked, idle;

    if (!ctx)
        return;
    forked = ctx->own_process && *ctx->own_process != 1;
    if (forked) { /* memory only: threads, sockets and pages belong to the parent */
        symm__liveness_abandon(ctx->liveness);
        symm__relay_abandon(ctx->oob.relay);
        ctx->oob.relay = NULL;
        ctx->liveness = NULL;
        ctx->hook_count = 0;
    } else {
        symm__sight_finish(ctx->sight);
        if (ctx->device_ops)
            ctx->device_ops->ending(ctx, true);
    }
    for (size_t i = 0; !forked && i < sizeof(ctx->streams) / sizeof(*ctx->streams); i++)
        if (ctx->streams[i]) {
            ctx->ops->stream_destroy(ctx->backend, ctx->streams[i]);
            __atomic_store_n(&ctx->streams[i], NULL, __ATOMIC_RELAXED);
        }
    if (!forked) /* functions of symm_work_notify still find their teams */
        symm__notifier_drain(&ctx->notifier);
    symm__sight_stop(ctx->sight);
    symm__record_close(ctx, forked);
    if (!forked)
        symm__earlier_show(ctx);
    symm__liveness_destroy(ctx->liveness);
    if (ctx->hosts <= 1)
        link_close(ctx, forked); /* over several hosts teams use it until they are freed */
    for (int s = SYMM_MAX_TEAMS - 1; s >= 0; s--)
        if (ctx->teams[s] && !ctx->teams[s]->inner) /* goes with its team */
            symm__team_free(ctx->teams[s]);
    if (!forked)
        symm__notifier_close(&ctx->notifier);
    /* release: what the teams have reported is there */
    if (!forked && symm__own_control(ctx))
        __atomic_store_n(&symm__own_control(ctx)->left, 1, __ATOMIC_RELEASE);
    link_close(ctx, forked);
    idle = symm__engine_unload(ctx);
    if (ctx->control_handle >= 0)
        close(ctx->control_handle);
    for (int i = 0; i < SYMM_MAX_LOCAL_RANKS; i++)
        if (ctx->process[i].pidfd >= 0)
            close(ctx->process[i].pidfd);
    if (ctx->base && !ctx->thread_group)
        ctx->ops->release(ctx->backend, ctx->base, (size_t)ctx->places * ctx->stride);
    if (ctx->control_base && !ctx->thread_group)
        symm__shared_release(ctx->control_base,
                             (size_t)ctx->local_size * SYMM_CONTROL_BYTES);
    if (ctx->ops && idle)
        ctx->ops->close(ctx->backend);
    symm__costs_drop(ctx);
    symm__sight_close(ctx->sight);
    symm__places_close(ctx);
    free(ctx->hooks);
    symm__ctx_life_close(ctx, forked);
    pthread_mutex_destroy(&ctx->earlier_lock);
    pthread_mutex_destroy(&ctx->registry);
    pthread_mutex_destroy(&ctx->creations);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}
