/* measured.h - jobs of which something is measured first: which experts go (REAP), how much of each layer becomes 0
 * (OWL). Then comes the run, with a recipe that says it. */
#ifndef OSH_API_MEASURED_H
#define OSH_API_MEASURED_H
#include "base/profile.h"
#include "plan/options.h"

/* Whether the recipe asks for that and does not say what would be found. */
osh_status osh_wants_measure(osh_ctx *cx, bool *wants, const osh_options *opt);
/* The recipe with it. own */
osh_status osh_measure(osh_ctx *cx, char **recipe, const osh_options *opt, osh_sink sink, void *user);
/* What measuring would take, for a plan. own */
osh_status osh_measure_plan(osh_ctx *cx, char **text, const osh_options *opt);
/* The smallest --host-memory for that; *of, own: "outliers are measured before the run". */
osh_status osh_measure_least(osh_ctx *cx, int64_t *host, char **of, const osh_options *opt);
#endif
