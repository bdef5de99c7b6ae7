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
    bool line_open;    // the live line is on the screen
    char line[512];    // its text, to draw it again behind a message
    double last_shown; // seconds
    double start;      // osh_now of the context's birth
    double t0, work0;  // where the ETA counts from
    double last_work;
    bool counting; // t0 is set
    int fd;        // log file, own; -1: none
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

/* Large blocks that were freed and wait for another of their size: the same shapes come again for each batch, and a
 * fresh mapping costs a page fault for each of its pages. */
enum { OSH_MAX_KEPT = 32 };
typedef struct osh_kept {
    pthread_mutex_t lock;
    int n;
    size_t bytes; // gross
    struct { void *base; size_t block; } at[OSH_MAX_KEPT]; // own: oldest first
} osh_kept;

typedef struct osh_shared {
    _Atomic size_t live, peak;
    _Atomic size_t used[OSH_MEM_N], used_peak[OSH_MEM_N], limit[OSH_MEM_N]; // gross; HOST: of all classes
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
    bool root, alone;
    osh_open_scope scopes[OSH_MAX_SCOPES];
    int n_scopes;
    osh_mem_class mem_class; // of its allocations
    size_t n_text;
    char text[OSH_ERROR_BYTES];
};

osh_status osh_pool_new(osh_pool **out, osh_shared *sh, int n_threads);
void osh_pool_free(osh_pool *pool);
void osh_log_close(osh_shared *sh);
void osh_mem_drop_kept(osh_shared *sh); // back to the system
void osh_log_stage(osh_shared *sh, const char *step, int64_t bytes); // a line of the log file
void osh_profile_free(osh_profile *p);

enum { OSH_STATUS_BYTES = 4096 };
bool osh_proc_status(char text[OSH_STATUS_BYTES]); // what the kernel says of this process; allocates nothing
int64_t osh_proc_status_bytes(const char *text, const char *key); // "VmHWM:"; < 0: no such line
#endif
