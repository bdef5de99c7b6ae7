/* awq.c - reads weights of the method awq (AutoAWQ), with codes of 4 bits, eight in a word. A group
 * is some consecutive input features. G is the number of groups.
 *
 *   version gemm   X.qweight I32 [I, O / 8]    a word holds the codes of 8 output features
 *                  X.qzeros  I32 [G, O / 8]    in the order of the fields below
 *                  X.scales  float [G, O]
 *   version gemv   X.qweight I32 [O, I / 8]    a word holds the codes of 8 input features
 *                  X.qzeros  I32 [O, Z]        a word holds the zero points of 8 groups
 *                  X.scales  float [O, 8 Z]    8 Z >= G; scales from G on are not used
 *
 *   a word         bit 31                              0
 *   version gemm   | o7 | o5 | o3 | o1 | o6 | o4 | o2 | o0 |
 *   version gemv   | 7  | 6  | 5  | 4  | 3  | 2  | 1  | 0  |
 *
 * A weight is (code - zero point) * scale, computed in F32 and rounded to the model's dtype. For
 * F16 models this is the result of dequantize_gemm of AutoAWQ, which computes in F16. */
#include "base/name.h"
#include "quant/source_impl.h"
#include "tensor/scalar.h"

#include <string.h>
#include <strings.h>

extern const osh_source_type osh_source_awq;

enum { WEIGHT, ZEROS, SCALES, N_PARTS }; // indices of stored tensors in q->parts
enum { PIECE = 1 << 22 }; // number of elements of the weight that are decoded together

typedef struct awq_config {
    int64_t group; // number of input features of a group; -1: all features
    bool gemv;     // true: version gemv; false: version gemm
} awq_config;

/* ---- the config ---- */

/* A key of q has the name `key`, or `old` in older files. Returns the name that q has, or `key` if
 * q has both or neither. */
static const char *awq_config_key(const cJSON *q, const char *key, const char *old)
{
    return !cJSON_HasObjectItem(q, key) && cJSON_HasObjectItem(q, old) ? old : key;
}

static osh_status awq_read_config(osh_ctx *cx, awq_config *c, const osh_source *s)
{
    osh_status rc = OSH_OK;
    const cJSON *q = s->ck->config->quantization_config;
    const char *path = s->ck->config->quantization_path, *version, *key;
    int64_t bits = 0;
    OSH_TRY(osh_json_int_or(cx, &bits, q, awq_config_key(q, "bits", "w_bit"), 4, path));
    if (bits != 4)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: quant_method awq with bits %lld: want 4", path,
                 (long long)bits);
    key = awq_config_key(q, "version", "format");
    OSH_TRY(osh_json_str_or(cx, &version, q, key, "gemm", path));
    c->gemv = !strcasecmp(version, "gemv");
    if (!c->gemv && strcasecmp(version, "gemm"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: quant_method awq with %s '%s': want gemm or gemv",
                 path, key, version);
    key = awq_config_key(q, "group_size", "q_group_size");
    OSH_TRY(osh_json_int_or(cx, &c->group, q, key, 128, path));
    if (c->group != -1 && (c->group < 1 || c->group > INT32_MAX))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s is %lld, want -1 or a positive number", path, key,
                 (long long)c->group);
done:
    return rc;
}

static osh_status awq_begin(osh_ctx *cx, void **state, const osh_source *s)
{
    osh_status rc = OSH_OK;
    awq_config *c = NULL; // own
    if (s->type != &osh_source_awq && !osh_source_packs_awq(s)) goto done;
    OSH_NEW(cx, c, 1);
    OSH_TRY(awq_read_config(cx, c, s));
    *state = c, c = NULL; // give
done:
    osh_free(cx, c);
    return rc;
}

static void awq_close(osh_ctx *cx, void *state) { osh_free(cx, state); }

/* ---- the tensors of a module ---- */

static bool awq_claims(const osh_source *s, const osh_entry *e, size_t *n)
{
    static const char *const tails[] = {".qweight", ".qzeros", ".scales"};
    if (s->type != &osh_source_awq && !osh_source_packs_awq(s)) return false;
    for (int i = 0; i < N_PARTS; i++)
        if ((*n = osh_before_tail(e->name, tails[i])) > 0) return true;
    return false;
}

