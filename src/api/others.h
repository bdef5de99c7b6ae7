/* others.h - declares the passes before and after a run, whose host memory a plan checks. */
#ifndef OSH_OTHERS_H
#define OSH_OTHERS_H
#include "api/api.h"

/* Options of a job, and the host memory that the passes before and after the run need. These passes
 * are survey, measurement and evaluation. A plan with the options `opt` fails if the budget is too
 * small for any of these passes. */
typedef struct osh_others {
    /* A copy of the job's options; its pointers are views. Two members differ from those of the
     * job: `others` describes the pass that needs the most host memory, and `others_host` is the
     * number of bytes that this pass needs. */
    osh_options opt;
    char *of;        // own: text of opt.others
} osh_others;

/* Finds the passes before and after the run, and the memory that they need. Called for a plan, for
 * a run with a budget, and for a run with --sample or --eval. */
osh_status osh_others_find(osh_ctx *cx, osh_others *o, const osh_options *opt, bool chosen,
                           bool measured);
void osh_others_deinit(osh_ctx *cx, osh_others *o);
#endif
