/* token_peaks.c - sums the largest x^2 of each token over all tokens.
 *
 *   in[0] x [N, D]     out s F64 [1], in place: s += sum over t of max over j of x_tj^2
 *
 * modifiers/survey.c uses s to estimate the error of inputs that are quantized token by token. The
 * step between the codes of a token is proportional to the token's largest |x|. The squared error
 * is proportional to the square of the step. A square is exact in double. Squares are added in the
 * order of the tokens, so the result does not depend on batches or threads. Shapes: N tokens of the
 * batch, D elements per token. */
#include "ops/kernel.h"

#include <assert.h>

/* CHUNKS: number of chunks that run in parallel.
 * TOKENS: number of tokens in a chunk.
 * CHANNELS: number of elements that are converted to f32 at a time. */
enum { CHUNKS = 64, TOKENS = 16, CHANNELS = 256 };

typedef struct peaks_job {
    const osh_tensor *x; // the input [N, D]; view
    int64_t first;       // index of the token whose result is peak[0]
    double peak[CHUNKS * TOKENS];
} peaks_job;

static double token_peak(const osh_tensor *x, int64_t token)
{
    int64_t D = osh_width(x);
    float row[CHANNELS], most = 0;
    for (int64_t c = 0; c < D; c += CHANNELS) {
        int64_t n = osh_min64(CHANNELS, D - c);
        osh_to_f32(row, osh_elem(x, token * D + c), x->dtype, n);
        for (int64_t i = 0; i < n; i++) {
            float v = row[i] < 0 ? -row[i] : row[i];
            if (v > most) most = v;
        }
    }
    return (double)most * most;
}

static osh_status peaks_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    peaks_job *j = user;
    (void)cx, (void)worker;
    for (int64_t k = chunk * TOKENS; k < (chunk + 1) * TOKENS && j->first + k < osh_rows(j->x); k++)
        j->peak[k] = token_peak(j->x, j->first + k);
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    double *s = a->out[0]->data;
    (void)cx;
    for (int64_t t = 0; t < osh_rows(a->in[0]); t++) *s += token_peak(a->in[0], t);
    return OSH_OK;
}

static osh_status token_peaks_fast(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    peaks_job j = {.x = a->in[0]};
    double *s = a->out[0]->data;
    int64_t N = osh_rows(j.x), n;
    assert(a->out[0]->dtype == OSH_F64 && a->out[0]->shape[0] == 1);
    for (; j.first < N; j.first += n) {
        n = osh_min64(CHUNKS * TOKENS, N - j.first);
        OSH_TRY(osh_parallel_for(cx, osh_div_up(n, TOKENS), peaks_chunk, &j));
        for (int64_t k = 0; k < n; k++) *s += j.peak[k];
    }
done:
    return rc;
}

const osh_op osh_op_token_peaks = {
    .name = "token_peaks", .n_in = 1, .n_weights = 0, .n_out = 1,
    .run = {[OSH_REF] = ref, [OSH_CPU] = token_peaks_fast},
};
