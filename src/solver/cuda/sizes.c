/* sizes.c - scratch of a solve on a GPU, in every binary: a plan for a GPU needs neither GPU nor kernels. */
#include "solver/cuda/sizes.h"

#include "ops/kernel.h"

size_t osh_gptq_permute_cuda_bytes(int64_t I) { return 2 * osh_arena_gross((size_t)I * sizeof(float)); }

enum { PANEL_LEAST = 64, PANEL_MOST = 1024 }; // rows; multiples of what gptq_solve.cu takes at once
enum { TILE_ELEMENTS = 1 << 26, TILE_PANELS = 4096 }; // of w, at most
enum { SPLIT_REST = 128 }; // columns behind a block from which on the product is one of TF32

/* Of the input's width alone: all products of one input have the same shapes. About a quarter of a square weight, so
 * that few rows of panels are nobody's. */
int64_t osh_gptq_panel_rows(int64_t I)
{
    int64_t P = PANEL_LEAST;
    while (P < PANEL_MOST && 8 * P <= I) P *= 2;
    return P;
}

/* Whether the product behind the block is one of TF32, and the distance of the rows of what is split of U: 16 bytes
 * are what cuBLASLt likes. */
bool osh_gptq_splits(int64_t first, int64_t n, int64_t I) { return I - first - n >= SPLIT_REST; }
int64_t osh_gptq_split_ld(int64_t rest) { return (rest + 3) / 4 * 4; }

void osh_gptq_group_add(osh_gptq_group *g, int64_t O, int64_t n_scale_cols)
{
    g->n_jobs++;
    if (!g->n_inputs) g->n_inputs = 1;
    g->n_panels += osh_div_up(O, osh_gptq_panel_rows(g->I));
    g->n_scales += O * n_scale_cols;
    if (n_scale_cols > g->n_scale_cols) g->n_scale_cols = n_scale_cols;
}

/* Inputs whose panels a tile of so many has, at most: of the first and the last one perhaps some. */
static int64_t tile_inputs(const osh_gptq_group *g, int64_t n_panels)
{
    if (g->n_inputs <= 1 || n_panels <= 1) return 1;
    return osh_min64(g->n_inputs, (n_panels - 2) / (g->n_panels / g->n_inputs) + 2);
}

/* Where each array begins in one block of the arena, and the end, with so many panels in a tile. */
size_t osh_gptq_offsets(size_t at[OSH_GPTQ_N_ARRAYS], const osh_gptq_group *g, int64_t n_panels)
{
    int64_t P = osh_gptq_panel_rows(g->I), block = osh_min64(g->block_size, g->I);
    size_t rows = (size_t)(n_panels * P), I = (size_t)g->I, bytes[OSH_GPTQ_N_ARRAYS], sum = 0;

    bytes[OSH_GPTQ_W] = rows * I * sizeof(float);
    bytes[OSH_GPTQ_ERR] = rows * (size_t)block * sizeof(float);
    bool tf32 = osh_gptq_splits(0, block, g->I); // then also where the card is better at F32: a plan knows none
    bytes[OSH_GPTQ_SPLIT] = tf32 ? 3 * bytes[OSH_GPTQ_ERR] : 0;
    size_t split_u = tf32 ? (size_t)(3 * block * osh_gptq_split_ld(g->I - block)) * sizeof(float) : 0;
    bytes[OSH_GPTQ_SPLIT_U] = split_u * (size_t)tile_inputs(g, n_panels);
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

/* Panels of a tile where there is room for any number: tiles of one size. */
static int64_t most_panels(const osh_gptq_group *g)
{
    int64_t most = TILE_ELEMENTS / (g->I * osh_gptq_panel_rows(g->I));
    most = most < 1 ? 1 : osh_min64(most, TILE_PANELS);
    return osh_div_up(g->n_panels, osh_div_up(g->n_panels, most));
}

/* Panels of a tile that fit into `room` bytes, one at least. */
int64_t osh_gptq_tile_panels(const osh_gptq_group *g, size_t room)
{
    size_t at[OSH_GPTQ_N_ARRAYS];
    int64_t n = 1, most = most_panels(g); // n fits, or nothing does
    while (n < most) {
        int64_t half = (n + most + 1) / 2;
        if (osh_gptq_offsets(at, g, half) <= room) n = half;
        else most = half - 1;
    }
    return n;
}

size_t osh_gptq_solve_cuda_bytes(const osh_gptq_group *g, size_t room)
{
    size_t at[OSH_GPTQ_N_ARRAYS];
    return g->n_panels ? osh_arena_gross(osh_gptq_offsets(at, g, osh_gptq_tile_panels(g, room))) : 0;
}

size_t osh_gptq_solve_cuda_host_bytes(const osh_gptq_group *g)
{
    size_t figures = (size_t)(3 * most_panels(g) * osh_gptq_panel_rows(g->I)) * sizeof(double);
    return osh_mem_gross((size_t)g->n_panels * sizeof(osh_gptq_panel)) +
           osh_mem_gross((size_t)g->n_panels * sizeof(int)) +
           osh_mem_gross((size_t)g->I * sizeof(int32_t)) + osh_mem_gross(figures);
}
