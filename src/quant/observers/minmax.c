/* minmax.c - finds the smallest and the largest value (llmcompressor/observers/min_max.py). The
 * range of an activation over its samples is:
 *
 *   memoryless_minmax   range of the last sample
 *   static_minmax       smallest and largest value of all samples
 *   minmax              range of the first sample; each later sample changes both ends
 *                       of the range from `old` to rnd(rnd(old (1 - c)) + rnd(now c)), where `now`
 *                       is the end of the sample's range
 *
 * c is averaging_constant. rnd rounds to the dtype of the values. */
#include "quant/observer.h"

static void take_last(float *min, float *max, float lo, float hi, const osh_q_args *a, osh_dtype dt)
{
    (void)a, (void)dt;
    *min = lo;
    *max = hi;
}

static void widen_range(float *min, float *max, float lo, float hi, const osh_q_args *a,
                        osh_dtype dt)
{
    (void)a, (void)dt;
    *min = lo < *min ? lo : *min;
    *max = hi > *max ? hi : *max;
}

static const osh_observer_key no_keys[] = {{0}};
static const osh_observer_key average_keys[] = {{"averaging_constant", 0.01, 0, 1, false, false},
                                                {0}};

const osh_observer osh_observer_memoryless_minmax = {"memoryless_minmax", no_keys, NULL, take_last};
const osh_observer osh_observer_static_minmax = {"static_minmax", no_keys, NULL, widen_range};
const osh_observer osh_observer_minmax = {"minmax", average_keys, NULL, osh_observer_average};
