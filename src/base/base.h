/* base.h - what every other file stands on: status, errors, memory, log, threads.
 *
 * osh_ctx carries five services: errors, memory, log, profile, threads. There are no globals.
 * A worker never reports through its parent's context: osh_parallel_for gives each worker a fork.
 */
#ifndef OSH_BASE_H
#define OSH_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int osh_status;
enum {
    OSH_OK = 0,
    OSH_E_NOMEM = -1,       // allocation failed
    OSH_E_IO = -2,          // the operating system refused a read, write, open, rename
    OSH_E_FORMAT = -3,      // a file does not hold what it must
    OSH_E_USAGE = -4,       // an argument or a recipe key is wrong
    OSH_E_UNSUPPORTED = -5, // understood, but this program cannot do it
    OSH_E_NUMERIC = -6,     // NaN or Inf where a number is needed
    OSH_E_INTERRUPTED = -7, // SIGINT, SIGTERM
    OSH_E_INTERNAL = -8
};

typedef struct osh_ctx osh_ctx;

const char *osh_version(void);
typedef void (*osh_sink)(void *user, const char *text, size_t n); // results; goes to stdout in the program

osh_status osh_ctx_new(osh_ctx **out, int n_threads); // n_threads 0: one per online core
void osh_ctx_free(osh_ctx *cx);
/* Another job begins: no error, no limit of memory, peaks and times count from now. */
void osh_ctx_anew(osh_ctx *cx);
/* For a thread of one's own (prefetch): errors apart, everything else shared with the parent, which
 * must outlive it. Freed with osh_ctx_free, after the thread was joined. */
osh_status osh_ctx_fork(osh_ctx **out, osh_ctx *parent);

/* cx is of a thread that others wait for: its osh_parallel_for runs inline, so osh_threads is 1; its allocations wait
 * for nobody. */
void osh_ctx_alone(osh_ctx *cx);
/* Inside a chunk that makes many calls: each osh_parallel_for runs inline and osh_threads is 1, so that nobody takes
 * room for all threads. What it was before. */
bool osh_ctx_inline(osh_ctx *cx, bool on);

/* Errors. osh_fail records the message (the first one wins, later ones are appended as notes) and
 * returns code. */
