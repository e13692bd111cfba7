// A card that is none: memory, streams and events on the processor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

namespace standin {

// What an event was last recorded for. It is replaced by each new record, so that who waits for an
// older one does not wait for a newer.
struct Record {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;

    void finish();
    void wait();
    bool is_done();
};

struct Event {
    std::mutex mutex;
    std::shared_ptr<Record> last;  // none: as if it were over

    std::shared_ptr<Record> get();
    void set(std::shared_ptr<Record> record);
};

// A thread that works off what is put into its queue, in order.
class Stream {
public:
    explicit Stream(uint64_t seed);
    ~Stream();
    void put(std::function<void()> work);
    // A record of all that is in the queue now.
    std::shared_ptr<Record> mark();

private:
    void run();

    std::mutex mutex_;
    std::condition_variable filled_;
    std::deque<std::function<void()>> queue_;
    bool ends_ = false;
    std::mt19937_64 chance_;
    std::thread thread_;
};

// Memory that only what runs on the card may touch.
class Memory {
public:
    explicit Memory(size_t bytes) : all_(bytes) {}
    // 0 where there is no room.
    uint64_t take(size_t bytes);
    // Whether it was there.
    bool give(uint64_t place);
    size_t free_bytes();
    size_t all_bytes() const { return all_; }
    // Work on the card: memory is open until as many have left as have entered.
    void enter();
    void leave();

private:
    void protect(int how);

    std::mutex mutex_;
    size_t all_, used_ = 0;
    int inside_ = 0;
    std::map<uint64_t, size_t> taken_;  // place, bytes in whole pages
};

struct Card {
    explicit Card(int ordinal);

    int ordinal;
    Memory memory;
    std::mutex mutex;
    std::map<Stream *, std::unique_ptr<Stream>> streams;

    Stream *open_stream();
    // The stream ends when it has done what it holds.
    bool close_stream(Stream *stream);
    // Waits until all streams have done what they hold.
    void synchronize();
    // Puts work that touches memory into a stream.
    void work(Stream *stream, std::function<void()> work);
};

int cards();
Card &card(int ordinal);

}  // namespace standin
