/* mxfp4.c - reads MXFP4 weights. Their codes are stored in blocks. A stored scale is the scale's
 * exponent + 127. Experts are stored in one of three ways (E: number of experts):
 *
 *   X_blocks [E, R, G, 16], X_scales [E, R, G]      all experts; read as X [E, 32 G, R], transposed
 *                                                   like convert_moe_packed_tensors of transformers
 *   X_blocks [R, G, 16], X_scales [R, G]            one expert, split by ckpt_experts.c;
 *                                                   read as X.weight [R, 32 G]
 *   X.weight I8 [R, 16 G], X.scale F8_E8M0 [R, G]   one expert of DeepSeek V4, with the same codes;
 *                                                   read as X.weight [R, 32 G] */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/name.h"
#include "base/num.h"
#include "quant/source_impl.h"

typedef struct {
    pthread_mutex_t lock; // protects the cache below, which contains the expert that was read last
    const osh_source_module *last;
    int64_t last_expert;
    uint8_t *blocks;      // own: blocks of the cached expert, then its scales
} mxfp4_cache;

static osh_status mxfp4_begin(osh_ctx *cx, void **state, const osh_source *s)
{
    osh_status rc = OSH_OK;
    mxfp4_cache *cache = NULL; // own
    (void)s;
    OSH_NEW(cx, cache, 1);
    pthread_mutex_init(&cache->lock, NULL);
    *state = cache; // give
done:
    return rc;
}

static void mxfp4_close(osh_ctx *cx, void *state)
{
    mxfp4_cache *cache = state;
    osh_free(cx, cache->blocks);
    pthread_mutex_destroy(&cache->lock);
    osh_free(cx, cache);
}

static bool mxfp4_claims(const osh_source *s, const osh_entry *e, size_t *n)
{
    if ((*n = osh_before_tail(e->name, "_blocks")) > 0) return true;
    if ((*n = osh_before_tail(e->name, ".scale")) > 0)
        return e->dtype == OSH_FP8_E8M0 && osh_source_weight_is(s, e->name, *n, OSH_I8);
    bool fits = e->ndim == 3 || (e->ndim == 2 && osh_expert_prefix(e->name));
    return e->dtype == OSH_U8 && fits && (*n = osh_before_tail(e->name, "_scales")) > 0;
}

static osh_status mxfp4_check(osh_ctx *cx, const osh_entry *b, const osh_entry *e)
{
    osh_status rc = OSH_OK;
    int n = b->ndim - 1; // number of dimensions of the scales
    if (b->dtype != OSH_U8 || n < 2 || n > 3 || b->shape[n] != 16)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s is %s with %d dimensions: want U8 [experts, rows, groups, 16]", b->name,
                 osh_dtype_name(b->dtype), b->ndim);
    bool same = e->ndim == n && !memcmp(e->shape, b->shape, (size_t)n * sizeof *e->shape);
    if (e->dtype != OSH_U8 || !same)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s is %s with %d dimensions: want U8 with the first %d dimensions of %s", e->name,
                 osh_dtype_name(e->dtype), e->ndim, n, b->name);
    for (int d = 0; d < n; d++)
        if (b->shape[d] < 1) OSH_FAIL(cx, OSH_E_FORMAT, "%s is empty", b->name);
done:
    return rc;
}

/* Finds the tensors X.weight and X.scale of a module X. If there is no X.scale, q->n_leaves remains
 * 0. */
static osh_status find_pair(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *codes, *scales;
    OSH_TRY(osh_source_find_leaf(cx, &scales, q, ".", "scale"));
    if (!scales) goto done;
    OSH_TRY(osh_source_need_leaf(cx, &codes, q, "weight", "its scale"));
    const osh_entry *c = codes->e, *s = scales->e;
    q->O = c->shape[0], q->I = 2 * c->shape[1];
    if (c->ndim != 2 || s->ndim != 2 || s->shape[0] != q->O || 32 * s->shape[1] != q->I ||
        q->O < 1 || q->I < 1)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s is [%lld, %lld] for codes [%lld, %lld]: want one scale for each 16 bytes",
                 s->name, (long long)s->shape[0], (long long)s->shape[1], (long long)q->O,
                 (long long)c->shape[1]);
    if (q->dtype == OSH_DTYPE_NONE) q->dtype = OSH_BF16;
    q->parts[0] = *codes, q->parts[1] = *scales, q->n_leaves = 2;
done:
    return rc;
}

static osh_status mxfp4_find(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *blocks, *scales;
    OSH_TRY(find_pair(cx, q));
    if (q->n_leaves) goto done;
    OSH_TRY(osh_source_find_leaf(cx, &blocks, q, "_", "blocks"));
    OSH_TRY(osh_source_find_leaf(cx, &scales, q, "_", "scales"));
    if (!blocks)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s_blocks is missing: want it for %s", q->name,
                 scales->e->name);
    if (!scales)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s_scales is missing: want it for %s", q->name,
                 blocks->e->name);
    OSH_TRY(mxfp4_check(cx, blocks->e, scales->e));
    const osh_entry *b = blocks->e;
    if (q->dtype == OSH_DTYPE_NONE) q->dtype = OSH_BF16;
    q->bare = b->ndim == 4;
    if (q->bare) q->experts = b->shape[0], q->O = q->experts * b->shape[2] * 32, q->I = b->shape[1];
    else q->O = b->shape[0], q->I = b->shape[1] * 32;
    q->parts[0] = *blocks, q->parts[1] = *scales, q->n_leaves = 2;
done:
    return rc;
}

static int64_t expert_rows(const osh_source_module *q)
{
    return q->experts ? q->O / q->experts : q->O;
}

