/* measured.h - jobs that measure the model before the run: the experts to drop (REAP) or the
 * sparsity of each layer (OWL). The recipe of the run gets the result. */
#ifndef OSH_API_MEASURED_H
#define OSH_API_MEASURED_H
#include "base/profile.h"
#include "match/options.h"

/* Sets *wants to true if the recipe asks for a measurement and does not have its result. */
osh_status osh_wants_measure(osh_ctx *cx, bool *wants, const osh_options *opt);
/* Measures, or reads the result from a finished output of the same job. *recipe (own) is the recipe
 * with the result. */
osh_status osh_measure(osh_ctx *cx, char **recipe, const osh_options *opt, osh_sink sink,
                       void *user);
/* Sets *text (own) to what a plan says about the needs of the measurement. */
osh_status osh_measure_plan(osh_ctx *cx, char **text, const osh_options *opt);
/* Sets *host to the smallest --host-memory for the measurement and the run after it, and *of (own)
 * to the name of the pass that needs it, such as "outliers are measured before the run". */
osh_status osh_measure_least(osh_ctx *cx, int64_t *host, char **of, const osh_options *opt);
#endif
