/* observer.h - declares observers (llmcompressor/observers). An observer finds the range of some
 * values, and a scale is computed from the range. An observer sees all elements of a weight
 * together. For a static activation it sees one calibration sample after the other, and updates the
 * range. A new observer needs a file src/quant/observers/foo.c with `const osh_observer
 * osh_observer_foo`, and a row in observers.def. */
#ifndef OSH_OBSERVER_H
#define OSH_OBSERVER_H
#include "quant/scheme.h"

typedef struct osh_observer_key { // a key that an observer accepts in observer_kwargs
    const char *name;             // name of the key; NULL ends the list
    double dflt, min, max;
    bool whole;                   // true: the value must be an integer; false: any number
    bool idle;                    // true: the key is accepted but has no effect
} osh_observer_key;

/* A search for the best range of some values x. Step i tries their range, multiplied by `expand *
 * (1 - i / grid)`. The result is the range with the smallest sum of |x - dq(x)|^norm. If several
 * ranges have this sum, the first is chosen. */
typedef struct osh_range_search {
    double expand, grid, norm;
    /* The search ends after `patience` consecutive steps that improve no range of the tensor, or
     * after `steps` steps. */
    int64_t steps, patience;
    /* True: each error is multiplied by the mean square of its input channel, and errors are
     * computed in f32. False: errors are computed in the weight's dtype. */
    bool weighted;
} osh_range_search;

struct osh_histogram;
typedef struct osh_observer {
    const char *name;
    const osh_observer_key *keys;
    /* Returns the parameters of the search for a range. NULL: the observer does not search. */
    osh_range_search (*search)(const osh_q_args *a);
    /* Updates the range [*min, *max] of an activation with the range [lo, hi] of a sample. All
     * numbers are rounded to dt. `update` NULL: [lo, hi] replaces the range. */
    void (*update)(float *min, float *max, float lo, float hi, const osh_q_args *a, osh_dtype dt);
    /* Chooses the range [*lo, *hi] from the histogram h. It counts either all values of an
     * activation, or all weights that share a scale. At least one counted value is not 0. If
     * `choose` is NULL, the observer uses no histogram.
     * The key `bins` of observer_kwargs is a number of bins. If `halves` returns true, these bins
     * cover [-max |x|, max |x|]. Otherwise they cover [0, max |x|]. */
    void (*choose)(double *lo, double *hi, const struct osh_histogram *h, const osh_q_args *a);
    bool (*halves)(const osh_q_args *a);
    /* The next four functions are only for observers that choose the range with the smallest loss
     * (osh_calibrate_least).
     * candidates: returns the number of candidate ranges.
     * candidate: computes candidate range i.
     * power: returns the power of errors in the loss.
     * exact: if it is not NULL, the observer makes a second pass over all values, after the
     * candidates are known. */
    int64_t (*candidates)(const osh_q_args *a);
    void (*candidate)(double *lo, double *hi, const struct osh_histogram *h, const osh_q_args *a,
                      int64_t i);
    int (*power)(const osh_q_args *a);
    /* Returns the mean loss over all values of x if they are quantized with the range [lo, hi]
     * (osh_calibrate_exact). */
    double (*exact)(const osh_tensor *x, const osh_q_args *a, double lo, double hi);
} osh_observer;

/* Returns the observer with this name, or NULL if there is no such observer. */
const osh_observer *osh_observer_find(const char *name);
/* Returns the observer that `a` names. If `a` names none, returns minmax. */
const osh_observer *osh_observer_of(const osh_q_args *a);
/* If `a` names no observer, sets the name that LLM Compressor writes to config.json after
 * calibration: memoryless_minmax for weights, minmax for static activations, no name for dynamic
 * activations. */
void osh_q_observer_default(osh_q_args *a, bool is_weight);
/* Sets the observer memoryless_minmax without observer_kwargs. */
void osh_q_observer_plain(osh_q_args *a);
/* True if the observer of `a` is one of the minmax observers. */
bool osh_q_observer_is_plain(const osh_q_args *a);
/* Adds a key to observer_kwargs, or replaces its value. Fails if there would be more than
 * OSH_Q_KWARGS keys. `where` names the position in messages. */
osh_status osh_q_observer_kwarg(osh_ctx *cx, osh_q_args *a, const osh_q_kwarg *given,
                                const char *where);
/* Fails if there is no observer with this name. The message begins with `where` and lists all
 * names. */
osh_status osh_q_observer_known(osh_ctx *cx, const char *name, const char *where);
/* Fails if the observer of `a` does not support the quantization arguments `a`, or if a key of
 * observer_kwargs is unknown or has a value out of range. */
osh_status osh_q_observer_check(osh_ctx *cx, const osh_q_args *a, const char *where);
/* Returns the value of a key of observer_kwargs, or the default value of the key. */
double osh_observer_value(const osh_q_args *a, const char *key);
/* A function for the member `update` of an observer: computes a moving average of ranges with the
 * factor averaging_constant. */
void osh_observer_average(float *min, float *max, float lo, float hi, const osh_q_args *a,
                          osh_dtype dt);

/* ---- search of the ranges of a weight or of a sample ---- */

typedef struct osh_range_job {
    const osh_q_args *a;
    int arithmetic;     // a value of osh_arithmetic: how scales are computed
    osh_dtype dt, from; // dt: dtype of the scales; from: dtype of w
    const void *w;      // [O, I]
    int64_t O, I;
    /* Factor of the errors of each input channel, [I], for a search with the member `weighted`.
     * NULL: all factors are 1. */
    const float *importance;
    /* Ranges, [scales]. Input: the smallest and largest value for each scale, rounded to dt.
     * Output: the chosen ranges. */
    float *min, *max;
} osh_range_job;
/* Replaces the ranges j->min, j->max by better ranges, if the observer of j->a searches or uses a
 * histogram. Does nothing for all other observers. */
osh_status osh_observer_search(osh_ctx *cx, const osh_range_job *j);
/* Returns the number of bytes of scratch of osh_observer_search. */
size_t osh_observer_bytes(const osh_q_args *a, int64_t O, int64_t I, osh_dtype dt);
/* True if the observer of `a` needs the mean square of each input channel. */
bool osh_observer_weighs(const osh_q_args *a);
/* True if the observer of `a` searches ranges or uses a histogram. */
bool osh_observer_searches(const osh_q_args *a);
/* True if the observer of `a` uses a histogram. */
bool osh_observer_counts(const osh_q_args *a);
/* True if the observer of `a` reads all values twice: for the histogram, then for the losses of
 * candidates. */
bool osh_observer_twice(const osh_q_args *a);
/* Returns the initial number of bins for each sign in the histogram of the observer of `a`. */
int64_t osh_observer_bins(const osh_q_args *a);
/* True if the range of a row does not depend on other rows. False for a search with an early end,
 * because all rows end the search at the same step. */
bool osh_observer_by_rows(const osh_q_args *a);
#endif
