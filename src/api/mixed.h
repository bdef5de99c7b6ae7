/* mixed.h - runs jobs with --target-bits or --target-size. A survey measures the losses of all
 * candidate schemes. Then each unit (modules that must get the same scheme) gets one of the
 * schemes; this is the choice. The run uses the choice. */
#ifndef OSH_API_MIXED_H
#define OSH_API_MIXED_H
#include "base/profile.h"
#include "plan/mixed.h"

/* Bytes of host memory that a pass may still use after its end: lists, and gaps of the heap. The
 * plan of the next pass does not count these bytes. */
#define OSH_PASS_LEFT_BYTES (1 << 20)
/* A value of --host-memory that is always large enough. With this value, plans count memory as with
 * a real budget. */
#define OSH_PASS_HOST_BYTES (1ll << 50)
typedef struct osh_choice { // own
    char *recipe;
    /* Units and their chosen schemes; NULL if an earlier output already has this choice in its
     * recipe. */
    osh_mixed *mixed;
} osh_choice;
/* Runs the survey and chooses a scheme for each unit. Resumes from the records of an earlier
 * process. osh_choice_end removes the records. */
osh_status osh_choice_make(osh_ctx *cx, osh_choice *c, const osh_options *opt, osh_sink sink,
                           void *user);
/* Removes the records of the survey. Must be called when the output is complete. */
osh_status osh_choice_end(osh_ctx *cx, const osh_choice *c, const osh_options *opt);
/* Frees the members of *c and sets it to zero. */
void osh_choice_deinit(osh_ctx *cx, osh_choice *c);
/* Sets *text (own) to lines for `oneshot plan` that describe the survey, such as its host
 * memory. */
osh_status osh_choice_plan(osh_ctx *cx, char **text, const osh_options *opt);
/* Sets *host to the smallest --host-memory that is enough for both the survey and the run,
 * whichever schemes are chosen. Sets *of (own) to a text that describes the pass that needs this
 * memory. */
osh_status osh_choice_least(osh_ctx *cx, int64_t *host, char **of, const osh_options *opt);
#endif
