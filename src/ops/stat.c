/* stat.c - defines the types of statistics, and collects statistics for groups of samples
 * (stat.h). */
#include "ops/stat.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- the types of statistics ---- */

/* Makes the ranges state [2, n] empty: sets the minima to +infinity and the maxima to -infinity. */
static osh_status ranges_begin(osh_ctx *cx, osh_tensor *state)
{
    osh_status rc = OSH_OK;
    int64_t n = osh_tensor_numel(state) / 2;
    float *empty = NULL; // own: [2, n]
    OSH_NEW(cx, empty, 2 * n);
    for (int64_t i = 0; i < n; i++) empty[i] = INFINITY, empty[n + i] = -INFINITY;
    OSH_TRY(osh_tensor_put(cx, state, 0, empty, osh_tensor_bytes(state)));
done:
    osh_free(cx, empty);
    return rc;
}

/* Subtracts row 1 of the state of channel_sum (the rounding errors) from row 0 (the sums). */
static void channel_sum_finish(osh_tensor *state)
{
    int64_t n = state->shape[1];
    float *sum = state->data;
    for (int64_t c = 0; c < n; c++) sum[c] -= sum[n + c], sum[n + c] = 0;
}

const osh_stat_type osh_stat_hessian = {
    .name = "hessian", .dtype = OSH_F32, .ndim = 2, .feed = &osh_op_hessian_accum,
    .merge = &osh_op_merge_lower,
};
const osh_stat_type osh_stat_shift = {
    .name = "shift", .dtype = OSH_F32, .ndim = 2, .feed = &osh_op_shift_accum,
    .merge = &osh_op_merge_sums,
};
const osh_stat_type osh_stat_squares = {
    .name = "squares", .dtype = OSH_F64, .ndim = 1, .feed = &osh_op_channel_squares,
    .merge = &osh_op_merge_sums,
};
const osh_stat_type osh_stat_peaks = {
    .name = "peaks", .dtype = OSH_F64, .ndim = 1, .shape = {1}, .feed = &osh_op_token_peaks,
    .merge = &osh_op_merge_sums,
};
const osh_stat_type osh_stat_channel_sum = {
    .name = "channel_sum", .dtype = OSH_F32, .ndim = 2, .shape = {2}, .feed = &osh_op_channel_sum,
    .merge = &osh_op_merge_channel_sum, .finish = channel_sum_finish,
};
const osh_stat_type osh_stat_channel_range = {
    .name = "channel_range", .dtype = OSH_F32, .ndim = 2, .shape = {2}, .begin = ranges_begin,
    .feed = &osh_op_channel_range, .merge = &osh_op_merge_ranges, .exact = true,
};
const osh_stat_type osh_stat_sample_ranges = {
    .name = "sample_ranges", .dtype = OSH_F32, .ndim = 2, .shape = {2}, .begin = ranges_begin,
    .merge = &osh_op_merge_ranges, .exact = true,
};
const osh_stat_type osh_stat_routes = {
    .name = "routes", .dtype = OSH_I64, .ndim = 1, .feed = &osh_op_count_routes,
    .merge = &osh_op_merge_sums, .exact = true,
};
const osh_stat_type osh_stat_sums = {
    .name = "sums", .dtype = OSH_F64, .ndim = 1, .merge = &osh_op_merge_sums,
};

static const osh_stat_type *const stat_types[] = {
    &osh_stat_hessian,       &osh_stat_shift,         &osh_stat_squares,
    &osh_stat_peaks,         &osh_stat_channel_sum,   &osh_stat_channel_range,
    &osh_stat_sample_ranges, &osh_stat_routes,        &osh_stat_sums,
};

size_t osh_stat_type_count(void) { return sizeof stat_types / sizeof *stat_types; }
const osh_stat_type *osh_stat_type_at(size_t i) { return stat_types[i]; }

osh_tensor osh_stat_shape(const osh_stat_type *t, int64_t n)
{
    int64_t shape[2] = {t->shape[0] ? t->shape[0] : n, t->shape[1] ? t->shape[1] : n};
    return osh_tensor_view(t->dtype, t->ndim, shape, NULL);
}

static osh_status state_empty(osh_ctx *cx, const osh_stat_type *t, osh_tensor *state)
{
    return t->begin ? t->begin(cx, state) : osh_tensor_zero(cx, state);
}

