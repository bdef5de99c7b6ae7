/* gptq.c - reads weights of the method gptq (AutoGPTQ, GPTQModel, optimum) and of AutoRound, if it
 * wrote the same tensors. In the table, b is the number of bits (2, 3, 4 or 8), and G is the number
 * of groups:
 *
 *   X.qweight   I32 [ceil(I b / 32), O]   column o is the bit stream of row o of the weight
 *   X.qzeros    I32 [G, ceil(O b / 32)]   row g is the bit stream of the zero points of group g
 *   X.scales    float [G, O]
 *   X.g_idx     I32 [I]                   the group of each input feature; may be missing if groups
 *                                         are consecutive features
 *
 * A stream has its lowest bit first. A weight is (code - zero point) * scale, computed in F32 and
 * rounded to the model's dtype, as in convert_gptq_file of GPTQModel. The first version of the
 * format stores zero point - 1, and GPTQModel adds the 1 again. With 2, 4 and 8 bits, one addition
 * adds 1 to all fields of a word. This also undoes the borrows of the writer's subtraction. With 3
 * bits, 1 is added to each field. */
#include "base/name.h"
#include "quant/source_impl.h"
#include "tensor/scalar.h"

#include <string.h>

enum { WEIGHT, ZEROS, SCALES, GROUPS, N_PARTS }; // indices of stored tensors in q->parts
enum { PIECE = 1 << 20 }; // number of elements of the weight that are decoded together

extern const osh_source_type osh_source_gptq;

typedef struct gptq_config {
    /* bits: number of bits of a code. group: number of input features of a group; -1: all
     * features. */
    int64_t bits, group;
    bool desc_act;       // true: the features of a group need not be consecutive
    /* true: a module may have another number of bits, or another group size, than the config. */
    bool mixed;
    bool plus_one;       // true: the stored zero points are too small by 1
} gptq_config;

/* ---- the config ---- */

static bool is_of_autoround(const osh_source *s)
{
    size_t n = strlen(s->method);
    return osh_ends_with(s->method, n, "auto-round");
}

/* Reads which version of the gptq format the tensors have. */
static osh_status read_version(osh_ctx *cx, gptq_config *c, const osh_source *s)
{
    osh_status rc = OSH_OK;
    const cJSON *q = s->ck->config->quantization_config;
    const char *path = s->ck->config->quantization_path, *name, *key;
    bool first = false, second = false, marlin;
    if (is_of_autoround(s)) {
        key = "packing_format";
        OSH_TRY(osh_json_str_or(cx, &name, q, key, "auto_round:auto_gptq", path));
        first = !strcmp(name, "auto_round:auto_gptq");
        second = !strcmp(name, "auto_round") || !strcmp(name, "auto_round:gptqmodel");
    } else {
        key = cJSON_HasObjectItem(q, "checkpoint_format") ? "checkpoint_format" : "format";
        OSH_TRY(osh_json_str_or(cx, &name, q, key, "gptq", path));
        OSH_TRY(osh_json_bool_or(cx, &marlin, q, "is_marlin_format", false, path));
        if (marlin) name = "marlin";
        first = !strcmp(name, "gptq"), second = !strcmp(name, "gptq_v2");
    }
    if (!first && !second)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: %s is '%s', want %s", path, key, name,
                 is_of_autoround(s) ? "auto_round, auto_round:gptqmodel, auto_round:auto_gptq or "
                                      "auto_round:auto_awq"
                                    : "gptq or gptq_v2");
    c->plus_one = first;
done:
    return rc;
}

static bool has_members(const cJSON *q, const char *key)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(q, key);
    return cJSON_IsObject(o) && o->child;
}

