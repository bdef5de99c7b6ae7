/* activations.c - stores the values of a graph between subgraphs: in blocks of memory, as tensors,
 * or in files. */
#include "store/activations.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "store/blocks.h"
#include "store/loaders.h"
#include "store/scratch.h"
#include "store/slots.h"

const char *osh_tier_name(osh_tier t)
{
    static const char *const names[] = {"device", "host", "disk"};
    return names[t];
}

typedef struct slot { // storage of all samples of one value
    bool live;
    /* own [samples]: memory of each sample; NULL: samples are not stored one by one in memory */
    void **blocks;
    /* Used if there is a device and the tier is device, and in every tier for kept samples. rows[s]
     * is the tensor of the batch that begins with sample s. All other elements are NULL. */
    osh_tensor **rows; // own [samples]
    /* Used for tier host with a device. batches[s] is the block of the batch that begins with
     * sample s. All other elements are NULL. */
    osh_block **batches; // own [samples]
    osh_slot_file disk;  // own
} slot;

typedef struct way { // buffers in GPU memory through which a value is copied during a pass
    /* landing: buffer for a value that is read in the pass, otherwise NULL. departure: buffer for a
     * value that is stored in the pass, otherwise NULL. */
    void *landing, *departure; // own
    /* First sample of the batch that is now copied to `landing`; -1: there is none. */
    int64_t asked;
} way;

struct osh_acts {
    const osh_graph *g;    // view
    const osh_dataset *d;  // view
    osh_tier tier;
    osh_device *device; // view: device whose memory has the batches; NULL: they are in host memory
    osh_blocks *blocks;    // own: only for tier host with a device
    way *ways;             // own [values]: only for tier host with a device
    int64_t n_kept;        // the samples [0, n_kept) are kept (osh_acts_keep)
    osh_slots disk;        // own: only for tier disk
    osh_loaders *loaders;  // own: only for tier disk, if batches are prefetched; otherwise NULL
    int64_t ahead;         // number of batches that are prefetched at a time
    bool pageable;         // true if host memory for copies to a GPU must not be page-locked
    bool reading;          // true while the loaders run
    osh_scratch *scratch;  // own: only for tier disk
    /* The scratch directory with the files. This directory is the member `scratch`, except in a
     * second store (osh_acts_new_beside), which uses the directory of the first store. */
    const osh_scratch *in; // view
    int first_file;        // the name of the file of value v has the number first_file + v
    uint64_t stage;        // stage in which values are stored now (osh_acts_stage)
    slot *slots;           // own [values]: storage of each value
};

osh_status osh_acts_new(osh_ctx *cx, osh_acts **out, const osh_graph *g, const osh_dataset *d,
                        const osh_acts_place *place)
{
    osh_status rc = OSH_OK;
    osh_acts *a = NULL; // own
    OSH_NEW(cx, a, 1);
    a->g = g, a->d = d, a->tier = place->tier;
    a->disk = (osh_slots){.g = g, .d = d, .zstd = place->zstd};
    OSH_NEW(cx, a->slots, g->n_values);
    if (a->tier == OSH_TIER_DISK) OSH_TRY(osh_scratch_open(cx, &a->scratch, place->dir));
    a->in = a->scratch;
    *out = a, a = NULL;
done:
    osh_acts_free(cx, a, true);
    return rc;
}

osh_status osh_acts_new_beside(osh_ctx *cx, osh_acts **out, const osh_acts *beside, osh_tier tier,
                               bool f16, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_acts *a = NULL; // own
    bool open = tier == OSH_TIER_DISK && !beside->in;
    osh_acts_place place = {open ? tier : OSH_TIER_HOST, dir, beside->disk.zstd};
    OSH_TRY(osh_acts_new(cx, &a, beside->g, beside->d, &place));
    a->tier = tier, a->disk.f16 = f16, a->disk.run = beside->disk.run,
    a->first_file = beside->g->n_values;
    if (!open) a->in = beside->in;
    *out = a, a = NULL;
done:
    return rc;
}

int64_t osh_acts_own_bytes(const osh_graph *g)
{
    return (int64_t)(osh_mem_gross(sizeof(osh_acts)) +
                     osh_mem_gross((size_t)g->n_values * sizeof(slot)));
}

