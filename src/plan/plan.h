/* plan.h - the plan: everything that is decided before a weight is read. It has parts; the folder
 * that declares a part also computes it:
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

typedef struct osh_traversal { // one traversal of several (traversals.h)
    osh_schedule schedule; // own: passes, seen, visits and batch_at; all other members are the
                           // plan's
    osh_budget budget;     // own: places
    double work[3];        // work of observing, solving and propagating (osh_cost.work)
    double seconds;        // measured duration
} osh_traversal;

typedef struct osh_plan {
    osh_inputs in;
    osh_matching match;
    osh_rewrites rewrites;
    osh_manifest manifest;
    osh_schedule schedule;
    osh_budget budget;
    osh_traversal *traversals; // own; `schedule` and `budget` then show the traversal with the
                               // highest peak; NULL: one traversal for all modifiers
    int n_traversals;          // 0: one for all modifiers
    bool gradients;          // a survey weights its losses by gradients
    char *gradients_not;     // own: reason why the survey does not; NULL: it does, or this is not a
                             // survey
    struct osh_mark *marks;  // own: one for each --checkpoint (marks.h)
} osh_plan;

/* Sets the views between the parts. Must be called for a plan that was copied, or was not made by
 * osh_plan_new. */
void osh_plan_join(osh_plan *p);
const char *osh_plan_pipeline(const osh_plan *p); // name of the pipeline
/* Plans a run from options, recipe, source and data, before a weight is read. opt must outlive the
 * plan. *out: own. */
osh_status osh_plan_new(osh_ctx *cx, osh_plan **out, const osh_options *opt);
/* Makes the plan of a finished output: opt names the source and the output's recipe. It has no
 * data, passes or budgets. */
osh_status osh_plan_of_output(osh_ctx *cx, osh_plan **out, const osh_options *opt);
void osh_plan_free(osh_ctx *cx, osh_plan *p);

/* The text is "cuda" or "cuda:N". */
osh_status osh_device_ordinal(osh_ctx *cx, int *ordinal, const char *text);

/* Parts of osh_plan_new that are in this folder. */
osh_status osh_plan_device(osh_ctx *cx, osh_plan *p); // place.c: applies --device
/* Opens the GPU with an arena of the predicted size, or of the budget's size. */
osh_status osh_plan_open_device(osh_ctx *cx, osh_plan *p);
#endif