osh_status osh_stat_state(osh_ctx *cx, osh_tensor **out, const osh_stat_type *t, int64_t n,
                          osh_where where)
{
    osh_status rc = OSH_OK;
    osh_tensor shape = osh_stat_shape(t, n), *state = NULL; // own: *state
    OSH_TRY(osh_tensor_new_on(cx, &state, where, shape.dtype, shape.ndim, shape.shape));
    OSH_TRY(state_empty(cx, t, state));
    *out = state, state = NULL; // passes ownership
done:
    osh_tensor_free(cx, state);
    return rc;
}

/* ---- groups of samples ---- */

osh_groups osh_groups_of(int64_t n_samples, int64_t wanted)
{
    int64_t n = n_samples < wanted ? n_samples : wanted;
    return (osh_groups){n_samples, n > 1 ? n : 1};
}

int64_t osh_group_first(const osh_groups *g, int64_t group)
{
    return group * g->n_samples / g->n;
}

int64_t osh_group_at(const osh_groups *g, int64_t sample)
{
    return ((sample + 1) * g->n - 1) / g->n_samples;
}

bool osh_stat_is_grouped(const osh_stat_type *t, const osh_groups *g)
{
    return !t->exact && g->n > 1;
}

/* ---- a statistic ---- */

osh_status osh_stat_new(osh_ctx *cx, osh_stat **out, const osh_stat_type *t, osh_groups groups,
                        int64_t n, osh_where where)
{
    osh_status rc = OSH_OK;
    osh_stat *s = NULL; // own
    OSH_NEW(cx, s, 1);
    *s = (osh_stat){.type = t, .groups = groups, .group = -1};
    OSH_TRY(osh_stat_state(cx, &s->all, t, n, where));
    *out = s, s = NULL; // passes ownership
done:
    osh_stat_free(cx, s);
    return rc;
}

osh_status osh_stat_new_part(osh_ctx *cx, osh_stat *s, osh_where where)
{
    if (s->part || !osh_stat_is_grouped(s->type, &s->groups)) return OSH_OK;
    const osh_tensor *all = s->all;
    int64_t n = all->shape[all->ndim - 1];
    return osh_stat_state(cx, &s->part, s->type, n, where);
}

static osh_status stat_merge(osh_ctx *cx, osh_stat *s)
{
    osh_op_args a = {.out = {s->all, s->part}};
    return osh_op_run(cx, s->type->merge, &a);
}

osh_status osh_stat_at(osh_ctx *cx, osh_tensor **to, osh_stat *s, int64_t sample)
{
    osh_status rc = OSH_OK;
    int64_t group = s->part ? osh_group_at(&s->groups, sample) : 0;
    assert(group >= s->group);
    if (s->open) {
        s->group = group, *to = s->part ? s->part : s->all;
        return OSH_OK;
    }
    if (group != s->group) {
        if (s->apart) OSH_TRY(stat_merge(cx, s));
        s->apart = s->group >= 0, s->group = group;
    }
    *to = s->apart ? s->part : s->all;
done:
    return rc;
}

/* Returns a view of rows [row, row + n) of x [N, D]. */
static osh_tensor rows_view(const osh_tensor *x, int64_t row, int64_t n)
{
    osh_tensor rows = *x;
    int64_t each = osh_tensor_numel(x) / x->shape[0];
    rows.data = (char *)x->data + (size_t)(row * each) * osh_dtype_bytes(x->dtype);
    rows.shape[0] = n, rows.own = false;
    return rows;
}

osh_status osh_stat_feed(osh_ctx *cx, osh_stat *s, const osh_op_args *a, int64_t first_sample)
{
    osh_status rc = OSH_OK;
    const int64_t *at = a->seqs->offsets;
    const osh_op *op = s->type->feed;
    assert(first_sample >= s->next);
    s->next = first_sample + a->seqs->n;
    for (int64_t k = 0, end; k < a->seqs->n; k = end) {
        end = a->seqs->n;
        if (s->part) {
            int64_t group = osh_group_at(&s->groups, first_sample + k),
                    next = osh_group_first(&s->groups, group + 1) - first_sample;
            if (next < end) end = next;
        }
        if (at[end] == at[k]) continue;
        osh_seqs seqs = {end - k, at + k};
        osh_op_args part = {.seqs = &seqs};
        osh_tensor rows[2];
        for (int i = 0; i < 2; i++)
            if (a->in[i])
                rows[i] = rows_view(a->in[i], at[k], at[end] - at[k]), part.in[i] = &rows[i];
        OSH_TRY(osh_stat_at(cx, &part.out[0], s, first_sample + k));
        OSH_TRY(osh_op_run(cx, op, &part));
    }
done:
    return rc;
}

