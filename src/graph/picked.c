/* picked.c - reads those rows of a table that the tokens of a batch need. The ids are sorted, so
 * that each row is read once. Threads read the rows in the order of the table, and read
 * neighbouring rows together. A table may be stored in several tensors (shards), which are read one
 * after the other. */
#include "graph/picked.h"

#include "base/profile.h"
#include "ops/kernel.h"

/* If the rows go to a device, they are read and copied in bands of about this number of bytes. All
 * bands use the same host memory, because the first access to new memory is slow on some
 * machines. */
enum { BAND = 4 << 20 };
enum { PIECE = 32 }; // number of rows in one work item of osh_parallel_for

typedef struct reading {
    const osh_checkpoint *ck;
    const osh_ckpt_tensor *t; // the tensor from which rows are read now
    osh_file *f;      // own
    int shard;        // index of the shard whose file is f
    osh_tensor *rows; // own: rows of the current band, [rows, D], in host memory
    int64_t from, to; // the current band has the rows wanted[from] to wanted[to - 1]
    int32_t *sorted;  // own [n]: the ids in ascending order
    int32_t *spare;   // own [n]: memory that sorting needs
    int32_t *wanted;  // own [m]: table indices of the rows to read, ascending
    int64_t m;
    int64_t first, end; // the rows wanted[first] to wanted[end - 1] are in t
    int64_t begin;      // index (in the table) of the first row of t
    _Atomic bool bad;   // true if an element of a row is not finite
} reading;

bool osh_is_picked(const osh_graph *g, const osh_node *n, int k)
{
    return osh_node_is(n, OSH_OP_LOOKUP) && k == 0 && n->w[0] >= 0 &&
           g->weights[n->w[0]].by_rows != OSH_DTYPE_NONE;
}

/* The buffers that a lookup allocates. room_shape returns the shape of such a buffer, for n ids
 * that select m different rows of the table w. A run allocates buffers of these shapes, and a plan
 * counts their bytes. */
typedef enum { ROOM_SORTED, ROOM_SPARE, ROOM_WANTED, ROOM_ROWS, ROOM_IDS, N_ROOMS } room;

static osh_tensor room_shape(room of, const osh_weight *w, int64_t n, int64_t m)
{
    int64_t length[] = {[ROOM_SORTED] = n, [ROOM_SPARE] = n, [ROOM_WANTED] = m, [ROOM_ROWS] = m,
                        [ROOM_IDS] = n};
    int64_t shape[2] = {length[of], w->shape[1]};
    return osh_tensor_view(of == ROOM_ROWS ? w->by_rows : OSH_I32, of == ROOM_ROWS ? 2 : 1, shape,
                           NULL);
}

/* Allocates the buffer `of` with n elements. (It must have one dimension.) */
static osh_status room_list(osh_ctx *cx, int32_t **out, room of, const osh_weight *w, int64_t n)
{
    osh_tensor t = room_shape(of, w, n, n);
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

/* Sorts x [n], which has no negative numbers. spare [n]: memory that the function overwrites. */
static void ids_sort(int32_t *x, int32_t *spare, int64_t n)
{
    // each pass swaps the arrays, and the number of passes is even, so the result is in the array
    // of the caller
    for (int shift = 0; shift < 32; shift += 8) {
        int64_t at[257] = {0};
        for (int64_t i = 0; i < n; i++) at[(x[i] >> shift & 255) + 1]++;
        for (int b = 0; b < 256; b++) at[b + 1] += at[b];
        for (int64_t i = 0; i < n; i++) spare[at[x[i] >> shift & 255]++] = x[i];
        int32_t *other = x;
        x = spare, spare = other;
    }
}

static osh_status find_wanted(osh_ctx *cx, reading *r, const int32_t *ids, int64_t n,
                              const osh_weight *w)
{
    osh_status rc = OSH_OK;
    int64_t V = w->shape[0];
    OSH_TRY(room_list(cx, &r->sorted, ROOM_SORTED, w, n));
    OSH_TRY(room_list(cx, &r->spare, ROOM_SPARE, w, n));
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= V)
            OSH_FAIL(cx, OSH_E_FORMAT, "token id %d at position %lld, want an id in [0, %lld)",
                     (int)ids[i], (long long)i, (long long)V);
        r->sorted[i] = ids[i];
    }
    ids_sort(r->sorted, r->spare, n);
    for (int64_t i = 0; i < n; i++) r->m += !i || r->sorted[i] != r->sorted[i - 1];
    OSH_TRY(room_list(cx, &r->wanted, ROOM_WANTED, w, r->m));
    for (int64_t i = 0, k = 0; i < n; i++)
        if (!i || r->sorted[i] != r->sorted[i - 1]) r->wanted[k++] = r->sorted[i];
