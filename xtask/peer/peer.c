/*
 * The MPI side of `cargo xtask versus`: the loop of spmd-perf (measure.rs, collectives.rs,
 * messages.rs), with the same samples, data and checks.
 *
 *     mpiexec -n 2 peer LIBRARY allreduce:1048576:500 barrier:0:20000 ..
 *
 * measures each row (collective:bytes:iterations) and writes one JSON object a line for it.
 * Without rows it enters MPI and leaves it.
 */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* From this size on, what is sent is rewritten before each call. */
#define REWRITE (64 << 10)
/* Messages in a window. */
#define WINDOW 64
/* Messages that a rank sends at once, whether they are received or not. */
#define MANY 1000
/* The tag of the message with which a rank says that no more come from it. */
#define END 1
/* Places of a result that are looked at, at most. */
#define LOOKS 1000

enum kind { BARRIER, BROADCAST, REDUCE, ALLREDUCE, ALLGATHER, ALLTOALL, LATENCY, BANDWIDTH, BIDIRECTIONAL, FLOOD, ANY_SOURCE, KINDS };

static const char *const NAMES[KINDS] = {
    "barrier",  "broadcast", "reduce",    "allreduce",     "allgather",
    "alltoall", "latency",   "bandwidth", "bidirectional", "flood", "any-source",
};

struct row {
    enum kind kind;
    size_t bytes;
    size_t iterations;
};

/* A call under measurement: elements are doubles, those of messages bytes. */
struct subject {
    enum kind kind;
    /* Elements that a rank contributes, and all that it sends and receives. */
    size_t count, sent, received;
    void *send, *recv;
    /* The turn for which the data were made. */
    size_t prepared;
};

static int rank, ranks;