/* Sets the size of a group. Computes the shape of the weight from the shape of its codes. */
static osh_status awq_find_shape(osh_ctx *cx, osh_source_module *q, const awq_config *c)
{
    osh_status rc = OSH_OK;
    const osh_entry *e = q->parts[WEIGHT].e;
    if (e->ndim != 2)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %d dimensions, want 2", e->name, e->ndim);
    for (int d = 0; d < 2; d++)
        if (e->shape[d] < 1 || e->shape[d] > INT32_MAX / 8)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s has a dimension of size %lld, want from 1 to %d",
                     e->name, (long long)e->shape[d], INT32_MAX / 8);
    q->O = c->gemv ? e->shape[0] : e->shape[1] * 8;
    q->I = c->gemv ? e->shape[1] * 8 : e->shape[0];
    int64_t size = c->group < 0 ? q->I : c->group;
    if (q->I % size)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %lld input features, which groups of %lld do not divide",
                 e->name, (long long)q->I, (long long)size);
    q->own.weights.group_size = size;
done:
    return rc;
}

static osh_status awq_find(osh_ctx *cx, osh_source_module *q)
{
    static const char *const leaves[] = {"qweight", "qzeros", "scales"};
    static const osh_dtype floats[] = {OSH_F16, OSH_BF16, OSH_F32, OSH_DTYPE_NONE},
                           words[] = {OSH_I32, OSH_DTYPE_NONE};
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t;
    const awq_config *c = *q->state;
    for (int i = 0; i < N_PARTS; i++) {
        OSH_TRY(osh_source_need_leaf(cx, &t, q, leaves[i], "quant_method awq"));
        q->parts[i] = *t;
    }
    q->n_leaves = N_PARTS;
    OSH_TRY(osh_source_find_leaf(cx, &t, q, ".", "weight"));
    if (t) OSH_FAIL(cx, OSH_E_FORMAT, "%s has both %s and qweight", q->name, t->e->name);
    OSH_TRY(awq_find_shape(cx, q, c));
    int64_t G = q->I / q->own.weights.group_size, Z = osh_div_up(G, 8);
    const osh_entry *z = q->parts[ZEROS].e;
    if (c->gemv && z->ndim == 2 && z->shape[1] > Z && z->shape[1] <= Z + 3) Z = z->shape[1];
    OSH_TRY(osh_source_check_matrix(cx, &q->parts[WEIGHT], c->gemv ? q->O : q->I,
                                    (c->gemv ? q->I : q->O) / 8, words));
    OSH_TRY(osh_source_check_matrix(cx, &q->parts[ZEROS], c->gemv ? q->O : G,
                                    c->gemv ? Z : q->O / 8, words));
    OSH_TRY(osh_source_check_matrix(cx, &q->parts[SCALES], c->gemv ? q->O : G,
                                    c->gemv ? 8 * Z : q->O, floats));
    if (q->dtype == OSH_DTYPE_NONE) q->dtype = q->parts[SCALES].e->dtype;
done:
    return rc;
}

/* ---- decoding ---- */

typedef struct awq_room { // scratch for decoding some rows; G, Z: as in the header of this file
    /* Packed codes and zero points. gemm: [rows / 8, I] and [rows / 8, G]. gemv: [rows, I / 8] and
     * [rows, Z]. */
    uint32_t *codes, *zeros;
    /* Scales, zero points and weights of one row. gemm: [G], [G] and [I]. gemv: [8 Z], [8 Z] and
     * [I]. */
    float *scale, *zero, *row;
    char *stored; // scales in their stored dtype; gemm: [rows, G]; gemv: [rows, 8 Z]
} awq_room;

/* Returns the number of stored scales for each row of the weight. */
static int64_t awq_n_scales(const osh_source_module *q)
{
    const awq_config *c = *q->state;
    return q->parts[SCALES].e->shape[c->gemv ? 1 : 0];
}

/* Returns the number of rows of the weight that are decoded together: a multiple of 8, or all
 * rows. */
static int64_t awq_piece_rows(const osh_source_module *q)
{
    int64_t n = PIECE / q->I / 8 * 8;
    if (n < 64) n = 64;
    return n < q->O ? n : q->O;
}

/* Sets the arrays in `room` to parts of `block`. Returns the number of bytes of the block. `block`
 * may be NULL. */
static size_t awq_room_divide(awq_room *room, const osh_source_module *q, char *block)
{
    int64_t G = awq_n_scales(q), rows = awq_piece_rows(q);
    int64_t words = rows / 8 + 2; // the rows of a piece may begin and end inside a word
    size_t n = 0, G4 = (size_t)G * 4;
    room->codes = osh_source_slice(block, &n, (size_t)(words * 8 * (q->I / 8 + 1)) * 4);
    room->zeros = osh_source_slice(block, &n, (size_t)(words * (G + 8)) * 4);
    room->scale = osh_source_slice(block, &n, G4);
    room->zero = osh_source_slice(block, &n, G4);
    room->row = osh_source_slice(block, &n, (size_t)q->I * 4);
    room->stored = osh_source_slice(
        block, &n, (size_t)(rows * G) * osh_dtype_bytes(q->parts[SCALES].e->dtype));
    return n;
}

