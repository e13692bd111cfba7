// `libnccl.so.2` of the stand-in: ranks of one machine, threads or processes, which move data through
// a file that all of them map. What is begun goes on in the stream, and waits there for the other
// ranks for ever, as on a card: until it is aborted. Folds have the order of `spmd`.

#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "nccl.h"
// The types and operations are those of the kernels.
#include "kernel.h"
#include "../src/local/common.cu"
#include "../src/local/numbers.cu"

using namespace standin;

namespace {

// Data that go to a rank or come from it.
struct Part {
    bool sends;
    int peer;
    char *place;
    size_t bytes;
    bool on_host;
    size_t done;
};

// Copies some of a part, and says whether it could.
bool step(Comm *comm, Part &part) {
    Channel &channel = part.sends ? comm->channel(comm->rank, part.peer)
                                  : comm->channel(part.peer, comm->rank);
    uint64_t written = channel.written.load(), taken = channel.taken.load();
    uint64_t at = part.sends ? written : taken;
    size_t bytes = part.sends ? ROOM - (written - taken) : written - taken;
    bytes = std::min({bytes, size_t(ROOM - at % ROOM), part.bytes - part.done});
    if (bytes == 0) return false;
    char *there = channel.data + at % ROOM, *here = part.place + part.done;
    if (!part.on_host) comm->card->memory.enter();
    std::memcpy(part.sends ? there : here, part.sends ? here : there, bytes);
    if (!part.on_host) comm->card->memory.leave();
    part.done += bytes;
    (part.sends ? channel.written : channel.taken).fetch_add(bytes);
    return true;
}

// Until all is done, or nobody wants it any more.
void transfer(Comm *comm, std::vector<Part> &parts) {
    for (;;) {
        bool goes_on = false, moved = false;
        for (auto &part : parts) {
            if (part.done == part.bytes) continue;
            goes_on = true;
            moved |= step(comm, part);
        }
        if (!goes_on || comm->aborted.load() || standin::is_lost()) return;
        if (!moved) rest();
    }
}

template <typename T, typename O> T tree(const T *all, size_t count, size_t at, int low, int ranks) {
    if (ranks == 1) return all[low * count + at];
    int split = 1;
    while (split * 2 < ranks) split *= 2;
    T left = tree<T, O>(all, count, at, low, split);
    return O::of(left, tree<T, O>(all, count, at, low + split, ranks - split));
}

template <typename T> void fold(int op, const char *all, char *into, size_t count, int ranks) {
    for (size_t at = 0; at < count; at++) {
        const T *from = (const T *)all;
        T &result = ((T *)into)[at];
        switch (op) {
            case 0: result = tree<T, Sum>(from, count, at, 0, ranks); break;
            case 1: result = tree<T, Prod>(from, count, at, 0, ranks); break;
            case 2: result = tree<T, Max>(from, count, at, 0, ranks); break;
            default: result = tree<T, Min>(from, count, at, 0, ranks); break;
        }
    }
}

constexpr size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

void fold(int type, int op, const char *all, char *into, size_t count, int ranks) {
    switch (type) {
        case 0: return fold<i8>(op, all, into, count, ranks);
        case 1: return fold<u8>(op, all, into, count, ranks);
        case 2: return fold<i32>(op, all, into, count, ranks);
        case 3: return fold<u32>(op, all, into, count, ranks);
        case 4: return fold<i64>(op, all, into, count, ranks);
        case 5: return fold<u64>(op, all, into, count, ranks);
        case 6: return fold<f16>(op, all, into, count, ranks);
        case 7: return fold<f32>(op, all, into, count, ranks);
        case 8: return fold<f64>(op, all, into, count, ranks);
        default: return fold<bf16>(op, all, into, count, ranks);
    }
}

// What a thread has begun since `ncclGroupStart`.
thread_local int depth = 0;
thread_local Comm *grouped = nullptr;
thread_local Stream *group_stream = nullptr;
thread_local std::vector<Part> group;

int put(Comm *comm, Stream *stream, std::function<void()> work) {
    comm->pending++;
    stream->put([comm, work = std::move(work)] {
        if (!comm->aborted.load() && !standin::is_lost()) work();
        comm->pending--;
    });
    return SUCCESS;
}

int move(Comm *comm, Stream *stream, std::vector<Part> parts) {
    return put(comm, stream, [comm, parts = std::move(parts)]() mutable { transfer(comm, parts); });
}

Part sends(int peer, const void *from, size_t bytes) {
    return {true, peer, (char *)from, bytes, false, 0};
}

Part takes(int peer, void *into, size_t bytes) {
    return {false, peer, (char *)into, bytes, false, 0};
}

// All ranks send their blocks, and who gets a result folds what comes.
int folds(Comm *comm, Stream *stream, std::vector<Part> parts, bool gets, void *into, size_t count,
          int type, int op) {
    return put(comm, stream, [=]() mutable {
        size_t bytes = count * SIZES[type];
        std::vector<char> all(gets ? comm->ranks * bytes : 0), result(gets ? bytes : 0);
        for (int rank = 0; gets && rank < comm->ranks; rank++)
            parts.push_back({false, rank, all.data() + rank * bytes, bytes, true, 0});
        transfer(comm, parts);
        if (!gets || comm->aborted.load()) return;
        fold(type, op, all.data(), result.data(), count, comm->ranks);
        comm->card->memory.enter();
        std::memcpy(into, result.data(), bytes);
        comm->card->memory.leave();
    });
}

}  // namespace

