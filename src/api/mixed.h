/* mixed.h - jobs with --target-bits or --target-size: a survey measures the losses of all
 * candidates, the choice gives each unit of modules a scheme, and the run uses the choice. */
#ifndef OSH_API_MIXED_H
#define OSH_API_MIXED_H
#include "base/profile.h"
#include "plan/mixed.h"

/* Bytes of host memory that a pass may leave in the process: lists, and gaps of the heap. The plan
 * of the next pass does not count them. */
#define OSH_PASS_LEFT_BYTES (1 << 20)
/* A --host-memory that is always large enough. The plan counts memory as it does with any
 * budget. */
#define OSH_PASS_HOST_BYTES (1ll << 50)
bool osh_wants_choice(const osh_options *opt);
typedef struct osh_choice { // own
    char *recipe;
    osh_mixed *mixed; // NULL if the recipe comes from an output that already has this choice
} osh_choice;
/* Makes the survey and the choice. Resumes from the records that an earlier run left. The records
 * stay until osh_choice_end. */
osh_status osh_choice_make(osh_ctx *cx, osh_choice *c, const osh_options *opt, osh_sink sink,
                           void *user);
/* Removes the records of the survey. Call it when the output is complete. */
osh_status osh_choice_end(osh_ctx *cx, const osh_choice *c, const osh_options *opt);
void osh_choice_deinit(osh_ctx *cx, osh_choice *c);
/* Sets *text (own) to what a plan says about the needs of the survey. */
osh_status osh_choice_plan(osh_ctx *cx, char **text, const osh_options *opt);
/* Sets *host to the smallest --host-memory for the survey and for the run with any choice, and *of
 * (own) to the name of the pass that needs it. */
osh_status osh_choice_least(osh_ctx *cx, int64_t *host, char **of, const osh_options *opt);
#endif
