/* delta_rule.c - gated DeltaNet, a head of a sample at a time: two passes over its matrix for each token, the first
 * lets it fade and asks what it says of the key, the other corrects and reads it. Rows are padded to eight columns. */
#include "base/isa.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/vec.h"
#include "ops/isa.h"
#include "ops/kernel.h"
#include "ops/scan.h"

#include <math.h>
#include <string.h>

typedef struct delta_room {
    float *S;             // [Dk, padded Dv]
    float *q, *k;         // [Dk]
    float *v, *says, *y;  // [padded Dv]
} delta_room;

static int64_t room_floats(const osh_delta_rule_attr *at)
{
    int64_t Dv = osh_pad8(at->v_dim);
    return at->k_dim * Dv + 2 * osh_pad8(at->k_dim) + 3 * Dv;
}

/* says = k (decay S), S faded. */
OSH_VEC_FN void fade_body(float *S, float *says, const float *k, float decay, int64_t Dk, int64_t Dv)
{
    for (int64_t i = 0; i < Dk; i++)
        for (int64_t c = 0; c < Dv; c += OSH_LANES) {
            osh_v8f s, sum;
            v8_load(&s, S + i * Dv + c);
            s = s * decay;
            v8_store(S + i * Dv + c, &s);
            v8_load(&sum, says + c);
            sum = sum + s * k[i];
            v8_store(says + c, &sum);
        }
}
OSH_AVX2 static void fade_avx2(float *S, float *says, const float *k, float decay, int64_t Dk, int64_t Dv)
{
    fade_body(S, says, k, decay, Dk, Dv);
}

/* S += k v, y = q S. */
OSH_VEC_FN void correct_body(float *S, float *y, const float *q, const float *k, const float *v, int64_t Dk, int64_t Dv)
{
    for (int64_t i = 0; i < Dk; i++)
        for (int64_t c = 0; c < Dv; c += OSH_LANES) {
            osh_v8f s, sum, more;
            v8_load(&s, S + i * Dv + c);
            v8_load(&more, v + c);
            s = s + more * k[i];
            v8_store(S + i * Dv + c, &s);
            v8_load(&sum, y + c);
            sum = sum + s * q[i];
            v8_store(y + c, &sum);
        }
}
OSH_AVX2 static void correct_avx2(float *S, float *y, const float *q, const float *k, const float *v, int64_t Dk,
                                  int64_t Dv)
{
    correct_body(S, y, q, k, v, Dk, Dv);
}

static void unit(float *x, int64_t n, float by)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    float r = (float)(1 / sqrt(sum + 1e-6)) * by;
    for (int64_t i = 0; i < n; i++) x[i] *= r;
}

static void step(const delta_room *m, const osh_delta_rule_attr *at, float decay, float beta)
{
    int64_t Dk = at->k_dim, Dv = osh_pad8(at->v_dim);
    bool avx2 = osh_isa_used() >= OSH_ISA_AVX2;
    memset(m->says, 0, (size_t)Dv * sizeof *m->says);
    memset(m->y, 0, (size_t)Dv * sizeof *m->y);
    if (avx2) fade_avx2(m->S, m->says, m->k, decay, Dk, Dv);
    else fade_body(m->S, m->says, m->k, decay, Dk, Dv);
    for (int64_t c = 0; c < Dv; c++) m->v[c] = (m->v[c] - m->says[c]) * beta;
    if (avx2) correct_avx2(m->S, m->y, m->q, m->k, m->v, Dk, Dv);
    else correct_body(m->S, m->y, m->q, m->k, m->v, Dk, Dv);
}

static void delta_head(const osh_op_args *a, const osh_tile *seq, int64_t h, float *room)
{
    const osh_delta_rule_attr *at = a->attr;
    const osh_tensor *x = a->in[0];
    int64_t Dk = at->k_dim, Dv = at->v_dim, keys = at->k_heads * Dk;
    float A_log, dt_bias;
    delta_room m = {.S = room, .q = room + Dk * osh_pad8(Dv)};

    m.k = m.q + osh_pad8(Dk), m.v = m.k + osh_pad8(Dk), m.says = m.v + osh_pad8(Dv), m.y = m.says + osh_pad8(Dv);
    osh_load_weight(&A_log, a->in[3], h, 1, x->dtype);
    osh_load_weight(&dt_bias, a->in[4], h, 1, x->dtype);
    for (int64_t t = seq->row; t < seq->row + seq->n; t++) {
        int64_t row = t * osh_width(x), q = row + h / (at->v_heads / at->k_heads) * Dk;
        float to_fade = osh_tensor_at(a->in[1], t * at->v_heads + h), decay, beta;
        float to_take = osh_tensor_at(a->in[2], t * at->v_heads + h);
        osh_delta_gates(&decay, &beta, to_fade, to_take, A_log, dt_bias, x->dtype);
        osh_to_f32(m.q, osh_elem(x, q), x->dtype, Dk);
        osh_to_f32(m.k, osh_elem(x, q + keys), x->dtype, Dk);
        osh_to_f32(m.v, osh_elem(x, row + 2 * keys + h * Dv), x->dtype, Dv);
        unit(m.q, Dk, (float)(1 / sqrt((double)Dk)));
        unit(m.k, Dk, 1);
        step(&m, at, decay, beta);
        osh_from_f32(osh_elem(a->out[0], (t * at->v_heads + h) * Dv), x->dtype, m.y, Dv);
    }
}

osh_status osh_delta_rule_cpu(osh_ctx *cx, const osh_op_args *a)
{
    const osh_delta_rule_attr *at = a->attr;
    return osh_by_head(cx, a, at->v_heads, room_floats(at), delta_head);
}

size_t osh_delta_rule_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                              int n_threads)
{
    (void)in_width, (void)out_width;
    return osh_by_head_scratch(room_floats(attr), n_tokens, n_threads);
}
