/* imatrix.c - searches for the range that gives a weight the smallest error. The errors of each
 * input channel are multiplied by the mean square of the channel
 * (llmcompressor/observers/imatrix.py). These factors are used only with the strategies channel and
 * group, as in llmcompressor. With all other strategies the factors are 1; with `strict: true` such
 * a strategy is an error. With patience 0 the search does not end early. */
#include "quant/observer.h"

static osh_range_search imatrix_search(const osh_q_args *a)
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
    {"maxshrink", 0.95, 0, 1, false, false},
    {"patience", 5, 0, 1e9, true, false},
    {"grid", 20, 1, 1e6, false, false},
    {"norm", 3, 0.01, 100, false, false},
    {"expand", 1, 0.01, 1e6, false, false},
    {"strict", 0, 0, 1, true, false},
    {0},
};
const osh_observer osh_observer_imatrix_mse = {"imatrix_mse", keys, imatrix_search, NULL};
