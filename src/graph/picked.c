/* picked.c - reads the table rows of the tokens of a batch. An I32 list with an element for each
 * row of the table marks the rows to read. Threads read the rows in the order of the table; rows
 * that are neighbours are read together. */
#include "graph/picked.h"

#include <string.h>

#include "base/profile.h"
#include "ops/kernel.h"

enum { PIECE = 32 }; // number of rows that one call of osh_parallel_for's function reads

typedef struct reading {
    const osh_checkpoint *ck;
    const osh_ckpt_tensor *t;
    osh_file *f;     // own
    osh_tensor *rows; // own: [m, D], in host memory
    /* For each row of the table (V): index in `wanted`; -1: the row is not needed. */
    int32_t *at;     // own [V]
    int32_t *wanted; // own [m]: rows of the table to read, in ascending order
    int64_t m;
} reading;

bool osh_is_picked(const osh_graph *g, const osh_node *n, int k)
{
    return osh_node_is(n, OSH_OP_LOOKUP) && k == 0 && n->w[0] >= 0 &&
           g->weights[n->w[0]].by_rows != OSH_DTYPE_NONE;
}

/* The tensors that a lookup allocates. room_shape returns their shapes for n ids that name m
 * different rows of the table w. A run allocates these tensors; a plan counts their bytes. */
typedef enum { ROOM_AT, ROOM_WANTED, ROOM_ROWS, ROOM_IDS, N_ROOMS } room;

static osh_tensor room_shape(room of, const osh_weight *w, int64_t n, int64_t m)
{
    int64_t length[] = {
        [ROOM_AT] = w->shape[0], [ROOM_WANTED] = m, [ROOM_ROWS] = m, [ROOM_IDS] = n};
    int64_t shape[2] = {length[of], w->shape[1]};
    return osh_tensor_view(of == ROOM_ROWS ? w->by_rows : OSH_I32, of == ROOM_ROWS ? 2 : 1, shape,
                           NULL);
}

static osh_status room_list(osh_ctx *cx, int32_t **out, room of, const osh_weight *w, int64_t m)
{
    osh_tensor t = room_shape(of, w, 0, m);
    *out = osh_alloc(cx, osh_tensor_bytes(&t));
    return *out ? OSH_OK : osh_fail(cx, OSH_E_NOMEM, "no memory for the rows of %s", w->name);
}

static osh_status room_tensor(osh_ctx *cx, osh_tensor **out, osh_where where,
                              const osh_tensor *shape)
{
    return osh_tensor_new_on(cx, out, where, shape->dtype, shape->ndim, shape->shape);
}

static size_t picked_row_bytes(const osh_tensor *rows)
{
    return (size_t)rows->shape[1] * osh_dtype_bytes(rows->dtype);
}

static osh_status find_wanted(osh_ctx *cx, reading *r, const int32_t *ids, int64_t n,
                              const osh_weight *w)
{
    osh_status rc = OSH_OK;
    int64_t V = w->shape[0];
    OSH_TRY(room_list(cx, &r->at, ROOM_AT, w, 0));
    memset(r->at, -1, (size_t)V * sizeof *r->at);
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= V)
            OSH_FAIL(cx, OSH_E_FORMAT, "token id %d at position %lld, want an id in [0, %lld)",
                     (int)ids[i], (long long)i, (long long)V);
        r->m += r->at[ids[i]] < 0;
        r->at[ids[i]] = 0;
    }
    OSH_TRY(room_list(cx, &r->wanted, ROOM_WANTED, w, r->m));
    for (int32_t v = 0, k = 0; v < V; v++)
        if (r->at[v] == 0) r->wanted[k] = v, r->at[v] = k++;
done:
    return rc;
}

