// `libcuda.so.1` of the stand-in: the functions that `cudarc` calls for `spmd-gpu`.

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "card.h"

using standin::Card;
using standin::Event;
using standin::Stream;

namespace {

enum Code {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    PEERS_UNSUPPORTED = 217,
    PEERS_ENABLED = 704,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719,
};

const struct {
    Code code;
    const char *name, *text;
} TEXTS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "device(s) is/are busy or unavailable"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

// Whether it was initialised. It orders nothing.
struct {
    std::atomic<bool> value{false};
    operator bool() const { return value.load(std::memory_order_relaxed); }
} initialized;
thread_local Card *current = nullptr;

struct Kernel {
    void (*launch)(const unsigned *, const unsigned *, void **);
    std::vector<size_t> sizes;
};

struct Module {
    void *library;
    std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

// What the card holds of a launch until it is done.
struct Launch {
    Kernel *kernel;
    unsigned grid[3], block[3];
    std::vector<std::vector<char>> arguments;
};

bool is_stream(Stream *stream) {
    standin::Inside inside;
    std::lock_guard<std::mutex> lock(current->mutex);
    return current->streams.count(stream) > 0;
}

// Whether a copy from or to this place of the host keeps its caller until the stream has come to it, which a driver
// may do where that memory is not pinned (`SPMD_STANDIN_PAGEABLE=waits`).
bool keeps_caller(const void *place) {
    static const bool waits = std::getenv("SPMD_STANDIN_PAGEABLE") != nullptr;
    return waits && !current->pinned.has(place);
}

// The UUID of a card: its number, after the name of its host where several are played.
std::string uuid_of(int card) {
    std::string uuid(16, '\0');
    if (std::getenv("SPMD_STANDIN_HOSTS")) gethostname(uuid.data(), 8);
    uuid[15] = (char)card;
    return uuid;
}

// The same as `nvidia-smi` writes it.
std::string uuid_text(int card) {
    std::string text = "GPU";
    int at = 0;
    for (unsigned char byte : uuid_of(card)) {
        char digits[4];
        bool group = at == 0 || at == 4 || at == 6 || at == 8 || at == 10;
        std::snprintf(digits, sizeof digits, group ? "-%02x" : "%02x", byte);
        text += digits, at++;
    }
    return text;
}

// The number of the card that has this one or this UUID; -1 if there is none.
int card_of(const std::string &item) {
    for (int card = 0; card < standin::cards(); ++card)
        if (item == std::to_string(card) || item == uuid_text(card)) return card;
    return -1;
}

// How the host shares memory with a card (`SPMD_STANDIN_UNIFIED`): `managed`, `integrated`, or `none`.
bool shares(const std::string &how) {
    const char *wanted = std::getenv("SPMD_STANDIN_UNIFIED");
    return how == (wanted ? wanted : "managed");
}

// The cards that `CUDA_VISIBLE_DEVICES` shows, by numbers or UUIDs, up to the first that is not there.
const std::vector<int> &visible() {
    static const std::vector<int> shown = [] {
        std::vector<int> all;
        const char *list = std::getenv("CUDA_VISIBLE_DEVICES");
        if (!list) {
            for (int card = 0; card < standin::cards(); ++card) all.push_back(card);
            return all;
        }
        std::stringstream items(list);
        for (std::string item; std::getline(items, item, ',');) {
            int card = card_of(item);
            if (card < 0) break;
            all.push_back(card);
        }
        return all;
    }();
    return shown;
}

}  // namespace

// The error that a call without a current card is, or that is wanted of it.
#define IN_CONTEXT \
    if (!initialized) return NOT_INITIALIZED; \
    if (!current) return INVALID_CONTEXT; \
    if (int code = standin::refused(__func__)) return code

#define IN_STREAM(stream) \
    IN_CONTEXT; \
    if (!is_stream(stream)) return INVALID_HANDLE

extern "C" {

int cuInit(unsigned flags) {
    if (flags != 0) return INVALID_VALUE;
    if (visible().empty()) return NO_DEVICE;
    initialized.value.store(true, std::memory_order_relaxed);
    return SUCCESS;
}

int cuDriverGetVersion(int *version) {
    const char *wanted = std::getenv("SPMD_STANDIN_CUDA");
    *version = wanted ? std::atoi(wanted) : 13000;
    return SUCCESS;
}

int cuGetErrorName(int code, const char **name) {
    for (auto &it : TEXTS)
        if (it.code == code) return *name = it.name, SUCCESS;
    return INVALID_VALUE;
}

int cuGetErrorString(int code, const char **text) {
    for (auto &it : TEXTS)
        if (it.code == code) return *text = it.text, SUCCESS;
    return INVALID_VALUE;
}

int cuDeviceGetCount(int *count) {
    if (!initialized) return NOT_INITIALIZED;
    *count = (int)visible().size();
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    if (!initialized) return NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= (int)visible().size()) return INVALID_DEVICE;
    *device = visible()[ordinal];
    return SUCCESS;
}

int cuDeviceGetName(char *name, int room, int device) {
    std::snprintf(name, room, "stand-in card %d (no GPU)", device);
    return SUCCESS;
}

int cuDeviceGetUuid_v2(char *uuid, int device) {
    std::memcpy(uuid, uuid_of(device).data(), 16);
    return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = standin::card(device).memory.all_bytes();
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
        case 33: return *value = device + 1, SUCCESS;  // PCI bus,
        case 34: return *value = 0, SUCCESS;           // device
        case 50: return *value = 0xffff, SUCCESS;      // and domain, where no machine has one
        case 16: return *value = 2, SUCCESS;   // multiprocessors
        case 18: return *value = shares("integrated"), SUCCESS;
        case 19: return *value = 1, SUCCESS;   // maps the host's memory
        case 41: return *value = 1, SUCCESS;   // at the host's addresses
        case 83: return *value = !shares("integrated"), SUCCESS;  // managed memory,
        case 89: return *value = shares("managed"), SUCCESS;      // while kernels run
        case 75: return *value = 9, SUCCESS;   // compute capability, major
        case 76: return *value = 0, SUCCESS;   // and minor
        case 115: return *value = 1, SUCCESS;  // memory pools
        default: return INVALID_VALUE;
    }
}