osh_status osh_acts_use(osh_ctx *cx, osh_acts *a, osh_device *d)
{
    osh_status rc = OSH_OK;
    a->device = a->disk.device = d;
    if (!d || a->tier != OSH_TIER_HOST) goto done;
    OSH_NEW(cx, a->ways, a->g->n_values);
    OSH_TRY(osh_blocks_new(cx, &a->blocks, d, !a->pageable));
    a->ahead = 1;
done:
    return rc;
}

osh_status osh_acts_read_ahead(osh_ctx *cx, osh_acts *a, int n_threads, int64_t n_batches)
{
    if (a->tier != OSH_TIER_DISK || !n_threads || !n_batches) return OSH_OK;
    a->ahead = n_batches;
    return osh_loaders_new(cx, &a->loaders, &a->disk, n_threads, a->device, !a->pageable);
}

void osh_acts_unpinned(osh_acts *a) { a->pageable = true; }
int64_t osh_acts_ahead(const osh_acts *a) { return a->ahead; }
void osh_acts_keep(osh_acts *a, int64_t n) { a->n_kept = n; }
void osh_acts_of_run(osh_acts *a, uint64_t run) { a->disk.run = run; }
void osh_acts_by_gpu(osh_acts *a) { a->disk.by_gpu = true; }
void osh_acts_stage(osh_acts *a, uint64_t stage) { a->stage = stage; }

static void acts_free_ways(osh_acts *a)
{
    for (int v = 0; a->ways && v < a->g->n_values; v++) {
        osh_device_free(a->device, a->ways[v].landing);
        osh_device_free(a->device, a->ways[v].departure);
        a->ways[v] = (way){.asked = -1};
    }
}

void osh_acts_free(osh_ctx *cx, osh_acts *a, bool keep_files)
{
    if (!a) return;
    osh_loaders_free(cx, a->loaders);
    acts_free_ways(a);
    for (int v = 0; a->slots && v < a->g->n_values; v++) {
        if (a->tier == OSH_TIER_DISK && keep_files)
            osh_slots_close(cx, &a->disk, &a->slots[v].disk);
        osh_acts_drop(cx, a, v);
    }
    osh_scratch_close(cx, a->scratch, keep_files);
    osh_blocks_free(cx, a->blocks);
    osh_free(cx, a->ways);
    osh_free(cx, a->slots);
    osh_slots_deinit(cx, &a->disk);
    osh_free(cx, a);
}

/* ---- samples ---- */

/* Returns the memory class in which the bytes of stored values are counted. */
static osh_mem_class acts_class(const osh_acts *a)
{
    return a->tier == OSH_TIER_DEVICE && !a->device ? OSH_MEM_DEVICE : OSH_MEM_HOST;
}

/* Allocates the memory *block of a sample (n bytes), unless it exists. */
static osh_status acts_want_block(osh_ctx *cx, osh_acts *a, void **block, size_t n)
{
    osh_mem_class old = osh_mem_use(cx, acts_class(a));
    if (!*block) *block = osh_alloc(cx, n);
    osh_mem_use(cx, old);
    return *block ? OSH_OK : OSH_E_NOMEM;
}

enum { COPY_PART = 128 << 10 };
typedef struct copying {
    char *to;
    const char *from;
    size_t n;
} copying;

static osh_status acts_copy_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const copying *c = user;
    size_t at = (size_t)chunk * COPY_PART;
    (void)cx, (void)worker;
    memcpy(c->to + at, c->from + at, c->n - at < COPY_PART ? c->n - at : COPY_PART);
    return OSH_OK;
}

/* Copies n bytes on all threads, because one thread cannot use the whole bandwidth of memory. */
static osh_status acts_copy(osh_ctx *cx, void *to, const void *from, size_t n)
{
    copying c = {to, from, n};
    return osh_parallel_for(cx, (int64_t)((n + COPY_PART - 1) / COPY_PART), acts_copy_chunk, &c);
}

