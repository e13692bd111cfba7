#include "card.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace standin {

namespace {

uint64_t number(const char *name, uint64_t otherwise) {
    const char *value = std::getenv(name);
    return value && *value ? std::strtoull(value, nullptr, 10) : otherwise;
}

// The number of this place of a list, the last one behind its end.
uint64_t number_at(const char *name, int place, uint64_t otherwise) {
    const char *value = std::getenv(name);
    if (!value || !*value) return otherwise;
    for (const char *next; place > 0 && (next = std::strchr(value, ',')); place--) value = next + 1;
    return std::strtoull(value, nullptr, 10);
}

// Whether memory is closed to the host. What is closed and opened is new to ThreadSanitizer each time.
#ifdef __SANITIZE_THREAD__
constexpr bool CLOSES = false;
#else
const bool CLOSES = !std::getenv("SPMD_STANDIN_SHOWN");
#endif

size_t pages(size_t bytes) {
    size_t page = sysconf(_SC_PAGESIZE);
    return (std::max<size_t>(bytes, 1) + page - 1) / page * page;
}

// `SPMD_STANDIN_FAIL`, `function:number:code`: which call of a function, from 1, fails with which code.
// From what a card does not recover from, all calls fail after it.
struct Failure {
    std::string function;
    int number = 0, code = 0;

    Failure() {
        const char *value = std::getenv("SPMD_STANDIN_FAIL");
        char name[64];
        if (value && std::sscanf(value, "%63[^:]:%d:%d", name, &number, &code) == 3) function = name;
    }
};

// The first of the driver's codes that a card does not recover from.
constexpr int LOST = 700;

}  // namespace

int refused(const char *function) {
    static const Failure failure;
    static std::atomic<int> calls{0}, lost{0};
    if (lost) return lost;
    if (failure.function != function || ++calls != failure.number) return 0;
    if (failure.code >= LOST) lost = failure.code;
    return failure.code;
}

void Record::finish() {
    __tsan_release(this);
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex);
    done = true;
    changed.notify_all();
}

void Record::wait() {
    {
        Inside inside;
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return done; });
    }
    __tsan_acquire(this);
}

bool Record::is_done() {
    bool over;
    {
        Inside inside;
        std::lock_guard<std::mutex> lock(mutex);
        over = done;
    }
    if (over) {
        __tsan_acquire(this);
    }
    return over;
}

Mark Event::get() {
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex);
    return last;
}

void Event::set(const Mark &mark) {
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex);
    last = mark;
}

Stream::Stream(uint64_t seed) : chance_(seed), thread_([this] { run(); }) {}

Stream::~Stream() {
    {
        Inside inside;
        std::lock_guard<std::mutex> lock(mutex_);
        ends_ = true;
    }
    filled_.notify_all();
    thread_.join();
}

void Stream::put(std::function<void()> work) {
    auto *put = new std::function<void()>(std::move(work));
    __tsan_release(put);
    Inside inside;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        queue_.push_back(put);
        left_++;
    }
    filled_.notify_all();
}

Mark Stream::mark() {
    Mark mark(std::make_shared<Record>());
    put([mark] { mark->finish(); });
    return mark;
}

bool Stream::is_idle() {
    bool idle;
    {
        Inside inside;
        std::lock_guard<std::mutex> lock(mutex_);
        idle = left_ == 0;
    }
    if (idle) {
        __tsan_acquire(this);
    }
    return idle;
}

void Stream::run() {
    for (;;) {
        std::function<void()> *work;
        {
            Inside inside;
            std::unique_lock<std::mutex> lock(mutex_);
            filled_.wait(lock, [this] { return ends_ || !queue_.empty(); });
            if (queue_.empty()) {
                return;
            }
            work = queue_.front();
            queue_.pop_front();
        }
        __tsan_acquire(work);
        // Mostly at once, now and then late.
        uint64_t chance = chance_() % 16;
        if (chance == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(chance_() % 300));
        } else if (chance < 4) {
            std::this_thread::yield();
        }
        (*work)();
        delete work;
        __tsan_release(this);
        Inside inside;
        std::lock_guard<std::mutex> lock(mutex_);
        left_--;
    }
}

