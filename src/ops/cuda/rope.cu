/* rope.cu - computes rope. A block computes the cosines and sines of one token and rotates all
 * heads of the token.
 *
 *   in[0] q [N, H*Dh]     out [N, H*Dh]     R = rotary_dim <= Dh; out may overwrite q
 *
 * The angle is the f32 product of frequency and position. The cosine and sine of the angle are
 * computed in double, so that they are accurate for every position. Then they are rounded to f32,
 * multiplied by attention_scaling, and rounded to the dtype of q. There is no table of cosines and
 * sines: reading a table would take longer than computing R / 2 values per token. The frequencies
 * may depend on the length of a sample. The host computes the frequencies for all samples
 * (ops/rope.h) and copies them. Shapes: N tokens of the batch, H heads, Dh head_dim. */
#include "ops/cuda/pack.cuh"
#include "ops/cuda/sizes.h"
extern "C" {
#include "ops/rope.h"
}

#include <string.h>

enum { THREADS = 128 };

typedef struct rope_shape {
    /* half: half of rotary_dim.
     * n_packs: number of packs (pack.cuh) in half of a head; 0 if single elements are read. */
    int64_t N, n_seqs, width, head_dim, half, n_packs;
    float scaling;
    bool interleaved, f32;
    float beta, original; // attributes of the position factor (ops/rope.h); beta 0: no factor
    float back;           // number that is subtracted from the position
} rope_shape;

/* The samples of a batch. The host computes the three lists below, and copies them to one block of
 * GPU memory. */
typedef struct rope_samples {
    const int64_t *offsets; // first row of each sample, [n_seqs + 1]
    const int32_t *table;   // index of the table (row of `freqs`) that the sample uses, [n_seqs]
    const float *freqs;     // inverse frequencies of each table, [tables, half]
} rope_samples;

/* Returns the index of the sample that contains row n. */
static __device__ inline int64_t rope_sample_of(const int64_t *offsets, int64_t n_seqs, int64_t n)
{
    int64_t low = 0, high = n_seqs; // binary search; invariant: offsets[low] <= n < offsets[high]
    while (high - low > 1) {
        int64_t mid = (low + high) / 2;
        if (offsets[mid] <= n) low = mid;
        else high = mid;
    }
    return low;
}

/* Rotates one pair (lo, hi). `c`, `s`: cosine and sine, already rounded. Products are rounded to
 * the type R. */
template <class T, class R>
static __device__ inline void turn_pair_as(T *to_lo, T *to_hi, float lo, float hi, float c, float s)
{
    osh_cu_store(to_lo,
                 __fadd_rn(osh_cu_round<R>(__fmul_rn(lo, c)), osh_cu_round<R>(__fmul_rn(-hi, s))));
    osh_cu_store(to_hi,
                 __fadd_rn(osh_cu_round<R>(__fmul_rn(hi, c)), osh_cu_round<R>(__fmul_rn(lo, s))));
}
template <class T> struct pair { T lo, hi; };
template <class T>
static __device__ inline void turn_pair(T *to_lo, T *to_hi, pair<T> from, float c, float s,
                                        bool f32)
{
    float lo = osh_cu_load(from.lo), hi = osh_cu_load(from.hi);

    if (f32) turn_pair_as<T, float>(to_lo, to_hi, lo, hi, c, s);
    else turn_pair_as<T, T>(to_lo, to_hi, lo, hi, c, s);
}

/* Rotates all heads of one token x and writes them to y. c, s: [half]. */
template <class T>
static __device__ void rope_turn_row(T *y, const T *x, const float *c, const float *s,
                                     const rope_shape &p)
{
    const int N = osh_cu_pack<T>::N;
    int64_t n_heads = p.width / p.head_dim;

    if (p.n_packs) {
        for (int64_t j = threadIdx.x; j < n_heads * p.n_packs; j += THREADS) {
            int64_t i = j % p.n_packs * N, at = j / p.n_packs * p.head_dim + i;
            osh_cu_pack<T> lo = osh_cu_pack_load(x + at), hi = osh_cu_pack_load(x + at + p.half);
            for (int k = 0; k < N; k++)
                turn_pair(&lo.v[k], &hi.v[k], {lo.v[k], hi.v[k]}, c[i + k], s[i + k], p.f32);
            osh_cu_pack_store(y + at, lo);
            osh_cu_pack_store(y + at + p.half, hi);
        }
    } else {
        for (int64_t j = threadIdx.x; j < n_heads * p.half; j += THREADS) {
            int64_t i = j % p.half, at = j / p.half * p.head_dim + (p.interleaved ? 2 * i : i);
            int64_t other = at + (p.interleaved ? 1 : p.half);
            turn_pair(&y[at], &y[other], {x[at], x[other]}, c[i], s[i], p.f32);
        }
    }
    int64_t rest = p.head_dim - 2 * p.half;
    for (int64_t j = threadIdx.x; j < n_heads * rest; j += THREADS) {
        int64_t at = j / rest * p.head_dim + 2 * p.half + j % rest;
        y[at] = x[at];
    }
}

