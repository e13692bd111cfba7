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

// Under ThreadSanitizer what the card itself does between threads orders nothing: streams and events
// do, and that is told by hand. Else each lock of the card would hide that a wait is missing.
#ifdef __SANITIZE_THREAD__
extern "C" {
void AnnotateIgnoreSyncBegin(const char *, int);
void AnnotateIgnoreSyncEnd(const char *, int);
void AnnotateIgnoreReadsBegin(const char *, int);
void AnnotateIgnoreReadsEnd(const char *, int);
void AnnotateIgnoreWritesBegin(const char *, int);
void AnnotateIgnoreWritesEnd(const char *, int);
void __tsan_acquire(void *);
void __tsan_release(void *);
}
#else
inline void __tsan_acquire(void *) {}
inline void __tsan_release(void *) {}
#endif

// To AddressSanitizer, memory that nobody may use.
#ifdef __SANITIZE_ADDRESS__
extern "C" {
void __asan_poison_memory_region(const volatile void *, size_t);
void __asan_unpoison_memory_region(const volatile void *, size_t);
}
#else
inline void __asan_poison_memory_region(const volatile void *, size_t) {}
inline void __asan_unpoison_memory_region(const volatile void *, size_t) {}
#endif

namespace standin {

// As long as it lives, what this thread does is the card's own business.
struct Inside {
#ifdef __SANITIZE_THREAD__
    Inside() {
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~Inside() {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    }
#else
    Inside() {}
#endif
};

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

// A count of references to one, of which ThreadSanitizer learns nothing.
class Mark {
public:
    Mark() {}
    explicit Mark(std::shared_ptr<Record> record) : record_(std::move(record)) {}
    Mark(const Mark &other) {
        Inside inside;
        record_ = other.record_;
    }
    Mark &operator=(const Mark &other) {
        Inside inside;
        record_ = other.record_;
        return *this;
    }
    ~Mark() {
        Inside inside;
        record_.reset();
    }
    explicit operator bool() const { return record_ != nullptr; }
    Record *operator->() const { return record_.get(); }

private:
    std::shared_ptr<Record> record_;
};

struct Event {
    std::mutex mutex;
    Mark last;  // none: as if it were over

    Mark get();
    void set(const Mark &mark);
};

// A thread that works off what is put into its queue, in order.
class Stream {
public:
    explicit Stream(uint64_t seed);
    ~Stream();
    void put(std::function<void()> work);
    // A record of all that is in the queue now.
    Mark mark();
    // Whether it has done all that was put into it.
    bool is_idle();

private:
    void run();

    std::mutex mutex_;
    std::condition_variable filled_;
    std::deque<std::function<void()> *> queue_;
    bool ends_ = false;
    // What was put into it and is not done.
    size_t left_ = 0;
    std::mt19937_64 chance_;
    std::thread thread_;
};

// Memory of another process.
struct Handle {
    int process, file;
    uint64_t bytes;
    char unused[48];
};

// What memory is to be: of a pool; such that other processes may open it; such that the host may use it.
enum class Use { POOL, OPENED, HOST };

// Memory that only what runs on the card may touch, but for what is the host's as well.
class Memory {
public:
    explicit Memory(size_t bytes) : all_(bytes) {}
    // 0 where there is no room.
    uint64_t take(size_t bytes, Use use);
    // Whether it is the host's as well.
    bool is_shared(uint64_t place);
    // Whether it was there.
    bool give(uint64_t place);
    // What holds this place, 0 if nothing does, and how many bytes.
    uint64_t around(uint64_t place, size_t *bytes);
    // By which another process opens it.
    bool handle_of(uint64_t place, Handle *handle);
    uint64_t open(const Handle &handle);
    bool close(uint64_t place);
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
    struct Piece {
        size_t bytes, room;  // room in whole pages
        bool shared;         // with the host
        int file;            // that others open, or the other process's; -1 if there is none
        int opened;          // how often, if it is another process's
        Handle handle;
    };
    uint64_t map(size_t room, int file);

    std::map<uint64_t, Piece> taken_;
};

// Memory of the host that a card reads and writes.
class Pinned {
public:
    explicit Pinned(size_t bytes) : left_(bytes) {}
    // Null where there is no room.
    void *take(size_t bytes);
    // Whether it was there.
    bool give(void *place);
    // Whether this place lies in some of it.
    bool has(const void *place);
    // Memory of the host's own, in whole pages: whether it is that and was not there, and whether it was.
    bool add(void *place, size_t bytes);
    bool remove(void *place);

private:
    std::mutex mutex_;
    size_t left_;
    std::map<void *, size_t> taken_, added_;
};

struct Card {
    explicit Card(int ordinal);

    int ordinal;
    Memory memory;
    Pinned pinned;
    std::mutex mutex;
    std::map<Stream *, std::unique_ptr<Stream>> streams;
    // Of which other cards its work may touch the memory: that of the context, that of the pool.
    std::map<Card *, int> peers;

    // Whether it was new.
    bool reach(Card *other, int what);
    Stream *open_stream();
    // The stream ends when it has done what it holds.
    bool close_stream(Stream *stream);
    // Waits until all streams have done what they hold.
    void synchronize();
    // Puts work that touches memory into a stream.
    void work(Stream *stream, std::function<void()> work);
};

int cards();
// Whether cards reach each other's memory.
bool peers();
constexpr int CONTEXT = 1, POOL = 2;
// The code that a call of a function is wanted to fail with, 0 if it is not (`SPMD_STANDIN_FAIL`).
int refused(const char *function);
// Whether the card does nothing any more.
inline bool is_lost() { return refused("") != 0; }

Card &card(int ordinal);

}  // namespace standin