osh_status osh_fail(osh_ctx *cx, osh_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void osh_note(osh_ctx *cx, const char *fmt, ...) // "; while ..."
    __attribute__((format(printf, 2, 3)));
const char *osh_error_text(const osh_ctx *cx); // view: until the next failure
void osh_error_clear(osh_ctx *cx);

#define OSH_TRY(call)                                                                              \
    do {                                                                                           \
        rc = (call);                                                                               \
        if (rc) goto done;                                                                         \
    } while (0)
#define OSH_FAIL(cx, code, ...)                                                                    \
    do {                                                                                           \
        rc = osh_fail((cx), (code), __VA_ARGS__);                                                  \
        goto done;                                                                                 \
    } while (0)
/* p = n zeroed objects of its own type, or goto done. n may be 0 (then room for one is taken). */
#define OSH_NEW(cx, p, n)                                                                          \
    do {                                                                                           \
        (p) = (__typeof__(p))osh_calloc((cx), (size_t)(n), sizeof *(p)); /* the cast: for .cu */     \
        if (!(p)) {                                                                                \
            rc = OSH_E_NOMEM;                                                                      \
            goto done;                                                                             \
        }                                                                                          \
    } while (0)

/* Memory: counted, 64-byte aligned from 128 bytes on, thread-safe; every failure is recorded with osh_fail. */
void *osh_alloc(osh_ctx *cx, size_t n_bytes);            // not zeroed
void *osh_calloc(osh_ctx *cx, size_t n, size_t size);    // zeroed; overflow checked
void *osh_realloc(osh_ctx *cx, void *p, size_t n_bytes); // p stays valid on failure
char *osh_strdup(osh_ctx *cx, const char *s);
char *osh_sprintf(osh_ctx *cx, const char *fmt, ...) // own; NULL = no memory
    __attribute__((format(printf, 2, 3)));
void osh_free(osh_ctx *cx, void *p);
/* Classes, for budgets: what is allocated through cx, and by the chunks of its osh_parallel_for, belongs to the class
 * that was set last. On the CPU back end the device's memory is a part of the host's. Bytes are gross: with the
 * allocator's own and, for large blocks, in whole pages. */
typedef enum { OSH_MEM_HOST, OSH_MEM_DEVICE, OSH_MEM_N } osh_mem_class;
osh_mem_class osh_mem_use(osh_ctx *cx, osh_mem_class c);   // returns the one before
void osh_mem_move(osh_ctx *cx, void *p, osh_mem_class to); // p changes its class; NULL is fine
/* Allocations past a limit fail. HOST: of all classes together. 0: none. */
void osh_mem_limit(osh_ctx *cx, osh_mem_class c, size_t n_bytes);
/* Who holds memory that another thread is about to free: before an allocation of 64 KiB or more takes the host class
 * above n_bytes, give is called, on the thread that allocates. It waits until something was freed; false: there is
 * nothing to wait for. Never called for a context that osh_ctx_alone was told of. give NULL: nobody. */
void osh_mem_give(osh_ctx *cx, size_t n_bytes, bool (*give)(void *user), void *user);
/* Memory that a library takes by itself counts like an allocation of the host class; fails like one. */
osh_status osh_mem_count(osh_ctx *cx, size_t n_bytes);
void osh_mem_uncount(osh_ctx *cx, size_t n_bytes);
size_t osh_mem_used(const osh_ctx *cx, osh_mem_class c);      // now; HOST: of all classes together
size_t osh_mem_used_peak(const osh_ctx *cx, osh_mem_class c); // highest since the context's birth
size_t osh_mem_gross(size_t n_bytes);            // what an allocation of n_bytes counts
void osh_mem_trim(osh_ctx *cx); // what is free goes back to the system
void osh_mem_tune(void); // of the process: its size follows the counts, up to what is kept within their peak
size_t osh_mem_live(const osh_ctx *cx); // bytes now
size_t osh_mem_peak(const osh_ctx *cx); // highest so far
void osh_mem_fail_after(osh_ctx *cx, int64_t n); // the n-th from now fails (1 = the next); <= 0: none
bool osh_mem_fail_hit(const osh_ctx *cx);        // the one chosen by osh_mem_fail_after did fail
int64_t osh_rss_peak(void);                      // bytes, of the process (VmHWM); < 0 unknown

/* Log and progress. Levels: messages above the context's level are dropped. Goes to stderr and to
 * the log file, if any. */
typedef enum { OSH_LOG_ERROR, OSH_LOG_WARN, OSH_LOG_INFO, OSH_LOG_DEBUG } osh_log_level;
void osh_log_setup(osh_ctx *cx, osh_log_level level, int progress_mode); // osh_progress_mode
void osh_log_colour(osh_ctx *cx, bool on); // of the live line; there is none but on a terminal
/* Appends seconds, level, text: every message from INFO on, every stage of the profile, every finished subgraph; a line
 * is one write(2), so a kill leaves whole lines. path NULL: closes the file. */
osh_status osh_log_file(osh_ctx *cx, const char *path);
bool osh_log_has_file(osh_ctx *cx);
osh_status osh_log_command(osh_ctx *cx, int argc, char **argv); // a line of each log file that is opened from now on
void osh_log_line(osh_ctx *cx, const char *kind, const char *fmt, ...) // for the log file alone
    __attribute__((format(printf, 3, 4)));
void osh_log(osh_ctx *cx, osh_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
typedef void (*osh_log_fn)(void *user, osh_log_level level, const char *text);
/* fn gets the messages in place of stderr, on any thread, one at a time; it must not log. NULL: stderr again. */
void osh_log_tell(osh_ctx *cx, osh_log_fn fn, void *user);
typedef enum {
    OSH_PROGRESS_AUTO,
    OSH_PROGRESS_LINE,
    OSH_PROGRESS_JSON,
    OSH_PROGRESS_NONE
} osh_progress_mode;
typedef struct osh_progress {
    int64_t step, n_steps;  // subgraph s of n, 1-based
    const char *name;       // "model.layers.2"
    const char *phase;      // "observe", "gptq", "propagate", "read", ...
    int64_t done, total;    // inside the phase
    double work_done, work_total; // for the ETA: any unit
    double eta_s;           // seconds to go, where the caller knows better; <= 0: by work_done and work_total
    double tokens_per_s;    // through the passes, lately; <= 0: unknown
    int64_t budget_bytes;   // of host memory; 0: none
    double error;           // of the weights of the subgraph so far, relative and squared; < 0: none yet
    double loss;            // of its layers' outputs, as a part of what rounding to nearest loses; <= 0: unknown
    bool finished;          // the subgraph is complete: a line of its own where there is no terminal
    bool small;             // it is one of very many: no line of its own but in the log file and as JSON
} osh_progress;
void osh_progress_show(osh_ctx *cx, const osh_progress *p); // rate limited on a terminal
typedef void (*osh_progress_fn)(void *user, const osh_progress *p);
/* fn sees every osh_progress_show, on the job's thread and whatever the mode; it must not block. NULL: none. */
void osh_progress_tell(osh_ctx *cx, osh_progress_fn fn, void *user);

/* Threads. fn is called once for each chunk in [0, n_chunks), on any worker, in any order; which
 * worker does which chunk must not matter to the result. worker is in [0, osh_threads(cx)). The
 * status and message of the failing chunk with the lowest index are those of the call. From inside a
 * chunk, or while another thread's call runs, it runs inline as worker 0. Behind osh_interrupt no chunk begins. */
typedef osh_status (*osh_chunk_fn)(osh_ctx *cx, void *user, int64_t chunk, int worker);
int osh_threads(const osh_ctx *cx);
osh_status osh_parallel_for(osh_ctx *cx, int64_t n_chunks, osh_chunk_fn fn, void *user);
/* fn for chunks of which each takes a thread for itself (osh_threads is 1 inside), and `take` for each, in their order,
 * by the caller between its own: at most `at_once` have begun and were not taken. Behind a chunk that fails none
 * begins; those before it are taken. */
typedef struct osh_apart {
    osh_chunk_fn fn;
    osh_status (*take)(osh_ctx *cx, void *user, int64_t chunk);
    void *user;
} osh_apart;
osh_status osh_parallel_apart(osh_ctx *cx, int64_t n_chunks, int at_once, const osh_apart *a);
size_t osh_apart_bytes(int at_once); // that it takes itself

/* Set by a signal handler; whatever takes more than a tenth of a second asks meanwhile. osh_parallel_for asks before
 * each chunk. */
void osh_interrupt(osh_ctx *cx);
bool osh_interrupted(const osh_ctx *cx);
osh_status osh_check_interrupt(osh_ctx *cx); // then OSH_E_INTERRUPTED, "interrupted"
void osh_interrupt_forget(osh_ctx *cx);
double osh_now(void); // monotonic seconds

/* A variable of the environment, NULL where it is not set: only src/cli asks the system for one. */
typedef const char *(*osh_env_fn)(const char *name);

#endif
