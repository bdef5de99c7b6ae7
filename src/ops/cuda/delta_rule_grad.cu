/* delta_rule_grad.cu - computes the gradients of delta_rule in f32 (the formulas are in
 * ops/delta_rule.c). A block computes the value heads of one key head of a sample one after the
 * other, because they add to the gradients of the same queries and keys. The state S is [Dk, Dv].
 *
 * The step of a token has two parts. In the first part, a thread computes a column of S. In the
 * second part, a warp computes a row. Gradients of the weights are first stored for each token, and
 * then summed over all rows. */
#include "ops/cuda/scan_grad.cuh"

enum { DELTA_DECAY, DELTA_RATE, DELTA_Q, DELTA_K, DELTA_NUMBERS };

typedef struct delta_back {
    scan_samples of;
    scan_states states;
    weights p;
    osh_delta_rule_attr at;
    float *dx, *da, *db; // gradients of the inputs; NULL: not computed
    float *terms;        // gradients of A_log and dt_bias, [N, value heads, 2]
    const float *dy;     // [N, Nv Dv]
} delta_back;

/* The values of the current token in shared memory.
 * q, k: normalized query and key, [Dk].
 * dq, dk: their gradients, [Dk].
 * u, e: `u` and e' of the formulas, [Dv].
 * of: decay, beta sigmoid(b), and the factors by which query and key were multiplied. */
typedef struct delta_token { float *q, *k, *dq, *dk, *u, *e, *of, *sums; } delta_token;

static size_t delta_shared_bytes(const osh_delta_rule_attr *at)
{
    return (size_t)(4 * at->k_dim + 2 * at->v_dim + DELTA_NUMBERS) * sizeof(float);
}