// Room with a closed page on both sides.
uint64_t Memory::map(size_t room, int file) {
    size_t page = sysconf(_SC_PAGESIZE);
    void *whole = mmap(nullptr, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED) {
        return 0;
    }
    char *place = (char *)whole + page;
    int flags = MAP_FIXED | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    void *mapped = mmap(place, room, PROT_READ | PROT_WRITE, flags, file, 0);
    return mapped == MAP_FAILED ? 0 : (uint64_t)place;
}

uint64_t Memory::take(size_t bytes, Use use) {
    size_t room = pages(bytes);
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    if (room > all_ - used_) {
        return 0;
    }
    int file = -1;
    // Only processes among others open each other's.
    if (use == Use::OPENED && std::getenv("SPMD_RANK")) {
        file = memfd_create("standin", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, room) != 0) return 0;
    }
    char *place = (char *)map(room, file);
    if (!place) {
        return 0;
    }
    std::memset(place, 0xb5, room);
    if (CLOSES && inside_ == 0 && use != Use::HOST) {
        mprotect(place, room, PROT_NONE);
    }
    // What is left of the last page is nobody's.
    __asan_poison_memory_region(place + bytes, room - bytes);
    used_ += room;
    taken_[(uint64_t)place] = Piece{bytes, room, use == Use::HOST, file, 0, {}};
    return (uint64_t)place;
}

bool Memory::give(uint64_t place) {
    size_t page = sysconf(_SC_PAGESIZE);
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = taken_.find(place);
    if (found == taken_.end() || found->second.opened > 0) {
        return false;
    }
    size_t room = found->second.room;
    if (int file = found->second.file; file >= 0) {
        // Undefined with a driver. A process that has ended holds nothing.
        if (flock(file, LOCK_EX | LOCK_NB) != 0) {
            std::fprintf(stderr, "the stand-in card: memory is freed that another process has open\n");
            std::abort();
        }
        ::close(file);
    }
    __asan_unpoison_memory_region((char *)place, room);
    munmap((char *)place - page, room + 2 * page);
    used_ -= room;
    taken_.erase(found);
    return true;
}

uint64_t Memory::around(uint64_t place, size_t *bytes) {
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = taken_.upper_bound(place);
    if (found == taken_.begin()) return 0;
    --found;
    if (place - found->first >= found->second.room) return 0;
    *bytes = found->second.bytes;
    return found->first;
}

bool Memory::is_shared(uint64_t place) {
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = taken_.find(place);
    return found != taken_.end() && found->second.shared;
}

bool Memory::handle_of(uint64_t place, Handle *handle) {
    size_t bytes = 0;
    uint64_t start = around(place, &bytes);
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = taken_.find(start);
    if (found == taken_.end() || found->second.file < 0 || found->second.opened > 0) return false;
    *handle = Handle{(int)getpid(), found->second.file, bytes, {}};
    return true;
}

uint64_t Memory::open(const Handle &handle) {
    // As a driver, which opens no memory where it was made.
    if (handle.process == (int)getpid()) return 0;
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto &[place, piece] : taken_) {
        if (piece.opened > 0 && std::memcmp(&piece.handle, &handle, sizeof handle) == 0) {
            piece.opened++;
            return place;
        }
    }
    std::string path =
        "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
    int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return 0;
    size_t room = pages(handle.bytes);
    // The owner sees by the lock that somebody has it open.
    uint64_t place = flock(file, LOCK_SH | LOCK_NB) == 0 ? map(room, file) : 0;
    if (!place) return ::close(file), 0;
    if (CLOSES && inside_ == 0) mprotect((void *)place, room, PROT_NONE);
    taken_[place] = Piece{handle.bytes, room, false, file, 1, handle};
    return place;
}

bool Memory::close(uint64_t place) {
    size_t page = sysconf(_SC_PAGESIZE);
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = taken_.find(place);
    if (found == taken_.end() || found->second.opened == 0) return false;
    if (--found->second.opened > 0) return true;
    munmap((char *)place - page, found->second.room + 2 * page);
    ::close(found->second.file);
    taken_.erase(found);
    return true;
}

