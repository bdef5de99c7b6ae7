/* target.c - computes the target W + W S of GPTQ with target 'original', on the host or on a
 * device. */
#include "modifiers/target.h"

#include "ops/op.h"

osh_status osh_target_shift(osh_ctx *cx, osh_tensor *d, const float *u, const int32_t *perm)
{
    osh_status rc = OSH_OK;
    int64_t I = d->shape[0];
    // order: own; copy of the list `perm`, on the device of d
    osh_tensor factor = osh_tensor_view(OSH_F32, 2, (int64_t[]){I, I}, (float *)u), *order = NULL;
    osh_tensor list = osh_tensor_view(OSH_I32, 1, &I, (int32_t *)perm);
    osh_op_args a = {.in = {&factor, &list}, .out = {d}};
    factor.device = d->device;
    if (d->device) {
        OSH_TRY(
            osh_tensor_new_on(cx, &order, (osh_where){d->device, OSH_LIFE_SHORT}, OSH_I32, 1, &I));
        OSH_TRY(osh_tensor_copy(cx, order, &list));
        a.in[1] = order;
    }
    OSH_TRY(osh_op_run(cx, &osh_op_gptq_shift, &a));
done:
    osh_tensor_free(cx, order);
    return rc;
}

osh_status osh_target_new(osh_ctx *cx, osh_linear_job *j, const osh_tensor *s)
{
    osh_status rc = OSH_OK;
    osh_op_args a = {.in = {s->device ? j->device_w : j->w, s}};
    OSH_TRY(osh_tensor_new_on(cx, &j->target, (osh_where){s->device, OSH_LIFE_SHORT}, OSH_F32, 2,
                              j->w->shape));
    a.out[0] = j->target;
    OSH_TRY(osh_op_run(cx, &osh_op_gptq_target, &a));
done:
    return rc;
}

void osh_target_free(osh_ctx *cx, osh_linear_job *j)
{
    osh_tensor_free(cx, j->target);
    j->target = NULL;
}

osh_status osh_target_params(osh_ctx *cx, osh_linear_job *j, osh_arithmetic arithmetic)
{
    osh_status rc = OSH_OK;
    osh_tensor *copy = NULL; // own: copy of the target in host memory
    const osh_tensor *t = j->target;
    if (t->device) {
        OSH_TRY(osh_tensor_new(cx, &copy, OSH_F32, 2, t->shape));
        OSH_TRY(osh_tensor_copy(cx, copy, t));
        t = copy;
    }
    OSH_TRY(osh_q_target_params(cx, &j->params, t,
                                &(osh_q_scaling){&j->scheme->weights, j->w->dtype, arithmetic},
                                j->name));
done:
    osh_tensor_free(cx, copy);
    return rc;
}

static size_t target_scratch_of(const osh_op *op, int64_t I, int64_t rows, int n_threads,
                                bool device)
{
    if (!device) return op->scratch(NULL, &I, 0, rows, n_threads);
    return op->arena_bytes ? op->arena_bytes(NULL, &I, 0, rows, OSH_F32) : 0;
}

size_t osh_target_shift_bytes(int64_t I, int n_threads, bool device)
{
    size_t order = device ? osh_arena_gross((size_t)I * sizeof(int32_t)) : 0;
    return order + target_scratch_of(&osh_op_gptq_shift, I, I, n_threads, device);
}

size_t osh_target_bytes(const osh_linear_job *j, bool device)
{
    size_t n = (size_t)osh_tensor_numel(j->w) * sizeof(float);
    return device ? osh_arena_gross(n) : osh_tensor_gross(n);
}

size_t osh_target_scratch(const osh_linear_job *j, int n_threads, bool device)
{
    return target_scratch_of(&osh_op_gptq_target, j->w->shape[1], j->w->shape[0], n_threads,
                             device);
}