static osh_status awq_read_piece(osh_ctx *cx, awq_room *room, const osh_source_module *q,
                                 int64_t first, int64_t rows)
{
    osh_status rc = OSH_OK;
    const awq_config *c = *q->state;
    if (c->gemv) {
        OSH_TRY(osh_source_read_rows(cx, room->codes, q, WEIGHT, first, rows));
        OSH_TRY(osh_source_read_rows(cx, room->zeros, q, ZEROS, first, rows));
        OSH_TRY(osh_source_read_rows(cx, room->stored, q, SCALES, first, rows));
    } else {
        int64_t word = first / 8, n = osh_div_up(first + rows, 8) - word;
        OSH_TRY(osh_source_read_columns(cx, room->codes, q, WEIGHT, word, n));
        OSH_TRY(osh_source_read_columns(cx, room->zeros, q, ZEROS, word, n));
        OSH_TRY(osh_source_read_columns(cx, room->stored, q, SCALES, first, rows));
    }
done:
    return rc;
}

static float nibble_of(uint32_t word, int64_t at) { return (float)(word >> at * 4 & 15); }

/* Decodes one row of a piece (rows that are read together) to room->row. `at`: index of the row in
 * the piece. `skip` (gemm): number of earlier rows in the first word of the piece. */
static osh_status awq_decode_row(osh_ctx *cx, awq_room *room, const osh_source_module *q,
                                 int64_t at, int64_t skip)
{
    /* gemm: a word has 8 output features; fields[k] is the position of feature k in the word. */
    static const int fields[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    osh_status rc = OSH_OK;
    const awq_config *c = *q->state;
    osh_dtype dt = q->parts[SCALES].e->dtype;
    int64_t n = awq_n_scales(q), size = q->own.weights.group_size, G = q->I / size;
    int64_t word = (at + skip) / 8, field = fields[(at + skip) % 8];
    osh_to_f32(room->scale, room->stored + (size_t)(at * n) * osh_dtype_bytes(dt), dt, n);
    OSH_TRY(osh_source_check_finite(cx, q, SCALES, room->scale, G));
    for (int64_t g = 0; g < G; g++)
        room->zero[g] = c->gemv ? nibble_of(room->zeros[at * (n / 8) + g / 8], g % 8)
                                : nibble_of(room->zeros[word * G + g], field);
    for (int64_t i = 0; i < q->I; i++) {
        float code = c->gemv ? nibble_of(room->codes[at * (q->I / 8) + i / 8], i % 8)
                             : nibble_of(room->codes[word * q->I + i], field);
        room->row[i] = (code - room->zero[i / size]) * room->scale[i / size];
    }
done:
    return rc;
}

/* The next two functions are the members `open` and `piece` of osh_source_pieces. */
static osh_status awq_open(osh_ctx *cx, void *user, const osh_source_module *q, char *block)
{
    awq_room_divide(user, q, block);
    return OSH_OK;
}

static osh_status awq_piece(osh_ctx *cx, char *to, void *user, const osh_source_module *q,
                            int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    awq_room *room = user;
    OSH_TRY(awq_read_piece(cx, room, q, first, n));
    for (int64_t r = 0; r < n; r++) {
        OSH_TRY(awq_decode_row(cx, room, q, r, first % 8));
        osh_from_f32(to, q->dtype, room->row, q->I);
        to += (size_t)q->I * osh_dtype_bytes(q->dtype);
    }
done:
    return rc;
}

static osh_status awq_rows(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                           int64_t n)
{
    awq_room room;
    return osh_source_decode(cx, to, q, first, n,
                             &(osh_source_pieces){awq_piece_rows(q),
                                                  awq_room_divide(&room, q, NULL), &room, awq_open,
                                                  awq_piece});
}

static size_t awq_scratch_bytes(const osh_source_module *q)
{
    return osh_source_decode_bytes(awq_room_divide(&(awq_room){0}, q, NULL));
}

const osh_source_type osh_source_awq = {
    .methods = {"awq"}, .file = "quant_config.json", .tails = {".qweight", ".qzeros", ".scales"},
    .begin = awq_begin, .close = awq_close, .claims = awq_claims, .find = awq_find,
    .make_rows = awq_rows, .bytes = awq_scratch_bytes,
};
