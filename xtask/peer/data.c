/*
 * What is sent, and what must have come: as in spmd-perf (elements.rs, collectives.rs, messages.rs).
 */

#include "peer.h"

#include <stdlib.h>
#include <string.h>

/* Places of a result that are looked at, at most. */
#define LOOKS 1000

int is_message(enum kind kind)
{
    return kind >= LATENCY;
}

int is_pair(enum kind kind)
{
    return is_message(kind) && kind < FLOOD;
}

int is_overlap(enum kind kind)
{
    return kind >= OVERLAP_ALLREDUCE && kind < PERSISTENT_ALLREDUCE;
}

int is_one_sided(enum kind kind)
{
    return kind >= PUT && kind < FLOOD;
}

enum kind collective(enum kind kind)
{
    switch (kind) {
    case OVERLAP_ALLREDUCE:
    case OVERLAP_ALLREDUCE_TEST:
    case PERSISTENT_ALLREDUCE:
        return ALLREDUCE;
    case OVERLAP_ALLTOALL:
    case OVERLAP_ALLTOALL_TEST:
        return ALLTOALL;
    case OVERLAP_BROADCAST:
    case OVERLAP_BROADCAST_TEST:
        return BROADCAST;
    default:
        return kind;
    }
}

int root(size_t turn)
{
    return (int)(turn % (size_t)ranks);
}

static double value(size_t from, size_t turn, size_t index)
{
    return (double)(from + turn % 7 + index % 11);
}

static unsigned char byte(size_t turn, size_t index)
{
    return (unsigned char)(turn + index % 251);
}

static double sum(size_t turn, size_t index)
{
    double all = 0;
    for (int from = 0; from < ranks; from++)
        all += value(from, turn, index);
    return all;
}

struct subject subject_of(enum kind kind, size_t bytes)
{
    enum kind call = collective(kind);
    size_t size = is_message(kind) ? 1 : sizeof(double);
    size_t count = bytes / size, all = count * (size_t)ranks;
    struct subject subject = {.kind = kind, .count = count, .sent = count, .received = count, .part = BOTH};
    if (call == ALLGATHER || call == ALLTOALL)
        subject.received = all;
    if (call == ALLTOALL)
        subject.sent = all;
    /* What is received at the same time has a place each. */
    if (kind == ISEND && rank == 1)
        subject.received = WINDOW * count;
    subject.send = calloc(subject.sent + 1, size);
    subject.recv = calloc(subject.received + sizeof(uint64_t), size);
    if (!subject.send || !subject.recv)
        fail("no memory for", NAMES[kind]);
    if (kind == PERSISTENT_ALLREDUCE)
        begin_persistent(&subject);
    if (is_one_sided(kind))
        begin_one_sided(&subject);
    return subject;
}

void end(struct subject *subject)
{
    if (subject->kind == PERSISTENT_ALLREDUCE)
        end_persistent(subject);
    if (is_one_sided(subject->kind))
        end_one_sided(subject);
    free(subject->send);
    free(subject->recv);
}

int rewrites(const struct subject *subject)
{
    size_t size = is_message(subject->kind) ? 1 : sizeof(double);
    return subject->sent * size >= REWRITE;
}

/* Makes what is sent in this turn. Not timed. */
void prepare(struct subject *subject, size_t turn)
{
    subject->prepared = turn;
    if (is_message(subject->kind)) {
        unsigned char *bytes = subject->send;
        for (size_t i = 0; i < subject->sent; i++)
            bytes[i] = byte(turn, i);
        if (subject->kind == GET) {
            memcpy(subject->base, bytes, subject->sent);
            MPI_Win_sync(subject->window);
        }
        return;
    }
    int broadcasts = collective(subject->kind) == BROADCAST;
    if (broadcasts && rank != root(turn))
        return;
    double *values = broadcasts ? subject->recv : subject->send;
    for (size_t i = 0; i < subject->sent; i++)
        values[i] = value((size_t)rank, turn, i);
}

/* Whether the result of a turn is right at a place. */
static int right(const struct subject *subject, size_t turn, size_t index)
{
    size_t made = subject->prepared, count = subject->count;
    if (is_message(subject->kind)) {
        const unsigned char *came = subject->kind == PUT ? subject->base : subject->recv;
        return came[index] == ((unsigned char *)subject->send)[index % count];
    }
    double found = ((double *)subject->recv)[index];
    switch (collective(subject->kind)) {
    case BROADCAST:
        return found == value((size_t)root(made), made, index);
    case REDUCE:
        return rank != root(turn) || found == sum(made, index);
    case ALLREDUCE:
        return found == sum(made, index);
    case ALLGATHER:
        return found == value(index / count, made, index % count);
    case ALLTOALL:
        return found == value(index / count, made, (size_t)rank * count + index % count);
    default:
        return 1;
    }
}

/* Whether this rank has got something in a call. */
static int receives(enum kind kind)
{
    int last = is_pair(kind) ? 1 : ranks - 1;
    if (!is_message(kind) || kind == ANY_SOURCE)
        return 1;
    if (kind == GET)
        return rank == 0;
    int both = kind == LATENCY || kind == BIDIRECTIONAL;
    return rank == last || (rank == 0 && both);
}

/* The number of wrong elements, of those that are looked at. Not timed. */
unsigned long wrong(const struct subject *subject, size_t turn)
{
    if (subject->part == COMPUTATION)
        return 0;
    if (subject->kind == FETCH_AND_ADD)
        /* Each call has found what those before it have added. */
        return rank == 0 && *(uint64_t *)subject->recv != subject->calls - 1;
    if (is_one_sided(subject->kind))
        MPI_Win_sync(subject->window);
    size_t length = receives(subject->kind) ? subject->received : 0;
    size_t step = length / LOOKS > 0 ? length / LOOKS : 1;
    unsigned long count = 0;
    for (size_t index = 0; index < length; index += step)
        count += !right(subject, turn, index);
    return count + (length > 0 && !right(subject, turn, length - 1));
}
