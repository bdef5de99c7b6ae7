/* kernel.c - defines helper functions of the kernels: loads of weights, activations, tiles of a
 * batch, loops over channels. */
#include "ops/kernel.h"
#include "tensor/device.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void osh_load_weight(float *to, const osh_tensor *w, int64_t first, int64_t n, osh_dtype compute)
{
    osh_to_f32(to, osh_elem(w, first), w->dtype, n);
    if (w->dtype == compute || compute == OSH_F32) return;
    for (int64_t i = 0; i < n; i++) to[i] = osh_round_to(to[i], compute);
}

osh_status osh_f32_weight(osh_ctx *cx, float **out, const osh_tensor *w, osh_dtype compute)
{
    int64_t n = osh_tensor_numel(w);

    *out = osh_alloc(cx, (size_t)(n + 1) * sizeof **out);
    if (!*out) return OSH_E_NOMEM;
    osh_load_weight(*out, w, 0, n, compute);
    return OSH_OK;
}

double osh_act_ref(const char *act, double x)
{
    if (!strcmp(act, "gelu")) return x / 2 * (1 + erf(x * 0.70710678118654752440));
    if (osh_act_is_tanh(act))
        return x / 2 * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    return x / (1 + exp(-x));
}

double osh_act_slope(const char *act, double x)
{
    if (!strcmp(act, "gelu"))
        return (1 + erf(x * 0.70710678118654752440)) / 2 +
               x * 0.39894228040143267794 * exp(-x * x / 2);
    if (osh_act_is_tanh(act)) {
        double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
        return (1 + t) / 2 +
               x / 2 * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
    }
    double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}

void osh_grad_add(osh_tensor *din, int64_t at, double more)
{
    if (din) ((float *)din->data)[at] = (float)(((float *)din->data)[at] + more);
}

osh_status osh_grad_zero(osh_ctx *cx, osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    for (int k = 0; k < OSH_OP_MAX_IN; k++)
        if (a->din[k] && a->fresh >> k & 1) OSH_TRY(osh_tensor_zero(cx, a->din[k]));
    a->fresh = 0;
done:
    return rc;
}

float osh_logit_of(float sum, const osh_logits_rule *rule, osh_dtype dt)
{
    float x = osh_round_to(sum, dt);
    if (rule && rule->divide > 0) x = osh_round_to(x / (float)rule->divide, dt);
    if (!rule || rule->cap <= 0) return x;
    float cap = (float)rule->cap, t = osh_round_to((float)tanh(osh_round_to(x / cap, dt)), dt);
    return osh_round_to(t * cap, dt);
}

osh_status osh_infer_same(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                          const int64_t *in_width, const void *attr)
{
    (void)cx, (void)attr, (void)w_shape, (void)w_ndim;
    out_width[0] = in_width[0];
    return OSH_OK;
}

osh_status osh_f32_copy(osh_ctx *cx, float **out, const osh_tensor *t)
{
    return osh_f32_weight(cx, out, t, t->dtype);
}

osh_status osh_tiles_new(osh_ctx *cx, osh_tile **out, int64_t *n_tiles, const osh_seqs *seqs,
                         int64_t N, int64_t tile_rows)
{
    const int64_t one[2] = {0, N};
    const int64_t *off = seqs ? seqs->offsets : one;
    int64_t n_seqs = seqs ? seqs->n : 1, n = 0, base = off[0];

    assert(off[n_seqs] - base == N);
    for (int64_t s = 0; s < n_seqs; s++) n += osh_div_up(off[s + 1] - off[s], tile_rows);
    osh_tile *tiles = osh_alloc(cx, (size_t)(n + 1) * sizeof *tiles);
    if (!tiles) return OSH_E_NOMEM;
    n = 0;
    for (int64_t s = 0; s < n_seqs; s++)
        for (int64_t r = off[s]; r < off[s + 1]; r += tile_rows)
            tiles[n++] = (osh_tile){.row = r - base,
                                    .n = osh_min64(tile_rows, off[s + 1] - r),
                                    .pos = r - off[s],
                                    .len = off[s + 1] - off[s]};
    *out = tiles;
    *n_tiles = n;
    return OSH_OK;
}

void osh_tiles_move(osh_tile *tiles, int64_t n_tiles, const osh_op_past *past)
{
    for (int64_t t = 0; past && t < n_tiles; t++) tiles[t].pos += past->n, tiles[t].len += past->n;
}

int64_t osh_tiles_panel(const osh_tile *tiles, int64_t n_tiles, int64_t first, int64_t max_rows)
{
    int64_t end = first, rows = 0;

    while (end < n_tiles && (end == first || rows + tiles[end].n <= max_rows))
        rows += tiles[end++].n;
    return end;
}

enum { CHANNELS = 256 }; // number of channels in a chunk of parallel work

typedef struct channel_job {
    const osh_op_args *a;
    osh_channel_step step;
} channel_job;

static osh_status channel_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const channel_job *j = user;
    const osh_tensor *x = j->a->in[0];
    int64_t N = osh_rows(x), D = osh_width(x), c = chunk * CHANNELS, n = osh_min64(CHANNELS, D - c);
    float row[CHANNELS];
    (void)cx, (void)worker;
    for (int64_t r = 0; r < N; r++) {
        osh_to_f32(row, osh_elem(x, r * D + c), x->dtype, n);
        j->step(j->a->out[0], row, c, n);
    }
    return OSH_OK;
}

osh_status osh_by_part(osh_ctx *cx, const void *args, int64_t n, int64_t each, osh_part_fn fn)
{
    return osh_parallel_for(cx, osh_div_up(n, each), fn, (void *)(uintptr_t)args);
}

osh_status osh_by_channel(osh_ctx *cx, const osh_op_args *a, osh_channel_step step)
{
    channel_job j = {a, step};
    return osh_parallel_for(cx, osh_div_up(osh_width(a->in[0]), CHANNELS), channel_chunk, &j);
}

double osh_product_flops(const void *attr, const int64_t *in_width, int64_t out_width,
                         const osh_op_load *load)
{
    (void)attr;
    return 2 * load->tokens * (double)in_width[0] * (double)out_width;
}