static osh_status read_numbers(osh_ctx *cx, gptq_config *c, const osh_source *s)
{
    osh_status rc = OSH_OK;
    const cJSON *q = s->ck->config->quantization_config;
    const char *path = s->ck->config->quantization_path, *type;
    OSH_TRY(osh_json_int(cx, &c->bits, q, "bits", path));
    if (c->bits != 2 && c->bits != 3 && c->bits != 4 && c->bits != 8)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: quant_method %s with bits %lld: want 2, 3, 4 or 8",
                 path, s->method, (long long)c->bits);
    OSH_TRY(osh_json_int_or(cx, &c->group, q, "group_size", -1, path));
    if (c->group != -1 && (c->group < 1 || c->group > INT32_MAX))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: group_size is %lld, want -1 or a positive number", path,
                 (long long)c->group);
    OSH_TRY(osh_json_bool_or(cx, &c->desc_act, q, "desc_act", false, path));
    OSH_TRY(osh_json_str_or(cx, &type, q, "data_type", "int", path));
    if (strcmp(type, "int"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: quant_method %s with data_type '%s': want int", path,
                 s->method, type);
    c->mixed = has_members(q, "dynamic") || has_members(q, "extra_config");
done:
    return rc;
}

static osh_status gptq_begin(osh_ctx *cx, void **state, const osh_source *s)
{
    osh_status rc = OSH_OK;
    gptq_config *c = NULL; // own
    if (s->type != &osh_source_gptq || osh_source_packs_awq(s)) goto done;
    OSH_NEW(cx, c, 1);
    OSH_TRY(read_version(cx, c, s));
    OSH_TRY(read_numbers(cx, c, s));
    *state = c, c = NULL; // give
done:
    osh_free(cx, c);
    return rc;
}

static void gptq_close(osh_ctx *cx, void *state) { osh_free(cx, state); }

/* ---- the tensors of a module ---- */

static bool gptq_claims(const osh_source *s, const osh_entry *e, size_t *n)
{
    static const char *const tails[] = {".qweight", ".qzeros", ".scales", ".g_idx"};
    if (s->type != &osh_source_gptq || osh_source_packs_awq(s)) return false;
    for (int i = 0; i < N_PARTS; i++)
        if ((*n = osh_before_tail(e->name, tails[i])) > 0) return true;
    return false;
}

/* Finds the stored tensors of a module and sets q->parts. */
static osh_status find_parts(osh_ctx *cx, osh_source_module *q)
{
    static const char *const leaves[] = {"qweight", "qzeros", "scales", "g_idx"};
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t;
    for (int i = 0; i < N_PARTS; i++) {
        if (i == GROUPS) OSH_TRY(osh_source_find_leaf(cx, &t, q, ".", leaves[i]));
        else OSH_TRY(osh_source_need_leaf(cx, &t, q, leaves[i], "quant_method gptq"));
        if (!t) continue;
        if (t->e->ndim != (i == GROUPS ? 1 : 2))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s has %d dimensions, want %d", t->e->name, t->e->ndim,
                     i == GROUPS ? 1 : 2);
        for (int d = 0; d < t->e->ndim; d++)
            if (t->e->shape[d] < 1 || t->e->shape[d] > INT32_MAX / 32)
                OSH_FAIL(cx, OSH_E_FORMAT, "%s has a dimension of size %lld, want from 1 to %d",
                         t->e->name, (long long)t->e->shape[d], INT32_MAX / 32);
        q->parts[i] = *t;
    }
    q->n_leaves = N_PARTS;
    OSH_TRY(osh_source_find_leaf(cx, &t, q, ".", "weight"));
    if (t)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has both %s and %s", q->name, t->e->name,
                 q->parts[WEIGHT].e->name);
done:
    return rc;
}

/* True if the stored codes and zero points have the shapes for a weight [O, I] with codes of `bits`
 * bits. I = 0: the number of input features is unknown. */
static bool bits_fit(const osh_source_module *q, int64_t I, int bits)
{
    const int64_t *w = q->parts[WEIGHT].e->shape;
    if (osh_pack_words(w[1], bits) != q->parts[ZEROS].e->shape[1]) return false;
    return I ? osh_pack_words(I, bits) == w[0] : w[0] * 32 % bits == 0;
}

/* Sets the number of bits and the shape of the weight. If modules may have another number of bits
 * than the config, the shapes of the stored tensors decide. */
