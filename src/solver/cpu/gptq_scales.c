/* gptq_scales.c - searches the scales and zero points of a weight, in tiles of rows. Each group of
 * a tile is first transposed (panel.h).
 * The loss of a scale is the sum over the row_block rows that share the scale. A tile contains
 * whole blocks of row_block rows. If all rows share scales (row_block >= O), the losses of the
 * tiles are added in the order of the tiles. */
#include "solver/columns.h"
#include "solver/cpu/panel.h"
#include "ops/kernel.h"

enum { ROWS = 64 };

typedef struct scales_job {
    const osh_gptq_scales_args *a;
    /* rows: largest number of rows of a tile.
     * across: number of groups in a row. */
    int64_t rows, across;
    bool all; // true: all rows of the weight share scales; false: only blocks of row_block rows do
    float *room;          // own: [threads, scales_room_floats]
    /* Smallest and largest weight of each group, [tiles, across]; NULL if `all` is false. After
     * pass 0 the first `across` elements are the ranges over all tiles. */
    float *lo, *hi;       // own
    /* Loss of each group with each candidate scale, [tiles, across, candidates]; NULL if `all` is
     * false. */
    double *sums;         // own
    /* Number of the current pass, only used if `all` is true. Pass 0 finds the ranges of the
     * groups. Pass 1 computes the losses of candidate scales. */
    int pass;
} scales_job;

static int64_t scales_tile_rows(int64_t row_block, int64_t O)
{
    return row_block > 1 && row_block < O ? osh_div_up(row_block, OSH_PANEL_STEP) * OSH_PANEL_STEP
                                          : ROWS;
}

/* Returns the number of floats in the scratch of one thread. The scratch contains a transposed
 * group and one row of the weight. It also contains the range, scale and zero point of each row. */
static int64_t scales_room_floats(int64_t I, int64_t group, int64_t rows)
{
    return (osh_min64(group, I) + 4) * rows + I;
}

typedef struct tile_group { // rows [row, row + n), columns [col, col + n_cols) of the weight
    int64_t row, n, col, n_cols;
} tile_group;

/* Transposes group g of the weight to x [n_cols, rows]. In x, dead columns and rows after the last
 * row of the tile become 0. `line` [n_cols]: scratch. */
static void scales_turn_group(const osh_gptq_scales_args *a, float *x, float *line, int64_t rows,
                              tile_group g)
{
    for (int64_t r = 0; r < rows; r++) {
        if (r < g.n)
            osh_to_f32(line, osh_elem(a->w, (g.row + r) * a->I + g.col), a->w->dtype, g.n_cols);
        for (int64_t c = 0; c < g.n_cols; c++)
            x[c * rows + r] = r < g.n && !(a->dead && a->dead[g.col + c]) ? line[c] : 0;
    }
}

/* Joins the ranges of the first n rows. Sets all elements of lo [rows] to the minimum of lo[0] ...
 * lo[n - 1], and all elements of hi [rows] to the maximum of hi[0] ... hi[n - 1]. */
static void scales_join_ranges(float *lo, float *hi, int64_t n, int64_t rows)
{
    for (int64_t r = 1; r < n; r++) {
        lo[0] = lo[r] < lo[0] ? lo[r] : lo[0];
        hi[0] = hi[r] > hi[0] ? hi[r] : hi[0];
    }
    for (int64_t r = 1; r < rows; r++) lo[r] = lo[0], hi[r] = hi[0];
}

/* Sets *scale and *zero to the candidate with the smallest loss. `sums` [OSH_SCALE_CANDIDATES]:
 * loss of each candidate, summed over all rows that share the scale. */
static void scales_choose(const osh_scale_rule *rule, const double *sums, float lo, float hi,
                          float *scale, float *zero)
{
    static const float beside[OSH_SCALE_ZEROS] = {0, -1, 1};
    int best = 0, zeros = rule->symmetric ? 1 : OSH_SCALE_ZEROS;
    for (int k = 0; k < OSH_SCALE_CANDIDATES && !rule->fixed; k++)
        if (k % OSH_SCALE_ZEROS < zeros && sums[k] < sums[best]) best = k;
    float z;
    *scale = osh_scale_of(&z, rule, osh_scale_share(rule->kind, best / OSH_SCALE_ZEROS), lo, hi);
    z += rule->symmetric ? 0 : beside[best % OSH_SCALE_ZEROS];
    *zero = rule->symmetric ? 0 : fminf(fmaxf(z, rule->grid.lo), rule->grid.hi);
}

static void scales_put(const osh_gptq_scales_args *a, int64_t at, float scale, float zero)
{
    a->scale[at] = scale;
    if (a->zero) a->zero[at] = zero;
}

/* Finds the scales and zero points of group g for n rows, and stores them. */
static void scales_search_group(const scales_job *j, osh_search *s, float *room, int64_t row,
                                int64_t n, int64_t g)
{
    const osh_gptq_scales_args *a = j->a;
    float *lo = room, *hi = lo + j->rows, *scale = hi + j->rows, *zero = scale + j->rows;
    double sums[OSH_SCALE_CANDIDATES] = {0};
    int64_t at = row / a->row_block * j->across + g;

    osh_panel_ranges(s, lo, hi);
    if (a->row_block == 1) {
        osh_panel_search(s, lo, hi, scale, zero);
        for (int64_t r = 0; r < n; r++) scales_put(a, (row + r) * j->across + g, scale[r], zero[r]);
        return;
    }
    scales_join_ranges(lo, hi, n, j->rows);
    if (!a->rule.fixed) osh_panel_candidates(s, lo, hi, n, sums);
    scales_choose(&a->rule, sums, lo[0], hi[0], scale, zero);
    scales_put(a, at, *scale, *zero);
}

