/* bitsandbytes.c - reads weights of the method bitsandbytes. With 4 bits, a weight [O, I] is one
 * sequence of elements, in blocks of b elements:
 *
 *   X.weight                  U8 [ceil(O I / 2), 1]   two codes, the even element in the high half
 *   X.weight.quant_map        F32 [16]                value of each code (nf4 or fp4)
 *   X.weight.absmax           F32 [blocks]            factor of each block
 *   X.weight.quant_state.bitsandbytes__nf4, __fp4     JSON as U8: shape, blocksize, dtype, and
 *                                                     with double quantization the nested_ keys
 *
 * With double quantization, absmax is U8, nested_quant_map has 256 values, and a factor is
 *
 *   nested_quant_map[absmax] * nested_absmax [block / nested_blocksize] + nested_offset
 *
 * With 8 bits, X.weight is I8 [O, I]. X.SCB is F32 [O], the largest magnitude of each row. A
 * weight is code * SCB / 127. The arithmetic is that of bitsandbytes: F32, rounded to the model's
 * dtype. A weight with 4 bits is first rounded to the dtype in quant_state. */
#include "base/name.h"
#include "quant/source_impl.h"
#include "tensor/scalar.h"
#include "text/json.h"

#include <math.h>
#include <string.h>

extern const osh_source_type osh_source_bitsandbytes;

/* Indices in q->parts for a weight with 4 bits. */
enum { WEIGHT, MAP, ABSMAX, NESTED_MAP, NESTED_ABSMAX, N_PARTS };
enum { SCB = 1 }; // index in q->parts for a weight with 8 bits
enum { PIECE = 1 << 20, MAX_STATE_BYTES = 1 << 16 };

typedef struct bnb_module { // properties of a module, from its quant_state
    bool four;              // true: codes of 4 bits; false: of 8 bits
    /* block: number of elements that share a factor. nested: number of factors that share a nested
     * factor; 0: there are no nested factors. */
    int64_t block, nested;
    float offset;           // nested_offset
    /* Dtype to which weights are rounded before they are rounded to the model's dtype. */
    osh_dtype dtype;
} bnb_module;

static bnb_module *bnb_of(const osh_source_module *q)
{
    return (bnb_module *)*q->state + (q - q->source->mods);
}

static osh_status bnb_begin(osh_ctx *cx, void **state, const osh_source *s)
{
    osh_status rc = OSH_OK;
    bnb_module *all = NULL; // own
    if (s->type != &osh_source_bitsandbytes) goto done;
    OSH_NEW(cx, all, s->ck->n_tensors + 1);
    *state = all; // give
done:
    return rc;
}

static void bnb_close(osh_ctx *cx, void *state) { osh_free(cx, state); }

/* ---- the tensors of a module ---- */

static const char *const bnb_tails[] = {".weight.quant_map", ".weight.absmax",
                                        ".weight.nested_quant_map", ".weight.nested_absmax",
                                        ".weight.quant_state.bitsandbytes__nf4",
                                        ".weight.quant_state.bitsandbytes__fp4", ".SCB"};
enum { N_TAILS = sizeof bnb_tails / sizeof *bnb_tails };

static bool bnb_claims(const osh_source *s, const osh_entry *e, size_t *n)
{
    if (s->type != &osh_source_bitsandbytes) return false;
    for (int i = 0; i < N_TAILS; i++)
        if ((*n = osh_before_tail(e->name, bnb_tails[i])) > 0) return true;
    return (e->dtype == OSH_U8 || e->dtype == OSH_I8) &&
           (*n = osh_before_tail(e->name, ".weight")) > 0;
}

/* Reads a whole number from 1 to 2^31 - 1 with the key `key`. */
static osh_status bnb_state_size(osh_ctx *cx, int64_t *out, const cJSON *o, const char *key,
                                 const char *what)
{
    osh_status rc = osh_json_int(cx, out, o, key, what);
    if (!rc && (*out < 1 || *out > INT32_MAX))
        rc = osh_fail(cx, OSH_E_FORMAT, "%s: %s is %lld, want from 1 to %d", what, key,
                      (long long)*out, INT32_MAX);
    return rc;
}