/* Stores the rows of one sample of a value. The rows begin at byte `at` of t. */
static osh_status sample_put(osh_ctx *cx, osh_acts *a, int value, int64_t sample,
                             const osh_tensor *t, size_t at)
{
    osh_status rc = OSH_OK;
    slot *s = &a->slots[value];
    const char *from = (const char *)t->data + at;
    size_t n = osh_slot_bytes(&a->disk, value, sample);
    if (a->tier == OSH_TIER_DISK) return osh_slot_put(cx, &a->disk, &s->disk, value, sample, from);
    OSH_TRY(acts_want_block(cx, a, &s->blocks[sample], n));
    osh_device_count_values(t->device, 0, n);
    if (t->device) OSH_TRY(osh_tensor_get(cx, s->blocks[sample], t, at, n));
    else OSH_TRY(acts_copy(cx, s->blocks[sample], from, n));
done:
    return rc;
}

static osh_status sample_get(osh_ctx *cx, osh_acts *a, int value, int64_t sample, osh_tensor *t,
                             size_t at)
{
    const slot *s = &a->slots[value];
    char *to = (char *)t->data + at;
    size_t n = osh_slot_bytes(&a->disk, value, sample);
    if (a->tier == OSH_TIER_DISK) return osh_slot_get(cx, &a->disk, &s->disk, value, sample, to);
    if (!s->blocks[sample])
        return osh_fail(cx, OSH_E_INTERNAL, "sample %lld of value %s is not stored",
                        (long long)sample, a->g->values[value].name);
    if (!t->device) return acts_copy(cx, to, s->blocks[sample], n);
    osh_device_count_values(t->device, n, 0);
    return osh_tensor_put(cx, t, at, s->blocks[sample], n);
}

/* ---- values ---- */

/* Creates the file of a value, or allocates the lists of its samples. Must be called before samples
 * of the value are stored. */
static osh_status acts_begin(osh_ctx *cx, osh_acts *a, int value)
{
    osh_status rc = OSH_OK;
    slot *s = &a->slots[value];
    char *path = NULL; // own
    bool rows = a->n_kept || (a->tier == OSH_TIER_DEVICE && a->device),
         others = a->n_kept < a->d->n;
    if (a->tier == OSH_TIER_DISK && others) {
        OSH_TRY(osh_scratch_path(cx, &path, a->in, a->first_file + value));
        OSH_TRY(osh_file_create_exclusive(cx, &s->disk.file, path));
    }
    osh_mem_class old = osh_mem_use(cx, acts_class(a));
    if (rows && !s->rows) s->rows = osh_calloc(cx, (size_t)a->d->n, sizeof *s->rows);
    if (a->blocks) s->batches = osh_calloc(cx, (size_t)a->d->n, sizeof *s->batches);
    else if (!rows && !s->disk.file) s->blocks = osh_calloc(cx, (size_t)a->d->n, sizeof *s->blocks);
    osh_mem_use(cx, old);
    if (rows ? !s->rows : !s->disk.file && !s->blocks && !s->batches) OSH_TRY(OSH_E_NOMEM);
    s->live = true;
done:
    osh_free(cx, path);
    return rc;
}

/* Copies the batch `t` to a stored tensor in device memory. `first`: first sample of the batch. */
static osh_status acts_store_rows(osh_ctx *cx, osh_acts *a, int value, int64_t first,
                                  const osh_tensor *t)
{
    osh_status rc = OSH_OK;
    osh_tensor **rows = &a->slots[value].rows[first];
    if (!*rows)
        OSH_TRY(osh_tensor_new_on(cx, rows, (osh_where){a->device, OSH_LIFE_LONG}, t->dtype,
                                  t->ndim, t->shape));
    OSH_TRY(osh_tensor_copy(cx, *rows, t));
done:
    return rc;
}

/* Copies the batch `t` to a block of host memory. `first`: first sample of the batch. */
static osh_status acts_store_batch(osh_ctx *cx, osh_acts *a, int value, int64_t first,
                                   const osh_tensor *t)
{
    osh_status rc = OSH_OK;
    osh_block **block = &a->slots[value].batches[first];
    if (!*block) OSH_TRY(osh_blocks_take(cx, a->blocks, block, osh_tensor_bytes(t)));
    OSH_TRY(osh_block_store(cx, a->blocks, *block, t, a->ways[value].departure));
done:
    return rc;
}

