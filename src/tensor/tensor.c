/* tensor.c - makes dense row-major tensors and views of tensors, and computes their sizes. */
#include "tensor/device.h"

#include <assert.h>
#include <string.h>

bool osh_shape_numel(int64_t *numel, int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int d = 0; d < ndim; d++)
        if (shape[d] < 0 || __builtin_mul_overflow(n, shape[d], &n)) return false;
    *numel = n;
    return true;
}

osh_status osh_shape_bytes(osh_ctx *cx, size_t *n_bytes, osh_dtype dt, int ndim,
                           const int64_t *shape)
{
    int64_t numel = 0;
    if (osh_shape_numel(&numel, ndim, shape) &&
        !__builtin_mul_overflow((size_t)numel, osh_dtype_bytes(dt), n_bytes) &&
        *n_bytes <= INT64_MAX)
        return OSH_OK;
    return osh_fail(cx, OSH_E_FORMAT, "a shape of %d dimensions is negative or too large", ndim);
}

osh_status osh_tensor_new(osh_ctx *cx, osh_tensor **out, osh_dtype dt, int ndim,
                          const int64_t *shape)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    size_t n_bytes;

    assert(ndim >= 0 && ndim <= OSH_MAX_DIMS);
    OSH_TRY(osh_shape_bytes(cx, &n_bytes, dt, ndim, shape));
    OSH_NEW(cx, t, 1);
    t->data = osh_alloc(cx, n_bytes ? n_bytes : 1);
    if (!t->data) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    t->own = true;
    t->dtype = dt;
    t->ndim = ndim;
    if (ndim) memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    *out = t, t = NULL; // give
done:
    osh_tensor_free(cx, t);
    return rc;
}

void osh_tensor_free(osh_ctx *cx, osh_tensor *t)
{
    if (!t) return;
    if (t->own && t->device) osh_device_free(t->device, t->data);
    else if (t->own) osh_free(cx, t->data);
    osh_free(cx, t);
}

osh_tensor osh_tensor_view(osh_dtype dt, int ndim, const int64_t *shape, void *data)
{
    osh_tensor t = {.dtype = dt, .ndim = ndim, .data = data};

    assert(ndim >= 0 && ndim <= OSH_MAX_DIMS);
    if (ndim) memcpy(t.shape, shape, (size_t)ndim * sizeof *shape);
    return t;
}

int64_t osh_tensor_numel(const osh_tensor *t)
{
    int64_t n = 0;
    bool ok = osh_shape_numel(&n, t->ndim, t->shape);
    assert(ok); // osh_tensor_new has already checked the shape
    return ok ? n : 0;
}

size_t osh_tensor_bytes(const osh_tensor *t)
{
    return (size_t)osh_tensor_numel(t) * osh_dtype_bytes(t->dtype);
}

float osh_tensor_at(const osh_tensor *t, int64_t i)
{
    float x;
    osh_to_f32(&x, (const char *)t->data + (size_t)i * osh_dtype_bytes(t->dtype), t->dtype, 1);
    return x;
}
