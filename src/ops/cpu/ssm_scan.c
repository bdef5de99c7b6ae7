/* ssm_scan.c - Mamba 2's scan, a head of a sample at a time: one pass over its vectors for each token. They lie with a
 * row for each element of the state, so that sums of channels run side by side; rows are padded to eight channels. */
#include "base/isa.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/vec.h"
#include "ops/isa.h"
#include "ops/kernel.h"
#include "ops/scan.h"

#include <string.h>

typedef struct scan_room {
    float *Z;       // [S, padded P]
    float *B, *C;   // [S]
    float *x, *y;   // [padded P]
} scan_room;

static int64_t room_floats(const osh_ssm_scan_attr *at)
{
    int64_t P = osh_pad8(at->head_dim);
    return at->state * P + 2 * osh_pad8(at->state) + 2 * P;
}

/* Z = decay Z + B x, y = C Z; x is times the step already. */
OSH_VEC_FN void step_body(const scan_room *m, float decay, int64_t S, int64_t P)
{
    for (int64_t i = 0; i < S; i++)
        for (int64_t c = 0; c < P; c += OSH_LANES) {
            osh_v8f z, sum, more;
            v8_load(&z, m->Z + i * P + c);
            v8_load(&more, m->x + c);
            z = z * decay + more * m->B[i];
            v8_store(m->Z + i * P + c, &z);
            v8_load(&sum, m->y + c);
            sum = sum + z * m->C[i];
            v8_store(m->y + c, &sum);
        }
}
OSH_AVX2 static void step_avx2(const scan_room *m, float decay, int64_t S, int64_t P) { step_body(m, decay, S, P); }

static void scan_token(const osh_op_args *a, const scan_room *m, int64_t t, int64_t h, const float weights[3])
{
    const osh_ssm_scan_attr *at = a->attr;
    const osh_tensor *x = a->in[0];
    int64_t P = at->head_dim, S = at->state, padded = osh_pad8(P);
    int64_t row = t * osh_width(x), B = row + at->heads * P + h / (at->heads / at->groups) * S;
    float decay, step;
    osh_ssm_gates(&decay, &step, at, osh_tensor_at(a->in[1], t * at->heads + h), weights, x->dtype);
    osh_to_f32(m->x, osh_elem(x, row + h * P), x->dtype, P);
    osh_to_f32(m->B, osh_elem(x, B), x->dtype, S);
    osh_to_f32(m->C, osh_elem(x, B + at->groups * S), x->dtype, S);
    for (int64_t p = 0; p < P; p++) m->x[p] *= step;
    memset(m->y, 0, (size_t)padded * sizeof *m->y);
    if (osh_isa_used() >= OSH_ISA_AVX2) step_avx2(m, decay, S, padded);
    else step_body(m, decay, S, padded);
    osh_to_f32(m->x, osh_elem(x, row + h * P), x->dtype, P);
    for (int64_t p = 0; p < P; p++) m->y[p] += weights[1] * m->x[p];
    osh_from_f32(osh_elem(a->out[0], (t * at->heads + h) * P), x->dtype, m->y, P);
}

static void scan_head(const osh_op_args *a, const osh_tile *seq, int64_t h, float *room)
{
    const osh_ssm_scan_attr *at = a->attr;
    int64_t P = osh_pad8(at->head_dim);
    float weights[3];
    scan_room m = {.Z = room, .B = room + at->state * P};

    m.C = m.B + osh_pad8(at->state), m.x = m.C + osh_pad8(at->state), m.y = m.x + P;
    for (int k = 0; k < 3; k++) osh_load_weight(&weights[k], a->in[2 + k], h, 1, a->in[0]->dtype);
    for (int64_t t = seq->row; t < seq->row + seq->n; t++) scan_token(a, &m, t, h, weights);
}

osh_status osh_ssm_scan_cpu(osh_ctx *cx, const osh_op_args *a)
{
    const osh_ssm_scan_attr *at = a->attr;
    return osh_by_head(cx, a, at->heads, room_floats(at), scan_head);
}

size_t osh_ssm_scan_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                            int n_threads)
{
    (void)in_width, (void)out_width;
    return osh_by_head_scratch(room_floats(attr), n_tokens, n_threads);
}