osh_status osh_acts_store(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                          const osh_tensor *t)
{
    osh_status rc = OSH_OK;
    size_t at = 0;
    if (!a->slots[value].live) OSH_TRY(acts_begin(cx, a, value));
    a->slots[value].disk.stage = a->stage;
    if (a->slots[value].rows && !a->slots[value].disk.file) {
        OSH_TRY(acts_store_rows(cx, a, value, first, t));
        goto done;
    }
    if (a->blocks) {
        OSH_TRY(acts_store_batch(cx, a, value, first, t));
        goto done;
    }
    if (t->device && a->tier == OSH_TIER_DISK) {
        OSH_TRY(osh_slots_put_rows(cx, &a->disk, &a->slots[value].disk, value, first, t));
        goto done;
    }
    for (int64_t s = first; s < first + n; s++) {
        OSH_TRY(sample_put(cx, a, value, s, t, at));
        at += osh_slot_bytes(&a->disk, value, s);
    }
done:
    if (rc) osh_note(cx, "storing value %s", a->g->values[value].name);
    return rc;
}

/* Sets *block to the block of the batch that begins with sample `first`. Fails if the store does
 * not have such a batch. */
static osh_status acts_find_batch(osh_ctx *cx, const osh_acts *a, int value, int64_t first,
                                  osh_block **block)
{
    osh_block **batches = a->slots[value].batches;
    if (batches && (*block = batches[first])) return OSH_OK;
    return osh_fail(cx, OSH_E_INTERNAL, "sample %lld of value %s is not stored", (long long)first,
                    a->g->values[value].name);
}

/* Loads the batch that begins with sample `first` to t. If osh_acts_ask has begun to copy this
 * batch to `landing`, takes it from there. Otherwise copies it from host memory. */
static osh_status acts_load_batch(osh_ctx *cx, osh_acts *a, int value, int64_t first, osh_tensor *t)
{
    osh_status rc = OSH_OK;
    osh_block *block = NULL; // view
    way *w = &a->ways[value];
    OSH_TRY(acts_find_batch(cx, a, value, first, &block));
    if (w->landing && w->asked == first && t->device) {
        w->asked = -1;
        OSH_TRY(osh_block_arrive(cx, a->blocks, w->landing, t));
        goto done;
    }
    OSH_TRY(osh_block_load(cx, a->blocks, block, t));
done:
    return rc;
}

osh_status osh_acts_ask(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    osh_block *block = NULL; // view
    bool asked = false;
    if (a->reading && first >= a->n_kept)
        OSH_TRY(osh_loaders_ask(cx, a->loaders, &a->slots[value].disk, value, first, n));
    if (!a->ways || !a->ways[value].landing) goto done;
    size_t bytes =
        (size_t)(a->d->offsets[first + n] - a->d->offsets[first]) * osh_value_bytes(a->g, value);
    OSH_TRY(acts_find_batch(cx, a, value, first, &block));
    OSH_TRY(osh_block_ask(cx, a->blocks, block, a->ways[value].landing, bytes, &asked));
    if (asked) a->ways[value].asked = first;
done:
    return rc;
}

osh_status osh_acts_open(osh_ctx *cx, osh_acts *a, const bool *in, const bool *out,
                         int64_t n_tokens)
{
    osh_status rc = OSH_OK;
    for (int v = 0; a->ways && v < a->g->n_values; v++) {
        size_t n = (size_t)n_tokens * osh_value_bytes(a->g, v);
        if (v == a->g->input_ids) continue;
        a->ways[v].asked = -1;
        if (in[v] && !(a->ways[v].landing = osh_device_alloc(cx, a->device, n, OSH_LIFE_SHORT)))
            OSH_TRY(OSH_E_NOMEM);
        if (out[v] && !(a->ways[v].departure = osh_device_alloc(cx, a->device, n, OSH_LIFE_SHORT)))
            OSH_TRY(OSH_E_NOMEM);
    }
    for (int v = 0; a->loaders && v < a->g->n_values; v++)
        a->reading |= in[v] && v != a->g->input_ids;
    if (a->reading) OSH_TRY(osh_loaders_start(cx, a->loaders));
done:
    return rc;
}

osh_status osh_acts_close(osh_ctx *cx, osh_acts *a)
{
    osh_status rc = a->ways ? osh_blocks_settle(cx, a->blocks) : OSH_OK;
    acts_free_ways(a);
    if (a->reading) rc = osh_loaders_stop(cx, a->loaders);
    a->reading = false;
    return rc;
}

