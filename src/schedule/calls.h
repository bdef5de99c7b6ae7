/* calls.h - groups the Linears that are solved in one call: they read the same value and have the
 * same modifiers. Run and plan share the rule. */
#ifndef OSH_CALLS_H
#define OSH_CALLS_H
#include "schedule/schedule.h"

typedef struct osh_call {
    const osh_schedule *p; // view
    osh_span of;       // linears of the subgraphs to solve
    bool (*done)(const void *user, int linear);
    const void *user;  // view: for done
    bool on_card;
    int *which;        // own, out: [n] Linears of the call, ascending
    osh_linear_job *jobs; // own, out: [n] jobs, with the members that the plan alone knows
    int n, others;     // out: others: unsolved Linears of the same value that are in other calls
} osh_call;
/* First: not done; the previous call is freed. */
osh_status osh_call_find(osh_ctx *cx, osh_call *c, int first);
void osh_call_free(osh_ctx *cx, osh_call *c);                  // the caller frees what the jobs own
size_t osh_call_bytes(int n_linears); // gross, for an input with n_linears readers
/* True if the call may be solved in parallel with others, one call a thread: no modifier comes
 * before its own, and no other call shares its Hessian. */
bool osh_call_is_apart(const osh_call *c, int first);
/* True if a GPU may solve it in one call with similar ones. Each of them then takes at most
 * OSH_CALL_WAITING bytes of host memory beside osh_call_bytes. */
bool osh_call_gathers(const osh_call *c, int first);
enum { OSH_CALL_WAITING = 512 };
int64_t osh_call_weights(const osh_call *c);
/* True if two calls have weights of similar size, so that one does not delay the others. An
 * expert's down, and its gate and up together, are similar. */
static inline bool osh_calls_alike(int64_t a, int64_t b) { return a <= 2 * b && b <= 2 * a; }
#endif
