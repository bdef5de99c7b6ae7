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
    int *which;        // own: out: [n] of them, ascending
    int n, others;     // out: others: of the same value that are not done, and of another call
} osh_call;
osh_status osh_call_find(osh_ctx *cx, osh_call *c, int first); // first: not done; frees what c->which was
osh_linear_job osh_call_job(const osh_linear *l, bool on_card); // what the plan alone knows of one
#endif