osh_status osh_acts_load(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                         osh_tensor *t)
{
    osh_status rc = OSH_OK;
    size_t at = 0;
    const char *name = a->g->values[value].name;
    if (!a->slots[value].live)
        OSH_FAIL(cx, OSH_E_INTERNAL, "value %s is not stored, but an op needs it", name);
    if (a->slots[value].rows && !a->slots[value].disk.file) {
        const osh_tensor *rows = a->slots[value].rows[first];
        if (!rows)
            OSH_FAIL(cx, OSH_E_INTERNAL, "sample %lld of value %s is not stored", (long long)first,
                     name);
        OSH_TRY(osh_tensor_copy(cx, t, rows));
        goto done;
    }
    if (a->blocks) {
        OSH_TRY(acts_load_batch(cx, a, value, first, t));
        goto done;
    }
    if (t->device && a->tier == OSH_TIER_DISK) {
        bool read = false;
        if (a->reading) OSH_TRY(osh_loaders_load(cx, a->loaders, value, first, t, &read));
        if (!read)
            OSH_TRY(osh_slots_get_rows(cx, &a->disk, &a->slots[value].disk, value, first, t));
        goto done;
    }
    for (int64_t s = first; s < first + n; s++) {
        OSH_TRY(sample_get(cx, a, value, s, t, at));
        at += osh_slot_bytes(&a->disk, value, s);
    }
done:
    if (rc) osh_note(cx, "loading value %s", name);
    return rc;
}

/* Copies one sample from `rows`, the tensor of its batch. `at`: offset in bytes of the sample in
 * the data of `rows`. */
static osh_status acts_sample_of_rows(osh_ctx *cx, const osh_tensor *rows, size_t at, osh_tensor *t)
{
    osh_tensor part = *t;
    part.device = rows->device, part.data = (char *)rows->data + at;
    return osh_tensor_copy(cx, t, &part);
}

osh_status osh_acts_sample(osh_ctx *cx, osh_acts *a, int value, int64_t sample, osh_tensor *t)
{
    osh_status rc = OSH_OK;
    int64_t first = sample;
    const slot *s = &a->slots[value];
    bool in_rows = sample < a->n_kept || (a->device && a->tier == OSH_TIER_DEVICE);
    if (!in_rows && !a->blocks) return osh_acts_load(cx, a, value, sample, 1, t);
    while (first > 0 && (in_rows ? s->rows && !s->rows[first] : s->batches && !s->batches[first]))
        first--;
    if (!s->live || (in_rows ? !s->rows || !s->rows[first] : !s->batches || !s->batches[first]))
        OSH_FAIL(cx, OSH_E_INTERNAL, "sample %lld of value %s is not stored", (long long)sample,
                 a->g->values[value].name);
    size_t at =
        (size_t)(a->d->offsets[sample] - a->d->offsets[first]) * osh_value_bytes(a->g, value);
    OSH_TRY(in_rows ? acts_sample_of_rows(cx, s->rows[first], at, t)
                    : osh_block_load_part(cx, a->blocks, s->batches[first], at, t));
done:
    return rc;
}

osh_status osh_acts_put(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                        osh_tensor **t)
{
    osh_status rc = OSH_OK;
    if (first >= a->n_kept) return osh_acts_store(cx, a, value, first, n, *t);
    if (!a->slots[value].live) OSH_TRY(acts_begin(cx, a, value));
    osh_tensor **rows = &a->slots[value].rows[first];
    osh_tensor_free(cx, *rows);
    *rows = *t, *t = NULL; // give
done:
    if (rc) osh_note(cx, "storing value %s", a->g->values[value].name);
    return rc;
}

