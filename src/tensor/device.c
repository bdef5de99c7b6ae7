/* device.c - makes tensors on a device, copies between host and device memory, and defines
 * osh_host_type, the row of the host in the table of devices. */
#include "tensor/device.h"

#include <assert.h>
#include <string.h>

/* ---- the row of the host ---- */
static osh_status host_copy(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes)
{
    (void)cx, (void)d;
    memcpy(to, from, n_bytes);
    return OSH_OK;
}

typedef struct filling { char *to; int byte; size_t n; } filling;
enum { FILL_BYTES = 256 << 10 }; // number of bytes that a thread fills at a time

static osh_status fill_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const filling *f = user;
    size_t at = (size_t)chunk * FILL_BYTES, left = f->n - at;
    (void)cx, (void)worker;
    memset(f->to + at, f->byte, left < FILL_BYTES ? left : FILL_BYTES);
    return OSH_OK;
}

/* Fills n_bytes with `byte` on several threads, so that the operating system also maps the pages in
 * parallel. */
static osh_status host_fill(osh_ctx *cx, osh_device *d, void *to, int byte, size_t n_bytes)
{
    filling f = {to, byte, n_bytes};
    (void)d;
    return osh_parallel_for(cx, (int64_t)((n_bytes + FILL_BYTES - 1) / FILL_BYTES), fill_chunk, &f);
}

static osh_status host_done(osh_ctx *cx, osh_device *d)
{
    (void)cx, (void)d;
    return OSH_OK;
}

const osh_device_type osh_host_type = {
    .name = "cpu", .column = OSH_CPU, .put = host_copy, .get = host_copy, .copy = host_copy,
    .fill = host_fill, .put_ahead = host_copy, .follow = host_done, .fence = host_done,
    .sync = host_done,
};

/* ---- devices ---- */
void osh_device_close(osh_ctx *cx, osh_device *d)
{
    if (d) d->type->close(cx, d);
}

bool osh_device_detour(osh_device *d, osh_detour which, int64_t n)
{
    pthread_mutex_lock(&d->lock);
    int64_t before = d->count.detours[which];
    d->count.detours[which] += n;
    pthread_mutex_unlock(&d->lock);
    return n && !before;
}

void osh_device_count_values(osh_device *d, size_t in_bytes, size_t out_bytes)
{
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    d->count.value_in_bytes += (int64_t)in_bytes, d->count.value_out_bytes += (int64_t)out_bytes;
    pthread_mutex_unlock(&d->lock);
}

const char *osh_detour_name(osh_detour which)
{
    static const char *const names[] = {"default_f32_products", "products_one_by_one",
                                        "pageable_copies", "blocks_elsewhere",
                                        "files_through_host"};
    return names[which];
}

const char *osh_detour_text(osh_detour which)
{
    static const char *const texts[] = {"products of F32 without a pedantic algorithm",
                                        "products of a batch one by one",
                                        "copies of values that are not page-locked",
                                        "blocks of its memory at other addresses than planned",
                                        "reads of files that went through host memory"};
    return texts[which];
}

void *osh_device_alloc(osh_ctx *cx, osh_device *d, size_t n_bytes, osh_life life)
{
    size_t offset = 0;
    if (osh_arena_take(d->arena, &offset, n_bytes, life)) {
        void *apart = d->blocks_apart ? d->type->take(d, n_bytes) : NULL;
        if (!d->blocks_apart) return d->base + offset;
        if (apart) osh_arena_note(d->arena, offset, apart);
        else
            osh_arena_give(d->arena, offset),
                osh_fail(cx, OSH_E_NOMEM, "no memory for a separate block");
        return apart;
    }
    osh_fail(cx, OSH_E_NOMEM, "no block of %zu bytes in the device's memory: %zu bytes are in use",
             n_bytes, osh_arena_used(d->arena));
    return NULL;
}

void osh_device_free(osh_device *d, void *p)
{
    size_t apart = p && d->blocks_apart ? osh_arena_noted(d->arena, p) : OSH_ANYWHERE;
    if (!p) return;
    osh_arena_give(d->arena, apart == OSH_ANYWHERE ? (size_t)((char *)p - d->base) : apart);
    if (apart != OSH_ANYWHERE) d->type->give(d, p);
}

osh_status osh_tensor_new_on(osh_ctx *cx, osh_tensor **out, osh_where where, osh_dtype dt, int ndim,
                             const int64_t *shape)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    size_t n_bytes = 0;
    if (!where.d) return osh_tensor_new(cx, out, dt, ndim, shape);
    OSH_TRY(osh_shape_bytes(cx, &n_bytes, dt, ndim, shape));
    OSH_NEW(cx, t, 1);
    *t = osh_tensor_view(dt, ndim, shape, NULL);
    t->device = where.d;
    t->data = osh_device_alloc(cx, where.d, n_bytes, where.life);
    if (!t->data) OSH_TRY(OSH_E_NOMEM);
    t->own = true;
    *out = t, t = NULL; // give
done:
    osh_tensor_free(cx, t);
    return rc;
}

osh_status osh_tensor_put(osh_ctx *cx, osh_tensor *to, size_t offset, const void *from,
                          size_t n_bytes)
{
    assert(offset + n_bytes <= osh_tensor_bytes(to));
    if (!n_bytes) return OSH_OK;
    return osh_device_type_of(to->device)->put(cx, to->device, (char *)to->data + offset, from,
                                               n_bytes);
}

osh_status osh_tensor_get(osh_ctx *cx, void *to, const osh_tensor *from, size_t offset,
                          size_t n_bytes)
{
    assert(offset + n_bytes <= osh_tensor_bytes(from));
    if (!n_bytes) return OSH_OK;
    return osh_device_type_of(from->device)->get(cx, from->device, to,
                                                 (const char *)from->data + offset, n_bytes);
}

osh_status osh_tensor_zero(osh_ctx *cx, osh_tensor *t)
{
    size_t n = osh_tensor_bytes(t);
    return n ? osh_device_type_of(t->device)->fill(cx, t->device, t->data, 0, n) : OSH_OK;
}

osh_status osh_tensor_copy(osh_ctx *cx, osh_tensor *to, const osh_tensor *from)
{
    size_t n = osh_tensor_bytes(to);
    assert(to->dtype == from->dtype && n == osh_tensor_bytes(from));
    assert(!to->device || !from->device || to->device == from->device);
    if (!n) return OSH_OK;
    if (to->device && from->device)
        return to->device->type->copy(cx, to->device, to->data, from->data, n);
    if (to->device) return osh_tensor_put(cx, to, 0, from->data, n);
    return osh_tensor_get(cx, to->data, from, 0, n);
}
