/* experts.h - jobs that leave experts out: which ones is measured first, then the run without them. */
#ifndef OSH_API_EXPERTS_H
#define OSH_API_EXPERTS_H
#include "base/profile.h"
#include "plan/options.h"

/* Whether the recipe asks for that and does not name those that are left. */
osh_status osh_wants_experts(osh_ctx *cx, bool *wants, const osh_options *opt);
/* The recipe with them, own; *report: what report_path gets, own, NULL: none is given. */
osh_status osh_experts_choose(osh_ctx *cx, char **recipe, char **report, const osh_options *opt, osh_sink sink,
                              void *user);
/* Of a run with that recipe, when it is complete. */
osh_status osh_experts_report(osh_ctx *cx, const char *recipe, const char *report);
/* What measuring would take, for a plan. own */
osh_status osh_experts_plan(osh_ctx *cx, char **text, const osh_options *opt);
#endif
