/* calls.h - groups the Linears that are solved in one call, because they read the same value and
 * have the same modifiers. Run and plan use the same rule. */
#ifndef OSH_CALLS_H
#define OSH_CALLS_H
#include "schedule/schedule.h"

typedef struct osh_call {
    const osh_schedule *p; // view
    osh_span of;       // Linears of the subgraphs to solve
    bool (*done)(const void *user, int linear);
    const void *user;  // view: argument of `done`
    bool on_card;
    int *which;        // own, result: [n] indices of the Linears of the call, ascending
    osh_linear_job *jobs; // own, result: [n] jobs; the members that depend only on the plan are set
    int n, others;     // results: n: number of Linears of the call; others: number of unsolved
                       // Linears that read the same value but are in other calls
} osh_call;
/* Finds the call of Linear `first`, which is not done yet. The previous call of c is freed. */
osh_status osh_call_find(osh_ctx *cx, osh_call *c, int first);
void osh_call_free(osh_ctx *cx, osh_call *c);                  // the caller frees what the jobs own
size_t osh_call_bytes(int n_linears); // gross bytes, for an input that n_linears read
/* True if the call may be solved in parallel with other calls, one call per thread: its Linears
 * have only one modifier, and no other call uses its Hessian. */
bool osh_call_is_apart(const osh_call *c, int first);
/* True if a GPU may solve the call together with similar calls. Until it is solved, each call needs
 * at most OSH_CALL_WAITING bytes of host memory in addition to osh_call_bytes. */
bool osh_call_gathers(const osh_call *c, int first);
enum { OSH_CALL_WAITING = 512 };
int64_t osh_call_weights(const osh_call *c);
/* True if the weights of two calls have similar sizes, so that one does not delay the other. An
 * expert's down, and its gate and up together, are similar. */
static inline bool osh_calls_alike(int64_t a, int64_t b) { return a <= 2 * b && b <= 2 * a; }
#endif
