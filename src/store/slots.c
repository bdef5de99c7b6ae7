/* slots.c - computes the offsets of slots, writes and reads slots with checksums, and lets a GPU
 * read slots. */
#include "store/slots.h"

#include <string.h>
#include <zstd.h>

#include "base/xxh3.h"
#include "ops/device_ops.h"
#include "ops/wordsum.h"

enum { ZSTD_LEVEL = 1 };
/* The header of a slot. In the layout without blocks, the header is directly before the data of the
 * slot. In the layout with blocks, all headers are at the beginning of the file. */
typedef struct head {
    /* Number of bytes of the stored data. If it is less than the bytes of the sample, the data are
     * a zstd frame. */
    uint64_t n_bytes;
    uint64_t sum;
} head;

/* The seed of a slot's checksum is a hash of this struct. So a slot is only valid at its own offset
 * of its own file. */
typedef struct owner {
    uint64_t run, stage, value, sample, at, n_bytes, n_kept;
} owner;

osh_dtype osh_slots_dtype(const osh_slots *s, int value)
{
    return s->f16 ? OSH_F16 : s->g->values[value].dtype;
}

size_t osh_slots_rows_bytes(const osh_slots *s, int value, int64_t first, int64_t n)
{
    size_t row = (size_t)s->g->values[value].width * osh_dtype_bytes(osh_slots_dtype(s, value));
    return (size_t)(s->d->offsets[first + n] - s->d->offsets[first]) * row;
}

size_t osh_slot_bytes(const osh_slots *s, int value, int64_t sample)
{
    return osh_slots_rows_bytes(s, value, sample, 1);
}

/* ---- offsets ---- */

static int64_t round_to_block(int64_t n)
{
    return (n + OSH_BLOCK_BYTES - 1) / OSH_BLOCK_BYTES * OSH_BLOCK_BYTES;
}

/* True if files have the layout with blocks (the second layout of slots.h): the data of each sample
 * begin at a block of the file. */
static bool slots_in_blocks(const osh_slots *s) { return s->device && !s->zstd; }

/* Returns the offset of a sample's data in the layout with blocks. It is the sum of three parts:
 * the bytes of all headers, the bytes of all earlier samples, and one block for each earlier
 * sample. The first two parts are rounded up to whole blocks. The third part is needed because the
 * last block of a sample may be partly empty. */
static int64_t slot_block_at(const osh_graph *g, const osh_dataset *d, int value, int64_t sample)
{
    return round_to_block(d->n * (int64_t)sizeof(head)) +
           round_to_block(d->offsets[sample] * (int64_t)osh_value_bytes(g, value)) +
           sample * OSH_BLOCK_BYTES;
}

static int64_t slot_head_at(const osh_slots *s, int value, int64_t sample)
{
    if (slots_in_blocks(s)) return sample * (int64_t)sizeof(head);
    return (int64_t)osh_slots_rows_bytes(s, value, 0, sample) + sample * (int64_t)sizeof(head);
}

static int64_t slot_data_at(const osh_slots *s, int value, int64_t sample)
{
    if (slots_in_blocks(s)) return slot_block_at(s->g, s->d, value, sample);
    return slot_head_at(s, value, sample) + (int64_t)sizeof(head);
}

int64_t osh_slots_bytes(const osh_graph *g, const osh_dataset *d, int value, int64_t first,
                        bool in_blocks)
{
    int64_t rows = d->offsets[d->n] - d->offsets[first];
    if (in_blocks) return slot_block_at(g, d, value, d->n);
    return rows * (int64_t)osh_value_bytes(g, value) + (d->n - first) * (int64_t)sizeof(head);
}

/* ---- buffers ---- */

static osh_status slots_want_room(osh_ctx *cx, void **p, size_t *have, size_t n)
{
    if (n <= *have) return OSH_OK;
    osh_free(cx, *p);
    *have = 0;
    /* the buffer counts as host memory, whatever the current memory class is */
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    *p = osh_alloc(cx, n);
    osh_mem_use(cx, old);
    if (!*p) return OSH_E_NOMEM;
    *have = n;
    return OSH_OK;
}

void osh_slots_deinit(osh_ctx *cx, osh_slots *s)
{
    osh_free(cx, s->frame);
    osh_free(cx, s->transit);
}

void osh_slots_close(osh_ctx *cx, const osh_slots *s, osh_slot_file *f)
{
    if (f->gpu) s->device->type->files->close(cx, f->gpu);
    osh_file_close(cx, f->file);
    *f = (osh_slot_file){0};
}

