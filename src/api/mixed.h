/* mixed.h - jobs with --target-bits or --target-size: a survey, the choice, then the run with it. */
#ifndef OSH_API_MIXED_H
#define OSH_API_MIXED_H
#include "base/profile.h"
#include "plan/mixed.h"

/* Host memory that a pass may leave in the process, beside what the next plan counts: lists, and gaps of the heap. */
#define OSH_PASS_LEFT_BYTES (1 << 20)
/* A --host-memory that everything fits into, and under which all is counted as under a smaller one. */
#define OSH_PASS_HOST_BYTES (1ll << 50)
bool osh_wants_choice(const osh_options *opt);
typedef struct osh_choice { // own
    char *recipe;
    osh_mixed *mixed; // NULL: the output of this very choice is there
} osh_choice;
/* From the survey's records where an earlier run left them. They stay until osh_choice_end. */
osh_status osh_choice_make(osh_ctx *cx, osh_choice *c, const osh_options *opt, osh_sink sink, void *user);
osh_status osh_choice_end(osh_ctx *cx, const osh_choice *c, const osh_options *opt); // the output is complete
void osh_choice_deinit(osh_ctx *cx, osh_choice *c);
/* What a survey of these options would take, for a plan. own */
osh_status osh_choice_plan(osh_ctx *cx, char **text, const osh_options *opt);
/* The smallest --host-memory for the survey, and for the run whatever is chosen; *of, own: which pass that is. */
osh_status osh_choice_least(osh_ctx *cx, int64_t *host, char **of, const osh_options *opt);
#endif
