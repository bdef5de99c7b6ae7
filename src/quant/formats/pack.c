/* pack.c - implements pack-quantized, which stores integers of 2 to 8 bits as a dense bit stream
 * (compressed_tensors/compressors/pack_quantized).
 *
 *   weight_packed      I32 [O, ceil(I*b/32)]   each row is a stream: element i has the bits
 *                                              [i*b, (i+1)*b), lowest first
 *   weight_scale       dtype of the original weight
 *   weight_shape       I64 [2] = {O, I}
 *   weight_zero_point  asymmetric: I32 [ceil(O*b/32), G], one stream down each column;
 *                      strategies `tensor` and `block`: I8, not packed
 *
 *   b = 3:  word 0 from bit 0: 000111222333...
 *           element 10 takes the bits 30 and 31 of word 0 and bit 0 of word 1
 *
 * An element is stored as code + 2^(b-1), also in symmetric schemes. Unused high bits of the last
 * word are 0. */
#include "quant/formats/common.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <string.h>

int64_t osh_pack_words(int64_t n, int bits)
{
    return (n * bits + 31) / 32;
}

void osh_pack_row(uint32_t *words, int64_t word_step, const int8_t *codes, int64_t code_step,
                  int64_t n, int bits)
{
    uint64_t acc = 0; // bits that are not yet written to `words`, lowest first
    int have = 0, offset = 1 << (bits - 1);
    uint32_t mask = (1u << bits) - 1;

    for (int64_t i = 0; i < n; i++) {
        acc |= (uint64_t)((uint32_t)(codes[i * code_step] + offset) & mask) << have;
        have += bits;
        if (have < 32) continue;
        *words = (uint32_t)acc;
        words += word_step, acc >>= 32, have -= 32;
    }
    if (have) *words = (uint32_t)acc;
}

void osh_unpack_row(int8_t *codes, int64_t code_step, const uint32_t *words, int64_t word_step,
                    int64_t n, int bits)
{
    uint64_t acc = 0;
    int have = 0, offset = 1 << (bits - 1);
    uint32_t mask = (1u << bits) - 1;

    for (int64_t i = 0; i < n; i++) {
        if (have < bits) {
            acc |= (uint64_t)*words << have;
            words += word_step, have += 32;
        }
        codes[i * code_step] = (int8_t)((int)((uint32_t)acc & mask) - offset);
        acc >>= bits, have -= bits;
    }
}

#ifdef __SSE2__
/* Packs 32 codes of 4 bits into 16 bytes. */
static void pack_32_nibbles(uint8_t *to, const int8_t *codes)
{
    const __m128i mask = _mm_set1_epi8(0xf), sign = _mm_set1_epi8(8), low = _mm_set1_epi16(0xff);
    __m128i v[2];
    for (int k = 0; k < 2; k++) {
        v[k] = _mm_loadu_si128((const __m128i *)(const void *)(codes + 16 * k));
        v[k] = _mm_xor_si128(_mm_and_si128(v[k], mask), sign);
        // In each 16-bit element, the shift moves the second of two codes from bits 8-11 to bits
        // 4-7.
        v[k] = _mm_or_si128(_mm_and_si128(v[k], low), _mm_srli_epi16(v[k], 4));
    }
    _mm_storeu_si128((__m128i *)(void *)to, _mm_packus_epi16(v[0], v[1]));
}
#endif

/* Packs a row of n contiguous codes. Eight codes take exactly `bits` bytes, so blocks of eight
 * codes are packed independently. In a block, shifts join the bits of two codes, then of four, then
 * of all eight. The instruction PEXT gives the same result, but needs BMI2. The host is
 * little-endian like the file. */
