/* observer.h - observers find the range of a scale (llmcompressor/observers). A weight is seen
 * once, as a whole. The range of a static activation follows the calibration samples, one by one.
 * To add one: src/quant/observers/foo.c with `const osh_observer osh_observer_foo`, and a row in
 * observers.def. */
#ifndef OSH_OBSERVER_H
#define OSH_OBSERVER_H
#include "quant/scheme.h"

typedef struct osh_observer_key { // a key of observer_kwargs
    const char *name;             // NULL ends the list
    double dflt, min, max;
    bool whole;                   // integers only
    bool idle;                    // it has no effect here
} osh_observer_key;

/* A search narrows a range step by step at both ends. Step i multiplies (expand times the range) by
 * p = 1 - i / grid. The range with the least sum of |x - dq(x)|^norm is the result; the first of
 * equal ones wins. */
typedef struct osh_range_search {
    double expand, grid, norm;
    int64_t steps, patience; // it ends after `patience` steps without a better range in the tensor
    // by the mean square of the input channel; errors are in f32, not in the weight's dtype
    bool weighted;
} osh_range_search;

struct osh_histogram;
typedef struct osh_observer {
    const char *name;
    const osh_observer_key *keys;
    osh_range_search (*search)(const osh_q_args *a); // NULL: the range is not searched
    /* Updates the range by a sample: *min, *max is the range so far; lo, hi is that of the sample;
     * all have dtype dt. NULL: takes the range of the sample. */
    void (*update)(float *min, float *max, float lo, float hi, const osh_q_args *a, osh_dtype dt);
    /* Chooses the range from the counts (calibrate.h) of all samples of an activation, or of the
     * weights of one scale. Not all values are 0. NULL: nothing is counted. halves: the bins go
     * from -max |x| to max |x|, not from 0. */
    void (*choose)(double *lo, double *hi, const struct osh_histogram *h, const osh_q_args *a);
    bool (*halves)(const osh_q_args *a);
    /* For an observer that chooses the least loss (osh_calibrate_least): the number of candidate
     * ranges, candidate i, and the power of errors. With `exact` it looks at all values a second
     * time, when the ranges are known. */
    int64_t (*candidates)(const osh_q_args *a);
    void (*candidate)(double *lo, double *hi, const struct osh_histogram *h, const osh_q_args *a,
                      int64_t i);
    int (*power)(const osh_q_args *a);
    /* Returns the mean loss of the values of a tensor in the range [lo, hi]:
     * osh_calibrate_exact. */
    double (*exact)(const osh_tensor *x, const osh_q_args *a, double lo, double hi);
} osh_observer;

const osh_observer *osh_observer_find(const char *name); // NULL: there is none
const osh_observer *osh_observer_of(const osh_q_args *a); // minmax if a names none
/* Sets the observer that LLM Compressor's calibrating path writes to config.json if none is named:
 * memoryless_minmax for weights, minmax for static activations, none for dynamic ones. */
void osh_q_observer_default(osh_q_args *a, bool is_weight);
void osh_q_observer_plain(osh_q_args *a); // sets minimum and maximum of the data
bool osh_q_observer_is_plain(const osh_q_args *a); // true if the range is from minimum to maximum
osh_status osh_q_observer_kwarg(osh_ctx *cx, osh_q_args *a, const osh_q_kwarg *given,
                                const char *where);
/* Fails if there is no such observer. The error lists all names. */
osh_status osh_q_observer_known(osh_ctx *cx, const char *name, const char *where);
/* Fails if the observer does not support the arguments, or a kwarg is unknown or out of range. */
osh_status osh_q_observer_check(osh_ctx *cx, const osh_q_args *a, const char *where);
/* Returns the given value, else the default. */
double osh_observer_value(const osh_q_args *a, const char *key);
/* An `update`: the moving average with averaging_constant. */
void osh_observer_average(float *min, float *max, float lo, float hi, const osh_q_args *a,
                          osh_dtype dt);

/* ---- the search, of a weight or of a sample ---- */

typedef struct osh_range_job {
    const osh_q_args *a;
    int arithmetic;     // osh_arithmetic
    osh_dtype dt, from; // dtype of the scales, of w
    const void *w;      // [O, I]
    int64_t O, I;
    const float *importance; // [I], of a weighted search; NULL: all channels weigh the same
    float *min, *max;   // [scales]: in: range of the values, in dt; out: the searched range
} osh_range_job;
/* Searches or chooses the ranges. Does nothing if the observer of a does neither. */
osh_status osh_observer_search(osh_ctx *cx, const osh_range_job *j);
size_t osh_observer_bytes(const osh_q_args *a, int64_t O, int64_t I, osh_dtype dt); // scratch bytes
bool osh_observer_weighs(const osh_q_args *a); // it needs the mean squares of input channels
bool osh_observer_searches(const osh_q_args *a); // it searches or counts
bool osh_observer_counts(const osh_q_args *a);
/* True if it counts each value, then measures its loss in a second look. */
bool osh_observer_twice(const osh_q_args *a);
int64_t osh_observer_bins(const osh_q_args *a); // initial bins of a half of its histogram
/* True if the ranges of rows do not depend on other rows. They do in a search that may end before
 * its last step, because all ranges of a tensor end together. */
bool osh_observer_by_rows(const osh_q_args *a);
#endif