static osh_status read_piece(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const reading *r = user;
    size_t row = picked_row_bytes(r->rows);
    int64_t D = r->rows->shape[1], end = osh_min64(r->m, (chunk + 1) * PIECE);
    (void)worker;
    for (int64_t i = chunk * PIECE, n; i < end; i += n) {
        char *to = (char *)r->rows->data + (size_t)i * row;
        for (n = 1; i + n < end && r->wanted[i + n] == r->wanted[i] + n; n++) {}
        OSH_TRY(osh_file_pread(cx, r->f, to, (size_t)n * row,
                               r->t->e->begin + (int64_t)row * r->wanted[i]));
        OSH_TRY(
            osh_checkpoint_apply(cx, r->ck, r->t - r->ck->tensors, to, r->wanted[i] * D, n * D));
    }
done:
    return rc;
}

static osh_status read_rows(osh_ctx *cx, reading *r, const osh_weight *w)
{
    osh_status rc = OSH_OK;
    int64_t D = w->shape[1], bad;
    osh_tensor rows = room_shape(ROOM_ROWS, w, 0, r->m);
    OSH_TRY(room_tensor(cx, &r->rows, (osh_where){NULL, OSH_LIFE_LONG}, &rows));
    OSH_TRY(osh_container_reopen(cx, &r->f, r->ck->shards[r->t->shard]));
    OSH_TRY(osh_parallel_for(cx, osh_div_up(r->m, PIECE), read_piece, r));
    if ((bad = osh_find_nonfinite(r->rows->data, r->rows->dtype, r->m * D)) >= 0)
        OSH_FAIL(cx, OSH_E_NUMERIC, "tensor %s: element %lld is not finite", w->name,
                 (long long)(r->wanted[bad / D] * D + bad % D));
done:
    return rc;
}

osh_status osh_picked_read(osh_ctx *cx, osh_picked *out, const osh_weight *w,
                           const osh_checkpoint *ck, const osh_picked_ids *ids)
{
    osh_status rc = OSH_OK;
    reading r = {.ck = ck, .t = &ck->tensors[w->tensor]};
    osh_scope scope = osh_profile_time(cx, "read", NULL);
    *out = (osh_picked){0};
    OSH_TRY(find_wanted(cx, &r, ids->ids, ids->n, w));
    OSH_TRY(read_rows(cx, &r, w));
    osh_tensor list = room_shape(ROOM_IDS, w, ids->n, r.m);
    OSH_TRY(room_tensor(cx, &out->ids, (osh_where){NULL, OSH_LIFE_LONG}, &list));
    for (int64_t i = 0; i < ids->n; i++) ((int32_t *)out->ids->data)[i] = r.at[ids->ids[i]];
    if (ids->device) {
        OSH_TRY(room_tensor(cx, &out->w, (osh_where){ids->device, OSH_LIFE_SHORT}, r.rows));
        OSH_TRY(osh_tensor_copy(cx, out->w, r.rows));
    } else {
        out->w = r.rows, r.rows = NULL; // give
    }
done:
    osh_profile_end(cx, scope);
    osh_file_close(cx, r.f);
    osh_tensor_free(cx, r.rows);
    osh_free(cx, r.wanted);
    osh_free(cx, r.at);
    return rc;
}

void osh_picked_deinit(osh_ctx *cx, osh_picked *r)
{
    osh_tensor_free(cx, r->ids);
    osh_tensor_free(cx, r->w);
    *r = (osh_picked){0};
}

/* Returns the largest possible shape of a tensor for n ids: the shape if all ids differ. */
static osh_tensor most_of(room of, const osh_weight *w, int64_t n)
{
    return room_shape(of, w, n, osh_min64(n, w->shape[0]));
}

size_t osh_picked_bytes(const osh_weight *w, int64_t n)
{
    /* the last term is for an open file */
    size_t sum = 2 * osh_mem_gross(sizeof(osh_tensor)) + 4 * osh_mem_gross(256);
    for (room of = 0; of < N_ROOMS; of++) {
        osh_tensor t = most_of(of, w, n);
        sum += osh_mem_gross(osh_tensor_bytes(&t));
    }
    return sum;
}

size_t osh_picked_arena_bytes(const osh_weight *w, int64_t n)
{
    osh_tensor rows = most_of(ROOM_ROWS, w, n), ids = most_of(ROOM_IDS, w, n);
    return osh_arena_gross(osh_tensor_bytes(&rows)) + osh_arena_gross(osh_tensor_bytes(&ids));
}