/* Reads the members of m from quant_state, which is JSON. */
static osh_status bnb_read_state(osh_ctx *cx, osh_source_module *q, bnb_module *m, const cJSON *o,
                                 const char *what)
{
    osh_status rc = OSH_OK;
    const char *dtype;
    double offset = 0;
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(o, "shape");
    const cJSON *d[2] = {cJSON_GetArrayItem(shape, 0), cJSON_GetArrayItem(shape, 1)};
    bool ok = cJSON_IsArray(shape) && cJSON_GetArraySize(shape) == 2;
    for (int i = 0; i < 2; i++)
        ok = ok && cJSON_IsNumber(d[i]) && d[i]->valuedouble >= 1 &&
             d[i]->valuedouble <= INT32_MAX && d[i]->valuedouble == floor(d[i]->valuedouble);
    if (!ok)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: shape is not a list of two positive numbers", what);
    q->O = (int64_t)d[0]->valuedouble, q->I = (int64_t)d[1]->valuedouble;
    OSH_TRY(bnb_state_size(cx, &m->block, o, "blocksize", what));
    OSH_TRY(osh_json_str_or(cx, &dtype, o, "dtype", "", what));
    m->dtype = osh_dtype_of_name(dtype);
    if (m->dtype != OSH_F32 && m->dtype != OSH_BF16 && m->dtype != OSH_F16)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: dtype is '%.40s', want float32, bfloat16 or float16", what,
                 dtype);
    if (cJSON_HasObjectItem(o, "nested_blocksize")) {
        OSH_TRY(bnb_state_size(cx, &m->nested, o, "nested_blocksize", what));
        OSH_TRY(osh_json_num_or(cx, &offset, o, "nested_offset", 0, what));
    }
    m->offset = (float)offset;
    if (!isfinite(m->offset))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: nested_offset is %g, want a finite number", what, offset);
done:
    return rc;
}

/* Loads the tensor with quant_state and reads its JSON. */
static osh_status bnb_load_state(osh_ctx *cx, osh_source_module *q, bnb_module *m)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *nf4, *fp4;
    osh_tensor *t = NULL; // own
    cJSON *o = NULL;      // own
    OSH_TRY(osh_source_find_leaf(cx, &nf4, q, ".", "weight.quant_state.bitsandbytes__nf4"));
    OSH_TRY(osh_source_find_leaf(cx, &fp4, q, ".", "weight.quant_state.bitsandbytes__fp4"));
    if (!nf4 == !fp4)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s.weight.quant_state.bitsandbytes__nf4 and %s.weight.quant_state."
                 "bitsandbytes__fp4 are %s: want one of them",
                 q->name, q->name, nf4 ? "both there" : "missing");
    const osh_entry *e = nf4 ? nf4->e : fp4->e;
    if (e->dtype != OSH_U8 || e->ndim != 1 || e->shape[0] > MAX_STATE_BYTES)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s with %d dimensions: want U8 with 1, at most %d bytes",
                 e->name, osh_dtype_name(e->dtype), e->ndim, MAX_STATE_BYTES);
    OSH_TRY(osh_checkpoint_load(cx, &t, q->source->ck, e->name, -1, NULL));
    OSH_TRY(osh_json_parse(cx, &o, t->data, (size_t)e->shape[0], e->name, 0));
    if (!cJSON_IsObject(o)) OSH_FAIL(cx, OSH_E_FORMAT, "%s: is not a JSON object", e->name);
    OSH_TRY(bnb_read_state(cx, q, m, o, e->name));
done:
    cJSON_Delete(o);
    osh_tensor_free(cx, t);
    return rc;
}