static osh_status find_bits(osh_ctx *cx, osh_source_module *q, const gptq_config *c)
{
    static const int others[] = {4, 8, 2, 3};
    osh_status rc = OSH_OK;
    const int64_t *w = q->parts[WEIGHT].e->shape, *z = q->parts[ZEROS].e->shape;
    int64_t I = q->parts[GROUPS].e ? q->parts[GROUPS].e->shape[0] : 0;
    int bits = (int)c->bits;
    for (size_t i = 0; c->mixed && i < sizeof others / sizeof *others && !bits_fit(q, I, bits); i++)
        if (bits_fit(q, I, others[i])) bits = others[i];
    if (!bits_fit(q, I, bits))
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s [%lld, %lld] and %s [%lld, %lld] do not hold codes of %d bits%s: want "
                 "[input features * bits / 32, output features] and [groups, output features * "
                 "bits / 32]",
                 q->parts[WEIGHT].e->name, (long long)w[0], (long long)w[1],
                 q->parts[ZEROS].e->name, (long long)z[0], (long long)z[1], bits,
                 I ? " for the input features of g_idx" : "");
    q->O = w[1], q->I = I ? I : w[0] * 32 / bits;
    q->own.weights.bits = bits;
done:
    return rc;
}

/* Guesses the group size of a module with I input features in G groups. Candidates are `config`
 * (the size in the config), the size that divides the features evenly, and powers of two. Returns
 * the size if only one candidate gives G groups, 0 if none does, and -1 if several do. */
static int64_t group_guess(int64_t I, int64_t G, int64_t config)
{
    int64_t found = osh_div_up(I, config) == G ? config : 0;
    if (I % G == 0) {
        if (found && found != I / G) return -1;
        found = I / G;
    }
    for (int64_t s = 8; s < I; s *= 2) {
        if (osh_div_up(I, s) != G || s == found) continue;
        if (found) return -1;
        found = s;
    }
    return found;
}

/* Sets the number of consecutive features of a group. It is used if the module has no g_idx. */
static osh_status find_group(osh_ctx *cx, osh_source_module *q, const gptq_config *c)
{
    osh_status rc = OSH_OK;
    int64_t G = q->parts[SCALES].e->shape[0], size = c->group < 0 ? q->I : c->group;
    bool fits = osh_div_up(q->I, size) == G;
    if (c->mixed && !fits && (q->parts[GROUPS].e || G == 1))
        size = osh_div_up(q->I, G), fits = true;
    if (c->mixed && !q->parts[GROUPS].e && G > 1) {
        int64_t guess = group_guess(q->I, G, size);
        if (guess < 0)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: %lld input features in %lld groups can have groups of several sizes, and "
                     "modules may differ from group_size: want the tensor %s.g_idx",
                     q->parts[SCALES].e->name, (long long)q->I, (long long)G, q->name);
        fits = guess > 0;
        if (fits) size = guess;
    }
    if (!fits)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s has scales for %lld groups, want %lld: %lld input features in groups of %lld",
                 q->parts[SCALES].e->name, (long long)G, (long long)osh_div_up(q->I, size),
                 (long long)q->I, (long long)size);
    if (!q->parts[GROUPS].e && c->desc_act && G > 1)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s.g_idx is missing: want it for desc_act", q->name);
    q->own.weights.group_size = size;
done:
    return rc;
}

static osh_status gptq_find(osh_ctx *cx, osh_source_module *q)
{
    static const osh_dtype floats[] = {OSH_F16, OSH_BF16, OSH_F32, OSH_DTYPE_NONE},
                           words[] = {OSH_I32, OSH_DTYPE_NONE};
    osh_status rc = OSH_OK;
    const gptq_config *c = *q->state;
    OSH_TRY(find_parts(cx, q));
    OSH_TRY(find_bits(cx, q, c));
    int64_t G = q->parts[SCALES].e->shape[0], bits = q->own.weights.bits;
    OSH_TRY(osh_source_check_matrix(cx, &q->parts[SCALES], G, q->O, floats));
    OSH_TRY(osh_source_check_matrix(cx, &q->parts[WEIGHT], osh_pack_words(q->I, (int)bits), q->O,
                                    words));
    OSH_TRY(osh_source_check_matrix(cx, &q->parts[ZEROS], G, osh_pack_words(q->O, (int)bits),
                                    words));
    const osh_entry *g = q->parts[GROUPS].e;
    if (g && g->dtype != OSH_I32)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s: want I32", g->name, osh_dtype_name(g->dtype));
    OSH_TRY(find_group(cx, q, c));
    if (q->dtype == OSH_DTYPE_NONE) q->dtype = q->parts[SCALES].e->dtype;
done:
    return rc;
}

