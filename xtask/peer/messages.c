/*
 * Messages, as in spmd-perf's messages.rs.
 */

#include "peer.h"

/* The tag of the message with which a rank says that no more come from it. */
#define END 1

static void ping_pong(struct subject *subject, int peer)
{
    int count = (int)subject->count;
    if (rank == 0)
        MPI_Send(subject->send, count, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(subject->recv, count, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank != 0)
        MPI_Send(subject->send, count, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
}

/* A window of messages, each received `apart` bytes behind the last; the sender's time ends when all have come. */
static void window(struct subject *subject, int sends, int receives, size_t apart)
{
    MPI_Request requests[2 * WINDOW];
    int count = (int)subject->count, peer = 1 - rank, started = 0;
    unsigned char *place = subject->recv;
    for (int i = 0; receives && i < WINDOW; i++, place += apart)
        MPI_Irecv(place, count, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[started++]);
    for (int i = 0; sends && i < WINDOW; i++)
        MPI_Isend(subject->send, count, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[started++]);
    MPI_Waitall(started, requests, MPI_STATUSES_IGNORE);
    char done = 1;
    if (sends && !receives)
        MPI_Recv(&done, 1, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (receives && !sends)
        MPI_Send(&done, 1, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
}

/* Messages into a rank that waits for something else, and must keep them. */
static void flood(struct subject *subject)
{
    int count = (int)subject->count, last = ranks - 1;
    for (int i = 0; rank == 0 && i < MANY; i++)
        MPI_Send(subject->send, count, MPI_BYTE, last, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; rank == last && i < MANY; i++)
        MPI_Recv(subject->recv, count, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int is_end(struct subject *subject, const MPI_Status *next)
{
    MPI_Recv(subject->recv, (int)subject->count, MPI_BYTE, next->MPI_SOURCE, next->MPI_TAG, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    return next->MPI_TAG == END;
}

/* Messages among all, received as they come while others still send. */
static void any_source(struct subject *subject)
{
    int count = (int)subject->count, sending = ranks - 1, found = 0;
    MPI_Status next;
    for (int i = 0; i < MANY; i++) {
        int to = (rank + 1 + i % (ranks - 1)) % ranks;
        MPI_Send(subject->send, count, MPI_BYTE, to, 0, MPI_COMM_WORLD);
        for (;;) {
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &next);
            if (!found)
                break;
            sending -= is_end(subject, &next);
        }
    }
    for (int i = 0; i < ranks - 1; i++)
        MPI_Send(NULL, 0, MPI_BYTE, (rank + 1 + i) % ranks, END, MPI_COMM_WORLD);
    while (sending > 0) {
        MPI_Recv(subject->recv, count, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &next);
        sending -= next.MPI_TAG == END;
    }
}

void call_message(struct subject *subject)
{
    switch (subject->kind) {
    case LATENCY:
        ping_pong(subject, 1 - rank);
        break;
    case BANDWIDTH:
        window(subject, rank == 0, rank == 1, 0);
        break;
    case BIDIRECTIONAL:
        window(subject, 1, 1, 0);
        break;
    case ISEND:
        window(subject, rank == 0, rank == 1, subject->count);
        break;
    case FLOOD:
        flood(subject);
        break;
    default:
        any_source(subject);
    }
}
