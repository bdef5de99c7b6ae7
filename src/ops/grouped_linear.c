/* grouped_linear.c - computes a Linear for each group of columns.
 *
 *   in[0] x [N, G*I]     in[1] w [G*R, I]     out y [N, G*R]
 *
 *   y[g R + r] = sum over i of w[g R + r][i] x[g I + i]
 *
 * The op computes transformers' DeepseekV4GroupedLinear. Sums are double and rounded once. Shapes:
 * N tokens of the batch, G groups, I inputs and R outputs of a group. */
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

/* ROWS: number of tokens in a chunk of parallel work.
 * LANES: number of partial sums of a dot product. */
enum { ROWS = 8, LANES = 8 };

static const osh_field attrs[] = {
    {"groups", OSH_F_INT, offsetof(osh_grouped_linear_attr, groups), NULL, 1, 1e6, "G", NULL, NULL},
    {"out_features", OSH_F_INT, offsetof(osh_grouped_linear_attr, out_features), "0", 0, 1e9,
     "G R", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_grouped_linear_attr *at = attr;
    if (in_width[0] % at->groups || at->out_features % at->groups || at->out_features < 1)
        return osh_fail(cx, OSH_E_FORMAT,
                        "grouped_linear: widths %lld and %lld, want multiples of %lld groups",
                        (long long)in_width[0], (long long)at->out_features,
                        (long long)at->groups);
    w_ndim[0] = 2, w_shape[0][0] = at->out_features, w_shape[0][1] = in_width[0] / at->groups;
    out_width[0] = at->out_features;
    return OSH_OK;
}

/* Adds the products x[i] w[i] of n elements to LANES partial sums, which are in the array `sum`. */
static void lanes_add(double *sum, const float *x, const float *w, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) sum[k] += (double)x[i + k] * w[i + k];
    for (int k = 0; i + k < n; k++) sum[k] += (double)x[i + k] * w[i + k];
}

/* For n_rows rows from row `first` on, computes the output with index o. `room` has two arrays in
 * f32: row o of w [I], and then the rows of x for the group of this output, [ROWS, I]. */
static void output_add(const osh_op_args *a, int64_t first, int64_t n_rows, int64_t o,
                       const float *room)
{
    int64_t O = osh_width(a->out[0]), I = a->in[1]->shape[1];
    for (int64_t r = 0; r < n_rows; r++) {
        double sum[LANES] = {0}, all = 0;
        lanes_add(sum, room + I * (1 + r), room, I);
        for (int k = 0; k < LANES; k++) all += sum[k];
        float y = (float)all;
        osh_from_f32(osh_elem(a->out[0], (first + r) * O + o), a->out[0]->dtype, &y, 1);
    }
}

typedef struct grouped_job {
    const osh_op_args *a;
    float *room; // scratch, [threads, 1 + ROWS, I]; own
} grouped_job;

static osh_status grouped_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const grouped_job *j = user;
    const osh_op_args *a = j->a;
    const osh_tensor *x = a->in[0], *w = a->in[1];
    int64_t G = ((const osh_grouped_linear_attr *)a->attr)->groups, I = w->shape[1];
    int64_t R = w->shape[0] / G, first = chunk * ROWS;
    int64_t n_rows = osh_min64(ROWS, osh_rows(x) - first);
    float *room = j->room + worker * (1 + ROWS) * I;

    (void)cx;
    for (int64_t g = 0; g < G; g++) {
        for (int64_t r = 0; r < n_rows; r++)
            osh_to_f32(room + I * (1 + r), osh_elem(x, ((first + r) * G + g) * I), x->dtype, I);
        for (int64_t o = g * R; o < (g + 1) * R; o++) {
            osh_load_weight(room, w, o * I, I, x->dtype);
            output_add(a, first, n_rows, o, room);
        }
    }
    return OSH_OK;
}

static osh_status grouped_ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    grouped_job j = {.a = a};
    OSH_NEW(cx, j.room, osh_threads(cx) * (1 + ROWS) * a->in[1]->shape[1]);
    OSH_TRY(osh_parallel_for(cx, osh_div_up(osh_rows(a->in[0]), ROWS), grouped_chunk, &j));
done:
    osh_free(cx, j.room);
    return rc;
}

static size_t grouped_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                              int64_t n_tokens, int n_threads)
{
    int64_t I = in_width[0] / ((const osh_grouped_linear_attr *)attr)->groups;
    (void)out_width, (void)n_tokens;
    return (size_t)(n_threads * (1 + ROWS) * I) * sizeof(float);
}

static double grouped_flops(const void *attr, const int64_t *in_width, int64_t out_width,
                            const osh_op_load *load)
{
    return 2 * load->tokens * (double)in_width[0] * (double)out_width /
           (double)((const osh_grouped_linear_attr *)attr)->groups;
}

const osh_op osh_op_grouped_linear = {
    .name = "grouped_linear", .n_in = 1, .n_weights = 1, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_grouped_linear_attr), .infer = infer,
    .run = {[OSH_REF] = grouped_ref}, .tol = 0, .scratch = grouped_scratch,
    .traits = OSH_OP_HOST_ONLY, .flops = grouped_flops,
};
