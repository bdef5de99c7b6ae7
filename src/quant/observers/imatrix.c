/* imatrix.c - the range of a weight that loses least where its inputs are large (llmcompressor/observers/imatrix.py):
 * a search whose errors weigh as much as the mean square of their input channel. Weights in channels and groups only,
 * as there: of others all channels weigh the same, and strict: true refuses them. A patience of 0 has no end. */
#include "quant/observer.h"

static osh_range_search search(const osh_q_args *a)
{
    double patience = osh_observer_value(a, "patience");
    osh_range_search s = {.expand = osh_observer_value(a, "expand"),
                          .grid = osh_observer_value(a, "grid"),
                          .norm = osh_observer_value(a, "norm"),
                          .patience = patience < 1 ? INT64_MAX : (int64_t)patience,
                          .weighted = true};
    int64_t steps = (int64_t)(osh_observer_value(a, "maxshrink") * s.grid);
    s.steps = (steps < 1 ? 1 : steps) + 1;
    return s;
}

static const osh_observer_key keys[] = {
    {"maxshrink", 0.95, 0, 1, false, false}, {"patience", 5, 0, 1e9, true, false}, {"grid", 20, 1, 1e6, false, false},
    {"norm", 3, 0.01, 100, false, false},    {"expand", 1, 0.01, 1e6, false, false}, {"strict", 0, 0, 1, true, false},
    {0},
};
const osh_observer osh_observer_imatrix_mse = {"imatrix_mse", keys, search, NULL};
