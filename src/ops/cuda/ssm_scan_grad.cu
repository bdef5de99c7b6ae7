/* ssm_scan_grad.cu - computes the gradients of ssm_scan in f32 (the formulas are in
 * ops/ssm_scan.c). A block computes a head of a sample. Its state Z is [S, P].
 *
 * The step of a token has two parts. In the first part, a thread computes a column of Z. In the
 * second part, a warp computes a row. Gradients of the weights are first stored for each token, and
 * then summed over all rows.
 *
 * The heads of a group read the same B and C. OSH_SCAN_BACK_WAVE heads are computed together (a
 * wave). Each head stores its gradients of B and C. After the wave, these gradients are added in
 * the order of the heads. */
#include "ops/cuda/scan_grad.cuh"

typedef struct ssm_back {
    scan_samples of;
    scan_states states;
    weights p;
    osh_ssm_scan_attr at;
    int64_t first, n;  // the heads of the wave: [first, first + n)
    float *dx, *ddt;   // gradients of the inputs; NULL: not computed
    float *terms;      // gradients of A_log, D and dt_bias, [N, H, 3]
    float *shared;     // gradients of B and C, [N, heads of a wave, 2 S]
    const float *dy;   // [N, H P]
} ssm_back;

/* The values of the current token in shared memory: B and C [S]; x times the step, [P]; and the
 * gates, which are the decay and the step. */
typedef struct ssm_token { float *B, *C, *x, *gates, *sums; } ssm_token;

static size_t ssm_shared_bytes(const osh_ssm_scan_attr *at)
{
    return (size_t)(2 * at->state + at->head_dim + 2) * sizeof(float);
}

static __device__ inline int64_t ssm_width(const osh_ssm_scan_attr &at)
{
    return at.heads * at.head_dim + 2 * at.groups * at.state;
}