/* Rotates all tokens of x [N, width] and writes them to y. */
template <class T>
static __global__ void rope_kernel(T *y, const T *x, rope_samples seqs, rope_shape p)
{
    __shared__ float c[OSH_ROPE_MAX_FREQS], s[OSH_ROPE_MAX_FREQS];

    for (int64_t n = blockIdx.x; n < p.N; n += gridDim.x) {
        int64_t sample = rope_sample_of(seqs.offsets, p.n_seqs, n);
        const float *freqs = seqs.freqs + seqs.table[sample] * p.half;
        float pos = (float)(n - seqs.offsets[sample]);
        for (int64_t i = threadIdx.x; i < p.half; i += THREADS) {
            double angle = __fmul_rn(freqs[i], pos - p.back);
            c[i] = __fmul_rn((float)cos(angle), p.scaling);
            s[i] = __fmul_rn((float)sin(angle), p.scaling);
            if (!p.f32) c[i] = osh_cu_round<T>(c[i]), s[i] = osh_cu_round<T>(s[i]);
        }
        __syncthreads();
        rope_turn_row(y + n * p.width, x + n * p.width, c, s, p);
        __syncthreads();
        if (p.beta == 0) continue;
        float turns = floorf(__fdiv_rn(pos, p.original));
        float by = osh_cu_round<T>(__fadd_rn(1, __fmul_rn(p.beta, (float)log(1 + (double)turns))));
        for (int64_t i = threadIdx.x; i < p.width; i += THREADS)
            osh_cu_store(&y[n * p.width + i], __fmul_rn(osh_cu_load(y[n * p.width + i]), by));
    }
}

/* Writes the three lists of rope_samples to `room` in host memory. Table 0 contains the frequencies
 * of `at`. Samples whose key (osh_rope_key) is not 0 use other tables; consecutive samples with
 * equal keys share a table. Returns the number of tables. If `room` is NULL, writes nothing. */
static int64_t rope_fill_samples(char *room, const osh_rope_attr *at, const int64_t *offsets,
                                 int64_t n_seqs)
{
    int64_t half = at->rotary_dim / 2, n_tables = 1;
    int32_t *table =
        room ? reinterpret_cast<int32_t *>(room + (n_seqs + 1) * sizeof(int64_t)) : NULL;
    float *freqs = reinterpret_cast<float *>(table) + n_seqs;

    if (room) memcpy(room, offsets, (size_t)(n_seqs + 1) * sizeof *offsets);
    if (room) osh_rope_freqs(freqs, at, 0);
    for (int64_t s = 0, last = 0; s < n_seqs; s++) {
        int64_t len = offsets[s + 1] - offsets[s], key = osh_rope_key(at, len);
        if (room) table[s] = 0;
        if (!key) continue;
        if (key != last && room) osh_rope_freqs(freqs + n_tables * half, at, len);
        if (key != last) n_tables++;
        if (room) table[s] = (int32_t)(n_tables - 1);
        last = key;
    }
    return n_tables;
}

static rope_samples rope_samples_at(const char *room, int64_t n_seqs)
{
    rope_samples seqs;
    seqs.offsets = reinterpret_cast<const int64_t *>(room);
    seqs.table = reinterpret_cast<const int32_t *>(seqs.offsets + n_seqs + 1);
    seqs.freqs = reinterpret_cast<const float *>(seqs.table + n_seqs);
    return seqs;
}

static rope_shape rope_shape_of(const osh_tensor *x, const osh_rope_attr *at, int64_t n_seqs)
{
    return {osh_rows(x), n_seqs, osh_width(x), at->head_dim, at->rotary_dim / 2, 0,
            (float)at->attention_scaling, at->interleaved, at->f32, (float)at->position_beta,
            (float)at->position_original, (float)at->back};
}

template <class T>
static void rope_launch(const osh_op_args *a, const osh_rope_attr *at, const char *samples,
                        int64_t n_seqs)
{
    const osh_tensor *x = a->in[0], *y = a->out[0];
    rope_samples seqs = rope_samples_at(samples, n_seqs);
    rope_shape p = rope_shape_of(x, at, n_seqs);

    if (!p.interleaved && osh_cu_packed(x, p.half) && osh_cu_packed(y, p.half) &&
        osh_cu_packed(x, p.head_dim))
        p.n_packs = p.half / osh_cu_pack<T>::N;
    OSH_LAUNCH(rope_kernel<T>, osh_cu_grid(y->device, p.N, 1), THREADS, 0,
               osh_cuda_stream(y->device), static_cast<T *>(y->data),
               static_cast<const T *>(x->data), seqs, p);
}