size_t Memory::free_bytes() {
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    return all_ - used_;
}

void Memory::protect(int how) {
    for (auto &[place, piece] : taken_) {
        if (!piece.shared) mprotect((void *)place, piece.room, how);
    }
}

void Memory::enter() {
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    if (inside_++ == 0 && CLOSES) {
        protect(PROT_READ | PROT_WRITE);
    }
}

void Memory::leave() {
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    if (--inside_ == 0 && CLOSES) {
        protect(PROT_NONE);
    }
}

void *Pinned::take(size_t bytes) {
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    void *place = bytes && bytes <= left_ ? std::malloc(bytes) : nullptr;
    if (place) {
        left_ -= bytes;
        taken_[place] = bytes;
    }
    return place;
}

bool Pinned::give(void *place) {
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = taken_.find(place);
    if (found == taken_.end()) return false;
    left_ += found->second;
    taken_.erase(found);
    std::free(place);
    return true;
}

bool Pinned::add(void *place, size_t bytes) {
    size_t page = sysconf(_SC_PAGESIZE);
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    bool whole = bytes > 0 && bytes % page == 0 && (uint64_t)place % page == 0;
    return whole && added_.emplace(place, bytes).second;
}

bool Pinned::remove(void *place) {
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    return added_.erase(place) > 0;
}

bool Pinned::has(const void *place) {
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex_);
    auto next = taken_.upper_bound(const_cast<void *>(place));
    if (next == taken_.begin()) return false;
    --next;
    return (const char *)place < (const char *)next->first + next->second;
}

Card::Card(int ordinal)
    : ordinal(ordinal),
      memory(number_at("SPMD_STANDIN_MEMORY", ordinal, uint64_t(1) << 30)),
      pinned(number("SPMD_STANDIN_PINNED", uint64_t(1) << 30)) {}

Stream *Card::open_stream() {
    static std::atomic<uint64_t> opened{0};
    Inside inside;
    uint64_t seed = number("SPMD_STANDIN_SEED", 1) * 1000003 + opened++;
    auto stream = std::make_unique<Stream>(seed);
    Stream *handle = stream.get();
    std::lock_guard<std::mutex> lock(mutex);
    streams[handle] = std::move(stream);
    return handle;
}

bool Card::close_stream(Stream *stream) {
    std::unique_ptr<Stream> ends;
    {
        Inside inside;
        std::lock_guard<std::mutex> lock(mutex);
        auto found = streams.find(stream);
        if (found == streams.end()) {
            return false;
        }
        ends = std::move(found->second);
        streams.erase(found);
    }
    return true;
}

void Card::synchronize() {
    std::vector<Mark> marks;
    {
        Inside inside;
        mutex.lock();
    }
    for (auto &[handle, stream] : streams) {
        marks.push_back(stream->mark());
    }
    {
        Inside inside;
        mutex.unlock();
    }
    for (auto &mark : marks) {
        mark->wait();
    }
}

bool Card::reach(Card *other, int what) {
    Inside inside;
    std::lock_guard<std::mutex> lock(mutex);
    int &known = peers[other];
    bool is_new = !(known & what);
    known |= what;
    return is_new;
}

void Card::work(Stream *stream, std::function<void()> work) {
    stream->put([this, work = std::move(work)] {
        std::vector<Card *> open{this};
        {
            Inside inside;
            std::lock_guard<std::mutex> lock(mutex);
            for (auto &[other, what] : peers)
                if (what == (CONTEXT | POOL)) open.push_back(other);
        }
        for (Card *card : open) card->memory.enter();
        work();
        for (Card *card : open) card->memory.leave();
    });
}

bool peers() { return number("SPMD_STANDIN_PEERS", 1) != 0; }

int cards() {
    static int count = (int)number("SPMD_STANDIN_CARDS", 1);
    return count;
}

Card &card(int ordinal) {
    // They stay to the end of the process, as their streams' threads do.
    static std::vector<Card *> *all = [] {
        auto *made = new std::vector<Card *>;
        for (int at = 0; at < cards(); at++) {
            made->push_back(new Card(at));
        }
        return made;
    }();
    return *(*all)[ordinal];
}

}  // namespace standin
