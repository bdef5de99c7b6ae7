/* effect.h - what rounding some modules does to the model's predictions, the rest as it is. One pass through the model
 * for all of them: each unit of modules has a copy of the values from its own subgraph on. */
#ifndef OSH_EFFECT_H
#define OSH_EFFECT_H
#include "modifiers/survey.h"
#include "plan/mixed.h"

enum { OSH_EFFECT_BITS = OSH_SURVEY_BITS, OSH_EFFECT_SAMPLES = 4, OSH_EFFECT_LENGTH = 256 };
typedef struct osh_effect osh_effect;
/* p: a survey's plan, for its data, Linears and their schemes; unit_of [linears]. Both stay while it lives. */
osh_status osh_effect_open(osh_ctx *cx, osh_effect **out, const osh_plan *p, const int *unit_of, int n_units);
void osh_effect_close(osh_ctx *cx, osh_effect *e);
/* Bytes (gross, an upper bound) that osh_effect_run takes beside what there is. */
osh_status osh_effect_bytes(osh_ctx *cx, int64_t *peak, const osh_effect *e);
/* effect [n_units]: mean KL divergence of a token's prediction from the model's, weights of the unit rounded to
 * OSH_EFFECT_BITS bits. */
osh_status osh_effect_run(osh_ctx *cx, osh_effect *e, double *effect, osh_progress *pr);
#endif
