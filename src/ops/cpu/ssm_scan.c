/* ssm_scan.c - computes the scan of Mamba 2, one head of one sample at a time. For each token, one
 * loop runs over the state Z [S, P] of the head. A row of Z has one state element of each of the P
 * channels. So vector instructions compute the sums of eight channels together. Rows are padded to
 * a multiple of eight channels. */
#include "ops/cpu/ssm_scan.h"

#include <string.h>

int64_t osh_scan_floats(const osh_ssm_scan_attr *at)
{
    int64_t P = osh_pad8(at->head_dim);
    return at->state * P + 2 * osh_pad8(at->state) + 2 * P;
}

osh_scan_room osh_scan_room_at(const osh_ssm_scan_attr *at, float *room)
{
    int64_t P = osh_pad8(at->head_dim), S = osh_pad8(at->state);
    float *B = room + at->state * P, *x = B + 2 * S;
    return (osh_scan_room){room, B, B + S, x, x + P};
}

/* Updates the state with a token. Then computes the output. m->x must already be multiplied by the
 * token's step d.
 *
 *   Z  = decay * Z + B x
 *   y += C Z */
OSH_VEC_FN void scan_step_body(const osh_scan_room *m, float decay, int64_t S, int64_t P)
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
OSH_AVX2 static void scan_step_avx2(const osh_scan_room *m, float decay, int64_t S, int64_t P)
{
    scan_step_body(m, decay, S, P);
}

osh_scan_head osh_scan_head_of(const osh_tensor *const *in, const osh_ssm_scan_attr *at, int64_t h)
{
    osh_scan_head s = {in, at, h, {0}};
    for (int k = 0; k < 3; k++) osh_load_weight(&s.weights[k], in[2 + k], h, 1, in[0]->dtype);
    return s;
}

void osh_scan_load(float gates[2], const osh_scan_head *s, const osh_scan_room *m, int64_t t,
                   osh_dtype dtype)
{
    const osh_tensor *x = s->in[0];
    const osh_ssm_scan_attr *at = s->at;
    int64_t P = at->head_dim, S = at->state, row = t * osh_width(x);
    int64_t B = row + at->heads * P + s->h / (at->heads / at->groups) * S;

    osh_ssm_gates(&gates[0], &gates[1], at, osh_tensor_at(s->in[1], t * at->heads + s->h),
                  s->weights, dtype);
    osh_to_f32(m->x, osh_elem(x, row + s->h * P), x->dtype, P);
    osh_to_f32(m->B, osh_elem(x, B), x->dtype, S);
    osh_to_f32(m->C, osh_elem(x, B + at->groups * S), x->dtype, S);
}

void osh_scan_step(const osh_scan_room *m, const osh_ssm_scan_attr *at, const float gates[2])
{
    int64_t S = at->state, P = osh_pad8(at->head_dim);
    for (int64_t p = 0; p < at->head_dim; p++) m->x[p] *= gates[1];
    memset(m->y, 0, (size_t)P * sizeof *m->y);
    if (osh_isa_used() >= OSH_ISA_AVX2) scan_step_avx2(m, gates[0], S, P);
    else scan_step_body(m, gates[0], S, P);
}

static void scan_head(const osh_op_args *a, const osh_tile *seq, int64_t h, float *room)
{
    const osh_ssm_scan_attr *at = a->attr;
    const osh_tensor *x = a->in[0];
    int64_t P = at->head_dim;
    float gates[2];
    osh_scan_room m = osh_scan_room_at(at, room);
    osh_scan_head head = osh_scan_head_of(a->in, at, h);
    size_t each = (size_t)(at->state * osh_pad8(P));
    float *state = a->past ? (float *)a->past->state + (size_t)h * each : NULL;

    if (state) memcpy(m.Z, state, each * sizeof *state);
    for (int64_t t = seq->row; t < seq->row + seq->n; t++) {
        osh_scan_load(gates, &head, &m, t, x->dtype);
        osh_scan_step(&m, at, gates);
        osh_to_f32(m.x, osh_elem(x, t * osh_width(x) + h * P), x->dtype, P);
        for (int64_t p = 0; p < P; p++) m.y[p] += head.weights[1] * m.x[p];
        memcpy(osh_elem(a->out[0], (t * at->heads + h) * P), m.y, (size_t)P * sizeof *m.y);
    }
    if (state) memcpy(state, m.Z, each * sizeof *state);
}

/* Returns the size of the states of all heads in bytes (osh_op.state). */
size_t osh_ssm_scan_state(const void *attr, const int64_t *in_width, int64_t n_tokens,
                          osh_dtype dt)
{
    const osh_ssm_scan_attr *at = attr;
    (void)in_width, (void)n_tokens, (void)dt;
    return (size_t)(at->heads * at->state * osh_pad8(at->head_dim)) * sizeof(float);
}

osh_status osh_ssm_scan_cpu(osh_ctx *cx, const osh_op_args *a)
{
    const osh_ssm_scan_attr *at = a->attr;
    return osh_by_head(cx, a, at->heads, osh_scan_floats(at), scan_head);
}

size_t osh_ssm_scan_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                            int64_t n_tokens, int n_threads)
{
    (void)in_width, (void)out_width;
    return osh_by_head_scratch(osh_scan_floats(attr), n_tokens, n_threads);
}