/* Finds a stored tensor of a module, and checks its dtype and number of elements. */
static osh_status bnb_part(osh_ctx *cx, osh_source_module *q, int part, const char *leaf,
                           osh_dtype dtype, int64_t numel)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t;
    int64_t n = 0;
    OSH_TRY(osh_source_need_leaf(cx, &t, q, leaf, "quant_method bitsandbytes"));
    if (t->e->dtype != dtype || t->e->ndim != (part == WEIGHT ? 2 : 1))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s with %d dimensions: want %s with %d", t->e->name,
                 osh_dtype_name(t->e->dtype), t->e->ndim, osh_dtype_name(dtype),
                 part == WEIGHT ? 2 : 1);
    if (!osh_shape_numel(&n, t->e->ndim, t->e->shape) || n != numel)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %lld elements: want %lld", t->e->name, (long long)n,
                 (long long)numel);
    q->parts[part] = *t;
done:
    return rc;
}

static osh_status bnb_find_four(osh_ctx *cx, osh_source_module *q, bnb_module *m)
{
    osh_status rc = OSH_OK;
    OSH_TRY(bnb_load_state(cx, q, m));
    int64_t n = q->O * q->I, blocks = osh_div_up(n, m->block);
    OSH_TRY(bnb_part(cx, q, WEIGHT, "weight", OSH_U8, osh_div_up(n, 2)));
    OSH_TRY(bnb_part(cx, q, MAP, "weight.quant_map", OSH_F32, 16));
    OSH_TRY(bnb_part(cx, q, ABSMAX, "weight.absmax", m->nested ? OSH_U8 : OSH_F32, blocks));
    q->n_leaves = NESTED_MAP;
    if (!m->nested) goto done;
    OSH_TRY(bnb_part(cx, q, NESTED_MAP, "weight.nested_quant_map", OSH_F32, 256));
    OSH_TRY(bnb_part(cx, q, NESTED_ABSMAX, "weight.nested_absmax", OSH_F32,
                     osh_div_up(blocks, m->nested)));
    q->n_leaves = N_PARTS;
done:
    return rc;
}

static osh_status bnb_find_eight(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *w, *format;
    osh_tensor *t = NULL; // own
    OSH_TRY(osh_source_need_leaf(cx, &w, q, "weight", "SCB"));
    if (w->e->ndim != 2 || w->e->shape[0] < 1 || w->e->shape[1] < 1)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %d dimensions or no elements: want 2 dimensions",
                 w->e->name, w->e->ndim);
    q->O = w->e->shape[0], q->I = w->e->shape[1];
    OSH_TRY(bnb_part(cx, q, WEIGHT, "weight", OSH_I8, q->O * q->I));
    OSH_TRY(bnb_part(cx, q, SCB, "SCB", OSH_F32, q->O));
    q->n_leaves = 2;
    OSH_TRY(osh_source_find_leaf(cx, &format, q, ".", "weight_format"));
    if (!format) goto done;
    OSH_TRY(osh_checkpoint_load(cx, &t, q->source->ck, format->e->name, -1, NULL));
    if (t->dtype != OSH_U8 || osh_tensor_numel(t) != 1 || *(const uint8_t *)t->data)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: is not 0 (U8): want weights in rows", format->e->name);
done:
    osh_tensor_free(cx, t);
    return rc;
}

static osh_status bnb_find(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *w, *t;
    bnb_module *m = bnb_of(q);
    OSH_TRY(osh_source_find_leaf(cx, &w, q, ".", "weight"));
    m->four = w && w->e->dtype == OSH_U8;
    /* In bnb_tails, the last tail (.SCB) belongs to tensors of weights of 8 bits. All other tails
     * belong only to tensors of weights of 4 bits. */
    for (int i = 0; !m->four && i < N_TAILS - 1; i++) {
        OSH_TRY(osh_source_find_leaf(cx, &t, q, "", bnb_tails[i]));
        m->four = t != NULL;
    }
    OSH_TRY(m->four ? bnb_find_four(cx, q, m) : bnb_find_eight(cx, q));
    if (q->dtype == OSH_DTYPE_NONE) q->dtype = m->four ? m->dtype : OSH_F16;
done:
    return rc;
}

