/* mse.c - the range that loses least (llmcompressor/observers/mse.py). int(maxshrink grid) steps; see osh_range_search.
 *
 *   memoryless_mse   of a weight, or of the last sample
 *   mse              of an activation: the moving average of the samples' ranges. A weight is seen once */
#include "quant/observer.h"

static osh_range_search search(const osh_q_args *a)
{
    double patience = osh_observer_value(a, "patience"); // 0 ends where 1 does
    osh_range_search s = {.expand = osh_observer_value(a, "expand"),
                          .grid = osh_observer_value(a, "grid"),
                          .norm = osh_observer_value(a, "norm"),
                          .patience = patience < 1 ? 1 : (int64_t)patience};
    s.steps = (int64_t)(osh_observer_value(a, "maxshrink") * s.grid);
    return s;
}

/* triton_error_buffer: of the kernels for cards, which end a search elsewhere. */
#define KEYS                                                                                                           \
    {"maxshrink", 0.2, 0, 1, false, false}, {"patience", 5, 0, 1e9, true, false}, {"grid", 100, 1, 1e6, false, false}, \
        {"norm", 2.4, 0.01, 100, false, false}, {"expand", 1, 1, 1e6, false, false},                                   \
    {                                                                                                                  \
        "triton_error_buffer", 0.3, 0, 1e9, false, true                                                                \
    }
static const osh_observer_key keys[] = {KEYS, {0}};
static const osh_observer_key average_keys[] = {KEYS, {"averaging_constant", 0.01, 0, 1, false, false}, {0}};

const osh_observer osh_observer_memoryless_mse = {"memoryless_mse", keys, search, NULL};
const osh_observer osh_observer_mse = {"mse", average_keys, search, osh_observer_average};
