/*
 * One-sided calls of the first rank on the second one's part of a window, each of which is flushed.
 */

#include "peer.h"

#include <string.h>

void begin_one_sided(struct subject *subject)
{
    size_t bytes = subject->count > sizeof(uint64_t) ? subject->count : sizeof(uint64_t);
    MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &subject->base, &subject->window);
    MPI_Win_lock_all(0, subject->window);
    memset(subject->base, 0, bytes);
    MPI_Win_sync(subject->window);
}

void end_one_sided(struct subject *subject)
{
    MPI_Win_unlock_all(subject->window);
    MPI_Win_free(&subject->window);
}

void call_one_sided(struct subject *subject)
{
    const uint64_t one = 1;
    int count = (int)subject->count;
    if (rank != 0)
        return;
    switch (subject->kind) {
    case PUT:
        MPI_Put(subject->send, count, MPI_BYTE, 1, 0, count, MPI_BYTE, subject->window);
        break;
    case GET:
        MPI_Get(subject->recv, count, MPI_BYTE, 1, 0, count, MPI_BYTE, subject->window);
        break;
    default:
        MPI_Fetch_and_op(&one, subject->recv, MPI_UINT64_T, 1, 0, MPI_SUM, subject->window);
    }
    MPI_Win_flush(1, subject->window);
    subject->calls++;
}
