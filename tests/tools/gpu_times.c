/* gpu_times.c - prints how long a program's kernels and copies take on a GPU. The CUDA driver loads
 * this library into the program, and CUPTI reports each kernel and copy:
 *
 *   CUDA_INJECTION64_PATH=gpu_times.so GPU_TIMES=FILE oneshot ...
 *
 * At the end FILE gets the seconds in which the GPU was busy and idle between the first kernel and
 * the last. FILE also gets a line for each kernel and kind of copy: seconds, number of launches,
 * and the idle seconds right after the launches. GPU_TIMES_CUPTI names libcupti.so if the loader
 * does not find it. The measured program runs a few per cent slower. */
#include <cupti.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 8 << 20, MAX_NAMES = 4096 };

typedef struct event {
    uint64_t start, end; // ns
    int name;
} event;

static event *events; // own
static size_t n_events, room;
static char *names[MAX_NAMES]; // own
static int n_names;

static CUptiResult (*next_record)(uint8_t *, size_t, CUpti_Activity **);
static CUptiResult (*flush_all)(uint32_t);

static int name_index(const char *name)
{
    for (int i = n_names - 1; i >= 0; i--)
        if (!strcmp(names[i], name)) return i;
    if (n_names == MAX_NAMES) return 0;
    names[n_names] = strdup(name);
    return n_names++;
}

static void add(const char *name, uint64_t start, uint64_t end)
{
    if (n_events == room) {
        room = room ? 2 * room : 1 << 16;
        events = realloc(events, room * sizeof *events);
        if (!events) fprintf(stderr, "gpu_times: no memory\n"), abort();
    }
    events[n_events++] = (event){start, end, name_index(name)};
}

static void add_record(const CUpti_Activity *r)
{
    static const char *const copies[] = {
        [CUPTI_ACTIVITY_MEMCPY_KIND_HTOD] = "copy from host to device",
        [CUPTI_ACTIVITY_MEMCPY_KIND_DTOH] = "copy from device to host",
        [CUPTI_ACTIVITY_MEMCPY_KIND_DTOD] = "copy from device to device"};
    if (r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel10 *k = (const void *)r;
        add(k->name, k->start, k->end);
    } else if (r->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy6 *c = (const void *)r;
        const char *name =
            c->copyKind < sizeof copies / sizeof *copies ? copies[c->copyKind] : NULL;
        add(name ? name : "other copy", c->start, c->end);
    } else if (r->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *m = (const void *)r;
        add("memset", m->start, m->end);
    }
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *max_records)
{
    *buffer = aligned_alloc(8, BUFFER), *size = *buffer ? BUFFER : 0, *max_records = 0;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid)
{
    CUpti_Activity *r = NULL;
    (void)context, (void)stream, (void)size;
    while (next_record(buffer, valid, &r) == CUPTI_SUCCESS) add_record(r);
    free(buffer);
}

static int by_start(const void *a, const void *b)
{
    const event *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

typedef struct total {
    uint64_t ns, idle; // ns: total time of the launches; idle: total idle time between a launch and
                       // the next launch of any kernel
    long n;
    int name;
} total;

static int by_ns(const void *a, const void *b)
{
    const total *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

static void print(void)
{
    static total totals[MAX_NAMES];
    const char *path = getenv("GPU_TIMES");
    FILE *f = path ? fopen(path, "w") : stderr;
    uint64_t busy = 0, until = 0; // until: the end of the busy time so far
    int last = 0;                 // last: name of the event that ended at `until`
    flush_all(1);
    if (!f || !n_events) return;
    qsort(events, n_events, sizeof *events, by_start);
    for (int i = 0; i < n_names; i++) totals[i].name = i;
    until = events->start;
    for (size_t i = 0; i < n_events; i++) {
        const event *e = &events[i];
        total *t = &totals[e->name];
        t->ns += e->end - e->start, t->n++;
        if (i && e->start > until) totals[last].idle += e->start - until;
        uint64_t from = e->start > until ? e->start : until;
        if (e->end > from) busy += e->end - from, until = e->end, last = e->name;
    }
    double all = (double)(until - events->start) / 1e9;
    fprintf(f, "busy %.4f s, idle %.4f s\n", (double)busy / 1e9, all - (double)busy / 1e9);
    qsort(totals, (size_t)n_names, sizeof *totals, by_ns);
    for (int i = 0; i < n_names; i++)
        fprintf(f, "%9.5f s %7ld launches, then idle %8.5f s  %.150s\n", (double)totals[i].ns / 1e9,
                totals[i].n, (double)totals[i].idle / 1e9, names[totals[i].name]);
    if (f != stderr) fclose(f);
}

static void *find(void *library, const char *name)
{
    void *f = dlsym(library, name);
    if (!f) fprintf(stderr, "gpu_times: %s\n", dlerror()), abort();
    return f;
}

__attribute__((visibility("default"))) int InitializeInjection(void);
int InitializeInjection(void)
{
    const char *path = getenv("GPU_TIMES_CUPTI");
    void *library = dlopen(path ? path : "libcupti.so.13", RTLD_NOW);
    if (!library) fprintf(stderr, "gpu_times: %s\n", dlerror()), abort();
    CUptiResult (*enable)(CUpti_ActivityKind) = (CUptiResult (*)(CUpti_ActivityKind))(
        uintptr_t)find(library, "cuptiActivityEnable");
    CUptiResult (*callbacks)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc) =
        (CUptiResult (*)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc))(
            uintptr_t)find(library, "cuptiActivityRegisterCallbacks");
    next_record = (CUptiResult (*)(uint8_t *, size_t, CUpti_Activity **))(uintptr_t)find(
        library, "cuptiActivityGetNextRecord");
    flush_all = (CUptiResult (*)(uint32_t))(uintptr_t)find(library, "cuptiActivityFlushAll");
    if (callbacks(give_buffer, take_buffer) || enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) ||
        enable(CUPTI_ACTIVITY_KIND_MEMCPY) || enable(CUPTI_ACTIVITY_KIND_MEMSET))
        fprintf(stderr, "gpu_times: CUPTI does not work\n");
    atexit(print);
    return 1;
}
