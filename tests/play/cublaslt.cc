/* cublaslt.cc - emulates libcublasLt.so. It checks arguments like the real library, and computes
 * matrix products by OpenBLAS on f32 copies. */
#include <cublasLt.h>

#include <cblas.h>
#include <math.h>
#include <vector>

#include "play.h"

struct cublasLtContext { int unused; };
struct cublasLtMatmulDescOpaque_t { cublasComputeType_t compute; int32_t transa, transb; };
struct cublasLtMatrixLayoutOpaque_t {
    cudaDataType type;
    /* rows, cols: size of a matrix, which is column-major.
     * ld: number of elements from one column to the next.
     * stride: number of elements from one matrix to the next. */
    int64_t rows, cols, ld, stride;
    int32_t n_batch;
};
struct cublasLtMatmulPreferenceOpaque_t { uint64_t workspace; uint32_t reductions, align[4]; };
typedef cublasLtMatrixLayoutOpaque_t layout;

size_t cublasLtGetVersion(void) { return 130000; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    return *out = new cublasLtContext(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { return delete h, CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    *out = new cublasLtMatmulDescOpaque_t{compute, CUBLAS_OP_N, CUBLAS_OP_N};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    return delete d, CUBLAS_STATUS_SUCCESS;
}

/* Copies an attribute's value to *to. Fails if the size is not that of the attribute. */
static cublasStatus_t take(void *to, size_t wanted, const void *value, size_t n_bytes)
{
    if (n_bytes != wanted || !value) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, wanted);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t n_bytes)
{
    int32_t *to = attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &d->transa : &d->transb;
    return take(to, sizeof *to, value, n_bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    *out = new layout{type, (int64_t)rows, (int64_t)cols, ld, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return delete l, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t n_bytes)
{
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        return take(&l->n_batch, sizeof l->n_batch, value, n_bytes);
    return take(&l->stride, sizeof l->stride, value, n_bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = new cublasLtMatmulPreferenceOpaque_t{0, 7, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return delete p, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t n_bytes)
{
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return take(&p->workspace, sizeof p->workspace, value, n_bytes);
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return take(&p->reductions, sizeof p->reductions, value, n_bytes);
    return take(&p->align[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                sizeof p->align[0], value, n_bytes);
}

/* ---- checks ---- */
static size_t bytes_of(cudaDataType t) { return t == CUDA_R_32F ? 4 : 2; }

static bool good(const layout *l)
{
    bool apart = l->n_batch == 1 || l->stride >= 0;
    return l->rows > 0 && l->cols > 0 && l->ld >= l->rows && l->n_batch > 0 && apart;
}

static cublasStatus_t check(cublasLtMatmulDesc_t how, const layout *a, const layout *b,
                            const layout *c, const layout *d)
{
    int64_t m = how->transa ? a->cols : a->rows, k = how->transa ? a->rows : a->cols,
            k_b = how->transb ? b->cols : b->rows, n = how->transb ? b->rows : b->cols;
    if (!good(a) || !good(b) || !good(c) || !good(d)) return CUBLAS_STATUS_INVALID_VALUE;
    if (k != k_b || m != d->rows || n != d->cols || m != c->rows || n != c->cols)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (a->n_batch != d->n_batch || b->n_batch != d->n_batch || c->n_batch != d->n_batch)
        return CUBLAS_STATUS_INVALID_VALUE;
    /* True if the results of a batch are stored side by side in each row, not one after the
     * other. */
    bool beside = d->stride >= d->rows && (d->n_batch - 1) * d->stride + d->rows <= d->ld;
    if (d->n_batch > 1 && !beside && d->stride < d->ld * (d->cols - 1) + d->rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    bool f32 = a->type == CUDA_R_32F, out_fits = d->type == CUDA_R_32F || d->type == a->type;
    bool known = how->compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                 how->compute == CUBLAS_COMPUTE_32F ||
                 (f32 && how->compute == CUBLAS_COMPUTE_32F_FAST_TF32);
    if (a->type != b->type || c->type != d->type || !out_fits || !known)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

/* Returns a hash of the arguments of a query. An algorithm is valid only for these arguments. */
static uint64_t mark_of(cublasLtMatmulDesc_t how, const layout *a, const layout *b, const layout *d)
{
    uint64_t mark = 1469598103934665603u;
    for (uint64_t v : {(uint64_t)how->compute, (uint64_t)how->transa, (uint64_t)how->transb,
                       (uint64_t)a->rows, (uint64_t)a->cols, (uint64_t)b->rows, (uint64_t)b->cols,
                       (uint64_t)d->ld, (uint64_t)a->type, (uint64_t)d->type})
        mark = (mark ^ v) * 1099511628211u;
    return mark;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t how,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int n_wanted,
                                              cublasLtMatmulHeuristicResult_t *results,
                                              int *n_found)
{
    *n_found = 0;
    if (n_wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    if (cublasStatus_t s = check(how, a, b, c, d)) return s;
    if (wish->reductions) return CUBLAS_STATUS_NOT_SUPPORTED; // a sum that several blocks compute
                                                              // has no fixed order
    if (osh_play_fault("cublasLtMatmulAlgoGetHeuristic")) return CUBLAS_STATUS_NOT_SUPPORTED;
    results[0] = cublasLtMatmulHeuristicResult_t();
    results[0].algo.data[0] = mark_of(how, a, b, d);
    for (int i = 0; i < 4; i++) results[0].algo.data[1 + i] = wish->align[i];
    results[0].algo.data[5] = results[0].workspaceSize = wish->workspace;
    *n_found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t how,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    if (cublasStatus_t s = check(how, a, b, c, d)) return s;
    if (!algo || algo->data[0] != mark_of(how, a, b, d)) return CUBLAS_STATUS_INVALID_VALUE;
    if (osh_play_fault("cublasLtMatmulAlgoCheck")) return CUBLAS_STATUS_NOT_SUPPORTED;
    *result = cublasLtMatmulHeuristicResult_t();
    result->workspaceSize = algo->data[5];
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t n_bytes, size_t *)
{
    int32_t v = attribute == CUBLASLT_ALGO_CONFIG_ID ? (int32_t)(algo->data[0] % 100) : 0;
    if (n_bytes != sizeof v) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &v, sizeof v);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ---- */
static float widen(uint16_t h, cudaDataType t)
{
    if (t == CUDA_R_16BF) return __uint_as_float((uint32_t)h << 16);
    _Float16 f;
    memcpy(&f, &h, sizeof f);
    return (float)f;
}

static uint16_t narrow(float f, cudaDataType t)
{
    uint16_t h;
    if (t == CUDA_R_16F) {
        _Float16 n = (_Float16)f;
        memcpy(&h, &n, sizeof h);
        return h;
    }
    uint32_t u = __float_as_uint(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* Returns the part of an F32 that a tensor core reads: the low 13 bits are cut off. No GPU cuts off
 * more bits. */
static float tf32_of(float f) { return __uint_as_float(__float_as_uint(f) & 0xffffe000u); }

/* Returns one matrix as f32, [rows, cols] without gaps. */
static std::vector<float> load(const char *p, const layout *l, bool tf32 = false)
{
    std::vector<float> out((size_t)(l->rows * l->cols));
    for (int64_t j = 0; j < l->cols; j++)
        for (int64_t i = 0; i < l->rows; i++) {
            const char *at = p + (size_t)(j * l->ld + i) * bytes_of(l->type);
            uint16_t h;
            float f;
            if (l->type == CUDA_R_32F) memcpy(&f, at, sizeof f);
            else memcpy(&h, at, sizeof h), f = widen(h, l->type);
            out[(size_t)(j * l->rows + i)] = tf32 ? tf32_of(f) : f;
        }
    return out;
}

static void store(char *p, const layout *l, const std::vector<float> &v)
{
    for (int64_t j = 0; j < l->cols; j++)
        for (int64_t i = 0; i < l->rows; i++) {
            char *at = p + (size_t)(j * l->ld + i) * bytes_of(l->type);
            float f = v[(size_t)(j * l->rows + i)];
            uint16_t h = narrow(f, l->type);
            if (l->type == CUDA_R_32F) memcpy(at, &f, sizeof f);
            else memcpy(at, &h, sizeof h);
        }
}

struct product {
    cublasLtMatmulDescOpaque_t how;
    layout a_layout, b_layout, c_layout, d_layout;
    const char *a, *b, *c;
    char *d;
    float alpha, beta;
};

/* Multiplies matrices like a GPU that truncates sums (osh_play_truncate). Each instruction adds its
 * products to the sum so far. The new sum is exact, and is then truncated to F32. */
static void multiply_cut(std::vector<float> *d, const product *p, const std::vector<float> &a,
                         const std::vector<float> &b)
{
    const int64_t m = p->d_layout.rows, n = p->d_layout.cols,
                  k = p->how.transa ? p->a_layout.rows : p->a_layout.cols;
    const int64_t at_once = p->a_layout.type == CUDA_R_32F ? 8 : 16;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            float sum = 0;
            for (int64_t first = 0; first < k; first += at_once) {
                double exact = sum;
                for (int64_t l = first; l < k && l < first + at_once; l++)
                    exact += (double)a[(size_t)(p->how.transa ? i * k + l : l * m + i)] *
                             b[(size_t)(p->how.transb ? l * n + j : j * k + l)];
                sum = (float)exact;
                if (fabs((double)sum) > fabs(exact)) sum = nextafterf(sum, 0);
            }
            float *to = &(*d)[(size_t)(j * m + i)];
            *to = p->alpha * sum + (p->beta != 0 ? p->beta * *to : 0);
        }
}

static void multiply(void *user)
{
    product *p = (product *)user;
    const layout *al = &p->a_layout, *bl = &p->b_layout, *dl = &p->d_layout;
    int m = (int)dl->rows, n = (int)dl->cols, k = (int)(p->how.transa ? al->rows : al->cols);
    for (int64_t i = 0; i < dl->n_batch; i++) {
        auto at = [&](const layout *l) { return (size_t)(i * l->stride) * bytes_of(l->type); };
        bool tf32 = p->how.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
        std::vector<float> a = load(p->a + at(al), al, tf32), b = load(p->b + at(bl), bl, tf32),
                           d((size_t)m * (size_t)n, 0.f);
        // if beta is 0, C is not read
        if (p->beta != 0) d = load(p->c + at(&p->c_layout), &p->c_layout);
        if (osh_play_truncates && (tf32 || al->type != CUDA_R_32F)) multiply_cut(&d, p, a, b);
        else
            cblas_sgemm(CblasColMajor, p->how.transa ? CblasTrans : CblasNoTrans,
                        p->how.transb ? CblasTrans : CblasNoTrans, m, n, k, p->alpha, a.data(),
                        (int)al->rows, b.data(), (int)bl->rows, p->beta, d.data(), m);
        store(p->d + at(dl), dl, d);
    }
    delete p;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t how, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const void *operands[4] = {a, b, c, d};
    if (cublasStatus_t s = check(how, a_layout, b_layout, c_layout, d_layout)) return s;
    if (!algo || algo->data[0] != mark_of(how, a_layout, b_layout, d_layout))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < 4; i++)
        if (!operands[i] || (uintptr_t)operands[i] % algo->data[1 + i])
            return CUBLAS_STATUS_INVALID_VALUE;
    if (osh_play_fault("cublasLtMatmul")) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (!workspace || (uintptr_t)workspace % 256 || workspace_bytes < algo->data[5])
        return CUBLAS_STATUS_INVALID_VALUE;
    osh_play_submit(stream, multiply,
                    new product{*how, *a_layout, *b_layout, *c_layout, *d_layout, (const char *)a,
                                (const char *)b, (const char *)c, (char *)d, *(const float *)alpha,
                                *(const float *)beta});
    return CUBLAS_STATUS_SUCCESS;
}