static void fail(const char *what, const char *about)
{
    fprintf(stderr, "peer: %s: %s\n", what, about);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int is_message(enum kind kind)
{
    return kind >= LATENCY;
}

/* Whether the first two ranks alone take part. */
static int is_pair(enum kind kind)
{
    return is_message(kind) && kind < FLOOD;
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

/* The root of a turn: each rank in turn. */
static int root(size_t turn)
{
    return (int)(turn % (size_t)ranks);
}

static struct subject subject_of(const struct row *row)
{
    size_t size = is_message(row->kind) ? 1 : sizeof(double);
    size_t count = row->bytes / size, all = count * (size_t)ranks;
    struct subject subject = {row->kind, count, count, count, NULL, NULL, 0};
    if (row->kind == ALLGATHER || row->kind == ALLTOALL)
        subject.received = all;
    if (row->kind == ALLTOALL)
        subject.sent = all;
    subject.send = calloc(subject.sent + 1, size);
    subject.recv = calloc(subject.received + 1, size);
    if (!subject.send || !subject.recv)
        fail("no memory for", NAMES[row->kind]);
    return subject;
}

static int rewrites(const struct subject *subject)
{
    size_t size = is_message(subject->kind) ? 1 : sizeof(double);
    return subject->sent * size >= REWRITE;
}

/* Makes what is sent in this turn. Not timed. */
static void prepare(struct subject *subject, size_t turn)
{
    subject->prepared = turn;
    if (is_message(subject->kind)) {
        unsigned char *bytes = subject->send;
        for (size_t i = 0; i < subject->sent; i++)
            bytes[i] = byte(turn, i);
        return;
    }
    if (subject->kind == BROADCAST && rank != root(turn))
        return;
    double *values = subject->kind == BROADCAST ? subject->recv : subject->send;
    for (size_t i = 0; i < subject->sent; i++)
        values[i] = value((size_t)rank, turn, i);
}

static void ping_pong(struct subject *subject, int peer)
{
    int count = (int)subject->count;
    if (rank == 0)
        MPI_Send(subject->send, count, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(subject->recv, count, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank != 0)
        MPI_Send(subject->send, count, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
}

/* A window of messages; the sender's time ends when all have come. */
static void window(struct subject *subject, int peer, int sends, int receives)
{
    MPI_Request requests[2 * WINDOW];
    int count = (int)subject->count, started = 0;
    for (int i = 0; receives && i < WINDOW; i++)
        MPI_Irecv(subject->recv, count, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[started++]);
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

/* The call. Timed. */
static void call(struct subject *subject, size_t turn)
{
    int count = (int)subject->count, peer = 1 - rank;
    void *send = subject->send, *recv = subject->recv;
    MPI_Comm world = MPI_COMM_WORLD;
    if (is_pair(subject->kind) && rank > 1)
        return;
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
    case LATENCY:
        ping_pong(subject, peer);
        break;
    case BANDWIDTH:
        window(subject, peer, rank == 0, rank == 1);
        break;
    case BIDIRECTIONAL:
        window(subject, peer, 1, 1);
        break;
    case FLOOD:
        flood(subject);
        break;
    case ANY_SOURCE:
        any_source(subject);
        break;
    case KINDS:
        break;
    }
}

/* Whether the result of a turn is right at a place. */
static int right(const struct subject *subject, size_t turn, size_t index)
{
    size_t made = subject->prepared, count = subject->count;
    if (is_message(subject->kind))
        return ((unsigned char *)subject->recv)[index] == ((unsigned char *)subject->send)[index];
    double found = ((double *)subject->recv)[index];
    switch (subject->kind) {
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

/* The number of wrong elements, of those that are looked at. Not timed. */
static unsigned long wrong(const struct subject *subject, size_t turn)
{
    int last = is_pair(subject->kind) ? 1 : ranks - 1, one_way = subject->kind == BANDWIDTH || subject->kind == FLOOD;
    int receives = !is_message(subject->kind) || subject->kind == ANY_SOURCE || rank == last || (rank == 0 && !one_way);
    size_t length = receives ? subject->received : 0;
    size_t step = length / LOOKS > 0 ? length / LOOKS : 1;
    unsigned long count = 0;
    for (size_t index = 0; index < length; index += step)
        count += !right(subject, turn, index);
    return count + (length > 0 && !right(subject, turn, length - 1));
}

static int by_time(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double at(const double *times, size_t samples, double share)
{
    return times[(size_t)((double)(samples - 1) * share + 0.5)];
}

static void report(const char *library, const struct row *row, const double *times, size_t samples, size_t iterations,
                   unsigned long wrongs)
{
    double avg = 0, n = ranks, bytes = (double)row->bytes, factor = 1;
    for (size_t i = 0; i < samples; i++)
        avg += times[i] / (double)samples;
    if (row->kind == ALLREDUCE)
        factor = 2 * (n - 1) / n;
    if (row->kind == ALLGATHER || row->kind == ALLTOALL) {
        bytes *= n;
        factor = (n - 1) / n;
    }
    if (row->kind == FLOOD || row->kind == ANY_SOURCE)
        bytes *= MANY;
    if (row->kind == BANDWIDTH || row->kind == BIDIRECTIONAL)
        bytes *= row->kind == BANDWIDTH ? WINDOW : 2 * WINDOW;
    double algbw = bytes / avg / 1e3;
    printf("{\"library\":\"%s\",\"collective\":\"%s\",\"ranks\":%d,\"as\":\"processes\",\"transport\":\"shm\","
           "\"bytes\":%zu,\"iterations\":%zu,\"min_us\":%.4f,\"avg_us\":%.4f,\"p50_us\":%.4f,\"p99_us\":%.4f,"
           "\"max_us\":%.4f,\"algbw_gbps\":%.4f,\"busbw_gbps\":%.4f,\"wrong\":%lu,\"memory\":\"vec\",\"type\":\"%s\"}\n",
           library, NAMES[row->kind], ranks, row->bytes, iterations, at(times, samples, 0), avg,
           at(times, samples, 0.5), at(times, samples, 0.99), at(times, samples, 1), algbw, algbw * factor, wrongs,
           is_message(row->kind) ? "u8" : "f64");
    fflush(stdout);
}

static void measure(const char *library, const struct row *row)
{
    struct subject subject = subject_of(row);
    prepare(&subject, 0);
    size_t batch = 1, samples = row->iterations;
    if (!rewrites(&subject)) {
        batch = (row->iterations + 199) / 200;
        batch = batch > 20 ? batch : 20;
        batch = batch < row->iterations ? batch : row->iterations;
        samples = row->iterations / batch;
    }
    size_t warm_up = row->iterations / 10 > 2 ? row->iterations / 10 : 2;
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t turn = 0; turn < warm_up; turn++)
        call(&subject, turn);

    double *times = calloc(samples, sizeof(double));
    if (!times)
        fail("no memory for the times of", NAMES[row->kind]);
    unsigned long wrongs = 0;
    for (size_t sample = 0; sample < samples; sample++) {
        size_t first = sample * batch;
        if (rewrites(&subject))
            prepare(&subject, first);
        MPI_Barrier(MPI_COMM_WORLD);
        double start = now();
        for (size_t turn = first; turn < first + batch; turn++)
            call(&subject, turn);
        times[sample] = (now() - start) / (double)batch;
        // As there: what a rank does now is not to count as time of one that shares its core.
        MPI_Barrier(MPI_COMM_WORLD);
        wrongs += wrong(&subject, first + batch - 1);
    }
    /* The slowest rank of each sample counts. */
    MPI_Allreduce(MPI_IN_PLACE, times, (int)samples, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &wrongs, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
    qsort(times, samples, sizeof(double), by_time);
    /* Half of the round trip. */
    for (size_t i = 0; row->kind == LATENCY && i < samples; i++)
        times[i] /= 2;
    if (rank == 0)
        report(library, row, times, samples, samples * batch, wrongs);
    free(times);
    free(subject.send);
    free(subject.recv);
}

/* Lets the system give the ranks their cores: barriers for 100 ms. */
static void settle(void)
{
    double start = now(), slowest = 0;
    while (slowest < 100e3) {
        for (int i = 0; i < 10; i++)
            MPI_Barrier(MPI_COMM_WORLD);
        double took = now() - start;
        MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
}

static struct row parse(const char *text)
{
    struct row row = {KINDS, 0, 0};
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    for (int kind = 0; kind < KINDS; kind++)
        if (strlen(NAMES[kind]) == length && strncmp(NAMES[kind], text, length) == 0)
            row.kind = (enum kind)kind;
    char rest = 0;
    if (row.kind == KINDS || sscanf(colon, ":%zu:%zu%c", &row.bytes, &row.iterations, &rest) != 2 || row.iterations == 0)
        fail("no row (collective:bytes:iterations)", text);
    if (is_message(row.kind) && ranks < 2)
        fail("needs two ranks", text);
    return row;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 2)
        settle();
    for (int i = 2; i < argc; i++) {
        struct row row = parse(argv[i]);
        measure(argv[1], &row);
    }
    MPI_Finalize();
    return 0;
}
