/* observer.h - how a static activation range follows the samples (llmcompressor/observers/min_max.py). */
#ifndef OSH_OBSERVER_H
#define OSH_OBSERVER_H
#include "quant/scheme.h"

typedef struct osh_observer {
    const char *name;
    /* The range after one more sample: *min, *max before it; lo, hi of the sample, all values of dtype dt. */
    void (*update)(float *min, float *max, float lo, float hi, osh_dtype dt);
} osh_observer;

const osh_observer *osh_observer_find(const char *name); // NULL: none of that name
/* What LLM Compressor's calibrating path leaves in config.json: memoryless_minmax for weights, minmax for static
 * activations where nothing is named, none for dynamic ones. */
void osh_q_observer_default(osh_q_args *a, bool is_weight);
#endif