done:
    return rc;
}

/* Returns the position in r->wanted of the first row whose table index is at least `row`. */
static int64_t wanted_find(const reading *r, int64_t row)
{
    int64_t low = 0, high = r->m;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (r->wanted[mid] < row) low = mid + 1;
        else high = mid;
    }
    return low;
}

static osh_status read_piece(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    reading *r = user;
    size_t row = picked_row_bytes(r->rows);
    int64_t D = r->rows->shape[1], end = osh_min64(r->end, r->first + (chunk + 1) * PIECE);
    (void)worker;
    for (int64_t i = r->first + chunk * PIECE, n; i < end; i += n) {
        int64_t row_of_t = r->wanted[i] - r->begin;
        char *to = (char *)r->rows->data + (size_t)(i - r->from) * row;
        for (n = 1; i + n < end && r->wanted[i + n] == r->wanted[i] + n; n++) {}
        OSH_TRY(osh_file_pread(cx, r->f, to, (size_t)n * row,
                               r->t->e->begin + (int64_t)row * row_of_t));
        OSH_TRY(osh_checkpoint_apply(cx, r->ck, r->t - r->ck->tensors, to, row_of_t * D, n * D));
        if (osh_find_nonfinite(to, r->rows->dtype, n * D) >= 0) r->bad = true;
    }
done:
    return rc;
}

/* Reads the rows of the current band that are in the tensor r->t. The first row of r->t is row
 * r->begin of the table. */
static osh_status read_tensor(osh_ctx *cx, reading *r)
{
    osh_status rc = OSH_OK;
    r->first = osh_max64(r->from, wanted_find(r, r->begin));
    r->end = osh_min64(r->to, wanted_find(r, r->begin + r->t->e->shape[0]));
    if (r->first >= r->end) goto done;
    if (r->f && r->shard != r->t->shard) osh_file_close(cx, r->f), r->f = NULL;
    r->shard = r->t->shard;
    if (!r->f) OSH_TRY(osh_container_reopen(cx, &r->f, r->ck->shards[r->shard]));
    OSH_TRY(osh_parallel_for(cx, osh_div_up(r->end - r->first, PIECE), read_piece, r));
done:
    return rc;
}

/* Reads all rows of the current band to r->rows, from all shards of the table. */
static osh_status read_band(osh_ctx *cx, reading *r, const osh_weight *w)
{
    osh_status rc = OSH_OK;
    int64_t D = w->shape[1];
    r->begin = 0;
    for (int64_t s = 0; s < osh_max64(1, w->n_shards); s++) {
        r->t = &r->ck->tensors[w->n_shards ? w->shards[s] : w->tensor];
        OSH_TRY(read_tensor(cx, r));
        r->begin += r->t->e->shape[0];
    }
    if (r->bad) {
        int64_t bad = osh_find_nonfinite(r->rows->data, r->rows->dtype, (r->to - r->from) * D);
        OSH_FAIL(cx, OSH_E_NUMERIC, "tensor %s: element %lld is not finite", w->name,
                 (long long)(r->wanted[r->from + bad / D] * D + bad % D));
    }
done:
    return rc;
}

/* Returns the number of rows of a band of a lookup that reads m rows. */
static int64_t band_rows(const osh_weight *w, int64_t m, bool on_device)
{
    size_t row = (size_t)w->shape[1] * osh_dtype_bytes(w->by_rows);
    return on_device ? osh_min64(m, 1 + (int64_t)(BAND / row)) : m;
}

