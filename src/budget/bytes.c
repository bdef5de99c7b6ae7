/* bytes.c - computes the sizes of statistics, and defines the table of statistics that are sums
 * (osh_sums). */
#include "budget/bytes.h"

const osh_sum_type osh_sums[OSH_N_SUMS] = {
    [OSH_SUM_HESSIAN] = {.type = &osh_stat_hessian, .stat = OSH_STAT_HESSIAN, .mixed = true,
                         .on_gpu = true, .layout = OSH_LAYOUT_HESSIAN,
                         .part = OSH_LAYOUT_HESSIAN_PART},
    [OSH_SUM_SHIFT] = {.type = &osh_stat_shift, .stat = OSH_STAT_SHIFT, .original = true,
                       .mixed = true, .on_gpu = true, .layout = OSH_LAYOUT_SHIFT,
                       .part = OSH_LAYOUT_SHIFT_PART},
    [OSH_SUM_SQUARES] = {.type = &osh_stat_squares, .stat = OSH_STAT_SQUARES,
                         .solving = sizeof(float), // importance of each channel
                         .on_gpu = true, .layout = OSH_LAYOUT_SQUARES,
                         .part = OSH_LAYOUT_SQUARES_PART},
    [OSH_SUM_PEAKS] = {.type = &osh_stat_peaks, .stat = OSH_STAT_PEAKS},
};

bool osh_sum_wanted(osh_sum sum, const osh_linear *l)
{
    /* Only Linears whose input differs from the input in the original model need the shift. */
    return sum == OSH_SUM_SHIFT ? l->shift : (l->wants & osh_sums[sum].stat) != 0;
}

int64_t osh_sum_bytes(osh_sum sum, int64_t I)
{
    return (int64_t)osh_stat_bytes(osh_sums[sum].type, &(osh_groups){0}, I);
}
