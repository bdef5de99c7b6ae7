/* micro.c - implements the formats of floats with 4, 6 and 8 bits in small groups
 * (compressed_tensors/compressors/nvfp4, mxfp4, mxfp6). All MX formats have the same scales.
 *
 *   nvfp4-pack-quantized   E2M1 codes, two in a byte
 *   mxfp4-pack-quantized   E2M1 codes, two in a byte
 *   mxfp6-pack-quantized   E2M3 codes, four in three bytes
 *   mxfp8-quantized        E4M3 codes
 *
 *   weight_packed        U8 [O, I / 2]  byte j of a row: code 2j in the low bits, code 2j + 1 above
 *                        mxfp6: U8 [O, 3 I / 4]  3 bytes, lowest bits first:
 *                                                c0 | c1 << 6 | c2 << 12 | c3 << 18
 *   weight               mxfp8: F8_E4M3 [O, I]
 *   weight_scale         nvfp4: F8_E4M3 [O, I / 16]; mx: U8 [O, I / 32], byte e means 2^(e - 127)
 *   weight_global_scale  nvfp4: F32 [1]: a weight is code * weight_scale / weight_global_scale
 *   input_global_scale   nvfp4 with activations: F32 [1]
 *
 *   codes 1 A 3 C (0.5 -1 1.5 -2): bytes A1 C3
 *   mxfp6: codes 1 22 3 24 (0.125 -0.25 0.375 -0.5): bytes 81 38 90 */
#include "quant/formats/common.h"

#include <string.h>

#include "base/num.h"

static bool is_packed(const osh_q_scheme *s) { return s->weights.bits < 8; }
static bool is_relative(const osh_q_scheme *s) { return s->weights.strategy == OSH_Q_TENSOR_GROUP; }

static osh_status micro_tensors(osh_ctx *cx, osh_format_tensor *out, int *n,
                                const osh_format_weight *w)
{
    osh_status rc = OSH_OK;
    const osh_q_scheme *s = w->scheme;
    osh_q_shape shape;

    *n = 0;
    OSH_TRY(osh_q_scale_shape(cx, &shape, &s->weights, w->O, w->I, "weight"));
    osh_format_add(out, n, is_packed(s) ? "weight_packed" : "weight",
                   is_packed(s) ? OSH_U8 : OSH_FP8,
                   &(osh_q_shape){2, {w->O, w->I * s->weights.bits / 8}});
    osh_format_add(out, n, "weight_scale", is_relative(s) ? OSH_FP8 : OSH_U8, &shape);
    if (is_relative(s))
        osh_format_add(out, n, "weight_global_scale", OSH_F32, &(osh_q_shape){1, {1, 0}});
    osh_format_add_input(out, n, s, w->dt);
done:
    return rc;
}

/* Packs 8 codes of 4 bits into 4 bytes. The first step joins single codes to pairs, the second step
 * joins pairs to groups of four, and the third step joins all eight codes. The bytes are in
 * little-endian order, as in the file. */
static void nibbles_put(uint8_t *to, const uint8_t *codes)
{
    uint64_t x;
    memcpy(&x, codes, sizeof x);
    x &= 0x0f0f0f0f0f0f0f0fu;
    x = (x | x >> 4) & 0x00ff00ff00ff00ffu;
    x = (x | x >> 8) & 0x0000ffff0000ffffu;
    uint32_t packed = (uint32_t)(x | x >> 16);
    memcpy(to, &packed, sizeof packed);
}

/* Packs n codes of 4 or 6 bits into `to`, without unused bits. n is a multiple of 16. */
static void codes_put(uint8_t *to, const uint8_t *codes, int64_t n, int bits)
{
    for (int64_t i = 0; i < n && bits == 4; i += 8) nibbles_put(to + i / 2, codes + i);
    for (int64_t i = 0; i < n && bits == 6; i += 4, to += 3) {
        int word = (codes[i] & 63) | (codes[i + 1] & 63) << 6 | (codes[i + 2] & 63) << 12 |
                   (codes[i + 3] & 63) << 18;
        to[0] = (uint8_t)word, to[1] = (uint8_t)(word >> 8), to[2] = (uint8_t)(word >> 16);
    }
}

static void codes_get(uint8_t *codes, const uint8_t *from, int64_t n, int bits)
{
    for (int64_t i = 0; i < n / 2 && bits == 4; i++)
        codes[2 * i] = from[i] & 15, codes[2 * i + 1] = from[i] >> 4;
    for (int64_t i = 0; i < n && bits == 6; i += 4, from += 3) {
        int word = from[0] | from[1] << 8 | from[2] << 16;
        for (int k = 0; k < 4; k++) codes[i + k] = (uint8_t)(word >> 6 * k & 63);
    }
}

static void micro_pack_rows(void *to, const osh_q_scheme *s, int64_t I, const void *codes,
                            int64_t n)
{
    // each row has a whole number of bytes, so all rows can be packed as one sequence
    codes_put(to, codes, n * I, s->weights.bits);
}

