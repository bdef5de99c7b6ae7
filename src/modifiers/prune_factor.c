/* prune_factor.c - computes the factor of a Hessian for SparseGPTModifier. If the Hessian is on a
 * device, it is damped and factored there. If the host prunes the weights, the factor is then
 * copied to host memory. */
#include "modifiers/prune_factor.h"
#include "solver/columns.h"

#include <math.h>

/* Sets f->dead, and adds damping to d [I], the diagonal of the Hessian. Returns false if an element
 * of the result is not finite. */
static bool factor_damp(const osh_prune_factor *f, float *d, int64_t I,
                        const osh_prune_damping *damping)
{
    double mean = 0;
    bool finite = true;
    for (int64_t i = 0; i < I; i++) {
        f->dead[i] = d[i] == 0;
        // LLM Compressor multiplies X^T X by 2 / n_samples, and then sets the diagonal of dead
        // columns to 1. Here X^T X is not multiplied, so n_samples / 2 takes the place of 1.
        if (f->dead[i]) d[i] = 0.5f * (float)damping->n_samples;
        mean += d[i];
    }
    float damp = (float)(damping->frac * mean / (double)I);
    for (int64_t i = 0; i < I; i++) finite &= isfinite(d[i] += damp) != 0;
    return finite;
}

osh_status osh_prune_factor_fill(osh_ctx *cx, osh_prune_factor *f, osh_tensor *h,
                                 osh_prune_damping damping)
{
    osh_status rc = OSH_OK;
    int64_t I = h->shape[0];
    const osh_gptq_column *column = osh_gptq_column_of(h->device);
    float *diag = NULL; // own [I]: diagonal of H, later of the damped H
    osh_op_args a = {.out = {h}};
    *f = (osh_prune_factor){0};
    OSH_NEW(cx, f->dead, I);
    OSH_NEW(cx, diag, I);
    OSH_TRY(column->diag(cx, diag, h));
    for (int64_t i = 0; i < I && !f->any; i++) f->any = diag[i] != 0;
    if (!f->any || !factor_damp(f, diag, I, &damping)) goto done;
    OSH_TRY(column->set_diag(cx, h, diag));
    OSH_TRY(column->permute(cx, h, NULL));
    rc = osh_op_run(cx, &osh_op_gptq_factor, &a);
    if (rc == OSH_E_NUMERIC) {
        rc = OSH_OK;
        osh_error_clear(cx);
        goto done;
    }
    if (rc) goto done;
    f->device = damping.stays ? h->device : NULL;
    if (h->device && !f->device) {
        OSH_NEW(cx, f->room, I * I);
        OSH_TRY(osh_tensor_get(cx, f->room, h, 0, osh_tensor_bytes(h)));
    }
    f->u = f->room ? f->room : h->data;
done:
    osh_free(cx, diag);
    return rc;
}

void osh_prune_factor_deinit(osh_ctx *cx, osh_prune_factor *f)
{
    osh_free(cx, f->room);
    osh_free(cx, f->dead);
    *f = (osh_prune_factor){0};
}

size_t osh_prune_factor_bytes(int64_t I, int n_threads, osh_prune_place place, size_t *work)
{
    size_t room = place.there && !place.stays ? osh_mem_gross((size_t)(I * I) * sizeof(float)) : 0,
           kept = osh_mem_gross((size_t)I) + room,
           factor = place.there ? 0 : osh_gptq_factor_bytes(I, n_threads);
    *work = kept + osh_mem_gross((size_t)I * sizeof(float)) + factor;
    return kept;
}

size_t osh_prune_factor_device_bytes(int64_t I)
{
    size_t row = osh_arena_gross((size_t)I * sizeof(float)),
           factor = osh_gptq_factor_device_bytes(I);
    return row > factor ? row : factor;
}
