/* mse.c - searches the range with the smallest error. The search has `int(maxshrink * grid)` steps
 * (llmcompressor/observers/mse.py). osh_range_search describes a step.
 *
 * memoryless_mse searches the range of a weight, or the range of the last sample of an activation.
 * mse does the same for a weight. For an activation, it returns the moving average of the samples'
 * ranges. nvfp4_expanded_mse and fouroversix search from 1.8 to 0.8 times the range, and do all
 * steps. They try ranges that are too large, because the error may be smallest if the largest value
 * of a group gets the code 4 or 3 instead of NVFP4's largest code, 6. */
#include "quant/observer.h"

static osh_range_search mse_search(const osh_q_args *a)
{
    double patience = osh_observer_value(a, "patience"); // a patience of 0 has the effect of 1
    osh_range_search s = {.expand = osh_observer_value(a, "expand"),
                          .grid = osh_observer_value(a, "grid"),
                          .norm = osh_observer_value(a, "norm"),
                          .patience = patience < 1 ? 1 : (int64_t)patience};
    s.steps = (int64_t)(osh_observer_value(a, "maxshrink") * s.grid);
    return s;
}

/* KEYS(s, p, g, e) lists the keys. Its arguments are the default values of maxshrink, patience,
 * grid and expand. The key triton_error_buffer has no effect, because LLM Compressor uses it only
 * on a GPU. */
#define KEYS(s, p, g, e)                                                                           \
    {"maxshrink", s, 0, 1, false, false}, {"patience", p, 0, 1e9, true, false},                    \
        {"grid", g, 1, 1e6, false, false}, {"norm", 2.4, 0.01, 100, false, false},                 \
        {"expand", e, 1, 1e6, false, false},                                                       \
    {                                                                                              \
        "triton_error_buffer", 0.3, 0, 1e9, false, true                                            \
    }
static const osh_observer_key keys[] = {KEYS(0.2, 5, 100, 1), {0}};
static const osh_observer_key average_keys[] = {
    KEYS(0.2, 5, 100, 1), {"averaging_constant", 0.01, 0, 1, false, false}, {0}};
static const osh_observer_key expanded_keys[] = {KEYS(1 - 0.8 / 1.8, 1000, 200, 1.8), {0}};

const osh_observer osh_observer_memoryless_mse = {"memoryless_mse", keys, mse_search, NULL};
const osh_observer osh_observer_mse = {"mse", average_keys, mse_search, osh_observer_average};
const osh_observer osh_observer_nvfp4_expanded_mse = {"nvfp4_expanded_mse", expanded_keys,
                                                      mse_search, NULL};
const osh_observer osh_observer_fouroversix = {"fouroversix", expanded_keys, mse_search, NULL};