/* Computes the contribution of one tile to the scale of group g. All rows share this scale. Pass 0
 * computes the range of the tile's weights, and pass 1 computes the losses of the candidates in the
 * tile. */
static void scales_share_group(const scales_job *j, osh_search *s, float *room, int64_t tile,
                               int64_t n, int64_t g)
{
    float *lo = room, *hi = lo + j->rows;
    int64_t at = tile * j->across + g;
    if (j->pass == 0) {
        osh_panel_ranges(s, lo, hi);
        scales_join_ranges(lo, hi, n, j->rows);
        j->lo[at] = lo[0], j->hi[at] = hi[0];
        return;
    }
    // all rows of the weight share the scale, so each row uses the range over all rows
    for (int64_t r = 0; r < j->rows; r++) lo[r] = j->lo[g], hi[r] = j->hi[g];
    osh_panel_candidates(s, lo, hi, n, j->sums + at * OSH_SCALE_CANDIDATES);
}

static osh_status scales_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const scales_job *j = user;
    const osh_gptq_scales_args *a = j->a;
    int64_t step = a->row_block > 1 && !j->all ? a->row_block : j->rows, row = chunk * step;
    int64_t n = osh_min64(step, a->O - row);
    float *room = j->room + worker * scales_room_floats(a->I, a->group, j->rows);
    float *x = room + 4 * j->rows, *line = x + osh_min64(a->group, a->I) * j->rows;

    (void)cx;
    for (int64_t g = 0; g < j->across; g++) {
        int64_t col = g * a->group, n_cols = osh_min64(a->group, a->I - col);
        osh_search s = {.rule = a->rule,
                        .x = x,
                        .weight = a->weight ? a->weight + col : NULL,
                        .n = n_cols,
                        .rows = j->rows};
        scales_turn_group(a, x, line, j->rows, (tile_group){row, n, col, n_cols});
        if (j->all) scales_share_group(j, &s, room, chunk, n, g);
        else scales_search_group(j, &s, room, row, n, g);
    }
    return OSH_OK;
}

static osh_status scales_search_all(osh_ctx *cx, scales_job *j)
{
    osh_status rc = OSH_OK;
    const osh_gptq_scales_args *a = j->a;
    int64_t tiles = osh_div_up(a->O, j->rows);
    OSH_NEW(cx, j->lo, tiles * j->across);
    OSH_NEW(cx, j->hi, tiles * j->across);
    OSH_NEW(cx, j->sums, tiles * j->across * OSH_SCALE_CANDIDATES);
    OSH_TRY(osh_parallel_for(cx, tiles, scales_chunk, j));
    for (int64_t at = j->across; at < tiles * j->across; at++) {
        int64_t g = at % j->across;
        j->lo[g] = fminf(j->lo[g], j->lo[at]);
        j->hi[g] = fmaxf(j->hi[g], j->hi[at]);
    }
    j->pass = 1;
    if (!a->rule.fixed) OSH_TRY(osh_parallel_for(cx, tiles, scales_chunk, j));
    for (int64_t at = j->across * OSH_SCALE_CANDIDATES;
         at < tiles * j->across * OSH_SCALE_CANDIDATES; at++)
        j->sums[at % (j->across * OSH_SCALE_CANDIDATES)] += j->sums[at];
    for (int64_t g = 0; g < j->across; g++) {
        float s, z;
        scales_choose(&a->rule, j->sums + g * OSH_SCALE_CANDIDATES, j->lo[g], j->hi[g], &s, &z);
        scales_put(a, g, s, z);
    }
done:
    osh_free(cx, j->lo);
    osh_free(cx, j->hi);
    osh_free(cx, j->sums);
    return rc;
}

osh_status osh_gptq_scales(osh_ctx *cx, const osh_gptq_scales_args *a)
{
    osh_status rc = OSH_OK;
    scales_job j = {.a = a,
                    .rows = scales_tile_rows(a->row_block, a->O),
                    .across = osh_div_up(a->I, a->group),
                    .all = a->row_block >= a->O && a->row_block > 1};

    OSH_NEW(cx, j.room, osh_threads(cx) * scales_room_floats(a->I, a->group, j.rows));
    if (j.all) OSH_TRY(scales_search_all(cx, &j));
    else
        OSH_TRY(osh_parallel_for(cx, osh_div_up(a->O, a->row_block > 1 ? a->row_block : j.rows),
                                 scales_chunk, &j));
done:
    osh_free(cx, j.room);
    return rc;
}

osh_status osh_gptq_scales_host(osh_ctx *cx, osh_device *d, const osh_gptq_scales_args *a)
{
    (void)d;
    return osh_gptq_scales(cx, a);
}

size_t osh_gptq_scales_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block, int n_threads)
{
    int64_t rows = scales_tile_rows(row_block, O),
            tiles = osh_div_up(O, rows) * osh_div_up(I, group);
    size_t bytes =
        osh_mem_gross((size_t)(n_threads * scales_room_floats(I, group, rows)) * sizeof(float));
    if (row_block > 1 && row_block >= O)
        bytes += 2 * osh_mem_gross((size_t)tiles * sizeof(float)) +
                 osh_mem_gross((size_t)tiles * OSH_SCALE_CANDIDATES * sizeof(double));
    return bytes;
}
