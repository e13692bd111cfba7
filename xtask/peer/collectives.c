/*
 * Collectives, as in spmd-perf's collectives.rs; beside a computation, as in its overlap.rs; and persistent ones.
 */

#include "peer.h"

/* How often a computation tests the call, where it does. */
#define TESTS 32
/* The speed of the computation is that of the fastest of so many runs .. */
#define RUNS 5
/* .. which take at least so many microseconds. */
#define RUN 1000

void call_collective(struct subject *subject, size_t turn)
{
    int count = (int)subject->count;
    void *send = subject->send, *recv = subject->recv;
    MPI_Comm world = MPI_COMM_WORLD;
    switch (subject->kind) {
    case BARRIER:
        MPI_Barrier(world);
        break;
    case BROADCAST:
        MPI_Bcast(recv, count, MPI_DOUBLE, root(turn), world);
        break;
    case REDUCE:
        MPI_Reduce(send, recv, count, MPI_DOUBLE, MPI_SUM, root(turn), world);
        break;
    case ALLREDUCE:
        MPI_Allreduce(send, recv, count, MPI_DOUBLE, MPI_SUM, world);
        break;
    case ALLGATHER:
        MPI_Allgather(send, count, MPI_DOUBLE, recv, count, MPI_DOUBLE, world);
        break;
    case ALLTOALL:
        MPI_Alltoall(send, count, MPI_DOUBLE, recv, count, MPI_DOUBLE, world);
        break;
    default:
        MPI_Start(&subject->request);
        MPI_Wait(&subject->request, MPI_STATUS_IGNORE);
    }
}

void begin_persistent(struct subject *subject)
{
    MPI_Allreduce_init(subject->send, subject->recv, (int)subject->count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &subject->request);
}

void end_persistent(struct subject *subject)
{
    MPI_Request_free(&subject->request);
}

/* Computes this many steps, of which each needs the one before, and no memory. */
static void compute(size_t steps)
{
    volatile double kept = 1;
    double x = kept;
    for (size_t i = 0; i < steps; i++)
        x = x * 0.5 + 0.5;
    kept = x;
}

double steps_per_micro(void)
{
    size_t steps = 1024;
    double fastest = 1e9;
    for (int runs = 0; runs < RUNS;) {
        double start = now();
        compute(steps);
        double took = now() - start;
        if (took < RUN) {
            steps *= 2;
        } else {
            fastest = took < fastest ? took : fastest;
            runs++;
        }
    }
    return (double)steps / fastest;
}

/* Computes while the call goes on, and waits for that. */
static void beside(struct subject *subject, MPI_Request *request)
{
    enum kind kind = subject->kind;
    int tested = kind == OVERLAP_ALLREDUCE_TEST || kind == OVERLAP_ALLTOALL_TEST || kind == OVERLAP_BROADCAST_TEST;
    int tests = tested && subject->part == BOTH ? TESTS : 0, over;
    size_t piece = subject->steps / (size_t)(tests + 1);
    if (subject->part == BOTH)
        compute(piece);
    for (int i = 0; i < tests; i++) {
        MPI_Test(request, &over, MPI_STATUS_IGNORE);
        compute(piece);
    }
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

void call_overlap(struct subject *subject, size_t turn)
{
    int count = (int)subject->count;
    void *send = subject->send, *recv = subject->recv;
    MPI_Request request = MPI_REQUEST_NULL;
    if (subject->part == COMPUTATION) {
        compute(subject->steps);
        return;
    }
    switch (collective(subject->kind)) {
    case BROADCAST:
        MPI_Ibcast(recv, count, MPI_DOUBLE, root(turn), MPI_COMM_WORLD, &request);
        break;
    case ALLTOALL:
        MPI_Ialltoall(send, count, MPI_DOUBLE, recv, count, MPI_DOUBLE, MPI_COMM_WORLD, &request);
        break;
    default:
        MPI_Iallreduce(send, recv, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    }
    beside(subject, &request);
}