// The error that is wanted of a call, or that a wrong one is.
#define CHECKED(comm, type) \
    if (int code = standin::refused(__func__)) return code; \
    if (!comm || comm->state.load() != SUCCESS) return USAGE; \
    if (type < 0 || type > 9) return ARGUMENT

extern "C" {

int ncclGroupStart() { return depth++, SUCCESS; }

int ncclGroupEnd() {
    if (depth == 0) return USAGE;
    if (--depth > 0 || !grouped) return SUCCESS;
    Comm *comm = std::exchange(grouped, nullptr);
    return move(comm, group_stream, std::exchange(group, {}));
}

static int alone_or_grouped(Comm *comm, Stream *stream, Part part) {
    if (part.peer < 0 || part.peer >= comm->ranks) return ARGUMENT;
    if (depth == 0) return move(comm, stream, {part});
    grouped = comm, group_stream = stream;
    group.push_back(part);
    return SUCCESS;
}

int ncclSend(const void *from, size_t count, int type, int peer, Comm *comm, Stream *stream) {
    CHECKED(comm, type);
    return alone_or_grouped(comm, stream, sends(peer, from, count * SIZES[type]));
}

int ncclRecv(void *into, size_t count, int type, int peer, Comm *comm, Stream *stream) {
    CHECKED(comm, type);
    return alone_or_grouped(comm, stream, takes(peer, into, count * SIZES[type]));
}

int ncclAllReduce(const void *from, void *into, size_t count, int type, int op, Comm *comm,
                  Stream *stream) {
    CHECKED(comm, type);
    std::vector<Part> parts;
    for (int rank = 0; rank < comm->ranks; rank++)
        parts.push_back(sends(rank, from, count * SIZES[type]));
    return folds(comm, stream, std::move(parts), true, into, count, type, op);
}

int ncclReduce(const void *from, void *into, size_t count, int type, int op, int root, Comm *comm,
               Stream *stream) {
    CHECKED(comm, type);
    std::vector<Part> parts{sends(root, from, count * SIZES[type])};
    return folds(comm, stream, std::move(parts), comm->rank == root, into, count, type, op);
}

int ncclReduceScatter(const void *from, void *into, size_t count, int type, int op, Comm *comm,
                      Stream *stream) {
    CHECKED(comm, type);
    size_t bytes = count * SIZES[type];
    std::vector<Part> parts;
    for (int rank = 0; rank < comm->ranks; rank++)
        parts.push_back(sends(rank, (const char *)from + rank * bytes, bytes));
    return folds(comm, stream, std::move(parts), true, into, count, type, op);
}

int ncclBroadcast(const void *from, void *into, size_t count, int type, int root, Comm *comm,
                  Stream *stream) {
    CHECKED(comm, type);
    size_t bytes = count * SIZES[type];
    std::vector<Part> parts{takes(root, into, bytes)};
    for (int rank = 0; comm->rank == root && rank < comm->ranks; rank++)
        parts.push_back(sends(rank, from, bytes));
    return move(comm, stream, std::move(parts));
}

int ncclAllGather(const void *from, void *into, size_t count, int type, Comm *comm, Stream *stream) {
    CHECKED(comm, type);
    size_t bytes = count * SIZES[type];
    std::vector<Part> parts;
    for (int rank = 0; rank < comm->ranks; rank++) {
        parts.push_back(sends(rank, from, bytes));
        parts.push_back(takes(rank, (char *)into + rank * bytes, bytes));
    }
    return move(comm, stream, std::move(parts));
}

// These three there are since 2.28.

int ncclAlltoAll(const void *from, void *into, size_t count, int type, Comm *comm, Stream *stream) {
    CHECKED(comm, type);
    size_t bytes = count * SIZES[type];
    std::vector<Part> parts;
    for (int rank = 0; rank < comm->ranks; rank++) {
        parts.push_back(sends(rank, (const char *)from + rank * bytes, bytes));
        parts.push_back(takes(rank, (char *)into + rank * bytes, bytes));
    }
    return move(comm, stream, std::move(parts));
}

int ncclGather(const void *from, void *into, size_t count, int type, int root, Comm *comm,
               Stream *stream) {
    CHECKED(comm, type);
    size_t bytes = count * SIZES[type];
    std::vector<Part> parts{sends(root, from, bytes)};
    for (int rank = 0; comm->rank == root && rank < comm->ranks; rank++)
        parts.push_back(takes(rank, (char *)into + rank * bytes, bytes));
    return move(comm, stream, std::move(parts));
}

int ncclScatter(const void *from, void *into, size_t count, int type, int root, Comm *comm,
                Stream *stream) {
    CHECKED(comm, type);
    size_t bytes = count * SIZES[type];
    std::vector<Part> parts{takes(root, into, bytes)};
    for (int rank = 0; comm->rank == root && rank < comm->ranks; rank++)
        parts.push_back(sends(rank, (const char *)from + rank * bytes, bytes));
    return move(comm, stream, std::move(parts));
}
}
