/* windows.h - chooses the order in which Linears are solved. A call is a set of Linears that one
 * function call of a modifier solves. These Linears read the same value and have the same
 * modifiers. A window is a set of calls that are solved at the same time. The run solves the
 * windows, and the budget counts their bytes.
 *
 *   osh_windows w = {.p = schedule, .of = linears, .open = values, .n_threads = n, .apart = true};
 *   for (;;) { osh_windows_next(cx, &w); if (!w.n) break; ... }
 *   osh_windows_deinit(cx, &w); */
#ifndef OSH_WINDOWS_H
#define OSH_WINDOWS_H
#include "schedule/schedule.h"

typedef struct osh_call {
    int *which;           // own [n]: indices of the Linears of the call, ascending
    /* [n] One job for each Linear. Only the members that the plan decides are set. The tensor `w`
     * of a job has a shape but no data. */
    osh_linear_job *jobs; // own [n]
    osh_tensor *shapes;   // own [n]: the tensors `w` of the jobs
    /* n: number of Linears of the call.
     * others: number of unsolved Linears that read the same value, but are in other calls. */
    int n, others;
    int64_t weights;      // number of elements in the weights of the call
} osh_call;

typedef enum osh_window_kind {
    OSH_WINDOW_ALONE, // the calls are solved one after the other, each on all threads or on the GPU
    OSH_WINDOW_APART,    // the calls are solved in parallel, each on one thread
    OSH_WINDOW_GATHERED, // a GPU solves the calls together
    OSH_WINDOW_BLOCK     // all Linears of the block learn together (blocks.h)
} osh_window_kind;

typedef struct osh_windows {
    const osh_schedule *p; // view
    osh_span of;           // the Linears [of.first, of.end) may be solved
    const bool *open;      // view [graph values]: true if the statistics of the value are complete
    /* Returns true if the Linear is solved already. NULL: no Linear is solved. */
    bool (*done)(const void *user, int linear);
    /* Returns true if this process solves the Linears that read the value `input`. NULL: this
     * process solves all Linears. */
    bool (*mine)(const void *user, int input);
    const void *user;      // view: argument of `done` and `mine`
    int n_threads;
    bool on_gpu;
    bool apart;            // false: every window has one call and is ALONE or BLOCK
    /* The members `kind`, `calls` and `n` describe the current window. osh_windows_next sets
     * them. */
    osh_window_kind kind;
    osh_call *calls;       // own [most]: the first n are the calls of the window
    int n;                 // 0: there is no further window
    /* Only windows.c uses the members below. */
    bool *taken;           // own [of.end - of.first]: true if the Linear was in a window
    /* most: largest number of calls in a window.
     * at: index of the Linear at which the search for the next window begins. */
    int most, at;
} osh_windows;

/* Finds the next window, and frees the calls of the previous one. The solver allocates some members
 * of the jobs; these members are not freed. */
osh_status osh_windows_next(osh_ctx *cx, osh_windows *w);
void osh_windows_deinit(osh_ctx *cx, osh_windows *w);
/* Returns an upper bound of the bytes that the windows of n_linears Linears need. */
size_t osh_windows_bytes(int n_linears, int n_threads);
/* Upper bound of the host bytes that the run needs for each call of a window. The lists of the call
 * and the importance of its channels are not counted. */
enum { OSH_CALL_WAITING = 512 };
#endif