int cuDevicePrimaryCtxRetain(Card **context, int device) {
    if (!initialized) return NOT_INITIALIZED;
    if (int code = standin::refused(__func__)) return code;
    *context = &standin::card(device);
    return SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }

int cuCtxGetCurrent(Card **context) {
    *context = current;
    return SUCCESS;
}

int cuCtxSetCurrent(Card *context) {
    current = context;
    return SUCCESS;
}

int cuCtxSynchronize() {
    IN_CONTEXT;
    current->synchronize();
    return SUCCESS;
}

int cuDeviceCanAccessPeer(int *can, int device, int other) {
    *can = standin::peers() && device != other;
    return SUCCESS;
}

int cuCtxEnablePeerAccess(Card *other, unsigned flags) {
    IN_CONTEXT;
    if (flags != 0 || other == current) return INVALID_VALUE;
    if (!standin::peers()) return PEERS_UNSUPPORTED;
    return current->reach(other, standin::CONTEXT) ? SUCCESS : PEERS_ENABLED;
}

// The pool of a card is the card.
int cuDeviceGetMemPool(Card **pool, int device) {
    *pool = &standin::card(device);
    return SUCCESS;
}

// For one card at a time.
int cuMemPoolSetAccess(Card *pool, const int *access, size_t count) {
    IN_CONTEXT;
    if (count != 1 || access[0] != 1 || access[2] != 3) return INVALID_VALUE;
    if (access[1] < 0 || access[1] >= standin::cards() || !standin::peers()) return INVALID_VALUE;
    standin::card(access[1]).reach(pool, standin::POOL);
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *all) {
    IN_CONTEXT;
    *free_bytes = current->memory.free_bytes();
    *all = current->memory.all_bytes();
    return SUCCESS;
}