template <class T> struct ssm_head { // one head of one sample
    const T *x, *dt; // the op's inputs
    ssm_back p;
    ssm_token m;
    int64_t row, head; // row: first row of the sample

    __device__ int64_t value(int64_t t) const
    {
        return (row + t) * ssm_width(p.at) + head * p.at.head_dim;
    }
    __device__ int64_t output(int64_t t) const { return gate(t) * p.at.head_dim; }
    __device__ int64_t gate(int64_t t) const { return (row + t) * p.at.heads + head; }
    __device__ float weight(int k) const { return osh_cu_weight<T>(p.p.w[k], p.p.dtype[k], head); }

    /* Loads B, C, x and the gates of token t. */
    __device__ void load(int64_t t) const
    {
        int64_t S = p.at.state;
        const T *from = x + (row + t) * ssm_width(p.at) + p.at.heads * p.at.head_dim +
                        head / (p.at.heads / p.at.groups) * S;
        __syncthreads(); // after this barrier all threads have finished the previous token
        if (threadIdx.x == 0) {
            float step = (float)softplus((double)(osh_cu_load(dt[gate(t)]) + weight(2)));
            if (step < (float)p.at.dt_min) step = (float)p.at.dt_min;
            if (p.at.dt_max > 0 && step > (float)p.at.dt_max) step = (float)p.at.dt_max;
            m.gates[0] = (float)exp(-exp((double)weight(0)) * step), m.gates[1] = step;
        }
        for (int64_t i = threadIdx.x; i < S; i += SCAN_THREADS)
            m.B[i] = osh_cu_load(from[i]), m.C[i] = osh_cu_load(from[p.at.groups * S + i]);
        __syncthreads();
        for (int64_t c = threadIdx.x; c < p.at.head_dim; c += SCAN_THREADS)
            m.x[c] = osh_cu_load(x[value(t) + c]) * m.gates[1];
    }

    /* Computes the state `next` after token t. */
    __device__ void step(int64_t t, const float *Z, float *next) const
    {
        int64_t P = p.at.head_dim;
        load(t);
        for (int64_t c = threadIdx.x; c < P; c += SCAN_THREADS)
            for (int64_t i = 0; i < p.at.state; i++)
                next[i * P + c] = Z[i * P + c] * m.gates[0] + m.x[c] * m.B[i];
    }

    /* Computes the gradients of token t. On entry, dZ is the gradient of the state after the
     * token. On return, dZ is the gradient of the state before the token. */
    __device__ void back(int64_t t, const float *Z, const float *next, float *dZ) const
    {
        float to_step = 0, to_D = 0;
        load(t);
        columns(t, dZ, &to_step, &to_D);
        __syncthreads();
        float to_decay = rows(t, Z, next, dZ);
        to_step = osh_cu_team_sum<SCAN_THREADS>(to_step, m.sums);
        to_D = osh_cu_team_sum<SCAN_THREADS>(to_D, m.sums);
        to_decay = osh_cu_team_sum<SCAN_THREADS>(to_decay, m.sums);
        if (threadIdx.x == 0) gates(t, to_decay, to_step, to_D);
    }

    /* First part, by columns: adds dy C to dZ, and adds the gradient of x. Adds the thread's parts
     * of the gradients of the step and of D. */
    __device__ void columns(int64_t t, float *dZ, float *to_step, float *to_D) const
    {
        int64_t P = p.at.head_dim;
        for (int64_t c = threadIdx.x; c < P; c += SCAN_THREADS) {
            float dy = p.dy[output(t) + c], v = osh_cu_load(x[value(t) + c]), sum = 0;
            for (int64_t i = 0; i < p.at.state; i++) {
                float d = dZ[i * P + c] + dy * m.C[i];
                dZ[i * P + c] = d, sum += d * m.B[i];
            }
            *to_step += sum * v, *to_D += dy * v;
            if (p.dx) p.dx[value(t) + c] += sum * m.gates[1] + weight(1) * dy;
        }
    }

    /* Second part, by rows: stores the gradients of B and C, and computes the new dZ. Returns the
     * thread's part of the gradient of the decay. */
    __device__ float rows(int64_t t, const float *Z, const float *next, float *dZ) const
    {
        int64_t P = p.at.head_dim, S = p.at.state;
        float *to = p.shared + ((row + t) * p.n + head - p.first) * 2 * S, fades = 0;
        for (int64_t i = threadIdx.x / 32; i < S; i += SCAN_THREADS / 32) {
            float to_B = 0, to_C = 0;
            for (int64_t c = threadIdx.x % 32; c < P; c += 32) {
                float d = dZ[i * P + c];
                to_C += next[i * P + c] * p.dy[output(t) + c], to_B += d * m.x[c];
                fades += d * Z[i * P + c];
                dZ[i * P + c] = d * m.gates[0];
            }
            to_B = osh_cu_warp_sum(to_B), to_C = osh_cu_warp_sum(to_C);
            if (threadIdx.x % 32 == 0) to[i] = to_B, to[S + i] = to_C;
        }
        return fades;
    }

    /* Adds the gradient of dt, and stores the terms of the gradients of the weights. */
    __device__ void gates(int64_t t, float to_decay, float to_step, float to_D) const
    {
        double v = (double)osh_cu_load(dt[gate(t)]) + weight(2), soft = softplus(v);
        double rate = -exp((double)weight(0)) * to_decay * m.gates[0];
        bool held = soft < p.at.dt_min || (p.at.dt_max > 0 && soft > p.at.dt_max);
        float to_dt = held ? 0 : (float)((to_step + rate) / (1 + exp(-v))), *to = p.terms;
        to += 3 * gate(t), to[0] = (float)(rate * m.gates[1]), to[1] = to_D, to[2] = to_dt;
        if (p.ddt) p.ddt[gate(t)] += to_dt;
    }
};

template <class T> static __global__ void ssm_back_kernel(const T *x, const T *dt, ssm_back p)
{
    OSH_DYNAMIC_SHARED(float, shared);
    __shared__ float sums[SCAN_THREADS / 32];
    int64_t S = p.at.state;
    ssm_token m = {shared, shared + S, shared + 2 * S, shared + 2 * S + p.at.head_dim, sums};

    for (int64_t item = blockIdx.x; item < p.of.count * p.n; item += gridDim.x) {
        int64_t sample = item / p.n;
        ssm_head<T> one = {x, dt, p, m, p.of.row[sample], p.first + item % p.n};
        float *dZ = scan_block_of(p.states).grad;
        scan_back_walk(
            p.states, p.of.n[sample],
            [&](int64_t t, const float *Z, float *next) { one.step(t, Z, next); },
            [&](int64_t t, const float *Z, const float *next) { one.back(t, Z, next, dZ); });
    }
}

/* Adds the gradients of B and C of the heads of a wave to dx, in the order of the heads. A thread
 * adds one element of B or C of one token. */
