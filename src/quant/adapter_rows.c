/* adapter_rows.c - computes rows of a weight with a LoRA adapter merged into it:
 *
 *   W[row, column] + scaling * sum over k of P[row, k] Q[k, column]
 *
 *                    P                    Q
 *   Linear           lora_B [O, r]        lora_A [r, I]
 *   Conv1D           lora_A^T [I, r]      lora_B^T [r, O]
 *   Embedding        as Conv1D, with lora_embedding_A and lora_embedding_B
 *
 * The sum, the product and the addition are in F32; the result is rounded to the dtype of W. The
 * update of an embedding is also rounded before the addition. This is the arithmetic of
 * merge_and_unload of PEFT, whose matrix product adds in another order. */
#include "quant/adapter_impl.h"
#include "tensor/scalar.h"

#include <math.h>
#include <string.h>

enum { ROWS = 64 }; // number of rows that are computed together

typedef struct lora_room { // scratch for computing ROWS rows of a changed weight
    char *block;           // own: one allocation that contains the arrays below
    /* Q [r, C] of the formula at the top of this file, and ROWS rows of P [ROWS, r]. C: number of
     * columns of the weight. */
    float *q, *p;
    float *base, *sum;     // [C] each: one row of the unchanged weight, and one row of its update
    char *raw; // numbers in a stored dtype: one row of Q or of an update, or ROWS rows of P
} lora_room;

static int64_t lora_rank(const osh_lora *w) { return w->a ? w->a->shape[0] : 0; }

/* Returns the number of bytes of room->block. If `room` is not NULL, sets the arrays of `room` to
 * parts of this block. */
static size_t lora_divide(lora_room *room, const osh_lora *w)
{
    int64_t r = lora_rank(w), C = osh_ckpt_columns(w->base.e);
    int64_t raw = osh_max64(C, ROWS * osh_max64(r, 1));
    if (room) {
        room->q = (float *)(void *)room->block;
        room->p = room->q + r * C;
        room->base = room->p + ROWS * r;
        room->sum = room->base + C;
        room->raw = (char *)(room->sum + C);
    }
    return (size_t)((r * C + ROWS * r + 2 * C + raw) * 4);
}

size_t osh_lora_bytes(const osh_lora *w) // includes the buffer of a direct read (O_DIRECT)
{
    return osh_mem_gross(lora_divide(NULL, w)) +
           osh_mem_gross(OSH_DIRECT_BYTES + OSH_BLOCK_BYTES);
}

/* Reads the matrix Q of the formula at the top of this file. Fails if a number in Q is not
 * finite. */
static osh_status lora_read_q(osh_ctx *cx, lora_room *room, const osh_lora *w)
{
    osh_status rc = OSH_OK;
    const osh_entry *e = w->turned ? w->b : w->a;
    int64_t C = osh_ckpt_columns(w->base.e);
    for (int64_t k = 0; k < lora_rank(w); k++) {
        OSH_TRY((w->turned ? osh_container_read_columns
                           : osh_container_read_rows)(cx, room->raw, w->adapter->st, e, k, 1));
        osh_to_f32(room->q + k * C, room->raw, e->dtype, C);
    }
    for (int64_t i = 0; i < lora_rank(w) * C; i++)
        if (!isfinite(room->q[i]))
            OSH_FAIL(cx, OSH_E_NUMERIC, "%s holds %g, want finite numbers", e->name,
                     (double)room->q[i]);
done:
    return rc;
}

/* The array `to` has rows [first, first + n) of the weight. Adds the update to these rows. n is at
 * most ROWS. */
static osh_status lora_add(osh_ctx *cx, char *to, lora_room *room, const osh_lora *w,
                           int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    const osh_entry *e = w->turned ? w->a : w->b;
    osh_dtype dt = w->base.e->dtype;
    int64_t r = lora_rank(w), C = osh_ckpt_columns(w->base.e);
    OSH_TRY((w->turned ? osh_container_read_columns
                       : osh_container_read_rows)(cx, room->raw, w->adapter->st, e, first, n));
    osh_to_f32(room->p, room->raw, e->dtype, n * r);
    for (int64_t i = 0; i < n; i++, to += (size_t)C * osh_dtype_bytes(dt)) {
        memset(room->sum, 0, (size_t)C * sizeof *room->sum);
        for (int64_t k = 0; k < r; k++) {
            const float p = room->p[i * r + k], *q = room->q + k * C;
            if (!isfinite(p))
                OSH_FAIL(cx, OSH_E_NUMERIC, "%s holds %g, want finite numbers", e->name,
                         (double)p);
            for (int64_t c = 0; c < C; c++) room->sum[c] += p * q[c];
        }
        for (int64_t c = 0; c < C; c++) room->sum[c] *= w->scaling;
        if (w->embedding) {
            osh_from_f32(room->raw, dt, room->sum, C);
            osh_to_f32(room->sum, room->raw, dt, C);
        }
        osh_to_f32(room->base, to, dt, C);
        for (int64_t c = 0; c < C; c++) room->base[c] += room->sum[c];
        osh_from_f32(to, dt, room->base, C);
    }
done:
    return rc;
}

/* Reads rows of the weight to which the update is added. */
static osh_status lora_read_base(osh_ctx *cx, char *to, lora_room *room, const osh_lora *w,
                                 int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    const osh_entry *e = w->base.e;
    int64_t C = osh_ckpt_columns(e);
    size_t row = (size_t)C * osh_dtype_bytes(e->dtype);
    if (w->whole)
        for (int64_t i = 0; i < n; i++, to += row) {
            OSH_TRY(
                osh_container_read_part(cx, room->raw, w->adapter->st, w->whole,
                                        (first + i) * C * (int64_t)osh_dtype_bytes(w->whole->dtype),
                                        (size_t)C * osh_dtype_bytes(w->whole->dtype)));
            osh_to_f32(room->base, room->raw, w->whole->dtype, C);
            osh_from_f32(to, e->dtype, room->base, C);
        }
    else if (w->make) OSH_TRY(w->make(cx, to, w->user, e, first, n));
    else
        OSH_TRY(osh_checkpoint_read_part(cx, to, w->adapter->ck, &w->base, first * (int64_t)row,
                                         (size_t)n * row));
done:
    return rc;
}

osh_status osh_lora_rows(osh_ctx *cx, void *to, void *user, const osh_entry *e, int64_t first,
                         int64_t n)
{
    osh_status rc = OSH_OK;
    const osh_lora *w = user;
    lora_room room = {0}; // own
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    size_t row = (size_t)osh_ckpt_columns(e) * osh_dtype_bytes(e->dtype);
    if (!(room.block = osh_alloc(cx, lora_divide(NULL, w))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for rows");
    lora_divide(&room, w);
    OSH_TRY(lora_read_base(cx, to, &room, w, first, n));
    if (w->a) OSH_TRY(lora_read_q(cx, &room, w));
    for (int64_t at = 0, k; w->a && at < n; at += k) {
        k = n - at < ROWS ? n - at : ROWS;
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(lora_add(cx, (char *)to + (size_t)at * row, &room, w, first + at, k));
    }
    int64_t bad = osh_find_nonfinite(to, e->dtype, n * osh_ckpt_columns(e));
    if (bad >= 0)
        OSH_FAIL(cx, OSH_E_NUMERIC, "row %lld of the merged weight holds a NaN or an infinity",
                 (long long)(first + bad / osh_ckpt_columns(e)));
done:
    osh_free(cx, room.block);
    osh_mem_use(cx, old);
    if (rc) osh_note(cx, "merging the adapter %s into %s", w->adapter->dir, e->name);
    return rc;
}
