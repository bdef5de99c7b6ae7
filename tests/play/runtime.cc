/* runtime.cc - emulates the CUDA runtime on host memory. GPU memory is a mapping that the host
 * cannot access, except while a stream works. The work of a stream is done at once, or, if streams
 * are lazy, when the host waits for it. */
#include "block.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

enum { PAGE = 4096, NAN_BYTES = 16 << 20, SHARED_UNASKED = 48 << 10, SHARED_TAKEN = 1 << 10 };
typedef std::function<void()> work;
struct CUstream_st { std::deque<work> queue; };
struct event {
    CUstream_st *stream;
    long asked, done; // asked: number of cudaEventRecord calls for the event; done: number of these
                      // calls that the stream has completed
    bool timed;
    double seconds;   // time of the last record of the event, in seconds
};
struct CUevent_st { std::shared_ptr<event> e; };
struct block_of_memory { size_t n, mapped; };

static std::recursive_mutex lock; // allows one call at a time, because all kernels share the static
                                  // shared memory
typedef std::lock_guard<std::recursive_mutex> guard;
static std::map<char *, block_of_memory> gpu;  // maps the start address to a block of GPU memory
struct locked_block { size_t n; bool registered; };
static std::map<char *, locked_block> pinned;
static std::map<std::string, long> calls; // maps the name of a function to the number of calls
static std::vector<CUstream_st *> streams; // streams in the order of creation
/* Maps a kernel to its limit of dynamic shared memory, in bytes. Has only kernels for which this
 * limit was set. */
static std::map<const void *, int> dynamic_shared;
// faults that osh_play_fail has set; each is the name of a function, the number of calls until the
// failure, and the error
static std::vector<std::pair<std::string, std::pair<int, int>>> faults;
static cudaError_t lost, last; // `lost`: error of a lost GPU; `last`: error of the last launch
static int n_gpus = 1, first_gpu;
static size_t gpu_bytes = (size_t)1 << 30, shared_bytes = 228 << 10, n_events;
static unsigned order_seed;
static bool lazy, protect = true, opened;
static int nan_file = -1; // file of NAN_BYTES bytes of 0xff; closed by the end of the process
static long n_launches;

/* ---- knobs ---- */
void osh_play_order(unsigned seed) { order_seed = seed; }
void osh_play_lazy(bool on) { lazy = on; }
void osh_play_memory(size_t n_bytes) { gpu_bytes = n_bytes; }
void osh_play_shared(size_t n_bytes) { shared_bytes = n_bytes; }
void osh_play_gpus(int n, int first) { n_gpus = n, first_gpu = first; }
long osh_play_launches(void) { return n_launches; }

static void open_gpu(bool open)
{
    for (auto &m : gpu)
        if (protect || open)
            mprotect(m.first, m.second.mapped, open ? PROT_READ | PROT_WRITE : PROT_NONE);
    opened = open;
}

void osh_play_protect(bool on)
{
    guard g(lock);
    open_gpu(!on);
    protect = on;
}

void osh_play_fail(const char *name, int n, int error)
{
    guard g(lock);
    if (name) faults.push_back({name, {n, error}});
    else faults.clear(), lost = last = cudaSuccess;
}

size_t osh_play_live(void)
{
    size_t n = streams.size() + n_events;
    for (auto &m : gpu) n += m.second.n;
    for (auto &m : pinned) n += m.second.n;
    return n;
}

long osh_play_calls(const char *name)
{
    guard g(lock);
    return calls[name];
}

/* Counts a call of `name`, and returns the error that a test has set for it (osh_play_fail). */
static cudaError_t fault(const char *name)
{
    calls[name]++;
    for (auto &f : faults)
        if (f.first == name && f.second.first > 0 && --f.second.first == 0) {
            cudaError_t e = (cudaError_t)f.second.second;
            if (e == cudaErrorLaunchFailure || e == cudaErrorECCUncorrectable ||
                e == cudaErrorMisalignedAddress)
                lost = e;
            return e;
        }
    return lost;
}
#define OSH_PLAY_CALL(name)                                                                        \
    guard guard_(lock);                                                                            \
    if (cudaError_t e_ = fault(name)) return e_


size_t osh_play_solver_bytes = 1024, osh_play_solver_each = 0;
bool osh_play_truncates = false;
void osh_play_truncate(bool on) { osh_play_truncates = on; }

int osh_play_fault(const char *name)
{
    guard g(lock);
    return fault(name);
}

/* ---- streams ---- */
static void run_one(CUstream_st *s)
{
    work w = std::move(s->queue.front());
    s->queue.pop_front();
    bool was = opened;
    if (!was) open_gpu(true);
    w();
    if (!was && protect) open_gpu(false);
}

static void drain(CUstream_st *s)
{
    while (!s->queue.empty()) run_one(s);
}

