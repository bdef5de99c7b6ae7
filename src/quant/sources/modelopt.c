/* modelopt.c - reads NVFP4 weights of the method modelopt (NVIDIA ModelOpt):
 *
 *   X.weight          U8 [O, I / 2]          two E2M1 codes, the even column in the low half
 *   X.weight_scale    F8_E4M3 [O, I / 16]    scale of 16 columns
 *   X.weight_scale_2  F32, one number        scale of the tensor
 *
 * A weight is code * (weight_scale * weight_scale_2), computed in F32 and rounded to the model's
 * dtype, as in NVFP4QTensor.dequantize of ModelOpt. FP8 weights of the method are read by fp8.c. */
#include "base/name.h"
#include "base/num.h"
#include "quant/source_impl.h"

#include <math.h>
#include <string.h>

extern const osh_source_type osh_source_modelopt;

enum { WEIGHT, SCALES, SCALE_2, N_PARTS }; // indices of stored tensors in q->parts
/* GROUP: number of columns that share a scale. ROWS: number of rows that are read together. */
enum { GROUP = 16, ROWS = 64 };

/* Fails if the checkpoint has a tensor that changes the inputs or the products of a module. This
 * program cannot apply such a tensor. */
static osh_status modelopt_check_extra(osh_ctx *cx, const osh_source *s)
{
    static const char *const words[] = {"pre_quant_scale", "svdquant_lora"};
    osh_status rc = OSH_OK;
    for (int64_t i = 0; i < s->ck->n_tensors; i++)
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (strstr(s->ck->tensors[i].e->name, words[k]))
                OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                         "%s: weights with %s are not supported: want FP8 or NVFP4 without it",
                         s->ck->tensors[i].e->name, words[k]);
done:
    return rc;
}

static osh_status modelopt_configure(osh_ctx *cx, osh_source *s, const cJSON *q)
{
    static const char *const known[] = {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4",
                                        "W4A16_NVFP4", "MIXED_PRECISION"};
    osh_status rc = OSH_OK;
    const char *algo = NULL, *path = s->ck->config->quantization_path;
    bool ok = false;
    int64_t group = GROUP;
    OSH_TRY(osh_json_str_or(cx, &algo, q, "quant_algo", "FP8", path));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) ok |= !strcmp(algo, known[i]);
    if (!ok)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: quant_method %s with quant_algo '%.60s': want FP8, "
                 "FP8_PER_CHANNEL_PER_TOKEN, NVFP4, W4A16_NVFP4 or MIXED_PRECISION",
                 path, s->method, algo);
    if (strstr(algo, "NVFP4"))
        OSH_TRY(osh_json_int_or(cx, &group, q, "group_size", GROUP, path));
    if (group != GROUP)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: group_size is %lld, want %d for %s", path,
                 (long long)group, GROUP, algo);
    OSH_TRY(modelopt_check_extra(cx, s));
done:
    return rc;
}

static bool modelopt_claims(const osh_source *s, const osh_entry *e, size_t *n)
{
    if (s->type != &osh_source_modelopt) return false;
    if ((*n = osh_before_tail(e->name, ".weight_scale_2")) > 0) return true;
    if (e->dtype == OSH_U8) return (*n = osh_before_tail(e->name, ".weight")) > 0;
    return e->dtype == OSH_FP8 && (*n = osh_before_tail(e->name, ".weight_scale")) > 0;
}

