/* windows.h - the order in which Linears are solved. A call is a set of Linears that one call of a
 * modifier solves: they read the same value and have the same modifiers. A window is a set of calls
 * that are solved at the same time. The run solves the windows, and the budget counts their bytes.
 *
 *   osh_windows w = {.p = schedule, .of = linears, .open = values, .n_threads = n, .apart = true};
 *   for (;;) { osh_windows_next(cx, &w); if (!w.n) break; ... }
 *   osh_windows_deinit(cx, &w); */
#ifndef OSH_WINDOWS_H
#define OSH_WINDOWS_H
#include "schedule/schedule.h"

typedef struct osh_call {
    int *which;           // own [n]: indices of the Linears of the call, ascending
    /* Only members that the plan decides are set; `w` has a shape and no data. */
    osh_linear_job *jobs; // own [n]
    osh_tensor *shapes;   // own [n]: weights to which `w` of the jobs points
    /* n: number of Linears of the call.
     * others: number of unsolved Linears of other calls that read the same value. */
    int n, others;
    int64_t weights;      // number of weights of all Linears of the call
} osh_call;

typedef enum osh_window_kind {
    OSH_WINDOW_ALONE, // the calls are solved one after the other, each on all threads or on the GPU
    OSH_WINDOW_APART,    // the calls are solved in parallel, each on one thread
    OSH_WINDOW_GATHERED, // a GPU solves the calls together
    OSH_WINDOW_BLOCK     // the Linears of the call learn with the whole block (blocks.h)
} osh_window_kind;

typedef struct osh_windows {
    const osh_schedule *p; // view
    osh_span of;           // Linears that may be solved: [of.first, of.end)
    const bool *open;      // view [graph values]: true if the statistics of the value are complete
    /* Returns true if the Linear is solved; NULL: no Linear is solved. */
    bool (*done)(const void *user, int linear);
    /* Returns true if this process solves the Linears that read value `input`; NULL: it solves
     * all. */
    bool (*mine)(const void *user, int input);
    const void *user;      // view: argument of `done` and `mine`
    int n_threads;
    bool on_gpu;
    bool apart;            // false: all windows are ALONE or BLOCK
    /* The current window, set by osh_windows_next. */
    osh_window_kind kind;
    osh_call *calls;       // own: the first n are the window
    int n;                 // 0: no Linear is left
    /* Used by windows.c. */
    bool *taken;           // own [of.end - of.first]: true if a window had the Linear
    /* most: largest number of calls of a window.
     * at: first Linear that may begin the next window. */
    int most, at;
} osh_windows;

/* Finds the next window, and frees the calls of the previous window. Does not free members that the
 * jobs of these calls own. */
osh_status osh_windows_next(osh_ctx *cx, osh_windows *w);
void osh_windows_deinit(osh_ctx *cx, osh_windows *w);
/* Returns an upper bound of the bytes of the windows of n_linears Linears. */
size_t osh_windows_bytes(int n_linears, int n_threads);
/* Upper bound of the host bytes that the run needs for each call of a window. It does not include
 * the lists and the importance of the call's channels. */
enum { OSH_CALL_WAITING = 512 };
#endif
