/* engine.h - the state of the loop over subgraphs, which sequential.c and loading.c share. */
#ifndef OSH_ENGINE_H
#define OSH_ENGINE_H
#include "budget/layout.h"
#include "budget/budget.h"
#include "run/folds.h"
#include "run/prefetch.h"
#include "run/run.h"
#include "store/activations.h"

typedef struct osh_engine {
    osh_run *r;
    const osh_budget *p;
    osh_weights *w;         // own
    osh_lanes *lanes;       // own; NULL: nodes never run sample by sample
    osh_batch *batch;       // own: batch of the current pass; has no values between passes
    osh_acts *acts;         // own
    char *dir;              // own: directory of the files with values
    osh_stats *stats;       // own; NULL: no open statistics
    osh_folding *folding;   // own: statistics for factors; NULL: not open
    osh_prefetch *prefetch; // own: weights of the next visit
    bool *in_memory;        // own [linears]: true if w has the solved weight
    bool *next;             // own [weights]: true for weights that the next visit loads first
    int64_t *copy_at;       // own [weights]: output tensor that is a copy of the weight, or -1
    size_t missed;          // value of osh_arena_missed before the first visit
    const osh_step *step;   // view: step of the current pass
    int index;              // index of the visit
    int v0, v1;             // [v0, v1) contains the values of the visit's range
    bool began;             // true: the visit has loaded its first weights
    bool last;              // true: no later pass of the visit computes the same values again
} osh_engine;

static inline osh_way osh_engine_way(const osh_step *s)
{
    return s->again ? OSH_WAY_AGAIN : OSH_WAY_FIRST;
}

/* Callbacks of osh_visitor (loading.c). `user` is an osh_engine. */
bool osh_engine_solved(const void *user, const osh_range *r, const bool *values);
bool osh_engine_folded(const void *user, const osh_range *r);
osh_status osh_engine_load(osh_ctx *cx, void *user, const osh_range *r, const osh_step *s,
                           const bool *values);
osh_status osh_engine_reload(osh_ctx *cx, void *user, const osh_range *r, int first, int n);
osh_status osh_engine_release(osh_ctx *cx, void *user, int first, int n);
/* With a device: frees the host copies of the range's weights, except those that wait for a
 * solve. */
void osh_engine_drop_copies(osh_ctx *cx, osh_engine *e, const osh_range *r);
#endif
