/* measured.h - measures the model before the run. The measurement chooses the experts to drop
 * (REAP) or the sparsity of each layer (OWL). The result is added to the recipe of the run. */
#ifndef OSH_API_MEASURED_H
#define OSH_API_MEASURED_H
#include "base/profile.h"
#include "match/options.h"

/* Sets *wants to true if the recipe asks for a measurement whose result is not in the recipe. */
osh_status osh_wants_measure(osh_ctx *cx, bool *wants, const osh_options *opt);
/* Makes the measurement. If there is a finished output of the same job, reads the result from it
 * instead. Sets *recipe (own) to the recipe with the result. */
osh_status osh_measure(osh_ctx *cx, char **recipe, const osh_options *opt, osh_sink sink,
                       void *user);
/* Sets *text (own) to lines for `oneshot plan` that describe the measurement, such as its host
 * memory. */
osh_status osh_measure_plan(osh_ctx *cx, char **text, const osh_options *opt);
/* Sets *host to the smallest --host-memory that is enough for both the measurement and the run.
 * Sets *of (own) to a text that describes the pass that needs this memory, such as "outliers are
 * measured before the run". */
osh_status osh_measure_least(osh_ctx *cx, int64_t *host, char **of, const osh_options *opt);
#endif