template <class T> struct delta_head { // one value head of one sample
    const T *x, *a, *b; // the op's inputs
    delta_back p;
    delta_token m;
    int64_t row, head;  // row: first row of the sample

    __device__ int64_t keys() const { return p.at.k_heads * p.at.k_dim; }
    __device__ int64_t width() const { return 2 * keys() + p.at.v_heads * p.at.v_dim; }
    /* Index of the first element of the query of token t. The key is keys() elements later. */
    __device__ int64_t query(int64_t t) const
    {
        return (row + t) * width() + head / (p.at.v_heads / p.at.k_heads) * p.at.k_dim;
    }
    __device__ int64_t value(int64_t t) const
    {
        return (row + t) * width() + 2 * keys() + head * p.at.v_dim;
    }
    __device__ int64_t gate(int64_t t) const { return (row + t) * p.at.v_heads + head; }

    /* Loads query, key and gates of token t. */
    __device__ void load(int64_t t) const
    {
        int64_t Dk = p.at.k_dim, at = query(t);
        float qq = 0, kk = 0;
        __syncthreads(); // after this barrier all threads have finished the previous token
        for (int64_t i = threadIdx.x; i < Dk; i += SCAN_THREADS) {
            m.q[i] = osh_cu_load(x[at + i]), m.k[i] = osh_cu_load(x[at + keys() + i]);
            qq += m.q[i] * m.q[i], kk += m.k[i] * m.k[i];
        }
        qq = osh_cu_team_sum<SCAN_THREADS>(qq, m.sums);
        kk = osh_cu_team_sum<SCAN_THREADS>(kk, m.sums);
        float by_q = 1.0f / sqrtf(qq + 1e-6f) / sqrtf((float)Dk), by_k = 1.0f / sqrtf(kk + 1e-6f);
        for (int64_t i = threadIdx.x; i < Dk; i += SCAN_THREADS) m.q[i] *= by_q, m.k[i] *= by_k;
        if (threadIdx.x == 0) {
            double fade = -exp((double)osh_cu_weight<T>(p.p.w[0], p.p.dtype[0], head)) *
                          softplus((double)osh_cu_load(a[gate(t)]) +
                                   osh_cu_weight<T>(p.p.w[1], p.p.dtype[1], head));
            m.of[DELTA_DECAY] = (float)exp(fade);
            m.of[DELTA_RATE] = (float)(1 / (1 + exp(-(double)osh_cu_load(b[gate(t)])))) *
                               (float)p.at.beta;
            m.of[DELTA_Q] = by_q, m.of[DELTA_K] = by_k;
        }
        __syncthreads();
    }

    /* Computes the state `next` after token t. */
    __device__ void step(int64_t t, const float *S, float *next) const
    {
        int64_t Dk = p.at.k_dim, Dv = p.at.v_dim;
        load(t);
        for (int64_t c = threadIdx.x; c < Dv; c += SCAN_THREADS) {
            float says = 0, decay = m.of[DELTA_DECAY];
            for (int64_t i = 0; i < Dk; i++) says += S[i * Dv + c] * decay * m.k[i];
            float u = (osh_cu_load(x[value(t) + c]) - says) * m.of[DELTA_RATE];
            for (int64_t i = 0; i < Dk; i++) next[i * Dv + c] = S[i * Dv + c] * decay + u * m.k[i];
        }
    }

    /* Computes the gradients of token t. On entry, dS is the gradient of the state after the
     * token. On return, dS is the gradient of the state before the token. */
    __device__ void back(int64_t t, const float *S, const float *next, float *dS) const
    {
        load(t);
        float to_rate = columns(t, S, dS);
        __syncthreads();
        float to_decay = rows(t, S, next, dS);
        to_rate = osh_cu_team_sum<SCAN_THREADS>(to_rate, m.sums);
        to_decay = osh_cu_team_sum<SCAN_THREADS>(to_decay, m.sums);
        if (threadIdx.x == 0) gates(t, to_decay, to_rate);
        if (!p.dx) return;
        for (int64_t c = threadIdx.x; c < p.at.v_dim; c += SCAN_THREADS)
            p.dx[value(t) + c] += m.e[c];
        unit(p.dx + query(t), m.q, m.dq, m.of[DELTA_Q], (float)p.at.k_dim);
        unit(p.dx + query(t) + keys(), m.k, m.dk, m.of[DELTA_K], 1);
    }

    /* First part, by columns: adds q dy to dS, and computes u and e'. Returns the thread's part of
     * the gradient of beta sigmoid(b). */
    __device__ float columns(int64_t t, const float *S, float *dS) const
    {
        int64_t Dk = p.at.k_dim, Dv = p.at.v_dim;
        float rate = m.of[DELTA_RATE], sum = 0;
        for (int64_t c = threadIdx.x; c < Dv; c += SCAN_THREADS) {
            float says = 0, du = 0, dy = p.dy[gate(t) * Dv + c];
            for (int64_t i = 0; i < Dk; i++) {
                float d = dS[i * Dv + c] + m.q[i] * dy;
                dS[i * Dv + c] = d, says += m.k[i] * S[i * Dv + c], du += m.k[i] * d;
            }
            float e = osh_cu_load(x[value(t) + c]) - m.of[DELTA_DECAY] * says;
            sum += du * e;
            m.u[c] = rate * e, m.e[c] = rate * du;
        }
        return sum;
    }

    /* Second part, by rows: computes dq, dk and the new dS. Returns the thread's part of the
     * gradient of the decay. */
    __device__ float rows(int64_t t, const float *S, const float *next, float *dS) const
    {
        int64_t Dk = p.at.k_dim, Dv = p.at.v_dim;
        float decay = m.of[DELTA_DECAY], fades = 0;
        for (int64_t i = threadIdx.x / 32; i < Dk; i += SCAN_THREADS / 32) {
            float read = 0, own = 0, says = 0;
            for (int64_t c = threadIdx.x % 32; c < Dv; c += 32) {
                float d = dS[i * Dv + c], s = S[i * Dv + c];
                read += next[i * Dv + c] * p.dy[gate(t) * Dv + c];
                own += d * m.u[c], says += s * m.e[c];
                d -= m.e[c] * m.k[i];
                fades += d * s;
                dS[i * Dv + c] = d * decay;
            }
            read = osh_cu_warp_sum(read), own = osh_cu_warp_sum(own), says = osh_cu_warp_sum(says);
            if (threadIdx.x % 32 == 0) m.dq[i] = read, m.dk[i] = own - decay * says;
        }
        return fades;
    }

    /* Adds the gradients of a and b, and stores the terms of the gradients of the weights. */
    __device__ void gates(int64_t t, float to_decay, float to_rate) const
    {
        double v = (double)osh_cu_load(a[gate(t)]) +
                   osh_cu_weight<T>(p.p.w[1], p.p.dtype[1], head);
        double A = exp((double)osh_cu_weight<T>(p.p.w[0], p.p.dtype[0], head));
        double fade = (double)to_decay * m.of[DELTA_DECAY] * -A; // gradient of softplus(v)
        double half = 1 / (1 + exp(-(double)osh_cu_load(b[gate(t)])));
        float to_a = (float)(fade / (1 + exp(-v)));
        if (p.da) p.da[gate(t)] += to_a;
        if (p.db) p.db[gate(t)] += (float)(to_rate * p.at.beta * half * (1 - half));
        p.terms[2 * gate(t)] = (float)(fade * softplus(v)), p.terms[2 * gate(t) + 1] = to_a;
    }

    /* Adds the gradient of a vector v to `to`. f [Dk] is v times `by`. The squared length of f is
     * 1 / `square`. d [Dk]: gradient of f. */
    __device__ void unit(float *to, const float *f, const float *d, float by, float square) const
    {
        float dot = 0;
        for (int64_t i = threadIdx.x; i < p.at.k_dim; i += SCAN_THREADS) dot += d[i] * f[i];
        dot = osh_cu_team_sum<SCAN_THREADS>(dot, m.sums) * square;
        for (int64_t i = threadIdx.x; i < p.at.k_dim; i += SCAN_THREADS)
            to[i] += by * (d[i] - f[i] * dot);
    }
};