/* ---- decoding ---- */

/* Scratch for decoding up to `rows` rows; G: number of groups, W: number of words of a row. */
typedef struct gptq_room {
    int32_t *group;        // group of each input feature, [I]
    uint32_t *codes;       // packed codes of the rows, [rows, W]
    uint32_t *zeros;       // packed zero points of the rows, [words, G]
    /* scale, zero: scales and zero points of one row, [G].
     * row: weights of one row, [I]. */
    float *scale, *zero, *row;
    char *stored;          // scales in their stored dtype, [rows, G]
} gptq_room;

static int64_t n_words(const osh_source_module *q)
{
    return osh_pack_words(q->I, q->own.weights.bits);
}

static int64_t gptq_piece_rows(const osh_source_module *q)
{
    int64_t n = PIECE / q->I;
    if (n < 32) n = 32;
    return n < q->O ? n : q->O;
}

/* Sets the arrays in `room` to parts of `block`. Returns the number of bytes of the block. `block`
 * may be NULL. */
static size_t room_divide(gptq_room *room, const osh_source_module *q, char *block)
{
    int64_t G = q->parts[SCALES].e->shape[0], rows = gptq_piece_rows(q);
    int64_t n_zeros = osh_pack_words(rows, q->own.weights.bits) + 1;
    size_t n = 0, G4 = (size_t)G * 4, I4 = (size_t)q->I * 4;
    room->group = osh_source_slice(block, &n, I4);
    room->codes = osh_source_slice(block, &n, (size_t)(rows * n_words(q)) * 4);
    room->zeros = osh_source_slice(block, &n, (size_t)n_zeros * G4);
    room->scale = osh_source_slice(block, &n, G4);
    room->zero = osh_source_slice(block, &n, G4);
    room->row = osh_source_slice(block, &n, I4);
    room->stored = osh_source_slice(
        block, &n, (size_t)(rows * G) * osh_dtype_bytes(q->parts[SCALES].e->dtype));
    return n;
}

/* Sets room->group to the content of g_idx. If the module has no g_idx, a group is a range of
 * consecutive features. */
static osh_status read_groups(osh_ctx *cx, gptq_room *room, const osh_source_module *q)
{
    osh_status rc = OSH_OK;
    int64_t G = q->parts[SCALES].e->shape[0];
    if (!q->parts[GROUPS].e) {
        for (int64_t i = 0; i < q->I; i++)
            room->group[i] = (int32_t)(i / q->own.weights.group_size);
        goto done;
    }
    OSH_TRY(osh_source_read_rows(cx, room->group, q, GROUPS, 0, q->I));
    for (int64_t i = 0; i < q->I; i++)
        if (room->group[i] < 0 || room->group[i] >= G)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s holds %d, want a group from 0 to %lld",
                     q->parts[GROUPS].e->name, room->group[i], (long long)G - 1);
done:
    return rc;
}

/* Returns the code that begins at bit `bit` of a stream of codes. The words of the stream are
 * `step` elements apart. */
static uint32_t stream_field(const uint32_t *words, int64_t step, int64_t bit, int bits)
{
    const uint32_t *w = words + bit / 32 * step;
    int shift = (int)(bit % 32);
    uint32_t v = *w >> shift;
    if (shift + bits > 32) v |= w[step] << (32 - shift);
    return v & ((1u << bits) - 1);
}

