/*
 * What the parts of `peer` share: see peer.c.
 */

#ifndef PEER_H
#define PEER_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* From this size on, what is sent is rewritten before each call. */
#define REWRITE (64 << 10)
/* Messages in a window. */
#define WINDOW 64
/* Messages that a rank sends at once, whether they are received or not. */
#define MANY 1000

/* In groups: collectives, those that are started beside a computation and persistent ones, messages and one-sided calls
 * of the first two ranks, messages of all. */
enum kind {
    BARRIER,
    BROADCAST,
    REDUCE,
    ALLREDUCE,
    ALLGATHER,
    ALLTOALL,
    OVERLAP_ALLREDUCE,
    OVERLAP_ALLREDUCE_TEST,
    OVERLAP_ALLTOALL,
    OVERLAP_ALLTOALL_TEST,
    OVERLAP_BROADCAST,
    OVERLAP_BROADCAST_TEST,
    PERSISTENT_ALLREDUCE,
    LATENCY,
    BANDWIDTH,
    BIDIRECTIONAL,
    ISEND,
    PUT,
    GET,
    FETCH_AND_ADD,
    FLOOD,
    ANY_SOURCE,
    KINDS
};

/* What of a call beside a computation is done. */
enum part { CALL, COMPUTATION, BOTH };

/* A call under measurement: elements are doubles, those of messages and windows bytes. */
struct subject {
    enum kind kind;
    /* Elements that a rank contributes, and all that it sends and receives. */
    size_t count, sent, received;
    void *send, *recv;
    /* The turn for which the data were made. */
    size_t prepared;
    /* Of an overlap. */
    enum part part;
    size_t steps;
    /* Of a persistent call. */
    MPI_Request request;
    /* Of one-sided calls: the window, this rank's part of it, and how many calls there were. */
    MPI_Win window;
    void *base;
    uint64_t calls;
};

extern int rank, ranks;
extern const char *const NAMES[KINDS];

/* Ends the job. */
void fail(const char *what, const char *about);
/* Microseconds. */
double now(void);

/* Of the kinds (data.c). */
int is_message(enum kind kind);
/* Whether the first two ranks alone take part. */
int is_pair(enum kind kind);
int is_overlap(enum kind kind);
int is_one_sided(enum kind kind);
/* The collective that a started or persistent call is. */
enum kind collective(enum kind kind);
/* The root of a turn: each rank in turn. */
int root(size_t turn);

/* The data (data.c): made, made anew for a turn, looked at, ended. */
struct subject subject_of(enum kind kind, size_t bytes);
int rewrites(const struct subject *subject);
void prepare(struct subject *subject, size_t turn);
unsigned long wrong(const struct subject *subject, size_t turn);
void end(struct subject *subject);

/* The calls: of collectives (collectives.c), messages (messages.c), one-sided (windows.c). */
void call_collective(struct subject *subject, size_t turn);
void call_overlap(struct subject *subject, size_t turn);
void call_message(struct subject *subject);
void call_one_sided(struct subject *subject);

/* Steps of a computation in a microsecond (collectives.c). */
double steps_per_micro(void);
/* Makes and ends what a persistent call needs (collectives.c), and one-sided ones (windows.c). */
void begin_persistent(struct subject *subject);
void end_persistent(struct subject *subject);
void begin_one_sided(struct subject *subject);
void end_one_sided(struct subject *subject);

#endif
