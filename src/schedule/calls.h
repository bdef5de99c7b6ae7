/* calls.h - finds the Linears that one call of a modifier solves together: they read the same value
 * and have the same modifiers. The run and the plan use these functions. */
#ifndef OSH_CALLS_H
#define OSH_CALLS_H
#include "schedule/schedule.h"

typedef struct osh_call {
    const osh_schedule *p; // view
    osh_span of;       // Linears to be solved: [of.first, of.end)
    bool (*done)(const void *user, int linear);
    const void *user;  // view: argument of `done`
    bool on_gpu;
    int *which;        // own, result: [n] indices of the Linears of the call, ascending
    osh_linear_job *jobs; // own, result: [n] jobs; only members that the plan decides are set
    int n, others;     // results. n: number of Linears of the call. others: number of unsolved
                       // Linears of other calls that read the same value
} osh_call;
/* Finds the call of Linear `first`, for which c->done must be false. Frees the previous call of
 * c. */
osh_status osh_call_find(osh_ctx *cx, osh_call *c, int first);
/* Frees the lists, but nothing that the jobs own. */
void osh_call_free(osh_ctx *cx, osh_call *c);
/* Returns the bytes of the lists, with the allocator's overhead, for an input that n_linears
 * Linears read. */
size_t osh_call_bytes(int n_linears);
/* True if the call may be solved in parallel with other calls, one call on each thread. Requires
 * that the Linears of the call have only one modifier, and that no other call needs the Hessian. */
bool osh_call_is_apart(const osh_call *c, int first);
/* True if a GPU may solve the call together with similar calls. A call that waits for the others
 * needs osh_call_bytes and at most OSH_CALL_WAITING bytes of host memory. */
bool osh_call_gathers(const osh_call *c, int first);
enum { OSH_CALL_WAITING = 512 };
int64_t osh_call_weights(const osh_call *c);
/* True if two calls with a and b weights have similar sizes, so that they may be solved together.
 * For example, down_proj of an expert is similar to its gate_proj and up_proj together. */
static inline bool osh_calls_alike(int64_t a, int64_t b) { return a <= 2 * b && b <= 2 * a; }
#endif
