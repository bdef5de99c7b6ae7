/* engine.h - what the loop over subgraphs has at hand (sequential.c), for its own files. */
#ifndef OSH_ENGINE_H
#define OSH_ENGINE_H
#include "plan/layout.h"
#include "run/folds.h"
#include "run/prefetch.h"
#include "run/run.h"
#include "store/activations.h"

typedef struct osh_engine {
    osh_run *r;
    const osh_plan *p;
    osh_weights *w;         // own
    osh_lanes *lanes;       // own; NULL: no batch runs sample by sample
    osh_batch *batch;       // own: of the pass at work; between passes its lists alone
    osh_acts *acts;         // own
    char *dir;              // own: of files of values
    osh_stats *stats;       // own; the open ones
    osh_folding *folding;   // own; what factors are made of, while it is open
    osh_prefetch *prefetch; // own; of the visit that comes
    bool *in_memory;        // own [linears]: w has the solved weight
    bool *next;             // own [weights]: what the next visit loads first
    int64_t *copy_at;       // own [weights]: output tensor that is its copy, or -1
    size_t missed;          // places of the card's arena, when it began
    const osh_step *step;   // view: of the pass
    int index;              // of the visit
    int v0, v1;             // values of its range
    bool began;             // it has loaded
    bool last;              // no later pass of the visit makes what this one makes
} osh_engine;

static inline osh_way osh_engine_way(const osh_step *s) { return s->again ? OSH_WAY_AGAIN : OSH_WAY_FIRST; }

/* loading.c: members of osh_visitor whose user is an osh_engine. */
bool osh_engine_solved(const void *user, const osh_range *r, const bool *values);
bool osh_engine_folded(const void *user, const osh_range *r);
osh_status osh_engine_load(osh_ctx *cx, void *user, const osh_range *r, const osh_step *s, const bool *values);
osh_status osh_engine_reload(osh_ctx *cx, void *user, const osh_range *r, int first, int n);
osh_status osh_engine_release(osh_ctx *cx, void *user, int first, int n);
/* What the output has, or soon has, of the weights in host memory goes, but for what a solve reads. */
void osh_engine_drop_copies(osh_ctx *cx, osh_engine *e, const osh_range *r);
#endif
