/* calls.h - which Linears are solved in one call: they read the same value, and the same modifiers are theirs. The run
 * solves them so, and the plan counts them so. */
#ifndef OSH_CALLS_H
#define OSH_CALLS_H
#include "plan/lookup.h"

typedef struct osh_call {
    const osh_plan *p; // view
    osh_span of;       // linears of the subgraphs that are solved
    bool (*done)(const void *user, int linear);
    const void *user;  // view: of done
    bool on_card;
    int *which;        // own: out: [n] of them, ascending
    osh_linear_job *jobs; // own: out: [n] what the plan alone knows of them
    int n, others;     // out: others: of the same value that are not done, and of another call
} osh_call;
osh_status osh_call_find(osh_ctx *cx, osh_call *c, int first); // first: not done; the call before is freed
void osh_call_free(osh_ctx *cx, osh_call *c);                  // what jobs have of their own is the caller's to free
size_t osh_call_bytes(int n_linears);                          // gross, of so many that one input has
/* Whether it may be solved beside others, each call on a thread: nothing comes before its modifier, and its Hessian is
 * nobody else's. */
bool osh_call_is_apart(const osh_call *c, int first);
/* Whether a card may solve it in one call with others that are alike: of each there is then OSH_CALL_WAITING in host
 * memory at most, beside osh_call_bytes. */
bool osh_call_gathers(const osh_call *c, int first);
enum { OSH_CALL_WAITING = 512 };
int64_t osh_call_weights(const osh_call *c);
/* By their weights: one does not keep all others waiting. An expert's down and its gate and up together are alike. */
static inline bool osh_calls_alike(int64_t a, int64_t b) { return a <= 2 * b && b <= 2 * a; }
#endif