/* Reads all wanted rows to out->w. d: device of out->w, or NULL for host memory. */
static osh_status read_rows(osh_ctx *cx, reading *r, osh_picked *out, const osh_weight *w,
                            osh_device *d)
{
    osh_status rc = OSH_OK;
    osh_tensor all = room_shape(ROOM_ROWS, w, 0, r->m),
               band = room_shape(ROOM_ROWS, w, 0, band_rows(w, r->m, d != NULL));
    size_t row = picked_row_bytes(&all);
    OSH_TRY(room_tensor(cx, &r->rows, (osh_where){NULL, OSH_LIFE_LONG}, &band));
    if (d) OSH_TRY(room_tensor(cx, &out->w, (osh_where){d, OSH_LIFE_SHORT}, &all));
    for (; r->from < r->m; r->from = r->to) {
        r->to = osh_min64(r->m, r->from + band.shape[0]);
        OSH_TRY(read_band(cx, r, w));
        if (d)
            OSH_TRY(osh_tensor_put(cx, out->w, (size_t)r->from * row, r->rows->data,
                                   (size_t)(r->to - r->from) * row));
    }
    if (!d) out->w = r->rows, r->rows = NULL; // give
done:
    return rc;
}

osh_status osh_picked_read(osh_ctx *cx, osh_picked *out, const osh_weight *w,
                           const osh_checkpoint *ck, const osh_picked_ids *ids)
{
    osh_status rc = OSH_OK;
    reading r = {.ck = ck};
    osh_scope scope = osh_profile_time(cx, "read", NULL);
    *out = (osh_picked){0};
    OSH_TRY(find_wanted(cx, &r, ids->ids, ids->n, w));
    osh_tensor list = room_shape(ROOM_IDS, w, ids->n, r.m);
    OSH_TRY(room_tensor(cx, &out->ids, (osh_where){NULL, OSH_LIFE_LONG}, &list));
    for (int64_t i = 0; i < ids->n; i++)
        ((int32_t *)out->ids->data)[i] = (int32_t)wanted_find(&r, ids->ids[i]);
    OSH_TRY(read_rows(cx, &r, out, w, ids->device));
done:
    osh_profile_end(cx, scope);
    osh_file_close(cx, r.f);
    osh_tensor_free(cx, r.rows);
    osh_free(cx, r.wanted);
    osh_free(cx, r.spare);
    osh_free(cx, r.sorted);
    return rc;
}

void osh_picked_deinit(osh_ctx *cx, osh_picked *r)
{
    osh_tensor_free(cx, r->ids);
    osh_tensor_free(cx, r->w);
    *r = (osh_picked){0};
}

/* Returns the largest shape that the buffer `of` can have for n ids. The buffer has this shape if
 * all ids differ. */
static osh_tensor most_of(room of, const osh_weight *w, int64_t n)
{
    return room_shape(of, w, n, osh_min64(n, w->shape[0]));
}

int64_t osh_picked_each(const osh_graph *g, const osh_node *n)
{
    return g->values[n->out[0]].width / g->weights[n->w[0]].shape[1];
}

size_t osh_picked_bytes(const osh_weight *w, int64_t n, bool on_device)
{
    /* the two tensors of osh_picked, and an open file */
    size_t sum = 2 * osh_mem_gross(sizeof(osh_tensor)) + 4 * osh_mem_gross(256);
    for (room of = 0; of < N_ROOMS; of++) {
        osh_tensor t = most_of(of, w, n);
        if (of == ROOM_ROWS) t = room_shape(of, w, n, band_rows(w, t.shape[0], on_device));
        sum += osh_mem_gross(osh_tensor_bytes(&t));
    }
    return sum;
}

size_t osh_picked_arena_bytes(const osh_weight *w, int64_t n)
{
    osh_tensor rows = most_of(ROOM_ROWS, w, n), ids = most_of(ROOM_IDS, w, n);
    return osh_arena_gross(osh_tensor_bytes(&rows)) + osh_arena_gross(osh_tensor_bytes(&ids));
}
