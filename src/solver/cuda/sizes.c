/* sizes.c - computes the scratch of a solve on a GPU. This file is in every binary, because a plan
 * for a GPU needs neither a GPU nor kernels. */
#include "solver/cuda/sizes.h"

#include "ops/kernel.h"

size_t osh_gptq_permute_device_bytes(int64_t I)
{
    return 2 * osh_arena_gross((size_t)I * sizeof(float));
}

/* Smallest and largest number of rows of a panel. Both are multiples of ROWS of gptq_tile.cuh. */
enum { PANEL_LEAST = 64, PANEL_MOST = 1024 };
/* Largest number of elements of w in a tile, and largest number of panels of a tile. */
enum { TILE_ELEMENTS = 1 << 26, TILE_PANELS = 4096 };
/* The columns after a block are updated by a TF32 product if their number is at least
 * SPLIT_REST. */
enum { SPLIT_REST = 128 };

/* Returns the number of rows of a panel. It depends only on the width I of the input, so all
 * products of an input have the same shapes. For I >= 256 it is at most I / 4, because with larger
 * panels the last panel of a weight would have more unused rows. */
int64_t osh_gptq_panel_rows(int64_t I)
{
    int64_t P = PANEL_LEAST;
    while (P < PANEL_MOST && 8 * P <= I) P *= 2;
    return P;
}

/* True if the number of columns after the block [first, first + n) is enough for a TF32 product. */
bool osh_gptq_splits(int64_t first, int64_t n, int64_t I) { return I - first - n >= SPLIT_REST; }
/* Returns the distance between rows of the split U in elements: a multiple of 16 bytes, as cuBLASLt
 * requires. */
int64_t osh_gptq_split_ld(int64_t rest) { return (rest + 3) / 4 * 4; }

void osh_gptq_group_add(osh_gptq_group *g, int64_t O, int64_t n_scale_cols)
{
    g->n_jobs++;
    if (!g->n_inputs) g->n_inputs = 1;
    g->n_panels += osh_div_up(O, osh_gptq_panel_rows(g->I));
    g->n_scales += O * n_scale_cols;
    if (n_scale_cols > g->n_scale_cols) g->n_scale_cols = n_scale_cols;
}

/* Returns the largest number of inputs that a tile of n_panels panels can have. A tile may begin
 * and end in the middle of the panels of an input. */
static int64_t solve_tile_inputs(const osh_gptq_group *g, int64_t n_panels)
{
    if (g->n_inputs <= 1 || n_panels <= 1) return 1;
    return osh_min64(g->n_inputs, (n_panels - 2) / (g->n_panels / g->n_inputs) + 2);
}

/* Sets at[i] to the offset of array i in one allocation of the arena, for tiles of n_panels panels.
 * Returns the size of the allocation. */
size_t osh_gptq_offsets(size_t at[OSH_GPTQ_N_ARRAYS], const osh_gptq_group *g, int64_t n_panels)
{
    int64_t P = osh_gptq_panel_rows(g->I), block = osh_min64(g->block_size, g->I);
    size_t rows = (size_t)(n_panels * P), I = (size_t)g->I, bytes[OSH_GPTQ_N_ARRAYS], sum = 0;

    bytes[OSH_GPTQ_W] = rows * I * sizeof(float);
    bytes[OSH_GPTQ_ERR] = rows * (size_t)block * sizeof(float);
    /* The array SPLIT is only needed if TF32 is faster than F32. The plan is made without the GPU
     * and cannot know this, so it always counts the array. */
    bool tf32 = osh_gptq_splits(0, block, g->I);
    bytes[OSH_GPTQ_SPLIT] = tf32 ? 3 * bytes[OSH_GPTQ_ERR] : 0;
    size_t split_u =
        tf32 ? (size_t)(3 * block * osh_gptq_split_ld(g->I - block)) * sizeof(float) : 0;
    bytes[OSH_GPTQ_SPLIT_U] = split_u * (size_t)solve_tile_inputs(g, n_panels);
    bytes[OSH_GPTQ_SCALE] = bytes[OSH_GPTQ_ZERO] = rows * (size_t)g->n_scale_cols * sizeof(float);
    bytes[OSH_GPTQ_LOSS] = rows * sizeof(double);
    bytes[OSH_GPTQ_SQUARES] = 2 * rows * sizeof(double);
    bytes[OSH_GPTQ_CODES] = rows * I;
    bytes[OSH_GPTQ_SCALE_GIVEN] = bytes[OSH_GPTQ_ZERO_GIVEN] = (size_t)g->n_scales * sizeof(float);
    bytes[OSH_GPTQ_PLACE] = (size_t)g->n_inputs * I * sizeof(int32_t);
    bytes[OSH_GPTQ_COL] = (size_t)g->n_jobs * I * sizeof(int32_t);
    bytes[OSH_GPTQ_PANELS] = (size_t)g->n_panels * sizeof(osh_gptq_panel);
    for (int i = 0; i < OSH_GPTQ_N_ARRAYS; i++) at[i] = sum, sum += osh_arena_gross(bytes[i]);
    return sum;
}

/* Returns the number of panels that a tile has if enough memory is free. The panels are divided
 * evenly among the tiles. */
static int64_t solve_most_panels(const osh_gptq_group *g)
{
    int64_t most = TILE_ELEMENTS / (g->I * osh_gptq_panel_rows(g->I));
    most = most < 1 ? 1 : osh_min64(most, TILE_PANELS);
    return osh_div_up(g->n_panels, osh_div_up(g->n_panels, most));
}

/* Returns the number of panels of a tile, at least 1. If it is more than 1, all arrays of the tile
 * fit into `room` bytes. */
int64_t osh_gptq_tile_panels(const osh_gptq_group *g, size_t room)
{
    size_t at[OSH_GPTQ_N_ARRAYS];
    // Binary search for the number of panels: a tile of n panels always fits, or n is 1.
    int64_t n = 1, most = solve_most_panels(g);
    while (n < most) {
        int64_t half = (n + most + 1) / 2;
        if (osh_gptq_offsets(at, g, half) <= room) n = half;
        else most = half - 1;
    }
    return n;
}

size_t osh_gptq_solve_device_bytes(const osh_gptq_group *g, size_t room)
{
    size_t at[OSH_GPTQ_N_ARRAYS];
    return g->n_panels ? osh_arena_gross(osh_gptq_offsets(at, g, osh_gptq_tile_panels(g, room)))
                       : 0;
}

size_t osh_gptq_solve_device_host_bytes(const osh_gptq_group *g)
{
    size_t figures =
        (size_t)(3 * solve_most_panels(g) * osh_gptq_panel_rows(g->I)) * sizeof(double);
    return osh_mem_gross((size_t)g->n_panels * sizeof(osh_gptq_panel)) +
           osh_mem_gross((size_t)g->n_panels * sizeof(int)) +
           osh_mem_gross((size_t)g->I * sizeof(int32_t)) + osh_mem_gross(figures);
}