/* ---- tiles ---- */

static bool stat_is_lower(const osh_stat *s) { return s->type->merge == &osh_op_merge_lower; }

/* True if the state is merged row by row. This is so for triangles and for matrices of sums. All
 * other states have few bytes, and are merged as a whole. */
static bool stat_has_rows(const osh_stat *s)
{
    return s->all->ndim == 2 && (stat_is_lower(s) || s->type->merge == &osh_op_merge_sums);
}

int64_t osh_stat_n_rows(const osh_stat *s) { return stat_has_rows(s) ? s->all->shape[0] : 1; }

static int64_t row_elements(const osh_stat *s, int64_t row)
{
    if (!stat_has_rows(s)) return osh_tensor_numel(s->all);
    return stat_is_lower(s) ? row + 1 : s->all->shape[1];
}

static char *row_at(const osh_stat *s, const osh_tensor *state, int64_t row)
{
    int64_t width = stat_has_rows(s) ? state->shape[1] : 0;
    return (char *)state->data + (size_t)(row * width) * osh_dtype_bytes(state->dtype);
}

size_t osh_stat_tile_bytes(const osh_stat *s, int64_t first, int64_t end)
{
    int64_t n = 0;
    for (int64_t row = first; row < end; row++) n += row_elements(s, row);
    return (size_t)n * osh_dtype_bytes(s->all->dtype);
}

/* Returns the size in bytes of the whole rows [first, end) of the state. */
static size_t rows_bytes(const osh_stat *s, int64_t first, int64_t end)
{
    int64_t width = stat_has_rows(s) ? s->all->shape[1] : osh_tensor_numel(s->all);
    return (size_t)((end - first) * width) * osh_dtype_bytes(s->all->dtype);
}

size_t osh_stat_tile_room(const osh_stat *s, int64_t first, int64_t end)
{
    return s->all->device ? rows_bytes(s, first, end) : osh_stat_tile_bytes(s, first, end);
}

/* Makes a tile from the whole rows [first, end) in `rows`, which may be the tile's own buffer. */
static void tile_pack(void *tile, const void *rows, const osh_stat *s, int64_t first, int64_t end)
{
    char *to = tile;
    for (int64_t row = first; row < end; row++) {
        size_t n = osh_stat_tile_bytes(s, row, row + 1);
        memmove(to, (const char *)rows + rows_bytes(s, first, row), n), to += n;
    }
}

/* Changes a tile to a buffer with whole rows, in place. Sets the elements above the diagonal
 * to 0. */
static void tile_unpack(void *tile, const osh_stat *s, int64_t first, int64_t end)
{
    size_t from = osh_stat_tile_bytes(s, first, end);
    for (int64_t row = end - 1; row >= first; row--) {
        size_t n = osh_stat_tile_bytes(s, row, row + 1), all = rows_bytes(s, row, row + 1);
        char *to = (char *)tile + rows_bytes(s, first, row);
        from -= n;
        memmove(to, (char *)tile + from, n);
        memset(to + n, 0, all - n);
    }
}

osh_status osh_stat_take_tile(osh_ctx *cx, void *tile, const osh_stat *s, int64_t first,
                              int64_t end)
{
    osh_status rc = OSH_OK;
    bool copy = s->part->device;
    if (copy)
        OSH_TRY(
            osh_tensor_get(cx, tile, s->part, rows_bytes(s, 0, first), rows_bytes(s, first, end)));
    tile_pack(tile, copy ? tile : row_at(s, s->part, first), s, first, end);
done:
    return rc;
}

/* Returns the op that merges rows. The rows of a lower triangle are added element by element. */
static const osh_op *tile_merge_op(const osh_stat *s)
{
    return stat_is_lower(s) ? &osh_op_merge_sums : s->type->merge;
}

/* Merges a tile into `all` on a GPU. The rows of the tile are copied to the workspace of the GPU. A
 * lower triangle gets zeros above the diagonal, so whole rows are added. */
