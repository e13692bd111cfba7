/*
 * The MPI side of `cargo xtask versus`: the loop of spmd-perf (measure.rs), with the same samples, data and checks.
 *
 *     mpiexec -n 2 peer LIBRARY allreduce:1048576:500 barrier:0:20000 ..
 *
 * measures each row (bench:bytes:iterations) and writes one JSON object a line for it.
 * Without rows it enters MPI and leaves it.
 */

#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const NAMES[KINDS] = {
    "barrier",
    "broadcast",
    "reduce",
    "allreduce",
    "allgather",
    "alltoall",
    "overlap-allreduce",
    "overlap-allreduce-test",
    "overlap-alltoall",
    "overlap-alltoall-test",
    "overlap-broadcast",
    "overlap-broadcast-test",
    "persistent-allreduce",
    "latency",
    "bandwidth",
    "bidirectional",
    "isend",
    "put",
    "get",
    "fetch-and-add",
    "flood",
    "any-source",
};

struct row {
    enum kind kind;
    size_t bytes;
    size_t iterations;
};

/* The times of a call, in order, on the slowest rank. */
struct times {
    double *micros;
    size_t samples, iterations;
    unsigned long wrongs;
};

int rank, ranks;

void fail(const char *what, const char *about)
{
    fprintf(stderr, "peer: %s: %s\n", what, about);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

/* The call. Timed. */
static void call(struct subject *subject, size_t turn)
{
    if (is_pair(subject->kind) && rank > 1)
        return;
    if (is_overlap(subject->kind))
        call_overlap(subject, turn);
    else if (is_one_sided(subject->kind))
        call_one_sided(subject);
    else if (is_message(subject->kind))
        call_message(subject);
    else
        call_collective(subject, turn);
}

static int by_time(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double at(const struct times *times, double share)
{
    return times->micros[(size_t)((double)(times->samples - 1) * share + 0.5)];
}

static struct times measure(struct subject *subject, size_t iterations)
{
    prepare(subject, 0);
    size_t batch = 1, samples = iterations;
    if (!rewrites(subject)) {
        batch = (iterations + 199) / 200;
        batch = batch > 20 ? batch : 20;
        batch = batch < iterations ? batch : iterations;
        samples = iterations / batch;
    }
    size_t warm_up = iterations / 10 > 2 ? iterations / 10 : 2;
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t turn = 0; turn < warm_up; turn++)
        call(subject, turn);

    struct times times = {calloc(samples, sizeof(double)), samples, samples * batch, 0};
    if (!times.micros)
        fail("no memory for the times of", NAMES[subject->kind]);
    for (size_t sample = 0; sample < samples; sample++) {
        size_t first = sample * batch;
        if (rewrites(subject))
            prepare(subject, first);
        MPI_Barrier(MPI_COMM_WORLD);
        double start = now();
        for (size_t turn = first; turn < first + batch; turn++)
            call(subject, turn);
        times.micros[sample] = (now() - start) / (double)batch;
        // As there: what a rank does now is not to count as time of one that shares its core.
        MPI_Barrier(MPI_COMM_WORLD);
        times.wrongs += wrong(subject, first + batch - 1);
    }
    /* The slowest rank of each sample counts. */
    MPI_Allreduce(MPI_IN_PLACE, times.micros, (int)samples, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &times.wrongs, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
    qsort(times.micros, samples, sizeof(double), by_time);
    /* Half of the round trip. */
    for (size_t i = 0; subject->kind == LATENCY && i < samples; i++)
        times.micros[i] /= 2;
    return times;
}

/* Messages of a call that does not wait for each. */
static double messages(enum kind kind)
{
    switch (kind) {
    case BANDWIDTH:
    case ISEND:
        return WINDOW;
    case BIDIRECTIONAL:
        return 2 * WINDOW;
    case FLOOD:
    case ANY_SOURCE:
        return MANY;
    default:
        return 0;
    }
}

/* Of an overlap, the times of the call and of the computation alone are given, too. */
static void report(const char *library, const struct row *row, const struct times *times, double alone,
                   double computation)
{
    double avg = 0, n = ranks, bytes = (double)row->bytes, factor = 1, many = messages(row->kind);
    enum kind kind = collective(row->kind);
    for (size_t i = 0; i < times->samples; i++)
        avg += times->micros[i] / (double)times->samples;
    if (kind == ALLREDUCE)
        factor = 2 * (n - 1) / n;
    if (kind == ALLGATHER || kind == ALLTOALL) {
        bytes *= n;
        factor = (n - 1) / n;
    }
    if (many > 0)
        bytes *= many;
    double algbw = bytes / avg / 1e3;
    printf("{\"library\":\"%s\",\"collective\":\"%s\",\"ranks\":%d,\"as\":\"processes\",\"transport\":\"shm\","
           "\"bytes\":%zu,\"iterations\":%zu,\"min_us\":%.4f,\"avg_us\":%.4f,\"p50_us\":%.4f,\"p99_us\":%.4f,"
           "\"max_us\":%.4f,\"algbw_gbps\":%.4f,\"busbw_gbps\":%.4f,\"wrong\":%lu,\"memory\":\"vec\",\"type\":\"%s\"",
           library, NAMES[row->kind], ranks, row->bytes, times->iterations, at(times, 0), avg, at(times, 0.5),
           at(times, 0.99), at(times, 1), algbw, algbw * factor, times->wrongs, is_message(row->kind) ? "u8" : "f64");
    if (many > 0)
        printf(",\"messages_per_s\":%.0f", many / avg * 1e6);
    if (is_overlap(row->kind)) {
        double hidden = (alone + computation - at(times, 0.5)) / alone;
        printf(",\"communication_us\":%.4f,\"computation_us\":%.4f,\"hidden\":%.4f", alone, computation,
               hidden < 0 ? 0 : hidden > 1 ? 1 : hidden);
    }
    printf("}\n");
    fflush(stdout);
}

/* The median of a part of an overlap. Wrong elements are added to those of the whole. */
static double median_of(struct subject *subject, enum part part, size_t iterations, unsigned long *wrongs)
{
    subject->part = part;
    struct times times = measure(subject, iterations);
    double median = at(&times, 0.5);
    *wrongs += times.wrongs;
    free(times.micros);
    return median;
}

static void measure_row(const char *library, const struct row *row)
{
    struct subject subject = subject_of(row->kind, row->bytes);
    double alone = 0, computation = 0;
    unsigned long wrongs = 0;
    if (is_overlap(row->kind)) {
        alone = median_of(&subject, CALL, row->iterations, &wrongs);
        subject.steps = (size_t)(alone * steps_per_micro());
        computation = median_of(&subject, COMPUTATION, row->iterations, &wrongs);
        subject.part = BOTH;
    }
    struct times times = measure(&subject, row->iterations);
    times.wrongs += wrongs;
    if (rank == 0)
        report(library, row, &times, alone, computation);
    free(times.micros);
    end(&subject);
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
        fail("no row (bench:bytes:iterations)", text);
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
        measure_row(argv[1], &row);
    }
    MPI_Finalize();
    return 0;
}
