/* ckpt_sums.c - computes checksums of files, and of tensors that the run has not read. Also reads a
 * shard again, and compares its tensors with the checksums that were recorded in the run. */
#include <stdio.h>
#include <string.h>

#include "base/xxh3.h"
#include "io/checkpoint.h"

/* Number of bytes that are read at a time if the elements of a tensor are not contiguous in the
 * file. */
enum { PIECE_BYTES = 256 << 10 };

static void add_bytes(void *user, const void *p, size_t n) { XXH3_64bits_update(user, p, n); }

static osh_status sum_of_bytes(osh_ctx *cx, uint64_t *sum, osh_file *f, int64_t begin, int64_t end)
{
    osh_status rc = OSH_OK;
    XXH3_state_t *state = XXH3_createState(); // own
    if (!state) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    OSH_TRY(osh_check_interrupt(cx));
    XXH3_64bits_reset(state);
    OSH_TRY(osh_file_scan(cx, f, (size_t)(end - begin), begin, add_bytes, state));
    *sum = XXH3_64bits_digest(state);
done:
    XXH3_freeState(state);
    return rc;
}

/* Computes the checksum of a tensor in the shard `f`. If the elements are contiguous in the file,
 * reads the range of the file. Otherwise reads the tensor with osh_checkpoint_read_part, in
 * pieces. */
static osh_status sum_of_tensor(osh_ctx *cx, uint64_t *sum, osh_file *f, const osh_checkpoint *ck,
                                const osh_ckpt_tensor *t)
{
    osh_status rc = OSH_OK;
    int64_t all = t->e->end - t->e->begin,
            piece = osh_ckpt_columns(t->e) * (int64_t)osh_dtype_bytes(t->e->dtype);
    char *room = NULL; // own
    XXH3_state_t *state = NULL; // own
    if (t->shard >= 0 && !t->e->row) return sum_of_bytes(cx, sum, f, t->e->begin, t->e->end);
    if (piece > 0 && piece < PIECE_BYTES) piece *= PIECE_BYTES / piece;
    room = osh_alloc(cx, (size_t)piece);
    state = XXH3_createState();
    if (!state || !room) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(state);
    for (int64_t at = 0; at < all; at += piece) {
        size_t n = (size_t)(all - at < piece ? all - at : piece);
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_checkpoint_read_part(cx, room, ck, t, at, n));
        XXH3_64bits_update(state, room, n);
    }
    *sum = XXH3_64bits_digest(state);
done:
    XXH3_freeState(state);
    osh_free(cx, room);
    return rc;
}

osh_status osh_checkpoint_see(osh_ctx *cx, const osh_checkpoint *ck, int64_t tensor)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t = &ck->tensors[tensor];
    osh_file *f = NULL; // own
    uint64_t sum;
    if (!ck->sums || osh_checkpoint_seen(ck, tensor, &sum)) goto done;
    if (t->shard >= 0) OSH_TRY(osh_container_reopen(cx, &f, ck->shards[t->shard]));
    OSH_TRY(sum_of_tensor(cx, &sum, f, ck, t));
    OSH_TRY(osh_checkpoint_saw(cx, ck, tensor, sum));
done:
    osh_file_close(cx, f);
    return rc;
}

osh_status osh_sum_of_file(osh_ctx *cx, uint64_t *sum, int64_t *n_bytes, const char *path)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own
    OSH_TRY(osh_file_open(cx, &f, path));
    *n_bytes = osh_file_bytes(f);
    OSH_TRY(sum_of_bytes(cx, sum, f, 0, *n_bytes));
done:
    osh_file_close(cx, f);
    return rc;
}

osh_status osh_sum_text_of_file(osh_ctx *cx, char text[OSH_SUM_TEXT], int64_t *n_bytes,
                                const char *path)
{
    uint64_t sum = 0;
    osh_status rc = osh_sum_of_file(cx, &sum, n_bytes, path);
    snprintf(text, OSH_SUM_TEXT, "%016llx", (unsigned long long)sum);
    return rc;
}

/* If the two checksums differ, sets *diff to a message, which the caller owns. */
static osh_status compare_sums(osh_ctx *cx, char **diff, const osh_file *f, uint64_t now,
                               uint64_t was, const char *what)
{
    if (now == was) return OSH_OK;
    *diff = osh_sprintf(cx, "%s: %.200s has checksum %016llx, had %016llx", osh_file_path(f), what,
                        (unsigned long long)now, (unsigned long long)was);
    return *diff ? OSH_OK : OSH_E_NOMEM;
}

static bool is_in_shard(const osh_checkpoint *ck, const osh_ckpt_tensor *t, int shard)
{
    if (t->shard >= 0) return t->shard == shard;
    const osh_ckpt_virtual *v = &ck->virtuals[-1 - t->shard];
    return v->first_shard <= shard && shard <= v->last_shard;
}

static osh_status compare_file(osh_ctx *cx, char **diff, osh_file *f, const osh_checkpoint *ck,
                               int shard)
{
    osh_status rc = OSH_OK;
    uint64_t was, now;
    int64_t n = osh_container_header(ck->shards[shard], &was), size = osh_file_bytes(f);
    int64_t had = osh_container_stamp(ck->shards[shard])->n_bytes;
    if (size != had) {
        *diff = osh_sprintf(cx, "%s has %lld bytes, had %lld", osh_file_path(f), (long long)size,
                            (long long)had);
        if (!*diff) rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(sum_of_bytes(cx, &now, f, 0, n));
    OSH_TRY(compare_sums(cx, diff, f, now, was, "the header"));
    for (int64_t i = 0; i < ck->n_tensors && !*diff; i++) {
        const osh_ckpt_tensor *t = &ck->tensors[i];
        if (!is_in_shard(ck, t, shard) || !osh_checkpoint_seen(ck, i, &was)) continue;
        OSH_TRY(sum_of_tensor(cx, &now, f, ck, t));
        OSH_TRY(compare_sums(cx, diff, f, now, was, t->e->name));
    }
done:
    return rc;
}

osh_status osh_checkpoint_reread(osh_ctx *cx, char **diff, osh_stamp *stamp,
                                 const osh_checkpoint *ck, int shard)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own
    const char *path = osh_container_path(ck->shards[shard]);
    osh_stamp after;
    *diff = NULL;
    OSH_TRY(osh_file_open(cx, &f, path));
    OSH_TRY(osh_file_stamp(cx, stamp, f));
    OSH_TRY(compare_file(cx, diff, f, ck, shard));
    OSH_TRY(osh_path_stamp(cx, &after, path));
    if (!*diff && !osh_stamp_same(stamp, &after) &&
        !(*diff = osh_sprintf(cx, "%s is being written", path)))
        rc = OSH_E_NOMEM;
done:
    osh_file_close(cx, f);
    return rc;
}