static __global__ void ssm_back_add(ssm_back p, int64_t N)
{
    int64_t S = p.at.state, all = 2 * p.at.groups * S, each = p.at.heads / p.at.groups;
    for (int64_t i = (int64_t)blockIdx.x * SCAN_THREADS + threadIdx.x; i < N * all;
         i += (int64_t)gridDim.x * SCAN_THREADS) {
        int64_t row = i / all, at = i % all, is_C = at / (p.at.groups * S),
                group = at / S % p.at.groups;
        float *to = p.dx + row * ssm_width(p.at) + p.at.heads * p.at.head_dim + at;
        for (int64_t k = 0; k < p.n; k++)
            if ((p.first + k) / each == group)
                *to += p.shared[(row * p.n + k) * 2 * S + is_C * S + at % S];
    }
}

template <class T>
static osh_status ssm_back_launch(osh_ctx *cx, const osh_grad_args *a, const ssm_back &p,
                                  int64_t blocks)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    size_t shared = ssm_shared_bytes(&p.at);
    OSH_CUDA(cx, cudaFuncSetAttribute(ssm_back_kernel<T>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    OSH_LAUNCH(ssm_back_kernel<T>, (unsigned)osh_min64(blocks, p.of.count * p.n), SCAN_THREADS,
               shared, osh_cuda_stream(d), static_cast<const T *>(a->in[0]->data),
               static_cast<const T *>(a->in[1]->data), p);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Computes the heads of one wave for all samples. */
static osh_status ssm_back_wave(osh_ctx *cx, const osh_grad_args *a, ssm_back p, int64_t blocks)
{
    osh_status rc = OSH_OK, launched = OSH_OK;
    osh_device *d = a->dout[0]->device;
    int64_t N = osh_rows(a->in[0]);
    OSH_TRY(scan_by_samples(cx, a->seqs, N, [&](const scan_samples &of) {
        p.of = of;
        if (!launched)
            OSH_CU_BY_DTYPE(a->in[0]->dtype, T,
                            launched = ssm_back_launch<T>(cx, a, p, blocks));
    }));
    OSH_TRY(launched);
    if (!p.dx) goto done;
    OSH_LAUNCH(ssm_back_add, osh_cu_grid(d, N * 2 * p.at.groups * p.at.state, SCAN_THREADS),
               SCAN_THREADS, 0, osh_cuda_stream(d), p, N);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

osh_status osh_ssm_scan_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    int64_t N = osh_rows(a->in[0]);
    ssm_back p = {};
    float *room = NULL; // own: the terms, then scratch for the sums

    if (!N) return OSH_OK;
    p.at = *static_cast<const osh_ssm_scan_attr *>(a->attr);
    int64_t H = p.at.heads, wave = osh_min64(OSH_SCAN_BACK_WAVE, H),
            each = p.at.state * p.at.head_dim, blocks = osh_scan_back_blocks(N, wave, each);
    if (ssm_shared_bytes(&p.at) > OSH_SCAN_BACK_SHARED)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "the gradient of ssm_scan with heads of %lld and states of %lld on a GPU, want at "
                 "most %d bytes of shared memory",
                 (long long)p.at.head_dim, (long long)p.at.state, OSH_SCAN_BACK_SHARED);
    OSH_TRY(scan_weights_of(cx, &p.p, a->in + 2, 3));
    room = static_cast<float *>(
        osh_device_alloc(cx, d, osh_scan_back_terms_bytes(N, H, 3), OSH_LIFE_SHORT));
    if (!room) OSH_TRY(OSH_E_NOMEM);
    p.shared = static_cast<float *>(osh_device_alloc(
        cx, d, (size_t)(N * wave * 2 * p.at.state) * sizeof(float), OSH_LIFE_SHORT));
    if (!p.shared) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(scan_states_new(cx, &p.states, d, N, each, blocks));
    p.terms = room, p.dy = static_cast<const float *>(a->dout[0]->data);
    p.dx = a->din[0] ? static_cast<float *>(a->din[0]->data) : NULL;
    p.ddt = a->din[1] ? static_cast<float *>(a->din[1]->data) : NULL;
    for (p.first = 0; p.first < H; p.first += p.n) {
        p.n = osh_min64(wave, H - p.first);
        OSH_TRY(ssm_back_wave(cx, a, p, blocks));
    }
    OSH_TRY(scan_back_weights(cx, a, 2, {p.terms, H, 3, 0}, room + N * H * 3));
done:
    osh_device_free(d, p.states.room);
    osh_device_free(d, p.shared);
    osh_device_free(d, room);
    return rc;
}
