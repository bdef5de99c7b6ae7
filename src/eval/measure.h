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

typedef struct osh_measuring { // the part of the state that all measurements have
    osh_plan *p;    // view
    osh_forward *f; // own
    /* The ranks among which samples are divided; NULL: this process runs all samples. */
    osh_ranks *ranks; // view
    osh_sweep sweep;  // own: progress
    /* Statistics that are collected now; NULL: the statistic is not collected now. */
    osh_stat **of; // own [n]
    int n;
} osh_measuring;
/* Opens the model of the plan p. osh_measuring_close frees the members. */
osh_status osh_measuring_open(osh_ctx *cx, osh_measuring *m, osh_plan *p);
/* Makes the steps of the model collect the statistics `measured`, as osh_plain_measure does. n:
 * number of statistics. */
osh_status osh_measuring_ask(osh_ctx *cx, osh_measuring *m, osh_measured *measured, bool again,
                             int n);
void osh_measuring_close(osh_ctx *cx, osh_measuring *m);
/* Executes the steps of all subgraphs with the visitor v. */
osh_status osh_measuring_run(osh_ctx *cx, osh_measuring *m, const osh_forward_visitor *v,
                             osh_progress *pr);
/* Runs a pass for the samples of this rank with the hooks. */
osh_status osh_measuring_pass(osh_ctx *cx, osh_measuring *m, const osh_forward_part *p,
                              const osh_exec_hooks *hooks);
/* osh_measuring_begin begins statistic m->of[k] of the samples, with `width` channels.
 * osh_measuring_finish finishes all statistics, and osh_measuring_end frees them. */
osh_status osh_measuring_begin(osh_ctx *cx, osh_measuring *m, int k, const osh_stat_type *type,
                               int64_t width);
osh_status osh_measuring_finish(osh_ctx *cx, osh_measuring *m);
void osh_measuring_end(osh_ctx *cx, osh_measuring *m);
/* Sets *peak to the host bytes of osh_measuring_run, with the allocator's overhead. */
osh_status osh_measuring_bytes(osh_ctx *cx, int64_t *peak, const osh_measuring *m);
#endif
