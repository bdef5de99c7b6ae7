/* schedule.c - simulates the program on N threads, and computes the time that it takes if each
 * thread has its own processor:
 *
 *   schedule FILE ARGUMENT...     oneshot's arguments, with --threads N and --profile
 *
 * The work is divided as for N threads, but the calling thread runs all chunks, one after the
 * other. It measures the processor seconds of each chunk. Other work on the machine hardly changes
 * them. Then the chunks are assigned to workers as in the pool: each chunk to the worker that is
 * free first. Between two calls of osh_parallel_for only the calling thread works.
 *
 *   example: the caller works 1 ms, then there are chunks of 3, 3 and 2 ms. Two workers take 1 +
 *   max(3 + 2, 3) = 6 ms; one worker takes 9 ms.
 *
 * A worker starts START_S seconds after the call. If the calling thread has worked alone for longer
 * than WATCH_S, the worker sleeps (pool.c) and starts WAKE_S later. Shared resources (caches,
 * memory) are not simulated. A line of FILE has these fields:
 *
 *   phase     name of a phase, or "total" for all phases
 *   address   address of the function that runs the chunks; 0: the line is for the whole phase
 *   calls     number of calls of osh_parallel_for
 *   chunks    number of chunks
 *   busy      seconds on one processor
 *   alone     seconds in which only the calling thread works
 *   took      simulated seconds
 *   idle      seconds in which workers are idle
 *
 * In a line for a function, `alone` is the time of the calling thread before the chunks, and is not
 * part of `busy`. The last line, "others SECONDS", has the time of threads outside of the pool. The
 * linker option --wrap replaces functions of the program by functions of this file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/base.h"
#include "base/ctx.h"
#include "base/profile.h"

#define START_S 1e-6
#define WAKE_S 30e-6
#define WATCH_S 100e-6

enum { MOST_ROWS = 512, MOST_THREADS = 1024 };

typedef struct row { // times of a phase, or of a function that runs chunks
    char phase[32];
    osh_chunk_fn fn; // function that runs the chunks; NULL: the row is for the whole phase
    long calls, chunks;
    double busy, alone, took;
} row;

static row rows[MOST_ROWS];
static int n_rows;
static struct { osh_scope scope; char phase[32]; } scopes[OSH_MAX_SCOPES];
static int n_scopes, n_threads = 1;
static const osh_ctx *caller; // context of the thread whose chunks are simulated
static bool in_call;
static double last; // processor seconds of the calling thread that are already counted

int __real_main(int argc, char **argv);
osh_status __real_osh_parallel_for(osh_ctx *cx, int64_t n_chunks, osh_chunk_fn fn, void *user);
osh_status __real_osh_parallel_apart(osh_ctx *cx, int64_t n_chunks, int at_once,
                                     const osh_apart *of);
osh_scope __real_osh_profile_begin(osh_ctx *cx, const char *phase, const char *of);
void __real_osh_profile_end(osh_ctx *cx, osh_scope scope);
int __wrap_main(int argc, char **argv);
osh_status __wrap_osh_parallel_for(osh_ctx *cx, int64_t n_chunks, osh_chunk_fn fn, void *user);
osh_status __wrap_osh_parallel_apart(osh_ctx *cx, int64_t n_chunks, int at_once,
                                     const osh_apart *of);
osh_scope __wrap_osh_profile_begin(osh_ctx *cx, const char *phase, const char *of);
void __wrap_osh_profile_end(osh_ctx *cx, osh_scope scope);

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static row *row_of(const char *phase, osh_chunk_fn fn)
{
    for (int i = 0; i < n_rows; i++)
        if (rows[i].fn == fn && !strcmp(rows[i].phase, phase)) return &rows[i];
    if (n_rows == MOST_ROWS) exit(2);
    row *r = &rows[n_rows++];
    snprintf(r->phase, sizeof r->phase, "%s", phase);
    r->fn = fn;
    return r;
}

static row *phase_row(void) { return row_of(n_scopes ? scopes[n_scopes - 1].phase : "else", NULL); }

/* Returns the time that the calling thread has used since the previous call of this function, and
 * adds this time to the current phase. */
static double account(void)
{
    double now = seconds_of(CLOCK_THREAD_CPUTIME_ID), alone = now - last;
    row *r = phase_row();
    r->busy += alone, r->alone += alone, r->took += alone;
    last = now;
    return alone;
}

/* Assigns n chunks to the workers, and returns the time at which the last chunk ends. Chunk k takes
 * each[k] seconds. `asleep` is the number of seconds until a sleeping worker runs. */
