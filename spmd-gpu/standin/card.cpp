#include "card.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace standin {

namespace {

uint64_t number(const char *name, uint64_t otherwise) {
    const char *value = std::getenv(name);
    return value && *value ? std::strtoull(value, nullptr, 10) : otherwise;
}

size_t pages(size_t bytes) {
    size_t page = sysconf(_SC_PAGESIZE);
    return (std::max<size_t>(bytes, 1) + page - 1) / page * page;
}

}  // namespace

void Record::finish() {
    std::lock_guard<std::mutex> lock(mutex);
    done = true;
    changed.notify_all();
}

void Record::wait() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return done; });
}

bool Record::is_done() {
    std::lock_guard<std::mutex> lock(mutex);
    return done;
}

std::shared_ptr<Record> Event::get() {
    std::lock_guard<std::mutex> lock(mutex);
    return last;
}

void Event::set(std::shared_ptr<Record> record) {
    std::lock_guard<std::mutex> lock(mutex);
    last = std::move(record);
}

Stream::Stream(uint64_t seed) : chance_(seed), thread_([this] { run(); }) {}

Stream::~Stream() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        ends_ = true;
    }
    filled_.notify_all();
    thread_.join();
}

void Stream::put(std::function<void()> work) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        queue_.push_back(std::move(work));
    }
    filled_.notify_all();
}

std::shared_ptr<Record> Stream::mark() {
    auto record = std::make_shared<Record>();
    put([record] { record->finish(); });
    return record;
}

void Stream::run() {
    for (;;) {
        std::function<void()> work;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            filled_.wait(lock, [this] { return ends_ || !queue_.empty(); });
            if (queue_.empty()) {
                return;
            }
            work = std::move(queue_.front());
            queue_.pop_front();
        }
        // Mostly at once, now and then late.
        uint64_t chance = chance_() % 16;
        if (chance == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(chance_() % 300));
        } else if (chance < 4) {
            std::this_thread::yield();
        }
        work();
    }
}

uint64_t Memory::take(size_t bytes) {
    size_t page = sysconf(_SC_PAGESIZE), room = pages(bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    if (room > all_ - used_) {
        return 0;
    }
    // With a closed page on both sides.
    void *whole = mmap(nullptr, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED) {
        return 0;
    }
    char *place = (char *)whole + page;
    mprotect(place, room, PROT_READ | PROT_WRITE);
    std::memset(place, 0xb5, room);
    if (inside_ == 0) {
        mprotect(place, room, PROT_NONE);
    }
    used_ += room;
    taken_[(uint64_t)place] = room;
    return (uint64_t)place;
}

bool Memory::give(uint64_t place) {
    size_t page = sysconf(_SC_PAGESIZE);
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = taken_.find(place);
    if (found == taken_.end()) {
        return false;
    }
    munmap((char *)place - page, found->second + 2 * page);
    used_ -= found->second;
    taken_.erase(found);
    return true;
}

size_t Memory::free_bytes() {
    std::lock_guard<std::mutex> lock(mutex_);
    return all_ - used_;
}

void Memory::protect(int how) {
    for (auto &[place, bytes] : taken_) {
        mprotect((void *)place, bytes, how);
    }
}

void Memory::enter() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (inside_++ == 0) {
        protect(PROT_READ | PROT_WRITE);
    }
}

void Memory::leave() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--inside_ == 0) {
        protect(PROT_NONE);
    }
}

Card::Card(int ordinal)
    : ordinal(ordinal), memory(number("SPMD_STANDIN_MEMORY", uint64_t(1) << 30)) {}

Stream *Card::open_stream() {
    static std::atomic<uint64_t> opened{0};
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
    std::vector<std::shared_ptr<Record>> marks;
    {
        std::lock_guard<std::mutex> lock(mutex);
        for (auto &[handle, stream] : streams) {
            marks.push_back(stream->mark());
        }
    }
    for (auto &mark : marks) {
        mark->wait();
    }
}

void Card::work(Stream *stream, std::function<void()> work) {
    stream->put([this, work = std::move(work)] {
        memory.enter();
        work();
        memory.leave();
    });
}

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