int cuMemAlloc_v2(uint64_t *place, size_t bytes) {
    IN_CONTEXT;
    if (bytes == 0) return INVALID_VALUE;
    *place = current->memory.take(bytes, standin::Use::OPENED);
    return *place ? SUCCESS : OUT_OF_MEMORY;
}

int cuMemAllocManaged(uint64_t *place, size_t bytes, unsigned flags) {
    IN_CONTEXT;
    if (bytes == 0 || flags != 1 || !shares("managed")) return INVALID_VALUE;
    *place = current->memory.take(bytes, standin::Use::HOST);
    return *place ? SUCCESS : OUT_OF_MEMORY;
}

int cuMemGetAddressRange_v2(uint64_t *start, size_t *bytes, uint64_t place) {
    IN_CONTEXT;
    *start = current->memory.around(place, bytes);
    return *start ? SUCCESS : INVALID_VALUE;
}

int cuIpcGetMemHandle(standin::Handle *handle, uint64_t place) {
    IN_CONTEXT;
    return current->memory.handle_of(place, handle) ? SUCCESS : INVALID_VALUE;
}

int cuIpcOpenMemHandle_v2(uint64_t *place, standin::Handle handle, unsigned flags) {
    IN_CONTEXT;
    if (flags != 1) return INVALID_VALUE;
    *place = current->memory.open(handle);
    return *place ? SUCCESS : INVALID_CONTEXT;
}

int cuIpcCloseMemHandle(uint64_t place) {
    IN_CONTEXT;
    return current->memory.close(place) ? SUCCESS : INVALID_VALUE;
}

// What a pool gives may be used in the stream's order alone, which is not looked at here.
int cuMemAllocAsync(uint64_t *place, size_t bytes, Stream *stream) {
    IN_STREAM(stream);
    if (bytes == 0) return INVALID_VALUE;
    *place = current->memory.take(bytes, standin::Use::POOL);
    return *place ? SUCCESS : OUT_OF_MEMORY;
}

int cuMemFree_v2(uint64_t place) {
    IN_CONTEXT;
    current->synchronize();
    return current->memory.give(place) ? SUCCESS : INVALID_VALUE;
}

int cuMemFreeAsync(uint64_t place, Stream *stream) {
    IN_STREAM(stream);
    if (current->memory.is_shared(place)) return INVALID_VALUE;
    Card *card = current;
    stream->put([card, place] { card->memory.give(place); });
    return SUCCESS;
}

int cuMemHostAlloc(void **place, size_t bytes, unsigned) {
    IN_CONTEXT;
    *place = current->pinned.take(bytes);
    return *place ? SUCCESS : OUT_OF_MEMORY;
}

int cuMemFreeHost(void *place) {
    IN_CONTEXT;
    return current->pinned.give(place) ? SUCCESS : INVALID_VALUE;
}

int cuMemHostRegister_v2(void *place, size_t bytes, unsigned flags) {
    IN_CONTEXT;
    return flags == 3 && current->pinned.add(place, bytes) ? SUCCESS : INVALID_VALUE;
}

int cuMemHostUnregister(void *place) {
    IN_CONTEXT;
    return current->pinned.remove(place) ? SUCCESS : INVALID_VALUE;
}

int cuMemHostGetDevicePointer_v2(uint64_t *place, void *of, unsigned flags) {
    IN_CONTEXT;
    if (flags != 0) return INVALID_VALUE;
    return *place = (uint64_t)of, SUCCESS;
}

int cuMemcpyHtoDAsync_v2(uint64_t into, const void *from, size_t bytes, Stream *stream) {
    IN_STREAM(stream);
    current->work(stream, [=] { std::memcpy((void *)into, from, bytes); });
    if (keeps_caller(from)) stream->mark()->wait();
    return SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *into, uint64_t from, size_t bytes, Stream *stream) {
    IN_STREAM(stream);
    current->work(stream, [=] { std::memcpy(into, (const void *)from, bytes); });
    if (keeps_caller(into)) stream->mark()->wait();
    return SUCCESS;
}