/* ---- one sample in host memory ---- */

/* Returns the seed for the checksum of a sample. n_kept: bytes of its stored data. */
static uint64_t slot_seed(const osh_slots *s, const osh_slot_file *f, int value, int64_t sample,
                          uint64_t n_kept)
{
    owner o = {s->run,
               f->stage,
               (uint64_t)value,
               (uint64_t)sample,
               (uint64_t)slot_data_at(s, value, sample),
               osh_slot_bytes(s, value, sample),
               n_kept};
    return XXH3_64bits(&o, sizeof o);
}

static uint64_t slot_sum(const osh_slots *s, uint64_t seed, const void *kept, uint64_t n_kept)
{
    if (!slots_in_blocks(s)) return XXH3_64bits_withSeed(kept, n_kept, seed);
    uint64_t words = osh_wordsum(kept, n_kept);
    return XXH3_64bits_withSeed(&words, sizeof words, seed);
}

osh_status osh_slot_put(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                        int64_t sample, const void *from)
{
    osh_status rc = OSH_OK;
    size_t n = osh_slot_bytes(s, value, sample);
    head h = {n, 0};
    if (s->zstd) {
        OSH_TRY(slots_want_room(cx, &s->frame, &s->frame_room, ZSTD_compressBound(n)));
        size_t k = ZSTD_compress(s->frame, s->frame_room, from, n, ZSTD_LEVEL);
        if (!ZSTD_isError(k) && k < n) h.n_bytes = k, from = s->frame;
    }
    h.sum = slot_sum(s, slot_seed(s, f, value, sample, h.n_bytes), from, h.n_bytes);
    OSH_TRY(osh_file_pwrite(cx, f->file, from, h.n_bytes, slot_data_at(s, value, sample)));
    OSH_TRY(osh_file_pwrite(cx, f->file, &h, sizeof h, slot_head_at(s, value, sample)));
done:
    return rc;
}

static osh_status slot_fail(osh_ctx *cx, const osh_slots *s, const osh_slot_file *f, int value,
                            int64_t sample)
{
    return osh_fail(cx, OSH_E_IO, "%s: sample %lld of %s has other bytes than the run wrote",
                    osh_file_path(f->file), (long long)sample, s->g->values[value].name);
}

osh_status osh_slot_get(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                        int64_t sample, void *to)
{
    osh_status rc = OSH_OK;
    size_t n = osh_slot_bytes(s, value, sample);
    const char *name = s->g->values[value].name;
    void *raw = to;
    head h;
    OSH_TRY(osh_file_pread(cx, f->file, &h, sizeof h, slot_head_at(s, value, sample)));
    if (h.n_bytes > n || (!h.n_bytes && n) || (h.n_bytes < n && slots_in_blocks(s)))
        OSH_FAIL(cx, OSH_E_IO, "%s: sample %lld of %s has %llu bytes, want at most %zu",
                 osh_file_path(f->file), (long long)sample, name, (unsigned long long)h.n_bytes, n);
    if (h.n_bytes < n) {
        OSH_TRY(slots_want_room(cx, &s->frame, &s->frame_room, ZSTD_compressBound(n)));
        raw = s->frame;
    }
    OSH_TRY(osh_file_pread(cx, f->file, raw, h.n_bytes, slot_data_at(s, value, sample)));
    if (slot_sum(s, slot_seed(s, f, value, sample, h.n_bytes), raw, h.n_bytes) != h.sum)
        OSH_TRY(slot_fail(cx, s, f, value, sample));
    if (raw != to && ZSTD_decompress(to, n, raw, h.n_bytes) != n)
        OSH_FAIL(cx, OSH_E_IO, "%s: sample %lld of %s is not a zstd frame of %zu bytes",
                 osh_file_path(f->file), (long long)sample, name, n);
done:
    return rc;
}

/* ---- rows on a device ---- */

osh_status osh_slots_put_rows(osh_ctx *cx, osh_slots *s, const osh_slot_file *f, int value,
                              int64_t first, const osh_tensor *t)
{
    osh_status rc = OSH_OK;
    size_t at = 0;
    for (int64_t k = first; at < osh_tensor_bytes(t); k++) {
        size_t n = osh_slot_bytes(s, value, k);
        OSH_TRY(slots_want_room(cx, &s->transit, &s->transit_room, n));
        osh_device_count_values(t->device, 0, n);
        OSH_TRY(osh_tensor_get(cx, s->transit, t, at, n));
        OSH_TRY(osh_slot_put(cx, s, f, value, k, s->transit));
        at += n;
    }
done:
    return rc;
}

