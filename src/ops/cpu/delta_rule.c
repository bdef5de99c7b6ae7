/* delta_rule.c - computes gated DeltaNet, one head of one sample at a time. For each token, two
 * loops run over the state matrix S [Dk, Dv] of the head. The first loop multiplies S by the decay,
 * and computes k S. The second loop corrects S, and computes q S. Rows of S are padded to a
 * multiple of eight columns. */
#include "ops/cpu/delta_rule.h"

#include <math.h>
#include <string.h>

int64_t osh_delta_floats(const osh_delta_rule_attr *at)
{
    int64_t Dv = osh_pad8(at->v_dim);
    return at->k_dim * Dv + 2 * osh_pad8(at->k_dim) + 3 * Dv;
}

osh_delta_room osh_delta_room_at(const osh_delta_rule_attr *at, float *room)
{
    int64_t Dk = osh_pad8(at->k_dim), Dv = osh_pad8(at->v_dim);
    float *q = room + at->k_dim * Dv, *v = q + 2 * Dk;
    return (osh_delta_room){room, q, q + Dk, v, v + Dv, v + 2 * Dv};
}

/* Multiplies S by `decay`. Then computes k S, which is the value that the state has for the key k,
 * and adds it to the array `says`. */
OSH_VEC_FN void delta_fade_body(float *S, float *says, const float *k, float decay, int64_t Dk,
                                int64_t Dv)
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
OSH_AVX2 static void delta_fade_avx2(float *S, float *says, const float *k, float decay, int64_t Dk,
                                     int64_t Dv)
{
    delta_fade_body(S, says, k, decay, Dk, Dv);
}

/* Updates the state with a token, S += k v. Then computes the output, y += q S. */
OSH_VEC_FN void delta_correct_body(const osh_delta_room *m, int64_t Dk, int64_t Dv)
{
    float *S = m->S, *y = m->y;
    const float *q = m->q, *k = m->k, *v = m->v;
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
OSH_AVX2 static void delta_correct_avx2(const osh_delta_room *m, int64_t Dk, int64_t Dv)
{
    delta_correct_body(m, Dk, Dv);
}

/* Computes x = `by` * x / sqrt(sum(x^2) + 1e-6). */
static void scale_to_unit(float *x, int64_t n, float by)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    float r = (float)(1 / sqrt(sum + 1e-6)) * by;
    for (int64_t i = 0; i < n; i++) x[i] *= r;
}

void osh_delta_step(const osh_delta_room *m, const osh_delta_rule_attr *at, const float gates[2])
{
    int64_t Dk = at->k_dim, Dv = osh_pad8(at->v_dim);
    bool avx2 = osh_isa_used() >= OSH_ISA_AVX2;
    memset(m->says, 0, (size_t)Dv * sizeof *m->says);
    memset(m->y, 0, (size_t)Dv * sizeof *m->y);
    if (avx2) delta_fade_avx2(m->S, m->says, m->k, gates[0], Dk, Dv);
    else delta_fade_body(m->S, m->says, m->k, gates[0], Dk, Dv);
    for (int64_t c = 0; c < Dv; c++) m->v[c] = (m->v[c] - m->says[c]) * gates[1];
    if (avx2) delta_correct_avx2(m, Dk, Dv);
    else delta_correct_body(m, Dk, Dv);
}

osh_delta_token osh_delta_load(const osh_tensor *const *in, const osh_delta_rule_attr *at,
                               const osh_delta_room *m, int64_t t, int64_t h, osh_dtype dt)
{
    const osh_tensor *x = in[0];
    int64_t Dk = at->k_dim, keys = at->k_heads * Dk, row = t * osh_width(x),
            g = t * at->v_heads + h;
    int64_t q = row + h / (at->v_heads / at->k_heads) * Dk;
    osh_delta_token to = {.in = {osh_tensor_at(in[1], g), osh_tensor_at(in[2], g)}};

    for (int k = 2; k < 4; k++) osh_load_weight(&to.in[k], in[1 + k], h, 1, x->dtype);
    osh_delta_gates(to.gates, to.in, at, dt);
    osh_to_f32(m->q, osh_elem(x, q), x->dtype, Dk);
    osh_to_f32(m->k, osh_elem(x, q + keys), x->dtype, Dk);
    osh_to_f32(m->v, osh_elem(x, row + 2 * keys + h * at->v_dim), x->dtype, at->v_dim);
    scale_to_unit(m->q, Dk, (float)(1 / sqrt((double)Dk)));
    scale_to_unit(m->k, Dk, 1);
    return to;
}

static void delta_head(const osh_op_args *a, const osh_tile *seq, int64_t h, float *room)
{
    const osh_delta_rule_attr *at = a->attr;
    osh_dtype dt = a->in[0]->dtype;
    osh_delta_room m = osh_delta_room_at(at, room);
    size_t each = (size_t)(at->k_dim * osh_pad8(at->v_dim));
    float *state = a->past ? (float *)a->past->state + (size_t)h * each : NULL;
    if (state) memcpy(m.S, state, each * sizeof *state);
    for (int64_t t = seq->row; t < seq->row + seq->n; t++) {
        osh_delta_token now = osh_delta_load(a->in, at, &m, t, h, dt);
        osh_delta_step(&m, at, now.gates);
        osh_from_f32(osh_elem(a->out[0], (t * at->v_heads + h) * at->v_dim), dt, m.y, at->v_dim);
    }
    if (state) memcpy(state, m.S, each * sizeof *state);
}

/* Returns the size of the states of all heads in bytes (osh_op.state). */
size_t osh_delta_rule_state(const void *attr, const int64_t *in_width, int64_t n_tokens,
                            osh_dtype dt)
{
    const osh_delta_rule_attr *at = attr;
    (void)in_width, (void)n_tokens, (void)dt;
    return (size_t)(at->v_heads * at->k_dim * osh_pad8(at->v_dim)) * sizeof(float);
}

osh_status osh_delta_rule_cpu(osh_ctx *cx, const osh_op_args *a)
{
    const osh_delta_rule_attr *at = a->attr;
    return osh_by_head(cx, a, at->v_heads, osh_delta_floats(at), delta_head);
}

size_t osh_delta_rule_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                              int64_t n_tokens, int n_threads)
{
    (void)in_width, (void)out_width;
    return osh_by_head_scratch(osh_delta_floats(attr), n_tokens, n_threads);
}
