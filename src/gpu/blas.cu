/* blas.cu - multiplies with cuBLASLt, and computes Cholesky factors with cuSOLVER.
 *
 * Both libraries are opened when the GPU is opened, so a machine without a GPU does not need the
 * libraries.
 *
 * cuBLASLt is column-major and reads a row-major C [m, n] as C^T [n, m], so C = A B is computed as
 * C^T = B^T A^T. F32 is multiplied in F32 (cuBLASLt's pedantic mode) unless the caller asks for
 * TF32. A sum is never split over thread blocks: they would add their partial sums in another order
 * in each call.
 *
 * A plan is the algorithm and the descriptors of cuBLASLt for one shape of product. Plans are kept
 * for later products of the same shape. */
#include "gpu/state.h"

#include <cublasLt.h>
#include <cusolverDn.h>
#include <dlfcn.h>
#include <stdio.h>

/* MAX_PLANS: capacity of the cache of plans; when it is full, a new plan replaces the oldest.
 * Batches of different shapes need different plans. For example, 64 batches of one model needed
 * about 600 plans, and the GPTQ solves of this model needed 210 more. */
enum { MAX_PLANS = 8192, BUCKETS = 4096 };
enum { MAX_ALIGN = 16 }; // largest useful alignment in bytes: no algorithm of cuBLASLt needs more
/* Largest number of algorithms that cuBLASLt returns for a shape. The program uses the first of
 * them whose workspace fits. */
enum { ANSWERS = 4 };

/* Functions of cuBLASLt and of cuSOLVER that this file calls. */
#define LT_CALLS(CALL)                                                                             \
    CALL(cublasLtGetVersion) CALL(cublasLtCreate) CALL(cublasLtDestroy) CALL(cublasLtMatmul)       \
    CALL(cublasLtMatmulDescCreate) CALL(cublasLtMatmulDescDestroy)                                 \
    CALL(cublasLtMatmulDescSetAttribute) CALL(cublasLtMatrixLayoutCreate)                          \
    CALL(cublasLtMatrixLayoutDestroy) CALL(cublasLtMatrixLayoutSetAttribute)                       \
    CALL(cublasLtMatmulPreferenceCreate) CALL(cublasLtMatmulPreferenceDestroy)                     \
    CALL(cublasLtMatmulPreferenceSetAttribute) CALL(cublasLtMatmulAlgoGetHeuristic)                \
    CALL(cublasLtMatmulAlgoCheck) CALL(cublasLtMatmulAlgoConfigGetAttribute)
#define SOLVER_CALLS(CALL)                                                                         \
    CALL(cusolverGetVersion) CALL(cusolverDnCreate) CALL(cusolverDnDestroy)                        \
    CALL(cusolverDnSetStream) CALL(cusolverDnSpotrf_bufferSize) CALL(cusolverDnSpotrf)

/* Key of a plan. It has all properties of a matrix product that decide the algorithm. n_like is the
 * batch size for which the algorithm is chosen; 0 means n_batch. */
typedef struct shape {
    int64_t m, n, k, n_batch, n_like, tf32;
    struct { int64_t ld, stride; int32_t dtype, transposed, align, reserved; } c, a, b;
} shape;

typedef struct plan {
    struct plan *next; // next plan of the same hash bucket; view
    shape key;
    cublasLtMatmulDesc_t how;                // own
    /* Descriptors of the matrices c, b (cuBLASLt's first operand) and a (its second operand). */
    cublasLtMatrixLayout_t c, first, second; // own
    cublasLtMatmulAlgo_t algo;
    size_t workspace; // number of bytes of workspace that the algorithm needs
    /* True: the matrix products are computed one by one, because the algorithm does not support a
     * batch of key.n_batch products. */
    bool one_by_one;
    /* True: F32 is multiplied in the default mode, because cuBLASLt has no pedantic algorithm. */
    bool lenient;
} plan;

struct osh_cuda_blas {
    void *lt_file, *solver_file; // handles from dlopen; own
#define CALL(name) decltype(&::name) name;
    LT_CALLS(CALL)
    SOLVER_CALLS(CALL)
#undef CALL
    cublasLtHandle_t lt;         // own
    cusolverDnHandle_t solver;   // own
    plan plans[MAX_PLANS];       // own: the plans, in a ring buffer in the order of creation
    plan *buckets[BUCKETS];      // hash table; each element is a view of the first plan of a bucket
    int64_t n_plans;             // number of plans created so far
    const plan *latest;          // plan of the last matrix product; view
    pthread_mutex_t lock;        // protects the plans
};
static_assert(sizeof(osh_cuda_blas) <= OSH_GPU_PLANS, "the plan of a run counts with this");

