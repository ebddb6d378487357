/* SPDX-License-Identifier: MIT */
/*
 * ledger_sim.h - the simulation of test_host_ledger.c: its state, and what its files share. The
 * suite itself defines the functions that replace the library's: in a helper's file another suite
 * could be linked with them.
 */
#ifndef SYMM_TESTS_LEDGER_SIM_H
#define SYMM_TESTS_LEDGER_SIM_H

#include "relay/private.h"

#define RANKS_MAX    320
#define LOCAL_MAX    3
#define TEAMS_MAX    6
#define STEPS_MAX    12
#define DEADLINE     60.0
#define SHORT        0.4 /* deadline where somebody is late */
#define VERDICT      1.0
#define CONNECT_MOST 4.0
#define REFUSED_MOST 3
#define SILENT       30.0
#define TURNS_MAX    2000000 /* of a case */

enum trouble { /* bits of a case */
               CUTS = 1,
               KILL_RELAYS = 2, /* of ranks that lead no team */
               LEAVE_EARLY = 4, /* ranks that lead no team finalize */
               STOPS = 8,
               KILL_MEMBERS = 16,
               KILL_HOSTS = 32,
               GIVE_UPS = 64,
               LATE = 128,
               MISMATCH = 256,
               MEMBERS_LEAVE = 512,
               CROSSED = 1024,
               LACKS = 2048, /* allocations of the library fail, until all is calm */
};
#define HARMFUL (~(unsigned)(CUTS | KILL_RELAYS | LEAVE_EARLY | STOPS | LACKS))

struct packet {
    struct packet *next;
    struct symm_relay_message *message;
    double at;
    bool written; /* on one host: the kernel has it, whether its sender lives or not */
};

/* One end of a connection: what roles.c sees comes first. */
struct end {
    struct symm_relay_connection c;
    struct node *owner;
    struct end *other; /* NULL: closed there */
    struct packet *first, *last;
    double last_at, closed_at;
};

/* A connection in the making. */
struct guest {
    struct guest *next;
    struct end *from, *to; /* to: of the relay that accepts; NULL: not yet */
    double at;             /* of the next stage: accepted, opened there, opened here */
    int host, stage;
};

struct team {
    uint64_t tag;
    int count;
    int32_t leaders[RANKS_MAX];
};

enum end_of { NOT_YET, GO, FAIL, ALONE /* without a verdict */ };

struct result {
    enum end_of ended[RANKS_MAX]; /* by leader's place in the team */
    bool reason;                  /* one of its leaders had a reason to fail */
};

struct node {
    struct symm_relay relay;
    int rank, host, place;
    bool alive, killed, finalized;
    double frozen_until, gone_at, wake;
    double seen[LOCAL_MAX]; /* delay after which it sees that a local peer has gone */
    int step;               /* in the program; STEPS: it is over */
    double begin_at, until, end_at;
    bool calling, given_up;
    bool dying;               /* is killed at the end of this turn */
    uint32_t next[TEAMS_MAX]; /* sequence of each team */
    uint64_t program;         /* its own random numbers */
    uint32_t written;         /* on all boards */
    int met[RANKS_MAX];       /* by host: the rank whose end was open last; -1: none */
};

struct sim {
    uint64_t seed, random;
    unsigned trouble;
    double now, calm; /* after `calm` no trouble */
    int hosts, ranks, teams, steps;
    int32_t host_of[RANKS_MAX];
    int first_of[RANKS_MAX + 1]; /* by host: its first rank; ranks of a host follow */
    struct symm_relay_host at[RANKS_MAX];
    int local[RANKS_MAX];
    int local_fd[RANKS_MAX];
    struct node *node[RANKS_MAX];
    struct team team[TEAMS_MAX];
    int program[STEPS_MAX]; /* teams, in the order of all leaders */
    struct result result[TEAMS_MAX][4 * STEPS_MAX];
    struct guest *guests;
    bool member[RANKS_MAX];
    unsigned long turns;
    bool ending; /* some rank has finalized */
    uint64_t lack; /* random numbers of LACKS; 0: allocations are the suite's own */
    int verdicts; /* to be sent until the relay that sends the last is killed; 0: none is */
    const char *wrong;
    char why[512];
};

extern struct sim sim;

/* ---- ledger_net.c ------------------------------------------------------------------------- */

uint64_t ledger_mix(uint64_t *state); /* the next random number of `state` */
int ledger_below(int most);           /* 0 to most - 1, by the case's random numbers */
double ledger_chance(void);           /* 0 to 1 */
bool ledger_has(enum trouble trouble);
double ledger_latency(void);
double ledger_latency_of(const struct symm_relay_connection *c);
/* Keeps the first claim that does not hold. */
void ledger_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
void ledger_wake_at(struct node *n, double at);
struct node *ledger_node_of(struct symm_relay *relay);
struct end *ledger_end_of(struct symm_relay_connection *c);
struct end *ledger_end_make(struct node *owner, enum symm_relay_end end, int id);
void ledger_end_add(struct end *e);
void ledger_lose_some(struct end *e);
void ledger_close_side(struct end *e);
bool ledger_host_lives(int host);
void ledger_connections_move(struct node *n);
void ledger_guests_move(struct node *n);

void ledger_node_go(struct node *n);
void ledger_node_kill(struct node *n);
void ledger_node_leave(struct node *n);

/* ---- test_host_ledger.c ------------------------------------------------------------------- */

/* For the suite's own use: zeroed memory, which is never lacking. */
void *ledger_room(size_t bytes);

/* ---- ledger_rank.c ------------------------------------------------------------------------ */

double ledger_think(struct node *n); /* seconds before the next exchange */
int ledger_next_team(struct node *n);
void ledger_run_until(double until);

#endif