static void reach(event *e, long record)
{
    while (e->done < record) {
        if (e->stream->queue.empty())
            osh_play_die("an event is waited for that its stream does not reach");
        run_one(e->stream);
    }
}

static bool is_open(CUstream_st *s) { return std::count(streams.begin(), streams.end(), s) > 0; }

void osh_play_drain(int first)
{
    guard g(lock);
    for (size_t k = 0; k < streams.size(); k++)
        drain(streams[((size_t)first + k) % streams.size()]);
}

static cudaError_t submit(CUstream_st *s, work w)
{
    if (!is_open(s)) osh_play_die("work on a stream that is not open");
    s->queue.push_back(std::move(w));
    if (!lazy) drain(s);
    return cudaSuccess;
}

void osh_play_submit(void *stream, void (*fn)(void *user), void *user)
{
    guard g(lock);
    submit((CUstream_st *)stream, [=] { fn(user); });
}

void osh_play_touch(void (*fn)(void *user), void *user)
{
    guard g(lock);
    bool was = opened;
    if (!was) open_gpu(true);
    fn(user);
    if (!was && protect) open_gpu(false);
}

/* ---- pointers ---- */
/* True if n bytes at p are inside a block of GPU memory. Aborts if they are only partly inside. */
static bool on_gpu(const void *p, size_t n, const char *what)
{
    char *c = (char *)p;
    auto m = gpu.upper_bound(c);
    if (m == gpu.begin() || c >= (--m)->first + m->second.n) return false;
    if (n > (size_t)(m->first + m->second.n - c))
        osh_play_die("%s: %zu bytes pass the end of their block", what, n);
    return true;
}

bool osh_play_is_gpu(const void *p, size_t n)
{
    guard g(lock);
    return on_gpu(p, n, "memory of the GPU");
}

uintptr_t osh_play_gpu_range(uintptr_t *end)
{
    if (gpu.empty()) return *end = 0;
    auto last = std::prev(gpu.end());
    *end = (uintptr_t)last->first + last->second.n;
    return (uintptr_t)gpu.begin()->first;
}

static bool is_pinned(const void *p)
{
    auto m = pinned.upper_bound((char *)p);
    return m != pinned.begin() && (char *)p < (--m)->first + m->second.n;
}

