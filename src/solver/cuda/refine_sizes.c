/* refine_sizes.c - computes the GPU scratch and the host scratch of gptq_scales.cu (search for
 * scales) and gptq_refine.cu (steps after the column loop). */
#include "solver/cuda/sizes.h"
#include "ops/kernel.h"

enum { TILE_ROWS = 1024 };

/* Sets at[i] to the offset of array i in an allocation that contains n arrays, one after the other.
 * Returns the size of the allocation. */
static size_t arrays_lay_out(size_t *at, const size_t *bytes, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) at[i] = sum, sum += osh_arena_gross(bytes[i]);
    return sum;
}

size_t osh_scales_offsets(size_t at[OSH_SCALES_N_ARRAYS], int64_t I, int64_t n_scales)
{
    size_t n = (size_t)n_scales * sizeof(float);
    size_t bytes[OSH_SCALES_N_ARRAYS] = {(size_t)I * sizeof(float), (size_t)I, n, n};
    return arrays_lay_out(at, bytes, OSH_SCALES_N_ARRAYS);
}

size_t osh_gptq_scales_device_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block)
{
    size_t at[OSH_SCALES_N_ARRAYS];
    return osh_arena_gross(
        osh_scales_offsets(at, I, osh_div_up(O, row_block) * osh_div_up(I, group)));
}

int64_t osh_refine_rows(int64_t O, int64_t row_block)
{
    int64_t rows = row_block < O ? osh_div_up(TILE_ROWS, row_block) * row_block : TILE_ROWS;
    return osh_min64(rows, O);
}

/* Returns how many floats of scratch osh_cuda_rescale needs for a group of n columns. The scratch
 * has the inverse and U of the group, and its costs, scales, zero points, codes and order. */
static int64_t rescale_room(int64_t n, int64_t rows)
{
    return 2 * n * n + n + 2 * rows + n * rows + n;
}

size_t osh_refine_offsets(size_t at[OSH_REFINE_N_ARRAYS], int64_t O, int64_t I, int64_t group,
                          int64_t row_block)
{
    int64_t rows = osh_refine_rows(O, row_block), groups = osh_div_up(I, group);
    int64_t window = osh_min64(groups, OSH_FIT_GROUPS),
            narrow = osh_min64(group, OSH_RESCALE_WIDEST);
    int64_t wide = narrow > OSH_CU_DESCEND ? narrow : OSH_CU_DESCEND;
    size_t n = (size_t)(rows * I) * sizeof(float), scales = (size_t)(rows * groups) * sizeof(float);
    size_t bytes[OSH_REFINE_N_ARRAYS] = {
        [OSH_REFINE_Q] = n,
        [OSH_REFINE_D] = n,
        [OSH_REFINE_G] = n,
        [OSH_REFINE_NEXT] = n,
        [OSH_REFINE_SCALE] = scales,
        [OSH_REFINE_ZERO] = scales,
        [OSH_REFINE_KEPT_SCALE] = scales,
        [OSH_REFINE_KEPT_ZERO] = scales,
        [OSH_REFINE_CODES] = (size_t)(rows * I),
        [OSH_REFINE_LOSS] = (size_t)rows * sizeof(double),
        [OSH_REFINE_NOW] = (size_t)rows * sizeof(double),
        [OSH_REFINE_FIT] = (size_t)(rows * window * (window + 1)) * sizeof(double),
        [OSH_REFINE_ROOM] = (size_t)rescale_room(narrow, rows) * sizeof(float),
        [OSH_REFINE_TURNED] = (size_t)(rows * wide) * sizeof(float),
        [OSH_REFINE_ERR] = (size_t)(rows * wide) * sizeof(float),
        [OSH_REFINE_DEAD] = (size_t)I,
        [OSH_REFINE_VALUES] = 256 * sizeof(float),
    };
    return arrays_lay_out(at, bytes, OSH_REFINE_N_ARRAYS);
}

size_t osh_gptq_refine_device_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block)
{
    size_t at[OSH_REFINE_N_ARRAYS];
    return osh_arena_gross(osh_refine_offsets(at, O, I, group, row_block));
}

size_t osh_gptq_refine_device_host_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block,
                                       int n_threads)
{
    int64_t rows = osh_refine_rows(O, row_block), groups = osh_div_up(I, group);
    size_t bytes = osh_mem_gross((size_t)(2 * rows * groups) * sizeof(float)) +
                   osh_mem_gross((size_t)rows * sizeof(double));
    if (row_block == 1 && group < I && group <= OSH_RESCALE_WIDEST)
        bytes += osh_group_factors_bytes(I, group, n_threads) +
                 osh_mem_gross((size_t)(I * group) * sizeof(float));
    return bytes;
}