static osh_status stat_merge_on_device(osh_ctx *cx, osh_stat *s, void *tile, int64_t first,
                                       int64_t end)
{
    osh_status rc = OSH_OK;
    osh_device *d = s->all->device;
    size_t n = rows_bytes(s, first, end);
    osh_tensor to = *s->all, part;
    if (n > d->workspace_bytes)
        OSH_FAIL(cx, OSH_E_INTERNAL, "a tile has %zu bytes, more than the workspace of the GPU", n);
    if (stat_has_rows(s)) to = rows_view(s->all, first, end - first);
    part = to, part.data = d->workspace, part.own = false;
    tile_unpack(tile, s, first, end);
    OSH_TRY(osh_tensor_put(cx, &part, 0, tile, n));
    osh_op_args a = {.out = {&to, &part}};
    OSH_TRY(osh_op_run(cx, tile_merge_op(s), &a));
done:
    return rc;
}

osh_status osh_stat_merge_tile(osh_ctx *cx, osh_stat *s, void *tile, int64_t first, int64_t end)
{
    osh_status rc = OSH_OK;
    const osh_op *op = tile_merge_op(s);
    char *from = tile;
    if (s->all->device) return stat_merge_on_device(cx, s, tile, first, end);
    for (int64_t row = first; row < end; row++) {
        int64_t n = row_elements(s, row);
        bool whole = !stat_has_rows(s);
        const int64_t *shape = whole ? s->all->shape : &n;
        osh_tensor to = osh_tensor_view(s->all->dtype, whole ? s->all->ndim : 1, shape,
                                        row_at(s, s->all, row));
        osh_tensor part = osh_tensor_view(s->all->dtype, to.ndim, shape, from);
        osh_op_args a = {.out = {&to, &part}};
        OSH_TRY(osh_op_run(cx, op, &a));
        from += osh_stat_tile_bytes(s, row, row + 1);
    }
done:
    return rc;
}

osh_status osh_stat_close_part(osh_ctx *cx, osh_stat *s, bool merge)
{
    if (merge) return stat_merge(cx, s); // also empties `part`
    if (s->type->begin || !stat_has_rows(s) || s->part->device)
        return state_empty(cx, s->type, s->part);
    for (int64_t row = 0; row < osh_stat_n_rows(s); row++) // elements above the diagonal stay 0
        memset(row_at(s, s->part, row), 0, osh_stat_tile_bytes(s, row, row + 1));
    return OSH_OK;
}

static osh_status stat_merge_last(osh_ctx *cx, osh_stat *s)
{
    osh_status rc = OSH_OK;
    if (s->apart) OSH_TRY(stat_merge(cx, s));
    osh_tensor_free(cx, s->part), s->part = NULL, s->apart = false;
done:
    return rc;
}

osh_status osh_stat_fetch(osh_ctx *cx, osh_stat *s)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    if (!s->all->device) goto done;
    OSH_TRY(stat_merge_last(cx, s));
    OSH_TRY(osh_tensor_new(cx, &t, s->all->dtype, s->all->ndim, s->all->shape));
    OSH_TRY(osh_tensor_copy(cx, t, s->all));
    osh_tensor_free(cx, s->all);
    s->all = t, t = NULL; // passes ownership
done:
    osh_tensor_free(cx, t);
    return rc;
}

osh_status osh_stat_finish(osh_ctx *cx, osh_stat *s)
{
    osh_status rc = OSH_OK;
    OSH_TRY(stat_merge_last(cx, s));
    if (s->type->finish) OSH_TRY(osh_stat_fetch(cx, s));
    if (s->type->finish) s->type->finish(s->all);
done:
    return rc;
}

void osh_stat_free(osh_ctx *cx, osh_stat *s)
{
    if (!s) return;
    osh_tensor_free(cx, s->all);
    osh_tensor_free(cx, s->part);
    osh_free(cx, s);
}

size_t osh_stat_bytes(const osh_stat_type *t, const osh_groups *g, int64_t n)
{
    osh_tensor state = osh_stat_shape(t, n);
    return (size_t)(1 + osh_stat_is_grouped(t, g)) * osh_tensor_gross(osh_tensor_bytes(&state)) +
           osh_mem_gross(sizeof(osh_stat));
}