static double deal(const double *each, int64_t n, double asleep)
{
    static double free_at[MOST_THREADS];
    double end = 0;
    for (int w = 0; w < n_threads; w++) free_at[w] = w ? START_S + asleep : 0;
    for (int64_t k = 0; k < n; k++) {
        int first = 0;
        for (int w = 1; w < n_threads; w++)
            if (free_at[w] < free_at[first]) first = w;
        free_at[first] += each[k];
        if (free_at[first] > end) end = free_at[first];
    }
    return end;
}

static osh_status call(osh_ctx *cx, int64_t n, osh_chunk_fn fn, void *user)
{
    osh_status rc = OSH_OK;
    double alone = account(), sum = 0;
    double *each = calloc((size_t)n, sizeof *each); // own
    if (!each) exit(2);
    in_call = true;
    double at = last;
    for (int64_t k = 0; k < n && !rc; k++) {
        rc = fn(cx, user, k, 0);
        double now = seconds_of(CLOCK_THREAD_CPUTIME_ID);
        each[k] = now - at, sum += each[k], at = now;
    }
    in_call = false;
    last = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    double took = deal(each, n, alone > WATCH_S ? WAKE_S : 0);
    for (int i = 0; i < 2; i++) {
        row *r = i ? row_of(phase_row()->phase, fn) : phase_row();
        r->calls++, r->chunks += n, r->busy += sum, r->took += took;
        // adds the time before the chunks, which is not part of the function's busy seconds
        if (i) r->alone += alone;
    }
    free(each);
    return rc;
}

osh_status __wrap_osh_parallel_for(osh_ctx *cx, int64_t n_chunks, osh_chunk_fn fn, void *user)
{
    if (n_chunks <= 1 || cx != caller || in_call || cx->alone || cx->inlined)
        return __real_osh_parallel_for(cx, n_chunks, fn, user);
    return call(cx, n_chunks, fn, user);
}

static osh_status apart_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_apart *of = user;
    cx->inlined = true;
    osh_status rc = of->fn(cx, of->user, chunk, worker);
    cx->inlined = false;
    return rc ? rc : of->take(cx, of->user, chunk);
}

/* Simulates osh_parallel_apart as chunks that do not wait for each other. */
osh_status __wrap_osh_parallel_apart(osh_ctx *cx, int64_t n_chunks, int at_once,
                                     const osh_apart *of)
{
    if (cx != caller || in_call || cx->alone || cx->inlined)
        return __real_osh_parallel_apart(cx, n_chunks, at_once, of);
    return call(cx, n_chunks, apart_chunk, (void *)(uintptr_t)of);
}

osh_scope __wrap_osh_profile_begin(osh_ctx *cx, const char *phase, const char *of)
{
    if (!caller) caller = cx; // the first scope is begun by the thread of the job, which has `cx`
    osh_scope scope = __real_osh_profile_begin(cx, phase, of);
    if (cx != caller || in_call || n_scopes == OSH_MAX_SCOPES) return scope;
    n_threads = osh_threads(cx) < MOST_THREADS ? osh_threads(cx) : MOST_THREADS;
    account();
    scopes[n_scopes].scope = scope;
    snprintf(scopes[n_scopes++].phase, sizeof scopes[0].phase, "%s", phase);
    return scope;
}

void __wrap_osh_profile_end(osh_ctx *cx, osh_scope scope)
{
    __real_osh_profile_end(cx, scope);
    if (cx != caller || in_call) return;
    account();
    int at = n_scopes;
    while (at && scopes[at - 1].scope != scope) at--;
    if (at) n_scopes = at - 1;
}

int __wrap_main(int argc, char **argv)
{
    if (argc < 2) return 2;
    const char *path = argv[1];
    argv[1] = argv[0];
    int rc = __real_main(argc - 1, argv + 1);
    account();
    FILE *f = fopen(path, "w");
    if (!f) return 2;
    double all = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    row total = {.phase = "total"};
    for (int i = 0; i < n_rows; i++) {
        const row *r = &rows[i];
        fprintf(f, "%s %#lx %ld %ld %.6f %.6f %.6f %.6f\n", r->phase,
                r->fn ? (unsigned long)(uintptr_t)r->fn : 0, r->calls, r->chunks, r->busy, r->alone,
                r->took, n_threads * r->took - r->busy);
        if (r->fn) continue;
        total.calls += r->calls, total.chunks += r->chunks;
        total.busy += r->busy, total.alone += r->alone, total.took += r->took;
    }
    fprintf(f, "total 0 %ld %ld %.6f %.6f %.6f %.6f\nothers %.6f\n", total.calls, total.chunks,
            total.busy, total.alone, total.took, n_threads * total.took - total.busy,
            all - total.busy);
    return fclose(f) ? 2 : rc;
}