/* ---- opening ---- */
/* Opens a CUDA library: the first of `versions` that exists on the loader's paths or in the usual
 * directory of the CUDA toolkit. The library remains in memory after dlclose, because the driver
 * and the libraries keep pointers into each other until the process ends. If no version can be
 * opened, the error names the missing dependency of a version that exists. If no version exists,
 * the error names versions[0]. */
static osh_status library_open(osh_ctx *cx, void **out, const char *name,
                               const char *const *versions)
{
    static const char *const places[] = {"", "/usr/local/cuda/lib64/"};
    char path[256], why[256] = "", other[256] = "";
    for (int v = 0; versions[v]; v++)
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            snprintf(path, sizeof path, "%s%s.so.%s", places[p], name, versions[v]);
            *out = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
            if (*out) return OSH_OK;
            const char *text = dlerror();
            if (!*why) snprintf(why, sizeof why, "%s", text);
            if (!*other && strncmp(text, path, strlen(path)))
                snprintf(other, sizeof other, "%s", text);
        }
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s.so.%s cannot be opened (%s): install the CUDA libraries, or name their"
                    " folder in LD_LIBRARY_PATH",
                    name, versions[0], *other ? other : why);
}

static osh_status library_find(osh_ctx *cx, void **out, void *file, const char *name)
{
    *out = dlsym(file, name);
    return *out
               ? OSH_OK
               : osh_fail(cx, OSH_E_UNSUPPORTED, "the CUDA library has no %s: %s", name, dlerror());
}

/* Called after a function of cuBLASLt or cuSOLVER has failed. Waits for the GPU. Returns the
 * CUDA error that caused the failure, or OSH_OK if CUDA has no error. */
static osh_status gpu_check(osh_ctx *cx, const char *what)
{
    return osh_cuda_check(cx, cudaDeviceSynchronize(), what);
}

static osh_status lt_check(osh_ctx *cx, cublasStatus_t s, const char *what)
{
    if (s == CUBLAS_STATUS_SUCCESS) return OSH_OK;
    if (osh_status rc = gpu_check(cx, what)) return rc;
    return osh_fail(cx, OSH_E_IO, "%.*s: cuBLAS status %d", (int)strcspn(what, "("), what, (int)s);
}

static osh_status solver_check(osh_ctx *cx, cusolverStatus_t s, const char *what)
{
    if (s == CUSOLVER_STATUS_SUCCESS) return OSH_OK;
    if (osh_status rc = gpu_check(cx, what)) return rc;
    return osh_fail(cx, OSH_E_IO, "%.*s: cuSOLVER status %d", (int)strcspn(what, "("), what,
                    (int)s);
}
#define LT(l, call) OSH_TRY(lt_check(cx, (l)->call, #call))
#define SOLVER(l, call) OSH_TRY(solver_check(cx, (l)->call, #call))

