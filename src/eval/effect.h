/* effect.h - measures how rounding one unit changes the model's predictions, while all other
 * modules are unchanged. A unit is a set of Linears that must get the same scheme. One pass through
 * the model serves all units: from the unit's subgraph on, each unit has its own copy of the
 * values. */
#ifndef OSH_EFFECT_H
#define OSH_EFFECT_H
#include "modifiers/survey.h"
#include "plan/mixed.h"

enum { OSH_EFFECT_BITS = OSH_SURVEY_BITS, OSH_EFFECT_SAMPLES = 4, OSH_EFFECT_LENGTH = 256 };
typedef struct osh_effect osh_effect;
/* Prepares the measurement of effects. `p` is the plan of a survey, a run that measures the losses
 * of candidate schemes. unit_of [linears] has the index of the unit of each Linear. `p` and
 * `unit_of` must outlive *out (own). */
osh_status osh_effect_open(osh_ctx *cx, osh_effect **out, const osh_plan *p, const int *unit_of,
                           int n_units);
/* Frees e. Accepts NULL. */
void osh_effect_close(osh_ctx *cx, osh_effect *e);
/* Sets *peak to an upper bound of the host bytes that osh_effect_run allocates, with the
 * allocator's overhead. */
osh_status osh_effect_bytes(osh_ctx *cx, int64_t *peak, const osh_effect *e);
/* Sets effect[u] for each unit u [n_units]: the mean KL divergence per token between the model's
 * predictions and the predictions when only unit u is rounded to OSH_EFFECT_BITS bits. */
osh_status osh_effect_run(osh_ctx *cx, osh_effect *e, double *effect, osh_progress *pr);
#endif
