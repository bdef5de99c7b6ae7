/* ckpt_read.c - reads a tensor of a checkpoint, or some of its bytes: a stored tensor from its
 * shard, a virtual tensor from the function that computes it. Records the checksum of each tensor
 * that was read. If a tensor gets two different checksums, the source has changed during the run,
 * or after a killed run whose output this run continues. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/xxh3.h"
#include "io/checkpoint.h"

/* ---- checksums of the tensors that were read ---- */

struct osh_ckpt_sums {
    pthread_mutex_t lock;
    uint64_t *sums; // own [n]: checksum of each tensor that was read
    bool *seen;     // own [n]: true if the tensor was read
    int64_t *order; // own [n]: indices of the tensors in the order in which they were first read
    int64_t n, n_seen; // n: number of stored tensors; n_seen: number of tensors in `order`
};

osh_status osh_checkpoint_watch(osh_ctx *cx, osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    struct osh_ckpt_sums *s = NULL; // own
    osh_checkpoint_unwatch(cx, ck);
    OSH_NEW(cx, s, 1);
    pthread_mutex_init(&s->lock, NULL);
    ck->sums = s; // the checkpoint owns s, which osh_checkpoint_unwatch frees
    OSH_NEW(cx, s->sums, ck->n_tensors);
    OSH_NEW(cx, s->seen, ck->n_tensors);
    OSH_NEW(cx, s->order, ck->n_tensors);
    s->n = ck->n_tensors;
done:
    if (rc) osh_checkpoint_unwatch(cx, ck);
    return rc;
}

void osh_checkpoint_unwatch(osh_ctx *cx, osh_checkpoint *ck)
{
    if (!ck->sums) return;
    pthread_mutex_destroy(&ck->sums->lock);
    osh_free(cx, ck->sums->sums);
    osh_free(cx, ck->sums->seen);
    osh_free(cx, ck->sums->order);
    osh_free(cx, ck->sums);
    ck->sums = NULL;
}

osh_status osh_checkpoint_saw(osh_ctx *cx, const osh_checkpoint *ck, int64_t tensor, uint64_t sum)
{
    struct osh_ckpt_sums *s = ck->sums;
    uint64_t was = sum;
    if (!s || tensor >= s->n) return OSH_OK;
    pthread_mutex_lock(&s->lock);
    if (s->seen[tensor]) was = s->sums[tensor];
    else s->order[s->n_seen++] = tensor;
    s->sums[tensor] = was, s->seen[tensor] = true;
    pthread_mutex_unlock(&s->lock);
    if (was == sum) return OSH_OK;
    const osh_ckpt_tensor *t = &ck->tensors[tensor];
    return osh_fail(cx, OSH_E_IO,
                    "%s changed while it was read: %.200s has checksum %016llx, had %016llx before",
                    t->shard < 0 ? ck->dir : osh_container_path(ck->shards[t->shard]), t->e->name,
                    (unsigned long long)sum, (unsigned long long)was);
}

bool osh_checkpoint_seen(const osh_checkpoint *ck, int64_t tensor, uint64_t *sum)
{
    struct osh_ckpt_sums *s = ck->sums;
    if (!s || tensor >= s->n) return false;
    pthread_mutex_lock(&s->lock);
    bool seen = s->seen[tensor];
    *sum = s->sums[tensor];
    pthread_mutex_unlock(&s->lock);
    return seen;
}

bool osh_checkpoint_next_seen(const osh_checkpoint *ck, int64_t at, int64_t *tensor, uint64_t *sum)
{
    struct osh_ckpt_sums *s = ck->sums;
    if (!s) return false;
    pthread_mutex_lock(&s->lock);
    bool more = at < s->n_seen;
    if (more) *tensor = s->order[at], *sum = s->sums[*tensor];
    pthread_mutex_unlock(&s->lock);
    return more;
}

/* ---- reads ---- */

int64_t osh_ckpt_columns(const osh_entry *e)
{
    return e->ndim ? e->shape[e->ndim - 1] : 1;
}

/* Computes bytes [offset, offset + n) of a virtual tensor. The range may begin and end inside a
 * row. */
static osh_status virtual_read(osh_ctx *cx, char *to, const osh_ckpt_virtual *v, int64_t offset,
                               int64_t n)
{
    osh_status rc = OSH_OK;
    char *row = NULL; // own
    int64_t size = osh_ckpt_columns(v->e) * (int64_t)osh_dtype_bytes(v->e->dtype);
    while (n > 0) {
        int64_t at = offset % size, take = n < size - at ? n : size - at;
        if (take == size) {
            take = n / size * size;
            OSH_TRY(v->make(cx, to, v->user, v->e, offset / size, n / size));
        } else {
            if (!row && !(row = osh_alloc(cx, (size_t)size)))
                OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a row");
            OSH_TRY(v->make(cx, row, v->user, v->e, offset / size, 1));
            memcpy(to, row + at, (size_t)take);
        }
        to += take, offset += take, n -= take;
    }
done:
    osh_free(cx, row);
    return rc;
}

/* Reads a part of a virtual tensor. The elements of the part are not contiguous. The entry e
 * describes them. Computes the rows of the tensor one after the other, and copies the elements.
 * (container_part.c has the same function for stored tensors.) */
