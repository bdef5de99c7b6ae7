/* observer.h - observers find the range of a scale (llmcompressor/observers). A weight is observed
 * once, as a whole. The range of a static activation is updated by the calibration samples, one by
 * one. To add one: src/quant/observers/foo.c with `const osh_observer osh_observer_foo`, and a row
 * in observers.def. */
#ifndef OSH_OBSERVER_H
#define OSH_OBSERVER_H
#include "quant/scheme.h"

typedef struct osh_observer_key { // a key of observer_kwargs
    const char *name;             // NULL ends the list
    double dflt, min, max;
    bool whole;                   // the value must be an integer
    bool idle;                    // the key has no effect here
} osh_observer_key;

/* A search narrows a range step by step at both ends. Step i multiplies (`expand` times the range)
 * by p = 1 - i / grid. The range with the least sum of |x - dq(x)|^norm is the result; the first of
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
    /* Updates the range *min, *max with the range lo, hi of a sample. All have dtype dt. NULL: the
     * range of the sample replaces the range. */
    void (*update)(float *min, float *max, float lo, float hi, const osh_q_args *a, osh_dtype dt);
    /* Chooses the range from the counts (calibrate.h) of all samples of an activation, or of the
     * weights of one scale. At least one value is not 0. NULL: nothing is counted. If `halves` is
     * true, the bins go from -max |x| to max |x|; if not, they begin at 0. */
    void (*choose)(double *lo, double *hi, const struct osh_histogram *h, const osh_q_args *a);
    bool (*halves)(const osh_q_args *a);
    /* For an observer that chooses the least loss (osh_calibrate_least): the number of candidate
     * ranges, candidate i, and the power of errors. An observer with `exact` looks at all values a
     * second time, when the ranges are known. */
    int64_t (*candidates)(const osh_q_args *a);
    void (*candidate)(double *lo, double *hi, const struct osh_histogram *h, const osh_q_args *a,
                      int64_t i);
    int (*power)(const osh_q_args *a);
    /* Returns the mean loss of the values of a tensor in the range [lo, hi]
     * (osh_calibrate_exact). */
    double (*exact)(const osh_tensor *x, const osh_q_args *a, double lo, double hi);
} osh_observer;

const osh_observer *osh_observer_find(const char *name); // NULL: no observer has this name
const osh_observer *osh_observer_of(const osh_q_args *a); // returns minmax if `a` names no observer
/* Sets the observer that LLM Compressor's calibrating path writes to config.json if none is named:
 * memoryless_minmax for weights, minmax for static activations, none for dynamic ones. */
void osh_q_observer_default(osh_q_args *a, bool is_weight);
void osh_q_observer_plain(osh_q_args *a); // sets the observer whose range is the minimum and
                                          // maximum of the data
bool osh_q_observer_is_plain(const osh_q_args *a); // true if the range is from minimum to maximum
osh_status osh_q_observer_kwarg(osh_ctx *cx, osh_q_args *a, const osh_q_kwarg *given,
                                const char *where);
/* Fails if there is no observer of this name. The error lists all names. */
osh_status osh_q_observer_known(osh_ctx *cx, const char *name, const char *where);
/* Fails if the observer does not support the arguments, or if a key of observer_kwargs is unknown
 * or its value out of range. */
osh_status osh_q_observer_check(osh_ctx *cx, const osh_q_args *a, const char *where);
/* Returns the given value of a key, or its default. */
double osh_observer_value(const osh_q_args *a, const char *key);
/* Function for osh_observer.update: a moving average with averaging_constant. */
void osh_observer_average(float *min, float *max, float lo, float hi, const osh_q_args *a,
                          osh_dtype dt);

/* ---- the search, of a weight or of a sample ---- */

typedef struct osh_range_job {
    const osh_q_args *a;
    int arithmetic;     // a value of osh_arithmetic
    osh_dtype dt, from; // dt: dtype of the scales; from: dtype of w
    const void *w;      // [O, I]
    int64_t O, I;
    const float *importance; // [I] importance of each input channel in a weighted search; NULL: all
                             // are equal
    float *min, *max;   // [scales] input: range of the values, in dt; output: range that was found
} osh_range_job;
/* Searches or chooses the ranges. Does nothing if the observer of `a` does neither. */
osh_status osh_observer_search(osh_ctx *cx, const osh_range_job *j);
size_t osh_observer_bytes(const osh_q_args *a, int64_t O, int64_t I, osh_dtype dt); // returns the
                                                                                    // bytes of
                                                                                    // scratch
bool osh_observer_weighs(const osh_q_args *a); // true if it needs the mean squares of the input
                                               // channels
bool osh_observer_searches(const osh_q_args *a); // true if it searches a range or counts values
bool osh_observer_counts(const osh_q_args *a);
/* True if the observer counts all values, then computes their loss in a second look. */
bool osh_observer_twice(const osh_q_args *a);
int64_t osh_observer_bins(const osh_q_args *a); // number of bins at first in a half of its
                                                // histogram
/* True if the range of a row does not depend on other rows. It does in a search that may end before
 * its last step, because the searches of all ranges of a tensor end together. */
bool osh_observer_by_rows(const osh_q_args *a);
#endif
