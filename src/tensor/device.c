/* device.c - makes tensors on a device, and copies between host and device memory. */
#include "tensor/device.h"

#include <assert.h>
#include <string.h>

void osh_device_close(osh_ctx *cx, osh_device *d)
{
    if (d) d->type->close(cx, d);
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
    char *at = (char *)to->data + offset;
    assert(offset + n_bytes <= osh_tensor_bytes(to));
    if (!n_bytes) return OSH_OK;
    if (to->device) return to->device->type->put(cx, to->device, at, from, n_bytes);
    memcpy(at, from, n_bytes);
    return OSH_OK;
}

osh_status osh_tensor_get(osh_ctx *cx, void *to, const osh_tensor *from, size_t offset,
                          size_t n_bytes)
{
    const char *at = (const char *)from->data + offset;
    assert(offset + n_bytes <= osh_tensor_bytes(from));
    if (!n_bytes) return OSH_OK;
    if (from->device) return from->device->type->get(cx, from->device, to, at, n_bytes);
    memcpy(to, at, n_bytes);
    return OSH_OK;
}

enum { ZERO_BYTES = 256 << 10 }; // number of bytes that one chunk of osh_parallel_for sets to zero

static osh_status zero_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_tensor *t = user;
    size_t at = (size_t)chunk * ZERO_BYTES, left = osh_tensor_bytes(t) - at;
    (void)cx, (void)worker;
    memset((char *)t->data + at, 0, left < ZERO_BYTES ? left : ZERO_BYTES);
    return OSH_OK;
}

osh_status osh_tensor_zero(osh_ctx *cx, osh_tensor *t)
{
    size_t n = osh_tensor_bytes(t);
    if (!n) return OSH_OK;
    if (t->device) return t->device->type->fill(cx, t->device, t->data, 0, n);
    /* Chunks are cleared in parallel, so that the operating system also maps the pages of t in
     * parallel. */
    return osh_parallel_for(cx, (int64_t)((n + ZERO_BYTES - 1) / ZERO_BYTES), zero_chunk, t);
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