/* ---- decoding ---- */

typedef struct bnb_room { // scratch for decoding a piece of rows
    /* quant_map [16], nested_quant_map [256], and the nested factors. */
    float *map, *nested_map, *nested;
    float *factor;        // factor of each block of the piece
    float *row;           // [I]
    uint8_t *absmax, *codes; // absmax: codes of the factors; codes: codes of the weights
} bnb_room;

static int64_t bnb_piece_rows(const osh_source_module *q)
{
    int64_t n = PIECE / q->I;
    if (n < 1) n = 1;
    return n < q->O ? n : q->O;
}

/* Sets the arrays in `room` to parts of `block`. Returns the number of bytes of the block. `block`
 * may be NULL. */
static size_t bnb_divide(bnb_room *room, const osh_source_module *q, char *block)
{
    const bnb_module *m = bnb_of(q);
    int64_t n = bnb_piece_rows(q) * q->I, blocks = m->four ? n / m->block + 2 : bnb_piece_rows(q);
    int64_t nested = m->nested ? blocks / m->nested + 2 : 0;
    size_t sum = 0;
    room->map = osh_source_slice(block, &sum, 16 * sizeof(float));
    room->nested_map = osh_source_slice(block, &sum, 256 * sizeof(float));
    room->nested = osh_source_slice(block, &sum, (size_t)nested * sizeof(float));
    room->factor = osh_source_slice(block, &sum, (size_t)blocks * sizeof(float));
    room->row = osh_source_slice(block, &sum, (size_t)q->I * sizeof(float));
    room->absmax = osh_source_slice(block, &sum, (size_t)blocks);
    room->codes = osh_source_slice(block, &sum, (size_t)(m->four ? n / 2 + 2 : n));
    return sum;
}

/* Reads elements [first, first + n) of the stored vector q->parts[part]. If the part contains the
 * codes, reads bytes [first, first + n). */
static osh_status bnb_read(osh_ctx *cx, void *to, const osh_source_module *q, int part,
                           int64_t first, int64_t n)
{
    const osh_ckpt_tensor *t = &q->parts[part];
    int64_t size = (int64_t)osh_dtype_bytes(t->e->dtype);
    return osh_container_read_part(cx, to, q->source->ck->shards[t->shard], t->e, first * size,
                                   (size_t)(n * size));
}

static osh_status bnb_read_floats(osh_ctx *cx, float *to, const osh_source_module *q, int part,
                                  int64_t first, int64_t n)
{
    osh_status rc = bnb_read(cx, to, q, part, first, n);
    return rc ? rc : osh_source_check_finite(cx, q, part, to, n);
}

/* Computes the factors of blocks [first, first + n) from the stored tensors. */
static osh_status bnb_read_factors(osh_ctx *cx, bnb_room *room, const osh_source_module *q,
                                   int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    const bnb_module *m = bnb_of(q);
    if (!m->nested) return bnb_read_floats(cx, room->factor, q, ABSMAX, first, n);
    int64_t from = first / m->nested, to = (first + n - 1) / m->nested + 1;
    OSH_TRY(bnb_read(cx, room->absmax, q, ABSMAX, first, n));
    OSH_TRY(bnb_read_floats(cx, room->nested, q, NESTED_ABSMAX, from, to - from));
    for (int64_t i = 0; i < n; i++) {
        float product = room->nested_map[room->absmax[i]] *
                        room->nested[(first + i) / m->nested - from];
        room->factor[i] = product + m->offset;
    }
done:
    return rc;
}