static void pack_row(uint32_t *words, const int8_t *codes, int64_t n, int bits)
{
    const uint64_t each = 0x0101010101010101u, odd2 = 0x00ff00ff00ff00ffu,
                   odd4 = 0x0000ffff0000ffffu, odd8 = 0xffffffffu;
    uint8_t *to = (uint8_t *)words;
    uint64_t mask = each * ((1u << bits) - 1), sign = each << (bits - 1), v;
    int64_t i = 0, room = 4 * osh_pack_words(n, bits);

    // a code of 8 bits is one byte of the stream, so only 2^7 is added (by flipping the sign bit)
    for (; bits == 8 && i + 8 <= n; i += 8, to += 8, room -= 8) {
        memcpy(&v, codes + i, 8);
        v ^= sign;
        memcpy(to, &v, 8);
    }
#ifdef __SSE2__
    for (; bits == 4 && i + 32 <= n; i += 32, to += 16, room -= 16) pack_32_nibbles(to, codes + i);
#endif
    for (; i + 8 <= n && room >= 8; i += 8, to += bits, room -= bits) {
        memcpy(&v, codes + i, 8);
        v = (v & mask) ^ sign; // each byte becomes code + 2^(bits - 1)
        v = (v & odd2) | (v & ~odd2) >> (8 - bits);
        v = (v & odd4) | (v & ~odd4) >> 2 * (8 - bits);
        v = (v & odd8) | (v & ~odd8) >> 4 * (8 - bits);
        /* The bytes after the first `bits` bytes are overwritten by the next block. */
        memcpy(to, &v, 8);
    }
    // the last words: codes after the last whole block of eight, padded with 0
    uint32_t rest[8] = {0};
    osh_pack_row(rest, 1, codes + i, 1, n - i, bits);
    memcpy(to, rest, (size_t)room);
}

static bool zero_packed(const osh_q_args *a)
{
    return !a->symmetric && (a->strategy == OSH_Q_GROUP || a->strategy == OSH_Q_CHANNEL);
}

static osh_status pack_tensors(osh_ctx *cx, osh_format_tensor *out, int *n,
                               const osh_format_weight *w)
{
    osh_status rc = OSH_OK;
    const osh_q_args *a = &w->scheme->weights;
    int64_t O = w->O, I = w->I;
    osh_q_shape shape;

    *n = 0;
    if (I > INT64_MAX / 8 || O > INT64_MAX / 8)
        OSH_FAIL(cx, OSH_E_FORMAT, "weight [%lld, %lld] is too large", (long long)O, (long long)I);
    OSH_TRY(osh_q_scale_shape(cx, &shape, a, O, I, "weight"));
    osh_format_add(out, n, "weight_packed", OSH_I32,
                   &(osh_q_shape){2, {O, osh_pack_words(I, a->bits)}});
    osh_format_add(out, n, "weight_scale", w->dt, &shape);
    osh_format_add(out, n, "weight_shape", OSH_I64, &(osh_q_shape){1, {2, 0}});
    if (zero_packed(a))
        osh_format_add(out, n, "weight_zero_point", OSH_I32,
                       &(osh_q_shape){2, {osh_pack_words(O, a->bits), shape.dim[1]}});
    else if (!a->symmetric)
        osh_format_add(out, n, "weight_zero_point", OSH_I8, &shape);
    osh_format_add_input(out, n, w->scheme, w->dt);
done:
    return rc;
}

typedef struct rows {
    uint32_t *words;
    int8_t *codes;
    int64_t O, I, n_words, per_chunk;
    int bits;
} rows;

static osh_status pack_rows_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const rows *j = user;
    for (int64_t r = chunk * j->per_chunk; r < (chunk + 1) * j->per_chunk && r < j->O; r++)
        pack_row(j->words + r * j->n_words, j->codes + r * j->I, j->I, j->bits);
    return OSH_OK;
}

static osh_status unpack_rows_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const rows *j = user;
    for (int64_t r = chunk * j->per_chunk; r < (chunk + 1) * j->per_chunk && r < j->O; r++)
        osh_unpack_row(j->codes + r * j->I, 1, j->words + r * j->n_words, 1, j->I, j->bits);
    return OSH_OK;
}

static osh_status run_rows(osh_ctx *cx, void *words, void *codes, const osh_format_weight *w,
                           osh_chunk_fn fn)
{
    int bits = w->scheme->weights.bits;
    rows j = {words, codes, w->O, w->I, osh_pack_words(w->I, bits), (1 << 18) / w->I + 1, bits};
    return osh_parallel_for(cx, (j.O + j.per_chunk - 1) / j.per_chunk, fn, &j);
}