static cudaError_t wrong_place(const void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    bool to_gpu = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice,
         from_gpu = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (on_gpu(to, n, "target") != to_gpu || on_gpu(from, n, "source") != from_gpu)
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

/* ---- calls ---- */
cudaError_t cudaGetLastError(void)
{
    guard g(lock);
    cudaError_t e = last ? last : lost;
    last = cudaSuccess;
    return e;
}

static const struct { cudaError_t e; const char *name, *text; } errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorOperatingSystem, "cudaErrorOperatingSystem",
     "OS call failed or operation not supported on this OS"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

const char *cudaGetErrorName(cudaError_t e)
{
    for (auto &row : errors)
        if (row.e == e) return row.name;
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t e)
{
    for (auto &row : errors)
        if (row.e == e) return row.text;
    return "unknown error";
}

cudaError_t cudaDriverGetVersion(int *version)
{
    OSH_PLAY_CALL("cudaDriverGetVersion");
    return *version = 13000, cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return *version = 13000, cudaSuccess; }

cudaError_t cudaGetDeviceCount(int *n)
{
    OSH_PLAY_CALL("cudaGetDeviceCount");
    return *n = n_gpus, cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal)
{
    OSH_PLAY_CALL("cudaSetDevice");
    return ordinal < n_gpus ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int ordinal)
{
    OSH_PLAY_CALL("cudaGetDeviceProperties");
    if (ordinal >= n_gpus) return cudaErrorInvalidDevice;
    *p = cudaDeviceProp();
    snprintf(p->name, sizeof p->name, "emulated GPU");
    p->uuid.bytes[0] = 1, p->uuid.bytes[15] = (char)(first_gpu + ordinal);
    p->totalGlobalMem = gpu_bytes;
    p->sharedMemPerMultiprocessor = shared_bytes,
    p->sharedMemPerBlockOptin = shared_bytes - SHARED_TAKEN;
    p->major = 9, p->minor = 0, p->multiProcessorCount = 4;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int ordinal)
{
    OSH_PLAY_CALL("cudaDeviceGetAttribute");
    if (ordinal >= n_gpus) return cudaErrorInvalidDevice;
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = 4; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)(shared_bytes - SHARED_TAKEN);
        break;
    default: return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

static size_t gpu_used(void)
{
    size_t n = 0;
    for (auto &m : gpu) n += m.second.n;
    return n;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int room, int ordinal)
{
    OSH_PLAY_CALL("cudaDeviceGetPCIBusId");
    snprintf(id, (size_t)room, "0000:%02X:00.0", 11 + ordinal); // nvml.cc knows only the GPU with
                                                                // ordinal 0
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    OSH_PLAY_CALL("cudaMemGetInfo");
    *total = gpu_bytes, *free = gpu_bytes - gpu_used();
    return cudaSuccess;
}

/* Maps n bytes of NaN at c, as private mappings of one small file. So only pages of GPU memory that
 * are written use memory and time. */
static bool map_nan(char *c, size_t n)
{
    if (nan_file < 0) {
        std::vector<char> nan(NAN_BYTES, (char)0xff);
        nan_file = memfd_create("nan", MFD_CLOEXEC);
        if (nan_file < 0 || write(nan_file, nan.data(), nan.size()) != NAN_BYTES) return false;
    }
    for (size_t at = 0; at < n; at += NAN_BYTES) {
        size_t part = n - at < NAN_BYTES ? n - at : (size_t)NAN_BYTES;
        if (mmap(c + at, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                 nan_file, 0) == MAP_FAILED)
            return false;
    }
    return true;
}

cudaError_t osh_play_malloc(void **out, size_t n_bytes)
{
    OSH_PLAY_CALL("cudaMalloc");
    size_t mapped = (n_bytes + PAGE - 1) / PAGE * PAGE;
    *out = nullptr;
    if (!n_bytes) return cudaSuccess;
    if (n_bytes > gpu_bytes - gpu_used()) return last = cudaErrorMemoryAllocation;
    void *p = mmap(nullptr, mapped + 2 * PAGE, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return last = cudaErrorMemoryAllocation;
    char *c = (char *)p + PAGE;
    if (!map_nan(c, mapped)) return last = cudaErrorMemoryAllocation;
    if (protect && !opened) mprotect(c, mapped, PROT_NONE);
    gpu[c] = {n_bytes, mapped};
    *out = c;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    guard g(lock);
    if (!p) return cudaSuccess;
    for (CUstream_st *s : streams) drain(s);
    auto m = gpu.find((char *)p);
    if (m == gpu.end()) return cudaErrorInvalidValue;
    munmap(m->first - PAGE, m->second.mapped + 2 * PAGE);
    gpu.erase(m);
    return lost;
}

cudaError_t osh_play_host_alloc(void **out, size_t n_bytes)
{
    OSH_PLAY_CALL("cudaHostAlloc");
    *out = nullptr;
    char *p = (char *)malloc(n_bytes ? n_bytes : 1);
    if (!p) return last = cudaErrorMemoryAllocation;
    memset(p, 0xff, n_bytes);
    pinned[p] = {n_bytes, false};
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    guard g(lock);
    if (!p) return cudaSuccess;
    for (CUstream_st *s : streams) drain(s);
    auto m = pinned.find((char *)p);
    if (m == pinned.end() || m->second.registered) return cudaErrorInvalidValue;
    pinned.erase(m);
    free(p);
    return lost;
}

/* Locks whole pages. Fails if a page also belongs to another locked block. A real driver may fail,
 * too. */
cudaError_t cudaHostRegister(void *p, size_t n_bytes, unsigned)
{
    OSH_PLAY_CALL("cudaHostRegister");
    uintptr_t from = (uintptr_t)p / PAGE, to = ((uintptr_t)p + n_bytes + PAGE - 1) / PAGE;
    if (!p || !n_bytes) return last = cudaErrorInvalidValue;
    for (auto &m : pinned) {
        uintptr_t a = (uintptr_t)m.first / PAGE,
                  b = ((uintptr_t)m.first + m.second.n + PAGE - 1) / PAGE;
        if (m.second.registered && a < to && from < b)
            return last = cudaErrorHostMemoryAlreadyRegistered;
    }
    pinned[(char *)p] = {n_bytes, true};
    return cudaSuccess;
}

/* Unlocks the block at p. Pending copies from or to the block are neither waited for nor
 * detected. */
cudaError_t cudaHostUnregister(void *p)
{
    guard g(lock);
    calls["cudaHostUnregister"]++;
    auto m = pinned.find((char *)p);
    if (m == pinned.end() || !m->second.registered) return cudaErrorInvalidValue;
    pinned.erase(m);
    return lost;
}

/* A copy from pageable memory reads the source at once; a copy to pageable memory waits, as in
 * CUDA. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    OSH_PLAY_CALL("cudaMemcpyAsync");
    if (cudaError_t e = wrong_place(to, from, n, kind)) return last = e;
    if (kind == cudaMemcpyHostToDevice && !is_pinned(from)) {
        auto kept = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + n);
        return submit(s, [=] { memcpy(to, kept->data(), n); });
    }
    submit(s, [=] { memmove(to, from, n); });
    if (kind == cudaMemcpyDeviceToHost && !is_pinned(to)) drain(s);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s)
{
    OSH_PLAY_CALL("cudaMemcpy2DAsync");
    if (width > to_pitch || width > from_pitch) return last = cudaErrorInvalidValue;
    for (size_t i = 0; i < height; i++)
        if (cudaError_t e = cudaMemcpyAsync((char *)to + i * to_pitch,
                                            (const char *)from + i * from_pitch, width, kind, s))
            return e;
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t n, cudaStream_t s)
{
    OSH_PLAY_CALL("cudaMemsetAsync");
    if (!on_gpu(to, n, "cudaMemsetAsync")) return last = cudaErrorInvalidValue;
    return submit(s, [=] { memset(to, byte, n); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    OSH_PLAY_CALL("cudaStreamCreateWithFlags");
    streams.push_back(*out = new CUstream_st);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    guard g(lock);
    if (!is_open(s)) return cudaErrorInvalidResourceHandle;
    drain(s);
    streams.erase(std::find(streams.begin(), streams.end(), s));
    delete s;
    return lost;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    guard g(lock);
    if (!is_open(s)) return cudaErrorInvalidResourceHandle;
    drain(s);
    return fault("cudaStreamSynchronize");
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    OSH_PLAY_CALL("cudaStreamQuery");
    return s->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
    guard g(lock);
    for (CUstream_st *s : streams) drain(s);
    return fault("cudaDeviceSynchronize");
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    OSH_PLAY_CALL("cudaEventCreateWithFlags");
    *out = new CUevent_st{std::make_shared<event>()};
    (*out)->e->timed = !(flags & cudaEventDisableTiming);
    n_events++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    guard g(lock);
    delete e;
    n_events--;
    return lost;
}

cudaError_t cudaEventRecord(cudaEvent_t ev, cudaStream_t s)
{
    OSH_PLAY_CALL("cudaEventRecord");
    std::shared_ptr<event> e = ev->e;
    long record = ++e->asked;
    e->stream = s;
    return submit(s, [=] {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        e->seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec, e->done = record;
    });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t ev, unsigned)
{
    OSH_PLAY_CALL("cudaStreamWaitEvent");
    std::shared_ptr<event> e = ev->e;
    long record = e->asked;
    return submit(s, [=] { reach(e.get(), record); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t ev)
{
    guard g(lock);
    reach(ev->e.get(), ev->e->asked);
    return fault("cudaEventSynchronize");
}

cudaError_t cudaEventQuery(cudaEvent_t ev)
{
    OSH_PLAY_CALL("cudaEventQuery");
    event *e = ev->e.get();
    if (e->done < e->asked) run_one(e->stream);
    return e->done < e->asked ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    OSH_PLAY_CALL("cudaEventElapsedTime");
    event *a = from->e.get(), *b = to->e.get();
    if (!a->timed || !b->timed || !a->asked || !b->asked)
        return last = cudaErrorInvalidResourceHandle;
    if (a->done < a->asked || b->done < b->asked) return cudaErrorNotReady;
    *ms = (float)((b->seconds - a->seconds) * 1e3);
    return cudaSuccess;
}

/* ---- kernels ---- */
cudaError_t osh_play_function(const void *)
{
    OSH_PLAY_CALL("cudaFuncGetAttributes");
    return cudaSuccess;
}

cudaError_t osh_play_set_dynamic_shared(const void *entry, int n_bytes)
{
    OSH_PLAY_CALL("cudaFuncSetAttribute");
    if (n_bytes < 0 || (size_t)n_bytes > shared_bytes - SHARED_TAKEN)
        return last = cudaErrorInvalidValue;
    dynamic_shared[entry] = n_bytes;
    return cudaSuccess;
}

static bool fits(const void *entry, dim3 grid, dim3 block, size_t shared)
{
    auto asked = dynamic_shared.find(entry);
    size_t most = asked == dynamic_shared.end() ? (size_t)SHARED_UNASKED : (size_t)asked->second;
    return grid.x && grid.y && grid.z && block.x && block.y && block.z && grid.x <= 0x7fffffffu &&
           grid.y <= 65535 && grid.z <= 65535 && block.x <= 1024 && block.y <= 1024 &&
           block.z <= 64 && (size_t)block.x * block.y * block.z <= 1024 && shared <= most;
}

void osh_play_launch(const char *kernel, const void *entry, dim3 grid, dim3 block, size_t shared,
                     cudaStream_t stream, osh_play_body body)
{
    guard g(lock);
    std::shared_ptr<void> args(body.args, body.drop);
    n_launches++;
    if (cudaError_t e = fault("launch")) last = e;
    else if (!fits(entry, grid, block, shared)) last = cudaErrorInvalidConfiguration;
    else {
        osh_play_grid emulated = {kernel, entry,  grid,
                                  block,  shared, [=] { body.run(args.get()); }};
        unsigned seed = order_seed;
        submit(stream, [=] { osh_play_run(&emulated, seed); });
    }
}