/* Decodes rows of a weight with 4 bits. The function is the member `piece` of osh_source_pieces. */
static osh_status bnb_four_rows(osh_ctx *cx, char *to, void *user, const osh_source_module *q,
                                int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    bnb_room *room = user;
    const bnb_module *m = bnb_of(q);
    int64_t at = first * q->I, end = at + n * q->I, byte = at / 2, block = at / m->block;
    OSH_TRY(bnb_read(cx, room->codes, q, WEIGHT, byte, osh_div_up(end, 2) - byte));
    OSH_TRY(bnb_read_factors(cx, room, q, block, (end - 1) / m->block + 1 - block));
    for (int64_t r = 0; r < n; r++, to += (size_t)q->I * osh_dtype_bytes(q->dtype)) {
        for (int64_t i = 0; i < q->I; i++, at++) {
            uint8_t two = room->codes[at / 2 - byte];
            room->row[i] = room->map[at % 2 ? two & 15 : two >> 4] *
                           room->factor[at / m->block - block];
        }
        for (int64_t i = 0; m->dtype != q->dtype && i < q->I; i++) {
            uint32_t narrow; // the weight, rounded to the dtype in quant_state
            osh_from_f32(&narrow, m->dtype, &room->row[i], 1);
            osh_to_f32(&room->row[i], &narrow, m->dtype, 1);
        }
        osh_from_f32(to, q->dtype, room->row, q->I);
    }
done:
    return rc;
}

/* Decodes rows of a weight with 8 bits. The function is the member `piece` of osh_source_pieces. */
static osh_status bnb_eight_rows(osh_ctx *cx, char *to, void *user, const osh_source_module *q,
                                 int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    bnb_room *room = user;
    OSH_TRY(bnb_read(cx, room->codes, q, WEIGHT, first * q->I, n * q->I));
    OSH_TRY(bnb_read_floats(cx, room->factor, q, SCB, first, n));
    for (int64_t r = 0; r < n; r++, to += (size_t)q->I * osh_dtype_bytes(q->dtype)) {
        for (int64_t i = 0; i < q->I; i++)
            room->row[i] = (float)(int8_t)room->codes[r * q->I + i] * room->factor[r] *
                           7.874015718698502e-3f; // 1 / 127
        osh_from_f32(to, q->dtype, room->row, q->I);
    }
done:
    return rc;
}

/* Sets the arrays in `room` to parts of `block`, and reads the tables of code values. The
 * function is the member `open` of osh_source_pieces. */
static osh_status bnb_open(osh_ctx *cx, void *user, const osh_source_module *q, char *block)
{
    osh_status rc = OSH_OK;
    const bnb_module *m = bnb_of(q);
    bnb_room *room = user;
    bnb_divide(room, q, block);
    if (m->four) OSH_TRY(bnb_read_floats(cx, room->map, q, MAP, 0, 16));
    if (m->nested) OSH_TRY(bnb_read_floats(cx, room->nested_map, q, NESTED_MAP, 0, 256));
done:
    return rc;
}

static osh_status bnb_rows(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                           int64_t n)
{
    bnb_room room;
    const osh_source_pieces p = {bnb_piece_rows(q), bnb_divide(&room, q, NULL), &room, bnb_open,
                                 bnb_of(q)->four ? bnb_four_rows : bnb_eight_rows};
    return osh_source_decode(cx, to, q, first, n, &p);
}

static size_t bnb_bytes(const osh_source_module *q)
{
    return osh_source_decode_bytes(bnb_divide(&(bnb_room){0}, q, NULL));
}

const osh_source_type osh_source_bitsandbytes = {
    .methods = {"bitsandbytes"},
    .tails = {".weight", ".weight.quant_map", ".weight.absmax", ".weight.nested_quant_map",
              ".weight.nested_absmax", ".weight.quant_state.bitsandbytes__nf4",
              ".weight.quant_state.bitsandbytes__fp4", ".SCB", ".weight_format"},
    .begin = bnb_begin, .close = bnb_close, .claims = bnb_claims, .find = bnb_find,
    .make_rows = bnb_rows, .bytes = bnb_bytes,
};