static osh_status pack(osh_ctx *cx, void *const *data, const osh_format_weight *w,
                       const void *codes, const osh_qparams *p, const osh_format_input *in)
{
    osh_status rc = OSH_OK;
    const osh_q_args *a = &w->scheme->weights;
    int64_t shape[2] = {w->O, w->I};
    int i = 3;

    if (codes) OSH_TRY(run_rows(cx, data[0], (void *)codes, w, pack_rows_chunk));
    memcpy(data[1], p->scale->data, osh_tensor_bytes(p->scale));
    memcpy(data[2], shape, sizeof shape);
    if (!a->symmetric) {
        int64_t G = zero_packed(a) ? p->zero->shape[1] : 0;
        const int8_t *zero = p->zero->data; // [O, G]
        if (!G) memcpy(data[i], zero, osh_tensor_bytes(p->zero));
        for (int64_t g = 0; g < G; g++)
            osh_pack_row((uint32_t *)data[i] + g, G, zero + g, G, w->O, a->bits);
        i++;
    }
    OSH_TRY(osh_format_put_input(cx, data + i, w, in));
done:
    return rc;
}

static void pack_rows(void *to, const osh_q_scheme *s, int64_t I, const void *codes, int64_t n)
{
    int bits = s->weights.bits;
    for (int64_t r = 0; r < n; r++)
        pack_row((uint32_t *)to + r * osh_pack_words(I, bits), (const int8_t *)codes + r * I, I,
                 bits);
}

static osh_status unpack(osh_ctx *cx, void *codes, osh_qparams *p, const osh_format_weight *w,
                         const osh_tensor *const *data)
{
    osh_status rc = OSH_OK;
    const osh_q_args *a = &w->scheme->weights;
    int64_t O = w->O, I = w->I;
    // OSH_BF16 stands for all dtypes that osh_format_check_stored accepts for scales.
    osh_format_weight like = {w->scheme, w->O, w->I, OSH_BF16};
    osh_format_tensor want[OSH_FORMAT_MAX_TENSORS];
    osh_qparams q = {0}; // own
    int n;

    OSH_TRY(pack_tensors(cx, want, &n, &like));
    for (int i = 0; i < (a->symmetric ? 3 : 4); i++)
        OSH_TRY(osh_format_check_stored(cx, data[i], &want[i]));
    int64_t shape[2] = {0};
    if (data[2]->dtype == OSH_I64) memcpy(shape, data[2]->data, sizeof shape);
    else
        shape[0] = ((const int32_t *)data[2]->data)[0],
        shape[1] = ((const int32_t *)data[2]->data)[1];
    if (shape[0] != O || shape[1] != I)
        OSH_FAIL(cx, OSH_E_FORMAT, "weight_shape is [%lld, %lld], want [%lld, %lld]",
                 (long long)shape[0], (long long)shape[1], (long long)O, (long long)I);
    OSH_TRY(osh_format_take_scale(cx, &q, data[1], &want[1]));
    if (!a->symmetric) {
        int64_t G = want[1].shape[1];
        OSH_TRY(osh_tensor_new(cx, &q.zero, OSH_I8, want[1].ndim, want[1].shape));
        if (!zero_packed(a))
            memcpy(q.zero->data, data[3]->data, osh_tensor_bytes(q.zero));
        else
            for (int64_t g = 0; g < G; g++)
                osh_unpack_row((int8_t *)q.zero->data + g, G, (const uint32_t *)data[3]->data + g,
                               G, O, a->bits);
    }
    OSH_TRY(run_rows(cx, data[0]->data, codes, w, unpack_rows_chunk));
    *p = q, q = (osh_qparams){0}; // give
done:
    osh_qparams_deinit(cx, &q);
    return rc;
}

const osh_format osh_format_pack = {"pack-quantized", pack_tensors, pack, pack_rows, unpack};
