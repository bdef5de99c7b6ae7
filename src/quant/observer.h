/* observer.h - how a scale's range is found (llmcompressor/observers). A weight is seen once and whole; of a static
 * activation the range follows the calibration samples, one after the other.
 *
 * Adding one: src/quant/observers/foo.c with `const osh_observer osh_observer_foo`, and a row in observers.def. */
#ifndef OSH_OBSERVER_H
#define OSH_OBSERVER_H
#include "quant/scheme.h"

typedef struct osh_observer_key { // one of observer_kwargs
    const char *name;             // NULL: there are no more
    double dflt, min, max;
    bool whole;                   // 1.5 is refused
    bool idle;                    // it decides nothing here
} osh_observer_key;

/* A search narrows a range step by step, both ends alike: of step i is p = 1 - i / grid of expand times the range left.
 * The range with the least sum of |x - dq(x)|^norm stays. The first of equal ones stays. */
typedef struct osh_range_search {
    double expand, grid, norm;
    int64_t steps, patience; // it ends behind so many steps in which no range of the tensor got better
    bool weighted; // by the mean square of the input channel; errors are those of f32, not of the weight's dtype
} osh_range_search;

struct osh_histogram;
typedef struct osh_observer {
    const char *name;
    const osh_observer_key *keys;
    osh_range_search (*search)(const osh_q_args *a); // NULL: the range stays as it is
    /* The range after one more sample: *min, *max before it; lo, hi of the sample, all values of dtype dt. NULL: the
     * sample's. */
    void (*update)(float *min, float *max, float lo, float hi, const osh_q_args *a, osh_dtype dt);
    /* The range of values that are counted (calibrate.h), all samples of an activation or what has one scale of a
     * weight; not all of them are 0. NULL: nothing is counted. halves: bins are from -max |x| to max |x|, not from 0.
     */
    void (*choose)(double *lo, double *hi, const struct osh_histogram *h, const osh_q_args *a);
    bool (*halves)(const osh_q_args *a);
    /* Of one that chooses what loses least (osh_calibrate_least): how many ranges it chooses from, the i-th of them,
     * and the power of errors. With `exact` all values are looked at a second time, when the ranges are known. */
    int64_t (*candidates)(const osh_q_args *a);
    void (*candidate)(double *lo, double *hi, const struct osh_histogram *h, const osh_q_args *a, int64_t i);
    int (*power)(const osh_q_args *a);
    /* What a tensor's values lose in the mean where [lo, hi] is their range: osh_calibrate_exact. */
    double (*exact)(const osh_tensor *x, const osh_q_args *a, double lo, double hi);
} osh_observer;

size_t osh_observer_count(void);
const osh_observer *osh_observer_at(size_t i);
const osh_observer *osh_observer_find(const char *name); // NULL: none of that name
const osh_observer *osh_observer_of(const osh_q_args *a); // minmax where none is named
/* What LLM Compressor's calibrating path leaves in config.json: memoryless_minmax for weights, minmax for static
 * activations where nothing is named, none for dynamic ones. */
void osh_q_observer_default(osh_q_args *a, bool is_weight);
void osh_q_observer_plain(osh_q_args *a); // minimum and maximum of what is at hand, whatever the scheme names
osh_status osh_q_observer_kwarg(osh_ctx *cx, osh_q_args *a, const osh_q_kwarg *given, const char *where);
/* Else: an error that names those that are. */
osh_status osh_q_observer_known(osh_ctx *cx, const char *name, const char *where);
/* The observer is there for such arguments, and its kwargs are its own and in their ranges. */
osh_status osh_q_observer_check(osh_ctx *cx, const osh_q_args *a, const char *where);
double osh_observer_value(const osh_q_args *a, const char *key); // as given, else its default
/* An update: the moving average with averaging_constant. */
void osh_observer_average(float *min, float *max, float lo, float hi, const osh_q_args *a, osh_dtype dt);

/* ---- the search, of a weight or of a sample ---- */

typedef struct osh_range_job {
    const osh_q_args *a;
    int arithmetic;     // osh_arithmetic
    osh_dtype dt, from; // of the scales, of w
    const void *w;      // [O, I]
    int64_t O, I;
    const float *importance; // [I], of a search that is weighted; NULL: all channels weigh the same
    float *min, *max;   // [scales]: in: of the values, in dt; out: what the search found
} osh_range_job;
/* Nothing where the observer of a has no search. */
osh_status osh_observer_search(osh_ctx *cx, const osh_range_job *j);
size_t osh_observer_bytes(const osh_q_args *a, int64_t O, int64_t I, osh_dtype dt); // scratch
bool osh_observer_weighs(const osh_q_args *a); // it wants the mean squares of input channels
bool osh_observer_searches(const osh_q_args *a); // or counts
bool osh_observer_counts(const osh_q_args *a);
bool osh_observer_twice(const osh_q_args *a); // it looks at each value twice: counts it, then measures what it loses
int64_t osh_observer_bins(const osh_q_args *a); // at first, of a half of its histogram
/* Ranges of rows are found without the other rows. Of a search that may end before its last step they are not: all of a
 * tensor end together. */
bool osh_observer_by_rows(const osh_q_args *a);
#endif
