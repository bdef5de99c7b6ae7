/* mixed.h - jobs with --target-bits or --target-size: a survey, the choice, then the run with it. */
#ifndef OSH_API_MIXED_H
#define OSH_API_MIXED_H
#include "base/profile.h"
#include "plan/mixed.h"

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
#endif