// CUDA_MEMCPY2D: rows of bytes, of which each side has its own distance from one to the next.
struct Copy2D {
    struct {
        size_t x, y;
        unsigned type;
        void *host;
        uint64_t device;
        void *array;
        size_t pitch;
    } from, into;
    size_t width, height;
};

int cuMemcpy2DAsync_v2(const Copy2D *copy, Stream *stream) {
    constexpr unsigned HOST = 1, DEVICE = 2;
    constexpr size_t MOST = (size_t(1) << 31) - 1;
    IN_STREAM(stream);
    for (auto &side : {copy->from, copy->into}) {
        const bool known = side.type == HOST || side.type == DEVICE;
        if (!known || side.x || side.y || side.pitch < copy->width || side.pitch > MOST)
            return INVALID_VALUE;
    }
    auto place = [](auto &side) { return side.type == HOST ? (char *)side.host : (char *)side.device; };
    current->work(stream, [copy = *copy, place] {
        for (size_t row = 0; row < copy.height; ++row)
            std::memcpy(place(copy.into) + row * copy.into.pitch,
                        place(copy.from) + row * copy.from.pitch, copy.width);
    });
    for (auto &side : {copy->from, copy->into})
        if (side.type == HOST && keeps_caller(side.host)) stream->mark()->wait();
    return SUCCESS;
}

int cuMemcpyDtoDAsync_v2(uint64_t into, uint64_t from, size_t bytes, Stream *stream) {
    IN_STREAM(stream);
    current->work(stream, [=] { std::memmove((void *)into, (const void *)from, bytes); });
    return SUCCESS;
}

int cuMemsetD8Async(uint64_t place, unsigned char byte, size_t count, Stream *stream) {
    IN_STREAM(stream);
    current->work(stream, [=] { std::memset((void *)place, byte, count); });
    return SUCCESS;
}

int cuStreamCreate(Stream **stream, unsigned) {
    IN_CONTEXT;
    *stream = current->open_stream();
    return SUCCESS;
}

int cuStreamDestroy_v2(Stream *stream) {
    IN_CONTEXT;
    return current->close_stream(stream) ? SUCCESS : INVALID_HANDLE;
}

int cuStreamSynchronize(Stream *stream) {
    IN_STREAM(stream);
    stream->mark()->wait();
    return SUCCESS;
}

int cuStreamQuery(Stream *stream) {
    IN_STREAM(stream);
    return stream->is_idle() ? SUCCESS : NOT_READY;
}

int cuStreamWaitEvent(Stream *stream, Event *event, unsigned) {
    IN_STREAM(stream);
    if (auto mark = event->get()) stream->put([mark] { mark->wait(); });
    return SUCCESS;
}

// Until the word of the host's is not less, as numbers that go round.
int cuStreamWaitValue32_v2(Stream *stream, uint64_t place, uint32_t value, unsigned flags) {
    IN_STREAM(stream);
    if (flags != 0 || place % 4 != 0) return INVALID_VALUE;
    stream->put([=] {
        auto *word = (const uint32_t *)place;
        auto waits = [=] { return (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) < 0; };
        while (waits() && !standin::is_lost()) usleep(20);
        __tsan_acquire((void *)place);
    });
    return SUCCESS;
}

int cuStreamWriteValue32_v2(Stream *stream, uint64_t place, uint32_t value, unsigned flags) {
    IN_STREAM(stream);
    if (flags != 0 || place % 4 != 0) return INVALID_VALUE;
    stream->put([=] {
        if (standin::is_lost()) return;
        __tsan_release((void *)place);
        __atomic_store_n((uint32_t *)place, value, __ATOMIC_RELEASE);
    });
    return SUCCESS;
}