/* Adds dy, rotated by the negative angles, to dq [N, width]. Does not round. */
static __global__ void rope_back_kernel(float *dq, const float *dy, rope_samples seqs, rope_shape p)
{
    __shared__ float c[OSH_ROPE_MAX_FREQS], s[OSH_ROPE_MAX_FREQS];
    int64_t n_heads = p.width / p.head_dim, rest = p.head_dim - 2 * p.half;

    for (int64_t n = blockIdx.x; n < p.N; n += gridDim.x) {
        int64_t sample = rope_sample_of(seqs.offsets, p.n_seqs, n);
        const float *freqs = seqs.freqs + seqs.table[sample] * p.half, *from = dy + n * p.width;
        float pos = (float)(n - seqs.offsets[sample]), by = 1, *to = dq + n * p.width;
        if (p.beta != 0) by += p.beta * (float)log(1 + (double)floorf(__fdiv_rn(pos, p.original)));
        for (int64_t i = threadIdx.x; i < p.half; i += THREADS) {
            double angle = __fmul_rn(freqs[i], pos - p.back);
            c[i] = (float)cos(angle) * p.scaling * by;
            s[i] = (float)sin(angle) * p.scaling * by;
        }
        __syncthreads();
        for (int64_t j = threadIdx.x; j < n_heads * p.half; j += THREADS) {
            int64_t i = j % p.half, at = j / p.half * p.head_dim + (p.interleaved ? 2 * i : i);
            int64_t other = at + (p.interleaved ? 1 : p.half);
            to[at] += from[at] * c[i] + from[other] * s[i];
            to[other] += from[other] * c[i] - from[at] * s[i];
        }
        for (int64_t j = threadIdx.x; j < n_heads * rest; j += THREADS) {
            int64_t at = j / rest * p.head_dim + 2 * p.half + j % rest;
            to[at] += from[at] * by;
        }
        __syncthreads();
    }
}

/* Allocates GPU memory *room (own) and copies the lists of rope_samples to it. */
static osh_status rope_samples_new(osh_ctx *cx, char **room, osh_device *d, const osh_rope_attr *at,
                                   const int64_t *offsets, int64_t n_seqs)
{
    osh_status rc = OSH_OK;
    size_t n_bytes = osh_rope_samples_bytes(n_seqs, rope_fill_samples(NULL, at, offsets, n_seqs),
                                            at->rotary_dim / 2);
    char *host = static_cast<char *>(osh_alloc(cx, n_bytes)); // own
    *room = static_cast<char *>(osh_device_alloc(cx, d, n_bytes, OSH_LIFE_SHORT));
    if (!host || !*room) OSH_TRY(OSH_E_NOMEM);
    rope_fill_samples(host, at, offsets, n_seqs);
    OSH_TRY(d->type->put(cx, d, *room, host, n_bytes));
done:
    osh_free(cx, host);
    return rc;
}

osh_status osh_rope_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_rope_attr *at = static_cast<const osh_rope_attr *>(a->attr);
    osh_device *d = a->out[0]->device;
    const int64_t one[2] = {0, osh_rows(a->in[0])}, *offsets = a->seqs ? a->seqs->offsets : one;
    int64_t n_seqs = a->seqs ? a->seqs->n : 1;
    char *room = NULL; // lists of rope_samples in GPU memory; own

    if (!osh_tensor_numel(a->in[0])) return OSH_OK;
    OSH_TRY(rope_samples_new(cx, &room, d, at, offsets, n_seqs));
    OSH_CU_BY_DTYPE(a->in[0]->dtype, T, rope_launch<T>(a, at, room, n_seqs));
    OSH_CUDA(cx, cudaGetLastError());
done:
    osh_device_free(d, room);
    return rc;
}

osh_status osh_rope_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_rope_attr *at = static_cast<const osh_rope_attr *>(a->attr);
    osh_device *d = a->dout[0]->device;
    const int64_t one[2] = {0, osh_rows(a->in[0])}, *offsets = a->seqs ? a->seqs->offsets : one;
    int64_t n_seqs = a->seqs ? a->seqs->n : 1;
    char *room = NULL; // lists of rope_samples in GPU memory; own

    if (!osh_tensor_numel(a->in[0]) || !a->din[0]) return OSH_OK;
    OSH_TRY(rope_samples_new(cx, &room, d, at, offsets, n_seqs));
    OSH_LAUNCH(rope_back_kernel, osh_cu_grid(d, osh_rows(a->in[0]), 1), THREADS, 0,
               osh_cuda_stream(d), static_cast<float *>(a->din[0]->data),
               static_cast<const float *>(a->dout[0]->data), rope_samples_at(room, n_seqs),
               rope_shape_of(a->in[0], at, n_seqs));
    OSH_CUDA(cx, cudaGetLastError());
done:
    osh_device_free(d, room);
    return rc;
}