/* The samples [first, end) of a value in a tensor t. The rows of sample `first` begin at byte `at`
 * of t. */
typedef struct rows {
    osh_slot_file *f;
    int value;
    int64_t first, end;
    osh_tensor *t;
    size_t at;
} rows;

/* Reads sample r->first to host memory, and copies it to its rows of r->t on the device. */
static osh_status rows_get_through(osh_ctx *cx, osh_slots *s, const rows *r)
{
    osh_status rc = OSH_OK;
    size_t n = osh_slot_bytes(s, r->value, r->first);
    OSH_TRY(slots_want_room(cx, &s->transit, &s->transit_room, n));
    OSH_TRY(osh_slot_get(cx, s, r->f, r->value, r->first, s->transit));
    osh_device_count_values(r->t->device, n, 0);
    OSH_TRY(osh_tensor_put(cx, r->t, r->at, s->transit, n));
done:
    return rc;
}

/* Checks the samples r, which the GPU has read, by their checksums `sums`. If a checksum is wrong,
 * the host reads the sample again, and fails if the checksum of this second read is wrong, too. */
static osh_status rows_check(osh_ctx *cx, osh_slots *s, rows r, const head *heads,
                             const uint64_t *sums)
{
    osh_status rc = OSH_OK;
    for (int64_t k = 0; r.first < r.end; r.first++, k++) {
        size_t n = osh_slot_bytes(s, r.value, r.first);
        uint64_t seed = slot_seed(s, r.f, r.value, r.first, n);
        if (heads[k].n_bytes != n ||
            XXH3_64bits_withSeed(&sums[k], sizeof *sums, seed) != heads[k].sum) {
            OSH_TRY(rows_get_through(cx, s, &r));
            s->device->type->files->distrust(
                cx, r.f->gpu, "the bytes that the GPU read have another checksum");
        }
        r.at += n;
    }
done:
    return rc;
}

/* Makes the GPU read the samples [r->first, r->end). Their number is at most OSH_DEVICE_SUMS. */
static osh_status rows_get_by_gpu(osh_ctx *cx, osh_slots *s, const rows *r)
{
    osh_status rc = OSH_OK;
    int64_t n = r->end - r->first;
    osh_device *d = r->t->device;
    const osh_device_files *files = d->type->files;
    head *heads = NULL;    // own
    uint64_t *sums = NULL; // own
    char *to = (char *)r->t->data + r->at;
    OSH_NEW(cx, heads, n);
    OSH_NEW(cx, sums, n);
    OSH_TRY(osh_file_pread(cx, r->f->file, heads, (size_t)n * sizeof *heads,
                           slot_head_at(s, r->value, r->first)));
    for (int64_t k = 0; k < n; k++) {
        size_t bytes = osh_slot_bytes(s, r->value, r->first + k);
        OSH_TRY(files->read(cx, r->f->gpu, to, bytes, slot_data_at(s, r->value, r->first + k),
                            false));
        osh_device_count_values(d, bytes, 0);
        OSH_TRY(osh_device_ops_of(d)->wordsum(cx, d, files->sums(d) + k, to, bytes));
        to += bytes;
    }
    OSH_TRY(d->type->get(cx, d, sums, files->sums(d), (size_t)n * sizeof *sums));
    OSH_TRY(rows_check(cx, s, *r, heads, sums));
done:
    osh_free(cx, heads);
    osh_free(cx, sums);
    return rc;
}

osh_status osh_slots_get_rows(osh_ctx *cx, osh_slots *s, osh_slot_file *f, int value, int64_t first,
                              osh_tensor *t)
{
    osh_status rc = OSH_OK;
    size_t all = osh_tensor_bytes(t);
    bool by_gpu = s->by_gpu && slots_in_blocks(s);
    if (by_gpu && !f->gpu) {
        osh_file_use_direct(f->file);
        OSH_TRY(s->device->type->files->open(cx, &f->gpu, s->device, f->file));
    }
    for (rows r = {.f = f, .value = value, .first = first, .end = first, .t = t}; r.at < all;
         r.first = r.end) {
        size_t n = 0;
        while (r.end - r.first < (by_gpu ? OSH_DEVICE_SUMS : 1) && r.at + n < all)
            n += osh_slot_bytes(s, value, r.end++);
        OSH_TRY(by_gpu ? rows_get_by_gpu(cx, s, &r) : rows_get_through(cx, s, &r));
        r.at += n;
    }
done:
    return rc;
}
