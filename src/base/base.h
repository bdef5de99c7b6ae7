/* base.h - declares the services that all other files use: status, errors, memory, log, threads.
 *
 * An osh_ctx carries five services: errors, memory, log, profile, threads. There are no globals. A
 * worker thread never uses the context of the calling thread: osh_parallel_for gives each worker a
 * fork of the caller's context. */
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
    OSH_E_IO = -2,          // the operating system refused a read, write, open or rename
    OSH_E_FORMAT = -3,      // the content of a file is wrong
    OSH_E_USAGE = -4,       // an argument or a recipe key is wrong
    OSH_E_UNSUPPORTED = -5, // the request is valid, but this program does not support it
    OSH_E_NUMERIC = -6,     // NaN or Inf where a number is needed
    OSH_E_INTERRUPTED = -7, // SIGINT, SIGTERM
    OSH_E_INTERNAL = -8
};

typedef struct osh_ctx osh_ctx;

/* Returns the version of the program, such as "0.2.0": a constant string. */
const char *osh_version(void);
/* Receives the results of a command; the sink of the program writes them to stdout. */
typedef void (*osh_sink)(void *user, const char *text, size_t n);

/* Makes a context. If n_threads is 0, the context has one thread for each CPU that the process may
 * use. */
osh_status osh_ctx_new(osh_ctx **out, int n_threads);
/* Frees the context. Ends its profile and its threads first. Accepts NULL. */
void osh_ctx_free(osh_ctx *cx);
/* Resets the context for another job: clears the error and the memory limits, and starts new
 * measurements of peaks and times. */
void osh_ctx_anew(osh_ctx *cx);
/* Makes a context for another thread. The new context has its own errors and shares everything else
 * with `parent`. `parent` must outlive the new context. The caller joins the thread, then frees the
 * context with osh_ctx_free. */
osh_status osh_ctx_fork(osh_ctx **out, osh_ctx *parent);

/* Marks cx as the context of a thread that other threads wait for. Then osh_parallel_for with cx
 * runs inline, osh_threads returns 1, and allocations with cx do not wait for other threads to free
 * memory. */
void osh_ctx_alone(osh_ctx *cx);
/* While `on` is true, each osh_parallel_for of cx runs inline, on the calling thread, and
 * osh_threads returns 1. A chunk that calls osh_parallel_for many times sets `on`: otherwise each
 * call would allocate scratch for all threads. Returns the previous setting. */
bool osh_ctx_inline(osh_ctx *cx, bool on);

