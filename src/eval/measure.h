/* measure.h - declares measurements of the model before the run. The run depends on their results.
 * Each measurement is one osh_measurement. src/eval/experts.c has the measurement for REAP, and
 * src/eval/owl.c has that for OWL. The result becomes the value of a key of the modifier in the
 * recipe. The modifier chooses its measurement by this key (osh_modifier_asks). */
#ifndef OSH_EVAL_MEASURE_H
#define OSH_EVAL_MEASURE_H
#include "base/profile.h"
#include "plan/plan.h"

typedef struct osh_measurement {
    const char *key;  // key of the modifier, such as "retained"; the result becomes its value
    const char *what; // plural of the measured things, such as "experts"
    /* Sets *out (own) to the state of a measurement for the modifier m. p: a plan made with
     * opt->measure; p and m must outlive *out. */
    osh_status (*open)(osh_ctx *cx, void **out, osh_plan *p, const osh_modifier *m);
    void (*close)(osh_ctx *cx, void *state);
    // sets *peak to the host bytes that `run` allocates, with the allocator's overhead
    osh_status (*bytes)(osh_ctx *cx, int64_t *peak, const void *state);
    osh_status (*run)(osh_ctx *cx, void *state, osh_progress *pr);
    /* Called after `run`. Sets *value (own) to the value of the key, and *said (own) to a message
     * for the user. */
    osh_status (*print)(osh_ctx *cx, char **value, char **said, const void *state);
    /* Called before `run`. Returns text (own) for a plan, or NULL if there is no memory. mb:
     * predicted host memory. */
    char *(*plan)(osh_ctx *cx, const osh_plan *p, double mb);
} osh_measurement;
extern const osh_measurement osh_measure_experts, osh_measure_outliers;
#endif
