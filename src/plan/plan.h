/* plan.h - the plan: everything that is decided before a weight is read. It has these parts; each
 * is declared and computed by one folder:
 *
 *   match      inputs      options, source, recipe, graph and data
 *              matching    the scheme of each Linear
 *   rewrite    rewrites    folds, rotations, removed experts
 *              manifest    name, dtype, shape, file and offset of every output tensor
 *   schedule   schedule    subgraphs, passes, batches, visits
 *   budget     budget      memory, disk and transfers
 *
 * A part has views of the parts above it in this list. The argument of a function is the last part
 * that it reads. */
#ifndef OSH_PLAN_H
#define OSH_PLAN_H
#include "budget/budget.h"

/* One of several traversals (forward computations of all samples, traversals.h) */
typedef struct osh_traversal {
    /* Owns the lists passes, seen, visits and batch_at; other members are copies of the plan's. */
    osh_schedule schedule;
    osh_budget budget;     // owns the list places; other members are copies or views
    /* Work in the unit of osh_cost, summed over all subgraphs: [0] to observe, [1] to solve, [2] to
     * propagate. */
    double work[3];
    double seconds;        // measured duration in seconds
} osh_traversal;

typedef struct osh_plan {
    osh_inputs in;
    osh_matching match;
    osh_rewrites rewrites;
    osh_manifest manifest;
    osh_schedule schedule;
    osh_budget budget;
    /* Own [n_traversals]; NULL: one traversal serves all modifiers. If there are several,
     * `schedule` and `budget` belong to the traversal with the highest peak. */
    osh_traversal *traversals; // own [n_traversals]
    int n_traversals;          // length of `traversals`; 0: one traversal serves all modifiers
    /* True if the run is a survey and its losses are multiplied by gradients. */
    bool gradients;
    /* Reason why a survey does not use gradients; NULL: gradients are used, or the run is no
     * survey. */
    char *gradients_not;     // own
    struct osh_mark *marks;  // own [number of --checkpoint options]: the parsed options (marks.h)
} osh_plan;

/* Sets the views between the parts of the plan. Must be called after a plan is copied, or made
 * without osh_plan_new. */
void osh_plan_join(osh_plan *p);
const char *osh_plan_pipeline(const osh_plan *p); // Returns the name of the pipeline
/* Plans a run from options, recipe, source and data, before a weight is read. *out: own. opt must
 * outlive the plan. */
osh_status osh_plan_new(osh_ctx *cx, osh_plan **out, const osh_options *opt);
/* Makes the plan of a finished output, without data, passes and budgets. opt names the source and
 * the recipe of the output. */
osh_status osh_plan_of_output(osh_ctx *cx, osh_plan **out, const osh_options *opt);
void osh_plan_free(osh_ctx *cx, osh_plan *p);

/* Two functions of place.c that choose and open the device. */
osh_status osh_plan_device(osh_ctx *cx, osh_plan *p); // Sets p->in.on_device from --device
/* Opens the GPU and allocates one block of its memory. The size of the block is the device budget
 * if there is one, else the prediction of the plan. */
osh_status osh_plan_open_device(osh_ctx *cx, osh_plan *p);
#endif