typedef struct packing {
    uint8_t *bytes, *codes;
    int64_t n; // codes
    int bits;
} packing;
enum { CODES = 1 << 18 }; // number of codes that a thread packs at a time

static osh_status micro_pack_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const packing *j = user;
    int64_t first = chunk * CODES, n = j->n - first < CODES ? j->n - first : CODES;
    codes_put(j->bytes + first * j->bits / 8, j->codes + first, n, j->bits);
    return OSH_OK;
}

static osh_status micro_unpack_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const packing *j = user;
    int64_t first = chunk * CODES, n = j->n - first < CODES ? j->n - first : CODES;
    codes_get(j->codes + first, j->bytes + first * j->bits / 8, n, j->bits);
    return OSH_OK;
}

/* Writes the exponent field of each scale. All scales are powers of two. 2^-127 has the field 0,
 * because it is subnormal. */
static void exponents_put(uint8_t *to, const osh_tensor *scale)
{
    for (int64_t i = 0; i < osh_tensor_numel(scale); i++)
        to[i] = (uint8_t)(osh_bits_of_f32(osh_tensor_at(scale, i)) >> 23);
}

static osh_status micro_pack(osh_ctx *cx, void *const *data, const osh_format_weight *w,
                             const void *codes, const osh_qparams *p, const osh_format_input *in)
{
    osh_status rc = OSH_OK;
    const osh_q_scheme *s = w->scheme;
    packing j = {data[0], (uint8_t *)codes, w->O * w->I, s->weights.bits};
    int i = 2;

    if (codes && is_packed(s))
        OSH_TRY(osh_parallel_for(cx, (j.n + CODES - 1) / CODES, micro_pack_chunk, &j));
    else if (codes) memcpy(data[0], codes, (size_t)j.n);
    if (is_relative(s)) {
        memcpy(data[1], p->scale->data, osh_tensor_bytes(p->scale));
        memcpy(data[i++], &p->global, sizeof p->global);
    } else {
        exponents_put(data[1], p->scale);
    }
    OSH_TRY(osh_format_put_input(cx, data + i, w, in));
done:
    return rc;
}

static osh_status micro_unpack(osh_ctx *cx, void *codes, osh_qparams *p, const osh_format_weight *w,
                               const osh_tensor *const *data)
{
    osh_status rc = OSH_OK;
    const osh_q_scheme *s = w->scheme;
    // OSH_BF16 stands for all dtypes that osh_format_check_stored accepts for scales.
    osh_format_weight like = {w->scheme, w->O, w->I, OSH_BF16};
    osh_format_tensor want[OSH_FORMAT_MAX_TENSORS];
    osh_qparams q = {0}; // own
    packing j = {NULL, codes, w->O * w->I, s->weights.bits};
    int n;

    OSH_TRY(micro_tensors(cx, want, &n, &like));
    for (int i = 0; i < (is_relative(s) ? 3 : 2); i++)
        OSH_TRY(osh_format_check_stored(cx, data[i], &want[i]));
    if (is_relative(s)) {
        OSH_TRY(osh_tensor_new(cx, &q.scale, OSH_FP8, 2, want[1].shape));
        memcpy(q.scale->data, data[1]->data, osh_tensor_bytes(q.scale));
        q.global = osh_tensor_at(data[2], 0);
    } else {
        const uint8_t *e = data[1]->data;
        OSH_TRY(osh_tensor_new(cx, &q.scale, OSH_BF16, 2, want[1].shape));
        for (int64_t i = 0; i < osh_tensor_numel(q.scale); i++)
            // The exponent 0 means 2^-127, which is half of the smallest normal number of BF16.
            ((uint16_t *)q.scale->data)[i] = e[i] ? (uint16_t)(e[i] << 7) : 1 << 6;
    }
    j.bytes = data[0]->data;
    if (is_packed(s))
        OSH_TRY(osh_parallel_for(cx, (j.n + CODES - 1) / CODES, micro_unpack_chunk, &j));
    else memcpy(codes, data[0]->data, (size_t)j.n);
    *p = q, q = (osh_qparams){0}; // give
done:
    osh_qparams_deinit(cx, &q);
    return rc;
}

const osh_format osh_format_nvfp4 = {"nvfp4-pack-quantized", micro_tensors, micro_pack,
                                     micro_pack_rows, micro_unpack};
const osh_format osh_format_mxfp4 = {"mxfp4-pack-quantized", micro_tensors, micro_pack,
                                     micro_pack_rows, micro_unpack};
const osh_format osh_format_mxfp6 = {"mxfp6-pack-quantized", micro_tensors, micro_pack,
                                     micro_pack_rows, micro_unpack};
const osh_format osh_format_mxfp8 = {"mxfp8-quantized", micro_tensors, micro_pack, NULL,
                                     micro_unpack};