osh_status osh_acts_get(osh_ctx *cx, osh_tensor **t, osh_acts *a, const osh_acts_rows *r, bool last,
                        osh_device *d)
{
    osh_status rc = OSH_OK;
    int value = r->value;
    int64_t first = r->first;
    osh_tensor *new = NULL; // own
    slot *s = &a->slots[value];
    osh_tensor **rows = first < a->n_kept && s->live ? &s->rows[first] : NULL;
    if (first < a->n_kept && (!rows || !*rows))
        OSH_FAIL(cx, OSH_E_INTERNAL, "sample %lld of value %s is not stored", (long long)first,
                 a->g->values[value].name);
    if (rows && last) {
        new = *rows, *rows = NULL; // give
    } else if (rows) {
        OSH_NEW(cx, new, 1);
        *new = **rows, new->own = false;
    } else if (a->reading && !d) {
        OSH_TRY(osh_loaders_take(cx, a->loaders, value, first, &new));
    }
    if (!new) {
        int64_t shape[2] = {a->d->offsets[first + r->n] - a->d->offsets[first],
                            a->g->values[value].width};
        osh_where where = {d, OSH_LIFE_SHORT};
        OSH_TRY(osh_tensor_new_on(cx, &new, where, osh_slots_dtype(&a->disk, value), 2, shape));
        OSH_TRY(osh_acts_load(cx, a, value, first, r->n, new));
    }
    *t = new, new = NULL; // give
done:
    osh_tensor_free(cx, new);
    return rc;
}

void osh_acts_forget(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n)
{
    slot *s = &a->slots[value];
    for (int64_t k = first; s->blocks && k < first + n; k++) {
        osh_free(cx, s->blocks[k]);
        s->blocks[k] = NULL;
    }
    for (int64_t k = first; s->batches && k < first + n; k++) {
        osh_blocks_give(a->blocks, s->batches[k]);
        s->batches[k] = NULL;
    }
    for (int64_t k = first; s->rows && k < first + n; k++) {
        osh_tensor_free(cx, s->rows[k]);
        s->rows[k] = NULL;
    }
}

bool osh_acts_has(const osh_acts *a, int value) { return a->slots[value].live; }

void osh_acts_drop(osh_ctx *cx, osh_acts *a, int value)
{
    slot *s = &a->slots[value];
    if (!s->live && !s->disk.file) return;
    osh_acts_forget(cx, a, value, 0, a->d->n);
    osh_free(cx, s->blocks);
    osh_free(cx, s->rows);
    osh_free(cx, s->batches);
    const osh_file *f = s->disk.file;
    if (f && osh_file_is_at(f, osh_file_path(f))) unlink(osh_file_path(f));
    osh_slots_close(cx, &a->disk, &s->disk);
    *s = (slot){0};
}

osh_status osh_acts_sync(osh_ctx *cx, osh_acts *a, int value)
{
    osh_status rc = OSH_OK;
    osh_file *f = a->slots[value].disk.file;
    if (!f) goto done;
    OSH_TRY(osh_file_sync(cx, f));
    // also syncs the directory, so that the name of the file is on the disk
    OSH_TRY(osh_dir_sync_above(cx, osh_file_path(f)));
done:
    return rc;
}

osh_status osh_acts_adopt(osh_ctx *cx, osh_acts *a, int value, uint64_t stage, bool *found)
{
    osh_status rc = OSH_OK;
    slot *s = &a->slots[value];
    char *path = NULL;   // own
    void *sample = NULL; // own
    int64_t most = 0;
    *found = false;
    if (a->tier != OSH_TIER_DISK) goto done;
    OSH_TRY(osh_scratch_path(cx, &path, a->in, a->first_file + value));
    if (!osh_file_exists(path)) goto done;
    for (int64_t k = 0; k < a->d->n; k++) {
        int64_t n = a->d->offsets[k + 1] - a->d->offsets[k];
        most = n > most ? n : most;
    }
    sample = osh_alloc(cx, (size_t)most * osh_value_bytes(a->g, value));
    if (!sample) OSH_FAIL(cx, OSH_E_NOMEM, "no memory to check %s", path);
    OSH_TRY(osh_file_open_rw(cx, &s->disk.file, path));
    s->live = true, s->disk.stage = stage;
    for (int64_t k = 0; k < a->d->n && !rc; k++)
        rc = osh_slot_get(cx, &a->disk, &s->disk, value, k, sample);
    *found = !rc;
    // a file that is incomplete or belongs to another run counts as absent
    if (rc && rc != OSH_E_NOMEM) {
        rc = OSH_OK;
        osh_error_clear(cx);
        osh_slots_close(cx, &a->disk, &s->disk);
        *s = (slot){0};
    }
done:
    osh_free(cx, path);
    osh_free(cx, sample);
    return rc;
}
