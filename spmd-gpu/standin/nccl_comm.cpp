// `libnccl.so.2` of the stand-in, its communicators: made of an id or by a split, and ended.

#include "nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace standin;

extern "C" int cuCtxGetCurrent(Card **);

namespace standin {

Comm::~Comm() {
    if (maker.joinable()) maker.join();
    if (shared) munmap(shared, size);
}

bool Comm::map() {
    size = HEADER + sizeof(Channel) * ranks * ranks;
    int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return false;
    void *place = MAP_FAILED;
    if (ftruncate(file, size) == 0)
        place = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (place == MAP_FAILED) return false;
    shared = (char *)place;
    return true;
}

void Comm::join(const std::atomic<bool> &by) {
    all().joined++;
    while (all().joined.load() < ranks && !by.load()) rest();
    if (rank == 0 || by.load()) unlink(path.c_str());
}

}  // namespace standin

namespace {

struct Id {
    char bytes[128];
};

struct Config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

// Whether it is of a communicator that does not wait.
bool known(const Config *config) {
    return config && config->magic == 0xcafebeef && config->version >= 21800 && !config->blocking;
}

int version() {
    const char *wanted = std::getenv("SPMD_STANDIN_NCCL");
    return wanted ? std::atoi(wanted) : 22805;
}

// Tells the others of this rank's color and key, and hears of theirs: which number it has among those of its color,
// and how many these are. 0 if the communicator is aborted.
int hear(Comm *comm, int color, int key, int *rank) {
    Said *said = comm->all().said, &own = said[comm->rank];
    int turn = ++comm->splits, ranks = 0;
    auto all = [&](auto has) {
        for (int other = 0; other < comm->ranks; other++)
            while (!has(said[other]))
                if (comm->aborted.load()) return false;
                else rest();
        return true;
    };
    // Nobody reads any more what it said last.
    if (!all([&](Said &it) { return it.heard.load() >= turn - 1; })) return 0;
    own.color = color, own.key = key;
    own.turn = turn;
    if (!all([&](Said &it) { return it.turn.load() >= turn; })) return 0;
    *rank = 0;
    for (int other = 0; other < comm->ranks; other++) {
        if (said[other].color != color) continue;
        ranks++;
        int its = said[other].key;
        *rank += its < key || (its == key && other < comm->rank);
    }
    own.heard = turn;
    return ranks;
}

constexpr int NO_COLOR = -1;

// What the thread of a split does. The state that its communicator has then.
int split(Comm *comm, int color, int key, Comm **place) {
    if (int code = refused("ncclCommSplit later")) return code;
    int rank, ranks = hear(comm, color, key, &rank);
    if (ranks == 0 || color == NO_COLOR) return SUCCESS;
    auto path = comm->path + "-" + std::to_string(comm->splits) + "-" + std::to_string(color);
    auto *part = new Comm(ranks, rank, comm->card, path);
    if (!part->map()) return delete part, SYSTEM;
    part->join(comm->aborted);
    part->state = SUCCESS;
    *place = part;
    return SUCCESS;
}

}  // namespace

extern "C" {

int ncclGetVersion(int *number) { return *number = version(), SUCCESS; }

const char *ncclGetErrorString(int code) {
    switch (code) {
        case SUCCESS: return "no error";
        case UNHANDLED: return "unhandled cuda error";
        case SYSTEM: return "unhandled system error";
        case ARGUMENT: return "invalid argument";
        case USAGE: return "invalid usage";
        case 6: return "remote process exited or there was a network error";
        case IN_PROGRESS: return "NCCL operation in progress";
        default: return "unknown result code";
    }
}

int ncclGetUniqueId(Id *id) {
    if (int code = standin::refused(__func__)) return code;
    std::memset(id, 0, sizeof *id);
    std::snprintf(id->bytes, sizeof id->bytes, "/tmp/spmd-standin-nccl-XXXXXX");
    int file = mkstemp(id->bytes);
    if (file < 0) return SYSTEM;
    close(file);
    return SUCCESS;
}

int ncclCommInitRankConfig(Comm **place, int ranks, Id id, int rank, Config *config) {
    if (int code = refused(__func__)) return code;
    Card *card = nullptr;
    cuCtxGetCurrent(&card);
    if (!known(config) || ranks < 1 || ranks > MOST || rank < 0 || rank >= ranks) return ARGUMENT;
    if (!card) return UNHANDLED;
    auto *comm = new Comm(ranks, rank, card, id.bytes);
    if (!comm->map()) return delete comm, SYSTEM;
    comm->maker = std::thread([comm] {
        comm->join(comm->aborted);
        comm->state = SUCCESS;
    });
    *place = comm;
    return IN_PROGRESS;
}

// As NVIDIA's: it says that it has succeeded when it has begun, the state of the communicator that is split tells of its
// end, and the place of the part holds nothing before. What NVIDIA's may not survive, work under way, it refuses.
int ncclCommSplit(Comm *comm, int color, int key, Comm **place, Config *config) {
    if (const char *killed = std::getenv("SPMD_STANDIN_KILL"))
        if (comm && std::atoi(killed) == comm->rank) std::abort();
    if (int code = refused(__func__)) return code;
    if (!comm || comm->state.load() != SUCCESS || comm->pending.load() > 0) return USAGE;
    if (!place || !known(config) || color < NO_COLOR) return ARGUMENT;
    *place = nullptr;
    comm->state = IN_PROGRESS;
    if (comm->maker.joinable()) comm->maker.join();
    comm->maker = std::thread([=] { comm->state = split(comm, color, key, place); });
    return SUCCESS;
}

int ncclCommGetAsyncError(Comm *comm, int *state) {
    // As NVIDIA's finds in a thread of its own that a peer is gone.
    if (comm->state.load() == SUCCESS && comm->pending.load() > 0)
        if (int code = refused("ncclCommGetAsyncError at work")) comm->state = code;
    bool ending = comm->finalized.load() && comm->pending.load() > 0;
    *state = ending ? int(IN_PROGRESS) : comm->state.load();
    return SUCCESS;
}

int ncclCommFinalize(Comm *comm) {
    comm->finalized = true;
    return comm->pending.load() > 0 ? IN_PROGRESS : SUCCESS;
}

int ncclCommDestroy(Comm *comm) {
    while (comm->pending.load() > 0) rest();
    delete comm;
    return SUCCESS;
}

int ncclCommAbort(Comm *comm) {
    comm->aborted = true;
    return ncclCommDestroy(comm);
}
}