/* Reads the codes, zero points and scales of `rows` rows of the weight. */
static osh_status gptq_read_piece(osh_ctx *cx, gptq_room *room, const osh_source_module *q,
                                  int64_t first, int64_t rows)
{
    osh_status rc = OSH_OK;
    int bits = q->own.weights.bits;
    int64_t G = q->parts[SCALES].e->shape[0], word = first * bits / 32;
    int64_t n = osh_pack_words(first + rows, bits) - word;
    const gptq_config *c = *q->state;
    OSH_TRY(osh_source_read_columns(cx, room->codes, q, WEIGHT, first, rows));
    OSH_TRY(osh_source_read_columns(cx, room->zeros, q, ZEROS, word, n));
    OSH_TRY(osh_source_read_columns(cx, room->stored, q, SCALES, first, rows));
    if (c->plus_one && bits != 3)
        for (int64_t i = 0; i < n * G; i++) room->zeros[i] += UINT32_MAX / ((1u << bits) - 1);
done:
    return rc;
}

/* Decodes one row of a piece (rows that are read together) to room->row. `at`: index of the row in
 * the piece. `bit`: position of the row's zero points in the streams of room->zeros. */
static osh_status decode_row(osh_ctx *cx, gptq_room *room, const osh_source_module *q, int64_t at,
                             int64_t bit)
{
    osh_status rc = OSH_OK;
    int bits = q->own.weights.bits;
    const gptq_config *c = *q->state;
    const osh_entry *e = q->parts[SCALES].e;
    int64_t G = e->shape[0];
    const uint32_t *codes = room->codes + at * n_words(q);
    osh_to_f32(room->scale, room->stored + (size_t)(at * G) * osh_dtype_bytes(e->dtype), e->dtype,
               G);
    OSH_TRY(osh_source_check_finite(cx, q, SCALES, room->scale, G));
    for (int64_t g = 0; g < G; g++) {
        uint32_t z = stream_field(room->zeros + g, G, bit, bits);
        room->zero[g] = (float)(c->plus_one && bits == 3 ? (z + 1) & 7 : z);
    }
    for (int64_t i = 0; i < q->I; i++) {
        int32_t g = room->group[i];
        float code = (float)stream_field(codes, 1, i * bits, bits);
        room->row[i] = (code - room->zero[g]) * room->scale[g];
    }
done:
    return rc;
}

/* The next two functions are the members `open` and `piece` of osh_source_pieces. */
static osh_status gptq_open(osh_ctx *cx, void *user, const osh_source_module *q, char *block)
{
    room_divide(user, q, block);
    return read_groups(cx, user, q);
}

static osh_status gptq_piece(osh_ctx *cx, char *to, void *user, const osh_source_module *q,
                             int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    gptq_room *room = user;
    /* number of bits in a word before the zero point of row `first` */
    int64_t skip = first * q->own.weights.bits % 32;
    OSH_TRY(gptq_read_piece(cx, room, q, first, n));
    for (int64_t r = 0; r < n; r++) {
        OSH_TRY(decode_row(cx, room, q, r, skip + r * q->own.weights.bits));
        osh_from_f32(to, q->dtype, room->row, q->I);
        to += (size_t)q->I * osh_dtype_bytes(q->dtype);
    }
done:
    return rc;
}

static osh_status gptq_rows(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                            int64_t n)
{
    gptq_room room;
    return osh_source_decode(cx, to, q, first, n,
                             &(osh_source_pieces){gptq_piece_rows(q), room_divide(&room, q, NULL),
                                                  &room, gptq_open, gptq_piece});
}

static size_t gptq_bytes(const osh_source_module *q)
{
    return osh_source_decode_bytes(room_divide(&(gptq_room){0}, q, NULL));
}

const osh_source_type osh_source_gptq = {
    .methods = {"gptq", "gptqmodel", "auto-round", "intel/auto-round"},
    .file = "quantize_config.json", .tails = {".qweight", ".qzeros", ".scales", ".g_idx"},
    .begin = gptq_begin, .close = gptq_close, .claims = gptq_claims, .find = gptq_find,
    .make_rows = gptq_rows, .bytes = gptq_bytes,
};