static osh_status modelopt_find(osh_ctx *cx, osh_source_module *q)
{
    static const char *const leaves[] = {"weight", "weight_scale", "weight_scale_2"};
    static const osh_dtype bytes[] = {OSH_U8, OSH_DTYPE_NONE}, scales[] = {OSH_FP8, OSH_DTYPE_NONE};
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t;
    int64_t numel = 0;
    for (int i = 0; i < N_PARTS; i++) {
        OSH_TRY(osh_source_need_leaf(cx, &t, q, leaves[i], "NVFP4"));
        q->parts[i] = *t;
    }
    q->n_leaves = N_PARTS;
    const osh_entry *w = q->parts[WEIGHT].e, *two = q->parts[SCALE_2].e;
    if (w->ndim != 2 || w->shape[0] < 1 || w->shape[1] < GROUP / 2 || w->shape[1] % (GROUP / 2) ||
        w->shape[1] > INT32_MAX)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s has %d dimensions, the last of size %lld: want 2, the last divisible by %d",
                 w->name, w->ndim, w->ndim ? (long long)w->shape[w->ndim - 1] : 0LL, GROUP / 2);
    q->O = w->shape[0], q->I = w->shape[1] * 2;
    OSH_TRY(osh_source_check_matrix(cx, &q->parts[WEIGHT], q->O, q->I / 2, bytes));
    OSH_TRY(osh_source_check_matrix(cx, &q->parts[SCALES], q->O, q->I / GROUP, scales));
    if (!osh_shape_numel(&numel, two->ndim, two->shape) || numel != 1 || two->dtype != OSH_F32 ||
        two->ndim > 1)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s with %d dimensions and %lld elements: want F32, one "
                 "number", two->name, osh_dtype_name(two->dtype), two->ndim, (long long)numel);
    if (q->dtype == OSH_DTYPE_NONE) q->dtype = OSH_BF16;
done:
    return rc;
}

/* Decodes one row of a weight from its codes [I / 2] and scales [I / 16]. */
static osh_status modelopt_decode(osh_ctx *cx, float *row, const osh_source_module *q,
                                  const uint8_t *codes, const uint8_t *scales, float two)
{
    for (int64_t g = 0; g < q->I / GROUP; g++) {
        float scale = osh_f32_of_fp8(scales[g]) * two;
        if (!isfinite(scale))
            return osh_fail(cx, OSH_E_NUMERIC, "%s holds %g, want finite numbers",
                            q->parts[SCALES].e->name, (double)osh_f32_of_fp8(scales[g]));
        for (int64_t i = g * GROUP; i < (g + 1) * GROUP; i++)
            row[i] = osh_f32_of_fp4(i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15) * scale +
                     0.0f; // the code of -0 means 0, as in the table of ModelOpt
    }
    return OSH_OK;
}

/* Returns the number of bytes of one decoded row in F32, plus the number of bytes of the codes and
 * scales of ROWS rows. */
static size_t modelopt_room(const osh_source_module *q)
{
    return (size_t)q->I * sizeof(float) + (size_t)(ROWS * (q->I / 2 + q->I / GROUP));
}

static osh_status modelopt_rows(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                                int64_t n)
{
    osh_status rc = OSH_OK;
    float two, *row = osh_alloc(cx, modelopt_room(q)); // own
    if (!row) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for rows");
    uint8_t *codes = (uint8_t *)(row + q->I), *scales = codes + ROWS * (q->I / 2);
    const osh_ckpt_tensor *t = &q->parts[SCALE_2];
    OSH_TRY(osh_container_read(cx, &two, q->source->ck->shards[t->shard], t->e));
    if (!isfinite(two))
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s is %g, want a finite number", t->e->name, (double)two);
    for (int64_t at = first, k; at < first + n; at += k) {
        k = first + n - at < ROWS ? first + n - at : ROWS;
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_source_read_rows(cx, codes, q, WEIGHT, at, k));
        OSH_TRY(osh_source_read_rows(cx, scales, q, SCALES, at, k));
        for (int64_t r = 0; r < k; r++, to += (size_t)q->I * osh_dtype_bytes(q->dtype)) {
            OSH_TRY(modelopt_decode(cx, row, q, codes + r * (q->I / 2),
                                    scales + r * (q->I / GROUP), two));
            osh_from_f32(to, q->dtype, row, q->I);
        }
    }
done:
    osh_free(cx, row);
    return rc;
}

/* Includes the buffer of a direct read (O_DIRECT). */
static size_t modelopt_bytes(const osh_source_module *q)
{
    return osh_mem_gross(modelopt_room(q)) + osh_mem_gross(OSH_DIRECT_BYTES + OSH_BLOCK_BYTES);
}

const osh_source_type osh_source_modelopt = {
    .methods = {"modelopt", "modelopt_fp4"}, .file = "hf_quant_config.json",
    .tails = {".weight", ".weight_scale", ".weight_scale_2", ".input_scale", ".output_scale"},
    .configure = modelopt_configure, .claims = modelopt_claims, .find = modelopt_find,
    .make_rows = modelopt_rows, .bytes = modelopt_bytes,
};