int cuEventCreate(Event **event, unsigned) {
    IN_CONTEXT;
    *event = new Event;
    return SUCCESS;
}

int cuEventDestroy_v2(Event *event) {
    IN_CONTEXT;
    delete event;
    return SUCCESS;
}

int cuEventRecord(Event *event, Stream *stream) {
    IN_STREAM(stream);
    event->set(stream->mark());
    return SUCCESS;
}

int cuEventQuery(Event *event) {
    if (int code = standin::refused(__func__)) return code;
    auto mark = event->get();
    return !mark || mark->is_done() ? SUCCESS : NOT_READY;
}

int cuEventSynchronize(Event *event) {
    if (int code = standin::refused(__func__)) return code;
    if (auto mark = event->get()) mark->wait();
    return SUCCESS;
}

// The image is what `nvrtc.cpp` gives, a shared library; its first bytes say how long it is.
int cuModuleLoadData(Module **module, const void *image) {
    IN_CONTEXT;
    const auto *bytes = (const unsigned char *)image;
    if (std::memcmp(bytes, "\x7f" "ELF", 4) != 0) return INVALID_IMAGE;
    uint64_t sections, size = 0;
    uint16_t each, count;
    std::memcpy(&sections, bytes + 0x28, 8);
    std::memcpy(&each, bytes + 0x3a, 2);
    std::memcpy(&count, bytes + 0x3c, 2);
    size = sections + uint64_t(each) * count;
    // Under a name of its own: the loader takes an equal one for the same library.
    char path[] = "/tmp/spmd-standin-XXXXXX";
    int file = mkstemp(path);
    bool written = file >= 0 && write(file, image, size) == (ssize_t)size;
    void *library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    close(file);
    unlink(path);
    if (!library) {
        std::fprintf(stderr, "the stand-in card cannot load a kernel: %s\n", dlerror());
        return INVALID_IMAGE;
    }
    *module = new Module{library, {}};
    return SUCCESS;
}

int cuModuleUnload(Module *module) {
    IN_CONTEXT;
    current->synchronize();
    dlclose(module->library);
    delete module;
    return SUCCESS;
}

int cuModuleGetFunction(Kernel **kernel, Module *module, const char *name) {
    IN_CONTEXT;
    auto launch = (void (*)(const unsigned *, const unsigned *, void **))dlsym(
        module->library, (std::string("launch_") + name).c_str());
    auto sizes = (size_t (*)(size_t *))dlsym(module->library, (std::string("sizes_") + name).c_str());
    if (!launch || !sizes) return NOT_FOUND;
    size_t all[16], count = sizes(all);
    if (count > 16) return INVALID_VALUE;
    auto &made = module->kernels[name];
    made = std::make_unique<Kernel>(Kernel{launch, {all, all + count}});
    *kernel = made.get();
    return SUCCESS;
}

int cuLaunchKernel(Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, Stream *stream, void **arguments, void **extra) {
    IN_STREAM(stream);
    bool blocks = gx > 0 && gy > 0 && gz > 0 && gy < 65536 && gz < 65536;
    bool threads = bx > 0 && by > 0 && bz > 0 && uint64_t(bx) * by * bz <= 1024;
    size_t bytes = 0;
    for (size_t size : kernel->sizes) bytes += size;
    // As on a card: 4 KiB of arguments.
    if (!blocks || !threads || shared > 48 * 1024 || extra || bytes > 4096) return INVALID_VALUE;
    auto launch = std::make_shared<Launch>(Launch{kernel, {gx, gy, gz}, {bx, by, bz}, {}});
    for (size_t at = 0; at < kernel->sizes.size(); at++) {
        const char *from = (const char *)arguments[at];
        launch->arguments.emplace_back(from, from + kernel->sizes[at]);
    }
    current->work(stream, [launch = std::move(launch)] {
        std::vector<void *> places;
        for (auto &argument : launch->arguments) places.push_back(argument.data());
        launch->kernel->launch(launch->grid, launch->block, places.data());
    });
    return SUCCESS;
}
}