template <class T>
static __global__ void delta_back_kernel(const T *x, const T *a, const T *b, delta_back p)
{
    OSH_DYNAMIC_SHARED(float, shared);
    __shared__ float sums[SCAN_THREADS / 32];
    int64_t Dk = p.at.k_dim, Dv = p.at.v_dim, group = p.at.v_heads / p.at.k_heads;
    delta_token m = {shared, shared + Dk, shared + 2 * Dk, shared + 3 * Dk, shared + 4 * Dk};
    m.e = m.u + Dv, m.of = m.e + Dv, m.sums = sums;

    for (int64_t item = blockIdx.x; item < p.of.count * p.at.k_heads; item += gridDim.x) {
        int64_t sample = item / p.at.k_heads, key = item % p.at.k_heads;
        for (int64_t h = key * group; h < (key + 1) * group; h++) {
            delta_head<T> one = {x, a, b, p, m, p.of.row[sample], h};
            float *dS = scan_block_of(p.states).grad;
            scan_back_walk(
                p.states, p.of.n[sample],
                [&](int64_t t, const float *S, float *next) { one.step(t, S, next); },
                [&](int64_t t, const float *S, const float *next) { one.back(t, S, next, dS); });
        }
    }
}

template <class T>
static osh_status delta_back_launch(osh_ctx *cx, const osh_grad_args *a, const delta_back &p,
                                    int64_t blocks)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    size_t shared = delta_shared_bytes(&p.at);
    OSH_CUDA(cx, cudaFuncSetAttribute(delta_back_kernel<T>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    OSH_LAUNCH(delta_back_kernel<T>, (unsigned)osh_min64(blocks, p.of.count * p.at.k_heads),
               SCAN_THREADS, shared, osh_cuda_stream(d), static_cast<const T *>(a->in[0]->data),
               static_cast<const T *>(a->in[1]->data), static_cast<const T *>(a->in[2]->data), p);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

osh_status osh_delta_rule_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK, launched = OSH_OK;
    osh_device *d = a->dout[0]->device;
    int64_t N = osh_rows(a->in[0]);
    delta_back p = {};
    float *room = NULL; // own: the terms, then scratch for the sums

    if (!N) return OSH_OK;
    p.at = *static_cast<const osh_delta_rule_attr *>(a->attr);
    int64_t each = p.at.k_dim * p.at.v_dim, blocks = osh_scan_back_blocks(N, p.at.k_heads, each);
    if (delta_shared_bytes(&p.at) > OSH_SCAN_BACK_SHARED)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "the gradient of delta_rule with keys of %lld and values of %lld on a GPU, want "
                 "at most %d bytes of shared memory",
                 (long long)p.at.k_dim, (long long)p.at.v_dim, OSH_SCAN_BACK_SHARED);
    OSH_TRY(scan_weights_of(cx, &p.p, a->in + 3, 2));
    room = static_cast<float *>(osh_device_alloc(
        cx, d, osh_scan_back_terms_bytes(N, p.at.v_heads, 2), OSH_LIFE_SHORT));
    if (!room) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(scan_states_new(cx, &p.states, d, N, each, blocks));
    p.terms = room, p.dy = static_cast<const float *>(a->dout[0]->data);
    p.dx = a->din[0] ? static_cast<float *>(a->din[0]->data) : NULL;
    p.da = a->din[1] ? static_cast<float *>(a->din[1]->data) : NULL;
    p.db = a->din[2] ? static_cast<float *>(a->din[2]->data) : NULL;
    OSH_TRY(scan_by_samples(cx, a->seqs, N, [&](const scan_samples &of) {
        p.of = of;
        if (!launched)
            OSH_CU_BY_DTYPE(a->in[0]->dtype, T,
                            launched = delta_back_launch<T>(cx, a, p, blocks));
    }));
    OSH_TRY(launched);
    OSH_TRY(scan_back_weights(cx, a, 3, {p.terms, p.at.v_heads, 2, 0},
                              room + N * p.at.v_heads * 2));
done:
    osh_device_free(d, p.states.room);
    osh_device_free(d, room);
    return rc;
}
