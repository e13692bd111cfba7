// Of the stand-in's NCCL: a communicator, as one rank has it.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "card.h"

namespace standin {

enum Code { SUCCESS = 0, UNHANDLED = 1, SYSTEM = 2, ARGUMENT = 4, USAGE = 5, IN_PROGRESS = 7 };

constexpr size_t ROOM = 16 * 1024;

// What one rank has on its way to another.
struct Channel {
    std::atomic<uint64_t> written, taken;
    char data[ROOM];
};

// What a rank tells the others when the communicator is split: for the how manieth time, and as what.
struct Said {
    std::atomic<int> turn, heard;
    int color, key;
};

constexpr int MOST = 200;

struct Shared {
    std::atomic<int> joined;
    Said said[MOST];
};

constexpr size_t HEADER = 4096;
static_assert(sizeof(Shared) <= HEADER);

inline void rest() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

struct Comm {
    int ranks, rank;
    Card *card;
    // The file that all ranks map.
    std::string path;
    char *shared = nullptr;
    size_t size = 0;
    std::atomic<int> state{IN_PROGRESS};
    // What is in the stream.
    std::atomic<int> pending{0};
    std::atomic<bool> aborted{false}, finalized{false};
    int splits = 0;
    // Makes it, or a part of it.
    std::thread maker;

    Comm(int ranks, int rank, Card *card, std::string path)
        : ranks(ranks), rank(rank), card(card), path(std::move(path)) {}
    ~Comm();

    // Whether it could map the file.
    bool map();
    // Waits for the other ranks, or until it is aborted, `by` it or a communicator of which it is a part.
    void join(const std::atomic<bool> &by);

    Channel &channel(int from, int to) {
        auto *all = (Channel *)(shared + HEADER);
        return all[size_t(from) * ranks + to];
    }
    Shared &all() { return *(Shared *)shared; }
};

}  // namespace standin
