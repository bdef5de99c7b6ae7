/* ctx.h - the inside of osh_ctx; only the files of base include it.
 *
 *   root ──► osh_shared ◄── fork of worker 0, 1, ... (made with the pool)  ◄── osh_ctx_fork
 *
 * What is shared is atomic or behind a mutex; the error text is a context's own. */
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
    int mode;          // osh_progress_mode, AUTO resolved
    bool tty;          // one live line, redrawn in place
    bool colour;       // of it
    bool line_open;    // the live line is on the screen
    char line[512];    // it, to draw it again behind a message
    int drawn;         // columns of it
    double last_shown; // seconds
    double start;      // osh_now of the context's birth
    double t0, work0;  // where the ETA counts from
    double last_work;
    bool counting; // t0 is set
    int fd;        // log file, own; -1: none
    char *command; // own: what is run, the first line of a log file; NULL: not told
    osh_log_fn hears; // messages, in place of stderr; NULL: stderr
    void *hears_user;
    osh_progress_fn told; // gets a copy of what is shown; NULL: none
    void *told_user;
} osh_log_state;

typedef struct osh_profile osh_profile;
typedef struct osh_open_scope { // a stage that this thread is in
    int row;       // of the profile
    bool records;  // the file has its start
    double start;  // seconds of the profile
    double inside; // seconds of the scopes that ended in it
} osh_open_scope;
enum { OSH_MAX_SCOPES = 16 };

/* Pages of large blocks that were freed and wait for the next ones (kept.c). */
enum { OSH_PAGE = 4096 };
static inline size_t osh_whole_pages(size_t n) { return (n + OSH_PAGE - 1) / OSH_PAGE * OSH_PAGE; }
enum { OSH_KEPT_SIZES = 64, OSH_KEPT_EXTENTS = 512 };
typedef struct osh_kept_size {
    void *first;   // own: the block that was freed last; each begins with the next one's address
    size_t n;      // bytes of each
    uint64_t used; // of osh_kept.clock
} osh_kept_size;
typedef struct osh_extent {
    char *base; // own
    size_t n;   // bytes
} osh_extent;
typedef struct osh_kept {
    pthread_mutex_t lock;
    size_t bytes; // of all
    uint64_t clock;
    int n_sizes, n_extents;
    osh_kept_size sizes[OSH_KEPT_SIZES];      // each has a block
    osh_extent extents[OSH_KEPT_EXTENTS];     // by address; none ends where the next one begins
} osh_kept;

/* A block of n bytes, whole pages; at most `room` bytes stay kept beside it. NULL: the system has none. */
void *osh_kept_take(osh_kept *k, size_t n, size_t room);
void osh_kept_put(osh_kept *k, void *base, size_t n);
void osh_kept_drop(osh_kept *k, size_t n); // back to the system, until at most n bytes are kept

typedef struct osh_shared {
    _Atomic size_t live, peak;
    _Atomic size_t used[OSH_MEM_N], used_peak[OSH_MEM_N], limit[OSH_MEM_N]; // gross; HOST: of all classes
    _Atomic size_t used_high; // of HOST, since osh_mem_used_high
    _Atomic size_t give_above; // 0: nobody gives
    bool (*give)(void *user);  // set before give_above
    void *give_user;
    osh_kept kept;              // used + kept.bytes stays within used_peak: the process never grows by what is kept
    _Atomic int64_t fail_after; // counts down to the allocation that fails; <= 0: off
    _Atomic bool fail_hit;
    _Atomic int64_t read_bytes, written_bytes;
    _Atomic bool interrupted; // lock-free: a signal handler sets it
    osh_log_state log;
    osh_profile *profile; // own; NULL: never started
    osh_pool *pool; // own
} osh_shared;

enum { OSH_ERROR_BYTES = 4096 };
struct osh_ctx {
    osh_shared *sh; // own if root
    bool root, alone, inlined; // inlined: osh_ctx_inline
    osh_open_scope scopes[OSH_MAX_SCOPES];
    int n_scopes;
    osh_mem_class mem_class; // of its allocations
    size_t n_text;
    char text[OSH_ERROR_BYTES];
};

osh_status osh_pool_new(osh_pool **out, osh_shared *sh, int n_threads);
void osh_pool_free(osh_pool *pool);
void osh_log_close(osh_shared *sh);
void osh_log_stage(osh_shared *sh, const char *step, int64_t bytes); // a line of the log file
void osh_profile_free(osh_profile *p);
int64_t osh_mem_used_high(osh_shared *sh); // highest of used[HOST] since the call before

enum { OSH_STATUS_BYTES = 4096 };
bool osh_proc_status(char text[OSH_STATUS_BYTES]); // what the kernel says of this process; allocates nothing
int64_t osh_proc_status_bytes(const char *text, const char *key); // "VmHWM:"; < 0: no such line
#endif
