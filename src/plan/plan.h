/* plan.h - declares the plan, which has all decisions that are made before a weight is read. Each
 * part of the plan belongs to one folder, which declares and computes it:
 *
 *   match      inputs      options, source, recipe, graph and data
 *              matching    the scheme of each Linear
 *   rewrite    rewrites    folds, rotations, removed experts
 *              manifest    name, dtype, shape, file and offset of every output tensor
 *   schedule   schedule    subgraphs, passes, batches, visits
 *   budget     budget      memory, disk and transfers
 *
 * A part has views of the parts above it in this list. So a function that reads several parts needs
 * only one argument, the last of these parts. */
#ifndef OSH_PLAN_H
#define OSH_PLAN_H
#include "budget/budget.h"

/* One of several traversals (traversals.h). A traversal is one forward computation of all samples
 * through the model. */
typedef struct osh_traversal {
    /* The traversal owns the members `passes`, `seen`, `visits` and `batch_at`, which are lists.
     * All other members are copies of the members of the plan's schedule. */
    osh_schedule schedule;
    osh_budget budget;     // the traversal owns memory.places; other members are copies or views
    /* Work (estimated seconds, osh_cost) of the phases observe (0), solve (1) and propagate (2),
     * summed over all subgraphs. */
    double work[3];
    double seconds;        // measured duration
} osh_traversal;

typedef struct osh_plan {
    osh_inputs in;
    osh_matching match;
    osh_rewrites rewrites;
    osh_manifest manifest;
    osh_schedule schedule;
    osh_budget budget;
    /* NULL: one traversal serves all modifiers. If there are several traversals, the plan's
     * `schedule` and `budget` are those of the traversal with the highest peak. */
    osh_traversal *traversals; // own [n_traversals]
    int n_traversals;          // 0: one traversal serves all modifiers
    /* True if the run is a survey that multiplies its losses by gradients. */
    bool gradients;
    /* Reason why a survey does not use gradients. NULL: it uses gradients, or the run is no
     * survey. */
    char *gradients_not;     // own
    struct osh_mark *marks;  // own: the parsed --checkpoint options (marks.h)
} osh_plan;

/* Parts of a plan have pointers to other parts (views). Sets these pointers. Must be called after a
 * plan is copied, and for a plan that is made without osh_plan_new. */
void osh_plan_join(osh_plan *p);
const char *osh_plan_pipeline(const osh_plan *p); // returns the name of the pipeline
/* Plans a run from options, recipe, source and data, before a weight is read. The caller owns *out.
 * opt must outlive the plan. */
osh_status osh_plan_new(osh_ctx *cx, osh_plan **out, const osh_options *opt);
/* Makes a plan that describes a finished output. It has no data, passes or budgets. opt: options
 * with the source and the recipe of the output. */
osh_status osh_plan_of_output(osh_ctx *cx, osh_plan **out, const osh_options *opt);
void osh_plan_free(osh_ctx *cx, osh_plan *p);

/* The next two functions choose and open the device of the plan. (They are in place.c.) */
osh_status osh_plan_device(osh_ctx *cx, osh_plan *p); // sets p->in.on_device
/* Opens the GPU and allocates its arena, a block of its memory. The arena has the size of the
 * device budget. If there is no budget, it has the size that the plan predicts. */
osh_status osh_plan_open_device(osh_ctx *cx, osh_plan *p);
#endif
