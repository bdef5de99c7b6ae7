/* ctx.h - declares the members of osh_ctx; only the files of src/base include this header.
 *
 * Several contexts point to one osh_shared: the context of osh_ctx_new, the context of each worker
 * of the pool, and each context that osh_ctx_fork makes. The members of osh_shared are atomic or
 * protected by a mutex. Each context has its own error text. */
#ifndef OSH_CTX_H
#define OSH_CTX_H
#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

typedef struct osh_pool osh_pool;

typedef struct osh_log_state {
    pthread_mutex_t lock;
    osh_log_level level;
    int mode;          // an osh_progress_mode, but not OSH_PROGRESS_AUTO
    bool tty;          // true if stderr is a terminal, on which one live line is redrawn
    bool colour;       // true if the live line has colours
    bool line_open;    // true if the live line is on the screen
    char line[512];    // text of the live line, to redraw it after a message
    int drawn;         // number of columns that the live line occupies
    double last_shown; // time at which the last line was shown (osh_now, seconds)
    double start;      // time of osh_ctx_new or osh_ctx_anew (osh_now, seconds)
    double t0, work0;  // t0: time from which the ETA is computed; work0: work_done at t0
    double last_work;
    bool counting;    // true if t0 is set
    int fd;           // own: descriptor of the log file; -1: none
    char *command;    // own: text of the command, the first line of a log file; NULL: not set
    osh_log_fn hears; // receives messages instead of stderr; NULL: stderr
    void *hears_user;
    osh_progress_fn told; // callback for each progress report; NULL: none
    void *told_user;
    bool muted; // true if progress is not shown (mute.h)
} osh_log_state;

typedef struct osh_profile osh_profile;
/* A stage of the profile that has begun on this thread and not ended. */
typedef struct osh_open_scope {
    int row;       // index of the stage's row in the profile
    bool records;  // true if the start record of the stage is in the file
    double start;  // seconds since the profile's start
    double inside; // seconds of stages inside of this stage; only ended stages count
} osh_open_scope;
enum { OSH_MAX_SCOPES = 16 };

/* An osh_kept has the pages of freed large blocks. Later blocks reuse these pages (kept.c). */
enum { OSH_PAGE = 4096 };
static inline size_t osh_whole_pages(size_t n) { return (n + OSH_PAGE - 1) / OSH_PAGE * OSH_PAGE; }
enum { OSH_KEPT_SIZES = 64, OSH_KEPT_EXTENTS = 512 };
typedef struct osh_kept_size {
    /* own: linked list of freed blocks; the first is the block that was freed last. Each block
     * begins with the address of the next block. */
    void *first;
    size_t n;      // size of each block of this list in bytes
    uint64_t used; // value of osh_kept.clock when a block of this size was last used
} osh_kept_size;
typedef struct osh_extent {
    char *base; // own
    size_t n;   // bytes
} osh_extent;
typedef struct osh_kept {
    pthread_mutex_t lock;
    size_t bytes; // bytes of all kept blocks
    uint64_t clock;
    int n_sizes, n_extents;
    osh_kept_size sizes[OSH_KEPT_SIZES];  // block sizes; each has at least one kept block
    osh_extent extents[OSH_KEPT_EXTENTS]; // free ranges, sorted by address; no two are adjacent
} osh_kept;

/* Returns a block of n bytes in whole pages. Gives other kept pages back to the system until at
 * most `room` bytes are kept. Returns NULL if the system has no memory. */
void *osh_kept_take(osh_kept *k, size_t n, size_t room);
/* Keeps a block of n bytes for later calls of osh_kept_take, which has returned this block. */
void osh_kept_put(osh_kept *k, void *base, size_t n);
/* Gives pages back to the system until at most n bytes are kept. */
void osh_kept_drop(osh_kept *k, size_t n);

typedef struct osh_shared {
    _Atomic size_t live, peak;
    /* Numbers of bytes with the allocator's overhead. The element of OSH_MEM_HOST counts all
     * classes. */
    _Atomic size_t used[OSH_MEM_N], used_peak[OSH_MEM_N], limit[OSH_MEM_N];
    _Atomic size_t used_high; // highest used[OSH_MEM_HOST] since the last call of osh_mem_used_high
    _Atomic size_t give_above; // bytes above which `give` is called; 0: no callback
    /* Callback that waits for freed memory (osh_mem_give). It is stored before give_above, so a
     * thread that sees give_above also sees `give`. */
    bool (*give)(void *user);
    void *give_user;
    /* Pages of freed blocks. used + kept.bytes is at most used_peak, so kept pages never raise the
     * peak of the process. */
    osh_kept kept;
    /* Number of allocations from now on until one fails; <= 0: no allocation fails. */
    _Atomic int64_t fail_after;
    _Atomic bool fail_hit;
    _Atomic int64_t read_bytes, written_bytes;
    /* True after osh_interrupt. Lock-free, because a signal handler sets it. */
    _Atomic bool interrupted;
    osh_log_state log;
    osh_profile *profile; // own: profile of the job; NULL: not started yet
    osh_pool *pool;       // own
} osh_shared;

enum { OSH_ERROR_BYTES = 4096 };
struct osh_ctx {
    osh_shared *sh;            // state that the contexts of a job share; own if `root` is true
    /* root: true if osh_ctx_new made the context.
     * alone: set by osh_ctx_alone.
     * inlined: set by osh_ctx_inline. */
    bool root, alone, inlined;
    osh_open_scope scopes[OSH_MAX_SCOPES];
    int n_scopes;
    osh_mem_class mem_class; // class of the allocations of this context
    size_t n_text;
    char text[OSH_ERROR_BYTES];
};

/* Starts n_threads - 1 threads for `sh`. A call of osh_parallel_for also uses its own thread. The
 * caller frees *out with osh_pool_free, which waits for the threads to end. Fails with
 * OSH_E_NOMEM. */
osh_status osh_pool_new(osh_pool **out, osh_shared *sh, int n_threads);
void osh_pool_free(osh_pool *pool);
/* Erases the live line of the terminal and closes the log file. */
void osh_log_close(osh_shared *sh);
/* Writes a line about a stage of the profile to the log file. */
void osh_log_stage(osh_shared *sh, const char *step, int64_t bytes);
/* Frees the profile. No thread may use it any more. */
void osh_profile_free(osh_profile *p);
/* Returns the highest used[OSH_MEM_HOST] since the last call. */
int64_t osh_mem_used_high(osh_shared *sh);

enum { OSH_STATUS_BYTES = 4096 };
/* Reads the text of /proc/self/status. Allocates nothing. */
bool osh_proc_status(char text[OSH_STATUS_BYTES]);
/* Returns the number of bytes on the line of /proc/self/status that begins with `key`, such as
 * "VmHWM:". Returns a negative number if there is no such line. */
int64_t osh_proc_status_bytes(const char *text, const char *key);
#endif