osh_status osh_cuda_blas_open(osh_ctx *cx, osh_cuda_blas **out, char **text, cudaStream_t stream)
{
    static const char *const lt_versions[] = {"13", "12", NULL};
    // version numbers of cuSOLVER in CUDA 13 and in CUDA 12
    static const char *const solver_versions[] = {"12", "11", NULL};
    osh_status rc = OSH_OK;
    osh_cuda_blas *l = NULL; // own
    int solver = 0;
    size_t lt = 0;

    OSH_NEW(cx, l, 1);
    pthread_mutex_init(&l->lock, NULL);
    OSH_TRY(library_open(cx, &l->lt_file, "libcublasLt", lt_versions));
    OSH_TRY(library_open(cx, &l->solver_file, "libcusolver", solver_versions));
#define CALL(name)                                                                                 \
    OSH_TRY(library_find(cx, reinterpret_cast<void **>(&l->name), l->lt_file, #name));
    LT_CALLS(CALL)
#undef CALL
#define CALL(name)                                                                                 \
    OSH_TRY(library_find(cx, reinterpret_cast<void **>(&l->name), l->solver_file, #name));
    SOLVER_CALLS(CALL)
#undef CALL
    LT(l, cublasLtCreate(&l->lt));
    SOLVER(l, cusolverDnCreate(&l->solver));
    SOLVER(l, cusolverDnSetStream(l->solver, stream));
    SOLVER(l, cusolverGetVersion(&solver));
    lt = l->cublasLtGetVersion();
    *text = osh_sprintf(cx, "cuBLASLt %zu.%zu.%zu, cuSOLVER %d.%d.%d", lt / 10000, lt / 100 % 100,
                        lt % 100, solver / 1000, solver / 100 % 10, solver % 100);
    if (!*text) OSH_TRY(OSH_E_NOMEM);
    *out = l, l = NULL; // passes ownership of l to the caller
done:
    osh_cuda_blas_close(cx, l);
    return rc;
}

static void plan_deinit(osh_cuda_blas *l, plan *p)
{
    if (p->second) l->cublasLtMatrixLayoutDestroy(p->second);
    if (p->first) l->cublasLtMatrixLayoutDestroy(p->first);
    if (p->c) l->cublasLtMatrixLayoutDestroy(p->c);
    if (p->how) l->cublasLtMatmulDescDestroy(p->how);
    memset(p, 0, sizeof *p);
}

void osh_cuda_blas_close(osh_ctx *cx, osh_cuda_blas *l)
{
    if (!l) return;
    for (int i = 0; i < MAX_PLANS; i++) plan_deinit(l, &l->plans[i]);
    if (l->solver) l->cusolverDnDestroy(l->solver);
    if (l->lt) l->cublasLtDestroy(l->lt);
    if (l->solver_file) dlclose(l->solver_file);
    if (l->lt_file) dlclose(l->lt_file);
    pthread_mutex_destroy(&l->lock);
    osh_free(cx, l);
}

/* ---- products ---- */
static cudaDataType_t blas_type(int32_t dtype)
{
    return dtype == OSH_BF16 ? CUDA_R_16BF : dtype == OSH_F16 ? CUDA_R_16F : CUDA_R_32F;
}

/* Returns the alignment in bytes, at most MAX_ALIGN, of all rows of all matrices of the batch. */
static int32_t mat_align(const osh_cuda_mat *x)
{
    size_t all =
        (size_t)x->data | (size_t)(x->ld | x->stride) * osh_dtype_bytes(x->dtype) | MAX_ALIGN;
    return (int32_t)(all & -all);
}

typedef struct extent {
    int64_t rows, cols, ld;
} extent;

/* Describes a row-major matrix [rows, cols] to cuBLASLt as a column-major matrix [cols, rows]. */
static osh_status layout_new(osh_ctx *cx, osh_cuda_blas *l, cublasLtMatrixLayout_t *out,
                             int32_t dtype, extent e)
{
    return lt_check(cx,
                    l->cublasLtMatrixLayoutCreate(out, blas_type(dtype), (uint64_t)e.cols,
                                                  (uint64_t)e.rows, e.ld),
                    "cublasLtMatrixLayoutCreate");
}

static osh_status plan_set_batch(osh_ctx *cx, osh_cuda_blas *l, plan *p, int64_t n)
{
    osh_status rc = OSH_OK;
    int32_t count = (int32_t)n;
    cublasLtMatrixLayout_t layout[3] = {p->c, p->first, p->second};
    int64_t stride[3] = {p->key.c.stride, p->key.b.stride, p->key.a.stride};
    for (int i = 0; i < 3; i++) {
        LT(l, cublasLtMatrixLayoutSetAttribute(layout[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                               &count, sizeof count));
        LT(l,
           cublasLtMatrixLayoutSetAttribute(layout[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                            &stride[i], sizeof stride[i]));
    }
done:
    return rc;
}

/* Sets the plan's algorithm to the first algorithm of cuBLASLt's list that needs at most
 * OSH_GPU_WORKSPACE bytes of workspace. *found is false if the list has no such algorithm. */
static osh_status plan_ask(osh_ctx *cx, osh_cuda_blas *l, plan *p, bool *found)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    osh_status rc = OSH_OK;
    const shape *s = &p->key;
    uint32_t bytes[4] = {(uint32_t)s->b.align, (uint32_t)s->a.align, (uint32_t)s->c.align,
                         (uint32_t)s->c.align};
    uint32_t unsplit = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t workspace = OSH_GPU_WORKSPACE;
    cublasLtMatmulPreference_t wish = NULL; // own
    cublasLtMatmulHeuristicResult_t answers[ANSWERS];
    int n = 0;

    *found = false;
    LT(l, cublasLtMatmulPreferenceCreate(&wish));
    LT(l, cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace, sizeof workspace));
    LT(l, cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                               &unsplit, sizeof unsplit));
    for (int i = 0; i < 4; i++)
        LT(l, cublasLtMatmulPreferenceSetAttribute(wish, aligned[i], &bytes[i], sizeof bytes[i]));
    if (l->cublasLtMatmulAlgoGetHeuristic(l->lt, p->how, p->first, p->second, p->c, p->c, wish,
                                          ANSWERS, answers, &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    for (int i = 0; i < n && !*found; i++) {
        *found = answers[i].state == CUBLAS_STATUS_SUCCESS &&
                 answers[i].workspaceSize <= OSH_GPU_WORKSPACE;
        if (*found) p->algo = answers[i].algo, p->workspace = answers[i].workspaceSize;
    }
done:
    if (wish) l->cublasLtMatmulPreferenceDestroy(wish);
    return rc;
}

static osh_status plan_how(osh_ctx *cx, osh_cuda_blas *l, plan *p, cublasComputeType_t compute)
{
    osh_status rc = OSH_OK;
    cublasOperation_t first = p->key.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p->key.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;

    if (p->how) l->cublasLtMatmulDescDestroy(p->how);
    p->how = NULL;
    LT(l, cublasLtMatmulDescCreate(&p->how, compute, CUDA_R_32F));
    LT(l,
       cublasLtMatmulDescSetAttribute(p->how, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    LT(l,
       cublasLtMatmulDescSetAttribute(p->how, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
done:
    return rc;
}

/* Chooses the algorithm of the plan. F32 uses the pedantic mode. If the pedantic mode has no
 * algorithm, F32 uses the default mode. Neither mode uses TF32. */
static osh_status plan_choose(osh_ctx *cx, osh_cuda_blas *l, plan *p)
{
    osh_status rc = OSH_OK;
    const shape *s = &p->key;
    bool found = false, exact = s->a.dtype == OSH_F32 && !s->tf32;

    p->lenient = false;
    OSH_TRY(plan_how(cx, l, p, exact                   ? CUBLAS_COMPUTE_32F_PEDANTIC
                              : s->a.dtype == OSH_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                      : CUBLAS_COMPUTE_32F));
    OSH_TRY(plan_ask(cx, l, p, &found));
    if (!found && exact) {
        OSH_TRY(plan_how(cx, l, p, CUBLAS_COMPUTE_32F));
        OSH_TRY(plan_ask(cx, l, p, &found));
        p->lenient = found;
    }
    // the reason may be a fatal error of the GPU; gpu_check reports such an error
    if (!found) {
        OSH_TRY(gpu_check(cx, "cublasLtMatmulAlgoGetHeuristic"));
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "cuBLASLt has no algorithm for the product [%lld, %lld] x [%lld, %lld] of %s",
                 (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n,
                 osh_dtype_name((osh_dtype)s->a.dtype));
    }
done:
    return rc;
}

/* Sets the batch size of the plan to n. *ok is false if the plan's algorithm does not support the
 * batch size. */
static osh_status plan_try_batch(osh_ctx *cx, osh_cuda_blas *l, plan *p, int64_t n, bool *ok)
{
    osh_status rc = OSH_OK;
    cublasLtMatmulHeuristicResult_t answer;

    OSH_TRY(plan_set_batch(cx, l, p, n));
    *ok = l->cublasLtMatmulAlgoCheck(l->lt, p->how, p->first, p->second, p->c, p->c, &p->algo,
                                     &answer) == CUBLAS_STATUS_SUCCESS &&
          answer.workspaceSize <= OSH_GPU_WORKSPACE;
done:
    return rc;
}

/* Changes the batch size of a plan from n_like, for which its algorithm was chosen, to n_batch. All
 * batch sizes must use one algorithm. So an algorithm that does not support a batch of 1 is
 * replaced by the algorithm for a batch of 1. Sets one_by_one if the final algorithm does not
 * support n_batch. */
static osh_status plan_resize_batch(osh_ctx *cx, osh_cuda_blas *l, plan *p)
{
    osh_status rc = OSH_OK;
    const shape *s = &p->key;
    bool ok = true;

    if (s->n_like > 1) OSH_TRY(plan_try_batch(cx, l, p, 1, &ok));
    if (!ok) OSH_TRY(plan_choose(cx, l, p)); // plan_try_batch has set the batch size of p to 1
    if (s->n_batch == 1) goto done;
    OSH_TRY(plan_try_batch(cx, l, p, s->n_batch, &ok));
    if (ok) goto done;
    p->one_by_one = true;
    OSH_TRY(plan_set_batch(cx, l, p, 1));
done:
    return rc;
}

static osh_status plan_init(osh_ctx *cx, osh_cuda_blas *l, plan *p, const shape *s)
{
    osh_status rc = OSH_OK;
    int64_t like;

    p->key = *s;
    OSH_TRY(layout_new(cx, l, &p->c, s->c.dtype, {s->m, s->n, s->c.ld}));
    OSH_TRY(layout_new(cx, l, &p->first, s->b.dtype,
                       {s->b.transposed ? s->n : s->k, s->b.transposed ? s->k : s->n, s->b.ld}));
    OSH_TRY(layout_new(cx, l, &p->second, s->a.dtype,
                       {s->a.transposed ? s->k : s->m, s->a.transposed ? s->m : s->k, s->a.ld}));
    like = s->n_like ? s->n_like : s->n_batch;
    if (like > 1) OSH_TRY(plan_set_batch(cx, l, p, like));
    OSH_TRY(plan_choose(cx, l, p));
    if (s->n_like) OSH_TRY(plan_resize_batch(cx, l, p));
done:
    if (rc) plan_deinit(l, p);
    return rc;
}

static plan **plan_bucket(osh_cuda_blas *l, const shape *s)
{
    uint64_t words[sizeof *s / sizeof(uint64_t)], h = 0;
    static_assert(sizeof *s % sizeof *words == 0, "a shape is whole words");
    memcpy(words, s, sizeof words);
    for (uint64_t w : words) h = (h ^ w) * 0x9e3779b97f4a7c15u, h ^= h >> 32;
    return &l->buckets[h % BUCKETS];
}

/* Returns an empty slot for a new plan. Frees the oldest plan if no slot is empty. */
static plan *plan_slot(osh_cuda_blas *l)
{
    plan *p = &l->plans[l->n_plans % MAX_PLANS];
    if (!p->how) return p;
    plan **link = plan_bucket(l, &p->key);
    while (*link != p) link = &(*link)->next;
    *link = p->next;
    plan_deinit(l, p);
    return p;
}

static osh_status plan_find(osh_ctx *cx, osh_cuda_blas *l, const plan **out, const shape *s)
{
    osh_status rc = OSH_OK;
    // views: `bucket` is the head of the bucket's list; `p` is the current plan
    plan **bucket = plan_bucket(l, s), *p = *bucket;
    while (p && memcmp(&p->key, s, sizeof *s)) p = p->next;
    if (!p) {
        p = plan_slot(l);
        OSH_TRY(plan_init(cx, l, p, s));
        l->n_plans++;
        p->next = *bucket, *bucket = p;
    }
    *out = l->latest = p;
done:
    return rc;
}

/* Counts the detours of a matrix product. A detour is a slower code path that gives the same output
 * (osh_detour). Logs the first product of each kind of detour. */
static void plan_note_detours(osh_ctx *cx, osh_gpu *gpu, const plan *p)
{
    const shape *s = &p->key;
    if (p->lenient && osh_device_detour(gpu->d, OSH_DETOUR_F32, 1))
        osh_log(
            cx, OSH_LOG_WARN,
            "cuBLASLt has no pedantic algorithm for a product [%lld, %lld] x [%lld, %lld] of F32:"
            " the product uses the default mode",
            (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n);
    if (p->one_by_one && osh_device_detour(gpu->d, OSH_DETOUR_BATCH, s->n_batch))
        osh_log(cx, OSH_LOG_WARN,
                "cuBLASLt does not support a batch of %lld with the algorithm for a batch of"
                " %lld, for a product [%lld, %lld] x [%lld, %lld]: the products are"
                " computed one by one",
                (long long)s->n_batch, (long long)s->n_like, (long long)s->m, (long long)s->k,
                (long long)s->k, (long long)s->n);
}

static void *mat_at(const osh_cuda_mat *x, int64_t i)
{
    return static_cast<char *>(x->data) + i * x->stride * (int64_t)osh_dtype_bytes(x->dtype);
}

osh_status osh_cuda_gemm(osh_ctx *cx, osh_device *d, const osh_cuda_product &x)
{
    osh_status rc = OSH_OK;
    const osh_cuda_mat *c = x.c, *a = x.a, *b = x.b;
    osh_gpu *gpu = osh_gpu_of(d);
    osh_cuda_blas *l = gpu->blas;
    const plan *p = NULL; // plan of this matrix product; view of an element of l->plans
    shape s;

    if (!x.m || !x.n || !x.n_batch) return OSH_OK;
    memset(&s, 0, sizeof s);
    s.m = x.m, s.n = x.n, s.k = x.k, s.n_batch = x.n_batch;
    s.n_like = x.n_batch > 1 ? x.n_like : x.n_like ? x.n_like : 1, s.tf32 = x.tf32;
    s.c.ld = c->ld, s.c.stride = c->stride, s.c.dtype = c->dtype, s.c.align = mat_align(c);
    s.a.ld = a->ld, s.a.stride = a->stride, s.a.dtype = a->dtype, s.a.align = mat_align(a);
    s.b.ld = b->ld, s.b.stride = b->stride, s.b.dtype = b->dtype, s.b.align = mat_align(b);
    s.a.transposed = a->transposed, s.b.transposed = b->transposed;
    pthread_mutex_lock(&l->lock);
    OSH_TRY(plan_find(cx, l, &p, &s));
    plan_note_detours(cx, gpu, p);
    for (int64_t i = 0; i < (p->one_by_one ? x.n_batch : 1); i++) {
        void *to = mat_at(c, i);
        LT(l, cublasLtMatmul(l->lt, p->how, &x.alpha, mat_at(b, i), p->first, mat_at(a, i),
                             p->second, &x.beta, to, p->c, to, p->c, &p->algo, d->workspace,
                             d->workspace_bytes, osh_cuda_stream(d)));
    }
done:
    pthread_mutex_unlock(&l->lock);
    return rc;
}

void osh_cuda_gemm_algo(osh_device *d, osh_cuda_algo *out)
{
    osh_cuda_blas *l = osh_gpu_of(d)->blas;
    const plan *p = l->latest;
    const struct {
        cublasLtMatmulAlgoConfigAttributes_t attribute;
        int32_t *to;
    } asked[] = {{CUBLASLT_ALGO_CONFIG_ID, &out->id},
                 {CUBLASLT_ALGO_CONFIG_TILE_ID, &out->tile},
                 {CUBLASLT_ALGO_CONFIG_STAGES_ID, &out->stages},
                 {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &out->split_k}};
    *out = {};
    if (!p) return;
    for (auto &a : asked)
        if (l->cublasLtMatmulAlgoConfigGetAttribute(&p->algo, a.attribute, a.to, sizeof *a.to,
                                                    NULL))
            *a.to = -1;
    out->workspace = p->workspace, out->one_by_one = p->one_by_one, out->lenient = p->lenient;
}

/* ---- triangles ---- */
static cublasFillMode_t triangle_part(const osh_cuda_triangle *t)
{
    return t->upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
}

static osh_status potrf_wish(osh_ctx *cx, osh_cuda_blas *l, const osh_cuda_triangle *t,
                             int *n_floats)
{
    osh_status rc = OSH_OK;
    SOLVER(l, cusolverDnSpotrf_bufferSize(l->solver, triangle_part(t), (int)t->n, t->a, (int)t->ld,
                                          n_floats));
done:
    return rc;
}

osh_status osh_cuda_potrf_bytes(osh_ctx *cx, osh_device *d, size_t *out,
                                const osh_cuda_triangle *t)
{
    osh_status rc = OSH_OK;
    int n_floats = 0;
    OSH_TRY(potrf_wish(cx, osh_gpu_of(d)->blas, t, &n_floats));
    *out = (size_t)n_floats * sizeof(float);
done:
    return rc;
}

osh_status osh_cuda_potrf(osh_ctx *cx, osh_device *d, const osh_cuda_triangle *t, bool *ok)
{
    osh_status rc = OSH_OK;
    osh_cuda_blas *l = osh_gpu_of(d)->blas;
    int n_floats = 0, n = (int)t->n, ld = (int)t->ld, info = 0;

    OSH_TRY(potrf_wish(cx, l, t, &n_floats));
    if ((size_t)n_floats * sizeof(float) > t->room_bytes)
        OSH_FAIL(cx, OSH_E_INTERNAL,
                 "cuSOLVER needs %zu bytes for a triangle of %d rows, there are %zu",
                 (size_t)n_floats * sizeof(float), n, t->room_bytes);
    SOLVER(l, cusolverDnSpotrf(l->solver, triangle_part(t), n, t->a, ld,
                               static_cast<float *>(t->room), n_floats, t->verdict));
    OSH_TRY(d->type->get(cx, d, &info, t->verdict, sizeof info));
    if (info < 0) OSH_FAIL(cx, OSH_E_INTERNAL, "potrf: argument %d is wrong", -info);
    *ok = !info;
done:
    return rc;
}
