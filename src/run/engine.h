/* engine.h - the state of the loop over subgraphs, which sequential.c and loading.c share. */
#ifndef OSH_ENGINE_H
#define OSH_ENGINE_H
#include "budget/layout.h"
#include "budget/budget.h"
#include "run/folds.h"
#include "run/prefetch.h"
#include "run/run.h"
#include "schedule/visit.h"
#include "store/activations.h"

typedef struct osh_engine {
    osh_run *r;
    const osh_budget *p;
    osh_weights *w;         // own
    /* Memory for batches whose samples run in parallel, one per thread; NULL: there are no such
     * batches. */
    osh_lanes *lanes;       // own
    osh_batch *batch;       // own: batch of the current pass; between passes it has no values
    osh_acts *acts;         // own
    char *dir;              // own: directory of the store's files
    osh_stats *stats;       // own: statistics that are being collected; NULL: none
    osh_folding *folding;   // own: statistics for factors that are being collected; NULL: none
    osh_steps *steps, *ahead; // own. steps: of the current visit; ahead: of the next visit, for its
                              // prefetch
    osh_prefetch *prefetch; // own: prefetch of the weights of the next visit; NULL: none
    bool *in_memory;        // own [linears]: true if w has the solved weight of the Linear
    bool *next;             // own [graph weights]: scratch, true for weights to load
    /* Index of the output tensor that is a copy of the weight; -1: there is none. */
    int64_t *copy_at;       // own [graph weights]
    int64_t *mine;          // own [n_mine]: batches that this rank runs, ascending
    int64_t n_mine;
    size_t missed;          // return value of osh_arena_missed before the first visit
    const osh_step *step;   // view: step of the current pass
    int index;              // index of the current visit
    int v0, v1;             // [v0, v1) contains all values of the current visit
    bool began;             // true after the visit has loaded its first weights
    bool last;              // true if no later pass of the visit computes the same values
} osh_engine;

osh_visit_state osh_engine_state(const osh_engine *e); // returns the state for osh_visit_list
/* These functions execute steps of the kinds LOAD, RELOAD and RELEASE (loading.c). */
osh_status osh_engine_load(osh_ctx *cx, osh_engine *e, const osh_range *r, const osh_step *s);
osh_status osh_engine_reload(osh_ctx *cx, osh_engine *e, const osh_step *s);
void osh_engine_release(osh_ctx *cx, osh_engine *e, const osh_step *s);
/* With a GPU: frees the host copies of the weights in range r. Keeps copies that a later solve
 * needs. */
void osh_engine_drop_copies(osh_ctx *cx, osh_engine *e, const osh_range *r);
#endif