/* Returns the number of bytes of the codes of one expert. */
static size_t expert_block_bytes(const osh_source_module *q)
{
    return (size_t)(q->I * expert_rows(q) / 2);
}

/* Reads the blocks and scales of one expert into the cache. The cache is useful because a caller
 * reads an expert in several calls. The caller holds the lock. */
static osh_status take_expert(osh_ctx *cx, const osh_source_module *q, int64_t expert)
{
    osh_status rc = OSH_OK;
    mxfp4_cache *cache = *q->state;
    size_t n = expert_block_bytes(q), n_scales = n / 16;
    if (cache->last == q && cache->last_expert == expert) goto done;
    osh_free(cx, cache->blocks);
    cache->last = NULL;
    if (!(cache->blocks = osh_alloc(cx, n + n_scales)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for an expert's blocks");
    for (int i = 0; i < 2; i++) {
        const osh_ckpt_tensor *t = &q->parts[i];
        OSH_TRY(osh_container_read_part(cx, cache->blocks + (i ? n : 0),
                                        q->source->ck->shards[t->shard], t->e,
                                        expert * (int64_t)(i ? n_scales : n), i ? n_scales : n));
    }
    cache->last = q, cache->last_expert = expert;
done:
    return rc;
}

/* Decodes code i of `blocks` with its scale in `scales`. Sets *to to the weight. */
static osh_status decode_code(osh_ctx *cx, float *to, const osh_source_module *q,
                              const uint8_t *blocks, const uint8_t *scales, int64_t i)
{
    uint8_t byte = blocks[i / 2], e = scales[i / 32];
    if (e == 255)
        return osh_fail(cx, OSH_E_NUMERIC, "%s holds 255, which is not a number: want at most 254",
                        q->parts[1].e->name);
    *to = osh_f32_of_fp4(i % 2 ? byte >> 4 : byte) * ldexpf(1, e - 127);
    return OSH_OK;
}

/* Decodes columns [first, first + n) of the expert in the cache, and writes them as rows of `to`
 * [n, R]. */
static osh_status decode_expert(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                                int64_t n)
{
    osh_status rc = OSH_OK;
    const uint8_t *blocks = ((mxfp4_cache *)*q->state)->blocks,
                  *scales = blocks + expert_block_bytes(q);
    int64_t R = q->I, C = expert_rows(q); // the dequantized expert is [C, R]
    float *row = osh_alloc(cx, (size_t)R * sizeof *row); // own
    if (!row) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a row");
    for (int64_t c = first; c < first + n; c++) {
        for (int64_t r = 0; r < R; r++)
            OSH_TRY(decode_code(cx, &row[r], q, blocks, scales, r * C + c));
        osh_from_f32(to + (size_t)((c - first) * R) * osh_dtype_bytes(q->dtype), q->dtype, row, R);
    }
done:
    osh_free(cx, row);
    return rc;
}

/* Decodes rows [first, first + n) of a matrix, the weight of a single expert. */
static osh_status decode_matrix(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                                int64_t n)
{
    osh_status rc = OSH_OK;
    int64_t C = q->I;
    size_t bytes = (size_t)(n * C / 2), n_scales = bytes / 16;
    /* own: blocks of the rows, followed by their scales. */
    uint8_t *blocks = osh_alloc(cx, bytes + n_scales);
    float *row = osh_alloc(cx, (size_t)C * sizeof *row); // own
    if (!blocks || !row) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for an expert's blocks");
    for (int i = 0; i < 2; i++) {
        const osh_ckpt_tensor *t = &q->parts[i];
        OSH_TRY(osh_container_read_part(cx, blocks + (i ? bytes : 0),
                                        q->source->ck->shards[t->shard], t->e,
                                        first * C / (i ? 32 : 2), i ? n_scales : bytes));
    }
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = 0; c < C; c++)
            OSH_TRY(decode_code(cx, &row[c], q, blocks, blocks + bytes, r * C + c));
        osh_from_f32(to + (size_t)(r * C) * osh_dtype_bytes(q->dtype), q->dtype, row, C);
    }
done:
    osh_free(cx, blocks);
    osh_free(cx, row);
    return rc;
}

static osh_status mxfp4_make(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                             int64_t n)
{
    osh_status rc = OSH_OK;
    mxfp4_cache *cache = *q->state;
    if (!q->experts) return decode_matrix(cx, to, q, first, n);
    int64_t C = expert_rows(q);
    pthread_mutex_lock(&cache->lock);
    for (int64_t end = first + n, k; first < end; first += k) {
        int64_t expert = first / C;
        k = (expert + 1) * C < end ? (expert + 1) * C - first : end - first;
        OSH_TRY(take_expert(cx, q, expert));
        OSH_TRY(decode_expert(cx, to, q, first % C, k));
        to += (size_t)(k * q->I) * osh_dtype_bytes(q->dtype);
    }
done:
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

static size_t mxfp4_bytes(const osh_source_module *q)
{
    return osh_mem_gross(OSH_DIRECT_BYTES + OSH_BLOCK_BYTES) +
           osh_mem_gross(expert_block_bytes(q) / 16 * 17) +
           osh_mem_gross((size_t)q->I * sizeof(float)) +
           osh_mem_gross((size_t)q->I * osh_dtype_bytes(q->dtype));
}

const osh_source_type osh_source_mxfp4 = {
    .methods = {"mxfp4"}, .tails = {"_blocks", "_scales", ".weight", ".scale"},
    .begin = mxfp4_begin, .close = mxfp4_close, .claims = mxfp4_claims, .find = mxfp4_find,
    .make_rows = mxfp4_make, .bytes = mxfp4_bytes,
};
