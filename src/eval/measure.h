/* measure.h - declares measurements of the model before the run. The run depends on their results.
 * Each measurement is one osh_measurement. src/eval/experts.c has the measurement for REAP, and
 * src/eval/owl.c has that for OWL. The result becomes the value of a key of the modifier in the
 * recipe. The modifier chooses its measurement by this key (osh_modifier_asks).
 *
 * A measurement runs the steps of a schedule (schedule/plain.h), as a run does: OPEN begins its
 * statistics, PASS collects them, SOLVE uses them. The budget counts the memory of these steps. */
#ifndef OSH_EVAL_MEASURE_H
#define OSH_EVAL_MEASURE_H
#include "base/profile.h"
#include "eval/forward.h"
#include "eval/sweep.h"
#include "plan/plan.h"

typedef struct osh_measuring osh_measuring;
typedef struct osh_measurement {
    const char *key;  // key of the modifier, such as "retained"; the result becomes its value
    const char *what; // plural of the measured things, such as "experts"
    /* Sets *out (own) to the state of a measurement for the modifier m. p: a plan made with
     * opt->measure; p and m must outlive *out. The state begins with an osh_measuring. */
    osh_status (*open)(osh_ctx *cx, osh_measuring **out, osh_plan *p, const osh_modifier *m);
    void (*close)(osh_ctx *cx, osh_measuring *m); // m may be NULL
    /* The arguments of the next three functions are those of osh_forward_visitor and
     * osh_exec_hooks. `user` is the osh_measuring.
     * begin: begins the statistics of values of a subgraph (osh_measuring_begin).
     * value: adds a value of a batch to a statistic.
     * solve: uses the statistics, which are complete. */
    osh_status (*begin)(osh_ctx *cx, void *user, osh_forward_part *p, const bool *values);
    osh_status (*value)(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                        const osh_batch *b);
    osh_status (*solve)(osh_ctx *cx, void *user, osh_forward_part *p);
    osh_status (*over)(osh_ctx *cx, osh_measuring *m); // called after the last subgraph
    /* Called after the run. Sets *value (own) to the value of the key, and *said (own) to a message
     * for the user. */
    osh_status (*print)(osh_ctx *cx, char **value, char **said, const osh_measuring *m);
    /* Called before the run. Returns text (own) for a plan, or NULL if there is no memory. mb:
     * predicted host memory. */
    char *(*plan)(osh_ctx *cx, const osh_plan *p, double mb);
} osh_measurement;
extern const osh_measurement osh_measure_experts, osh_measure_outliers;

struct osh_measuring { // the part of the state that all measurements have
    const osh_measurement *type; // view
    osh_plan *p;    // view
    osh_forward *f; // own
    /* The ranks among which samples are divided; NULL: this process runs all samples. */
    osh_ranks *ranks; // view
    osh_sweep sweep;  // own: progress
    /* Statistics that are collected now; NULL: the statistic is not collected now. */
    osh_stat **of; // own [n]
    int n;
};
/* Opens the model of the plan p. osh_measuring_close frees the members. */
osh_status osh_measuring_open(osh_ctx *cx, osh_measuring *m, const osh_measurement *type,
                              osh_plan *p);
/* Makes the steps of the model collect the statistics `measured`, as osh_plain_measure does. n:
 * number of statistics. */
osh_status osh_measuring_ask(osh_ctx *cx, osh_measuring *m, osh_measured *measured, bool again,
                             int n);
void osh_measuring_close(osh_ctx *cx, osh_measuring *m);
/* Begins statistic m->of[k] of the samples, with `width` channels. The statistic is freed
 * after `solve`. */
osh_status osh_measuring_begin(osh_ctx *cx, osh_measuring *m, int k, const osh_stat_type *type,
                               int64_t width);
/* Executes the steps of all subgraphs. */
osh_status osh_measuring_run(osh_ctx *cx, osh_measuring *m, osh_progress *pr);
/* Sets *peak to the host bytes of osh_measuring_run, with the allocator's overhead. */
osh_status osh_measuring_bytes(osh_ctx *cx, int64_t *peak, const osh_measuring *m);
#endif
