/* engine.h - declares the state of the loop over subgraphs. sequential.c and loading.c share this
 * state. */
#ifndef OSH_ENGINE_H
#define OSH_ENGINE_H
#include "budget/layout.h"
#include "budget/budget.h"
#include "run/folds.h"
#include "run/run.h"
#include "schedule/visit.h"
#include "store/activations.h"

typedef struct osh_prefetch osh_prefetch; // the weights of the next visit, and their reader

typedef struct osh_engine {
    osh_run *r;
    const osh_budget *p;
    osh_weights *w;         // own
    /* Memory for batches whose samples run in parallel, one on each thread; NULL: batches do not
     * run sample by sample. */
    osh_lanes *lanes;       // own
    osh_batch *batch;       // own: batch of the current pass; between passes it has no values
    osh_acts *acts;         // own
    char *dir;              // own: directory of the activation store's files
    osh_stats *stats;       // own: statistics that are collected now; NULL: none
    osh_folding *folding;   // own: statistics for factors that are collected now; NULL: none
    /* own. steps: steps of the current visit. ahead: steps of the next visit, whose weights are
     * prefetched. */
    osh_steps *steps, *ahead;
    osh_prefetch *prefetch; // own: prefetch of the weights of the next visit; NULL: none
    bool *in_memory;        // own [linears]: true if `w` has the solved weight of the Linear
    bool *next; // own [graph weights]: working memory, true for weights that a step loads
    /* Index of the output tensor that is an unchanged copy of the weight; -1: there is none. */
    int64_t *copy_at;       // own [graph weights]
    int64_t *mine;          // own [n_mine]: batches that this rank runs, ascending
    int64_t n_mine;
    size_t missed;          // return value of osh_arena_missed before the first visit
    const osh_step *step;   // view: the step whose pass runs now
    int index;              // index of the current visit
    int v0, v1;             // the interval [v0, v1) contains all values of the current visit
    bool began;             // true after the current visit has loaded its first weights
    bool last; // true if no later pass of the visit computes the values of this pass again
} osh_engine;

osh_visit_state osh_engine_state(const osh_engine *e); // returns the state for osh_visit_list
/* The next three functions execute steps of the kinds LOAD, RELOAD and RELEASE. (They are in
 * loading.c.) */
osh_status osh_engine_load(osh_ctx *cx, osh_engine *e, const osh_range *r, const osh_step *s);
osh_status osh_engine_reload(osh_ctx *cx, osh_engine *e, const osh_step *s);
void osh_engine_release(osh_ctx *cx, osh_engine *e, const osh_step *s);
/* Stops the prefetch thread, and waits until it has ended. Frees the weights that were not used. */
void osh_prefetch_free(osh_ctx *cx, osh_prefetch *f);
/* With a GPU: host memory has copies of the weights of range r. Frees these copies, except those
 * that a later solve needs. */
void osh_engine_drop_copies(osh_ctx *cx, osh_engine *e, const osh_range *r);
#endif