/* Errors. osh_fail appends a message to the error text of cx and returns `code`. */
osh_status osh_fail(osh_ctx *cx, osh_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void osh_note(osh_ctx *cx, const char *fmt, ...) // appends "; while <message>" to the error text
    __attribute__((format(printf, 2, 3)));
/* Returns the error text (a view, valid until the next failure). */
const char *osh_error_text(const osh_ctx *cx);
/* Sets the error text to "". */
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
/* Allocates n zeroed objects and sets p to them. On failure sets rc and jumps to the label `done`.
 * n may be 0; then one object is allocated. The cast is for C++ (.cu files). */
#define OSH_NEW(cx, p, n)                                                                          \
    do {                                                                                           \
        (p) = (__typeof__(p))osh_calloc((cx), (size_t)(n), sizeof *(p));                           \
        if (!(p)) {                                                                                \
            rc = OSH_E_NOMEM;                                                                      \
            goto done;                                                                             \
        }                                                                                          \
    } while (0)

/* Memory. Allocations are counted and thread-safe. Blocks of 128 bytes and more are aligned to 64
 * bytes. Every failure is recorded with osh_fail. */
void *osh_alloc(osh_ctx *cx, size_t n_bytes);            // does not zero the memory
void *osh_calloc(osh_ctx *cx, size_t n, size_t size);    // zeroes; checks n * size for overflow
void *osh_realloc(osh_ctx *cx, void *p, size_t n_bytes); // on failure, p stays valid
/* Returns a copy of s (own), or NULL if there is no memory. */
char *osh_strdup(osh_ctx *cx, const char *s);
/* Returns the formatted text (own), or NULL if there is no memory. */
char *osh_sprintf(osh_ctx *cx, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Frees a block of one of the functions above. Accepts NULL. */
void osh_free(osh_ctx *cx, void *p);
/* Memory classes, for budgets. The last call of osh_mem_use sets the class of all later
 * allocations, also of those in the chunks of osh_parallel_for. On a CPU, device memory is a part
 * of host memory. All numbers of bytes are "gross": they include the overhead of the allocator, and
 * a large block counts as whole pages. */
typedef enum { OSH_MEM_HOST, OSH_MEM_DEVICE, OSH_MEM_N } osh_mem_class;
/* Sets the class of later allocations; returns the previous class. */
osh_mem_class osh_mem_use(osh_ctx *cx, osh_mem_class c);
/* Moves the block `p` to another class. `p` may be NULL. */
void osh_mem_move(osh_ctx *cx, void *p, osh_mem_class to);
/* Sets the limit of a class, beyond which allocations fail. The limit of OSH_MEM_HOST is for the
 * sum of all classes. If n_bytes is 0, the class gets no limit. */
void osh_mem_limit(osh_ctx *cx, osh_mem_class c, size_t n_bytes);
/* Sets the callback `give`, which waits for memory that another thread will free soon. An
 * allocation of 64 KiB or more that would raise the host class above n_bytes first calls `give` on
 * its own thread. `give` waits until memory was freed, and returns true. If no memory will be
 * freed, it returns false at once. Contexts marked by osh_ctx_alone never call `give`. If `give` is
 * NULL, there is no callback. */
void osh_mem_give(osh_ctx *cx, size_t n_bytes, bool (*give)(void *user), void *user);
/* Counts n_bytes that a library allocates. They belong to the host class. Fails if the limit would
 * be exceeded. */
osh_status osh_mem_count(osh_ctx *cx, size_t n_bytes);
/* Subtracts n_bytes from the count. osh_mem_count must have added them before. */
void osh_mem_uncount(osh_ctx *cx, size_t n_bytes);
/* Returns the number of bytes in use, with the allocator's overhead. For OSH_MEM_HOST, returns the
 * sum of all classes. */
size_t osh_mem_used(const osh_ctx *cx, osh_mem_class c);
/* Returns the highest osh_mem_used since osh_ctx_new or osh_ctx_anew. */
size_t osh_mem_used_peak(const osh_ctx *cx, osh_mem_class c);
/* Returns the size of an allocation of n_bytes, with the allocator's overhead. */
size_t osh_mem_gross(size_t n_bytes);
void osh_mem_trim(osh_ctx *cx);       // gives free pages of the allocator back to the system
/* Sets options of malloc so that the memory of the process does not exceed the peak of the counted
 * bytes. Below this peak, malloc may keep freed pages. */
void osh_mem_tune(void);
/* Returns the number of bytes in use, without the overhead of the allocator. */
size_t osh_mem_live(const osh_ctx *cx);
/* Returns the highest osh_mem_live since osh_ctx_new or osh_ctx_anew. */
size_t osh_mem_peak(const osh_ctx *cx);
/* Makes one allocation fail: the n-th from now on, where n = 1 is the next one. n <= 0: no
 * allocation fails. */
void osh_mem_fail_after(osh_ctx *cx, int64_t n);
/* True if the allocation that osh_mem_fail_after chose has failed. */
bool osh_mem_fail_hit(const osh_ctx *cx);
/* Returns the highest memory of the process in bytes (VmHWM); < 0: unknown. */
int64_t osh_rss_peak(void);

/* Log and progress. Messages go to stderr and to the log file, if there is one. Messages above the
 * context's level are dropped. */
typedef enum { OSH_LOG_ERROR, OSH_LOG_WARN, OSH_LOG_INFO, OSH_LOG_DEBUG } osh_log_level;
/* Sets the highest level of messages that are shown, and the form of the progress. progress_mode is
 * an osh_progress_mode. */
void osh_log_setup(osh_ctx *cx, osh_log_level level, int progress_mode);
/* Turns colours of the live line on or off. Without a terminal there are no colours. */
void osh_log_colour(osh_ctx *cx, bool on);
/* Opens the log file. Each line has seconds, level and text. The file gets messages of level INFO
 * or higher, every stage of the profile and every finished subgraph. A line is one write(2), so a
 * kill leaves whole lines. If `path` is NULL, closes the file. */
osh_status osh_log_file(osh_ctx *cx, const char *path);
/* True if a log file is open. */
bool osh_log_has_file(osh_ctx *cx);
/* Sets the first line of each log file opened from now on. */
osh_status osh_log_command(osh_ctx *cx, int argc, char **argv);
/* Writes a line to the log file, and not to stderr. */
void osh_log_line(osh_ctx *cx, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Logs a message. It goes to stderr or to the callback only if its level is not above the limit. */
void osh_log(osh_ctx *cx, osh_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
typedef void (*osh_log_fn)(void *user, osh_log_level level, const char *text);
/* Sends the messages to fn instead of stderr. `fn` is called on any thread, one call at a time, and
 * must not log. If `fn` is NULL, messages go to stderr. */
void osh_log_tell(osh_ctx *cx, osh_log_fn fn, void *user);
typedef enum {
    OSH_PROGRESS_AUTO,
    OSH_PROGRESS_LINE,
    OSH_PROGRESS_JSON,
    OSH_PROGRESS_NONE
} osh_progress_mode;
typedef struct osh_progress {
    /* step: number of the current subgraph, from 1.
     * n_steps: number of subgraphs. */
    int64_t step, n_steps;
    const char *name;             // "model.layers.2"
    const char *phase;            // name of the phase: "observe", "gptq", "propagate", "read", ...
    /* done: finished work of the phase.
     * total: all work of the phase, in the same unit. */
    int64_t done, total;
    /* work_done: finished work of the job.
     * work_total: all work of the job, in the same unit. The ETA is computed from both. */
    double work_done, work_total;
    double eta_s; // estimated seconds left; <= 0: computed from work_done and work_total
    double fraction; // finished fraction of the job; <= 0: computed from work_done and work_total
    /* Tokens per second: the number of tokens of the data, divided by the seconds that the whole
     * job takes; <= 0: unknown. */
    double tokens_per_s;
    /* For a job without data, bytes per second: the size of the source or of the download, divided
     * by the seconds that the whole job takes; <= 0: unknown. */
    double bytes_per_s;
    int64_t budget_bytes;         // budget of host memory; 0: none
    double error;                 // relative squared error of the weights so far; < 0: none yet
    /* Squared error of the outputs, divided by the squared error after rounding to nearest; <= 0:
     * unknown. */
    double loss;
    /* True if the subgraph is complete. If stderr is no terminal, a line is then printed for the
     * subgraph. */
    bool finished;
    /* True if stderr shows no line for the subgraph, because the job has a very large number of
     * subgraphs. The log file and JSON have the line. */
    bool small;
} osh_progress;
/* Shows the progress; on a terminal at most ten times per second. */
void osh_progress_show(osh_ctx *cx, const osh_progress *p);
typedef void (*osh_progress_fn)(void *user, const osh_progress *p);
/* Sets a callback: each osh_progress_show calls fn, on the job's thread and in every mode. `fn`
 * must not block. If `fn` is NULL, removes the callback. */
void osh_progress_tell(osh_ctx *cx, osh_progress_fn fn, void *user);

/* Threads. osh_parallel_for calls fn once for each chunk in [0, n_chunks), on any worker and in any
 * order. The result must not depend on which worker runs which chunk. `worker` is in [0,
 * osh_threads(cx)). The call returns the status and the message of the failing chunk with the
 * lowest index. A call runs inline, as worker 0, if it comes from inside a chunk or while another
 * thread's call runs. After osh_interrupt no chunk begins. */
typedef osh_status (*osh_chunk_fn)(osh_ctx *cx, void *user, int64_t chunk, int worker);
int osh_threads(const osh_ctx *cx);
osh_status osh_parallel_for(osh_ctx *cx, int64_t n_chunks, osh_chunk_fn fn, void *user);
/* osh_parallel_apart calls fn for each chunk; inside fn, osh_threads returns 1. The calling thread
 * runs chunks, too, and between them it calls `take` for finished chunks, in the order of their
 * numbers. At any time at most at_once chunks have begun and are not taken yet. After a chunk
 * fails, no chunk begins; finished chunks with lower numbers are still taken. */
typedef struct osh_apart {
    osh_chunk_fn fn;
    osh_status (*take)(osh_ctx *cx, void *user, int64_t chunk);
    void *user;
} osh_apart;
osh_status osh_parallel_apart(osh_ctx *cx, int64_t n_chunks, int at_once, const osh_apart *a);
/* Returns how many bytes osh_parallel_apart allocates, with the allocator's overhead. */
size_t osh_apart_bytes(int at_once);

/* Interrupts the job; a signal handler may call it. Every task of more than a tenth of a second
 * calls osh_interrupted from time to time, and osh_parallel_for calls it before each chunk. */
void osh_interrupt(osh_ctx *cx);
bool osh_interrupted(const osh_ctx *cx);
/* Fails with OSH_E_INTERRUPTED if the job is interrupted. */
osh_status osh_check_interrupt(osh_ctx *cx);
/* Clears the interrupt, so that the next job runs. */
void osh_interrupt_forget(osh_ctx *cx);
double osh_now(void); // returns seconds of a monotonic clock

/* Returns a variable of the environment, or NULL if it is not set. Only code in src/cli reads the
 * environment itself. */
typedef const char *(*osh_env_fn)(const char *name);

#endif