static osh_status virtual_gather(osh_ctx *cx, char *to, const osh_ckpt_virtual *v,
                                 const osh_entry *e)
{
    osh_status rc = OSH_OK;
    size_t size = osh_dtype_bytes(e->dtype);
    int64_t columns = e->ndim > 1 ? e->shape[1] : 1, pitch = osh_ckpt_columns(v->e) * (int64_t)size;
    bool turned = e->row < e->column; // true if a row of the virtual tensor contains a column of e
    int64_t n = turned ? columns : e->shape[0], each = turned ? e->shape[0] : columns;
    int64_t far = turned ? e->column : e->row, near = turned ? e->row : e->column;
    char *row = osh_alloc(cx, (size_t)pitch); // own
    if (!row) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a row");
    for (int64_t k = 0; k < n; k++) {
        int64_t at = e->at + k * far;
        OSH_TRY(v->make(cx, row, v->user, v->e, at / pitch, 1));
        for (int64_t i = 0; i < each; i++)
            memcpy(to + (size_t)(turned ? i * columns + k : k * columns + i) * size,
                   row + at % pitch + i * near, size);
    }
done:
    osh_free(cx, row);
    return rc;
}

osh_status osh_checkpoint_read_as(osh_ctx *cx, void *to, const osh_checkpoint *ck,
                                  const osh_ckpt_tensor *t, const osh_entry *part)
{
    osh_status rc;
    if (t->shard >= 0) return osh_container_read(cx, to, ck->shards[t->shard], part);
    if (!part->row)
        return osh_checkpoint_read_part(cx, to, ck, t, part->begin,
                                        (size_t)(part->end - part->begin));
    rc = virtual_gather(cx, to, &ck->virtuals[-1 - t->shard], part);
    if (rc) osh_note(cx, "reading a part of %.200s", t->e->name);
    return rc;
}

osh_status osh_checkpoint_read_part(osh_ctx *cx, void *to, const osh_checkpoint *ck,
                                    const osh_ckpt_tensor *t, int64_t offset, size_t n_bytes)
{
    if (t->shard >= 0)
        return osh_container_read_part(cx, to, ck->shards[t->shard], t->e, offset, n_bytes);
    osh_status rc = virtual_read(cx, to, &ck->virtuals[-1 - t->shard], offset, (int64_t)n_bytes);
    if (rc) osh_note(cx, "reading %.200s", t->e->name);
    return rc;
}

osh_status osh_checkpoint_read(osh_ctx *cx, void *to, const osh_checkpoint *ck,
                               const osh_ckpt_tensor *t)
{
    osh_status rc = osh_checkpoint_read_part(cx, to, ck, t, 0, (size_t)(t->e->end - t->e->begin));
    if (!rc && ck->sums)
        rc = osh_checkpoint_saw(cx, ck, t - ck->tensors,
                                XXH3_64bits(to, (size_t)(t->e->end - t->e->begin)));
    if (!rc && osh_checkpoint_is_changed(ck, t - ck->tensors)) {
        int64_t n = 0;
        osh_shape_numel(&n, t->e->ndim, t->e->shape);
        rc = osh_checkpoint_apply(cx, ck, t - ck->tensors, to, 0, n);
    }
    return rc;
}

/* Prints a shape such as "[576, 1536]". */
static void shape_print(char *to, size_t room, int ndim, const int64_t *shape)
{
    size_t at = (size_t)snprintf(to, room, "[");
    for (int d = 0; d < ndim && at < room; d++)
        at += (size_t)snprintf(to + at, room - at, "%s%lld", d ? ", " : "", (long long)shape[d]);
    if (at < room) snprintf(to + at, room - at, "]");
}

osh_status osh_checkpoint_load(osh_ctx *cx, osh_tensor **out, const osh_checkpoint *ck,
                               const char *name, int ndim, const int64_t *shape)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    const osh_ckpt_tensor *found = osh_checkpoint_find(ck, name);
    const osh_entry *e;

    if (!found) OSH_FAIL(cx, OSH_E_FORMAT, "%s: has no tensor %.200s", ck->dir, name);
    e = found->e;
    /* a tensor without dimensions has one element */
    bool number = !e->ndim && ndim == 1 && shape[0] == 1;
    if (ndim >= 0 && !number &&
        (e->ndim != ndim || (ndim && memcmp(e->shape, shape, (size_t)ndim * sizeof *shape)))) {
        char has[200], wanted[200];
        shape_print(has, sizeof has, e->ndim, e->shape);
        shape_print(wanted, sizeof wanted, ndim, shape);
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %.200s has shape %s, wanted %s",
                 found->shard < 0 ? ck->dir : ck->shard_names[found->shard], name, has, wanted);
    }
    OSH_TRY(osh_tensor_new(cx, &t, e->dtype, number ? 1 : e->ndim, number ? shape : e->shape));
    OSH_TRY(osh_checkpoint_read(cx, t->data, ck, found));
    *out = t, t = NULL; // give
done:
    if (rc) osh_note(cx, "loading %.200s", name);
    osh_tensor_free(cx, t);
    return rc;
}
