/* plain.c - implements int-quantized, float-quantized and naive-quantized
 * (compressed_tensors/compressors/naive_quantized/base.py). These formats store each weight in one
 * byte, and differ only in their names.
 *
 *   weight             I8 or F8_E4M3 [O, I]
 *   weight_scale       dtype of the original weight: [1], [O, 1], [O, G] or the grid of blocks
 *   weight_zero_point  I8, shape of the scale; asymmetric weights only
 *   input_scale, input_zero_point  [1]; static activations only */
#include "quant/formats/common.h"

#include <string.h>

static osh_status plain_tensors(osh_ctx *cx, osh_format_tensor *out, int *n,
                                const osh_format_weight *w)
{
    osh_status rc = OSH_OK;
    const osh_q_scheme *s = w->scheme;
    osh_q_shape shape;

    *n = 0;
    OSH_TRY(osh_q_scale_shape(cx, &shape, &s->weights, w->O, w->I, "weight"));
    osh_format_add(out, n, "weight", s->weights.type == OSH_Q_FLOAT ? OSH_FP8 : OSH_I8,
                   &(osh_q_shape){2, {w->O, w->I}});
    osh_format_add(out, n, "weight_scale", w->dt, &shape);
    if (!s->weights.symmetric)
        osh_format_add(out, n, "weight_zero_point", OSH_I8, &shape);
    osh_format_add_input(out, n, s, w->dt);
done:
    return rc;
}

static osh_status pack(osh_ctx *cx, void *const *data, const osh_format_weight *w,
                       const void *codes, const osh_qparams *p, const osh_format_input *in)
{
    int i = 1;
    if (codes) memcpy(data[0], codes, (size_t)(w->O * w->I));
    memcpy(data[i++], p->scale->data, osh_tensor_bytes(p->scale));
    if (!w->scheme->weights.symmetric) memcpy(data[i++], p->zero->data, osh_tensor_bytes(p->zero));
    return osh_format_put_input(cx, data + i, w, in);
}

static osh_status unpack(osh_ctx *cx, void *codes, osh_qparams *p, const osh_format_weight *w,
                         const osh_tensor *const *data)
{
    osh_status rc = OSH_OK;
    const osh_q_scheme *s = w->scheme;
    // OSH_BF16 stands for all dtypes that osh_format_check_stored accepts for scales.
    osh_format_weight like = {w->scheme, w->O, w->I, OSH_BF16};
    osh_format_tensor want[OSH_FORMAT_MAX_TENSORS];
    osh_qparams q = {0}; // own
    int n;

    OSH_TRY(plain_tensors(cx, want, &n, &like));
    for (int i = 0; i < (s->weights.symmetric ? 2 : 3); i++)
        OSH_TRY(osh_format_check_stored(cx, data[i], &want[i]));
    OSH_TRY(osh_format_take_scale(cx, &q, data[1], &want[1]));
    if (!s->weights.symmetric) {
        OSH_TRY(osh_tensor_new(cx, &q.zero, OSH_I8, want[2].ndim, want[2].shape));
        memcpy(q.zero->data, data[2]->data, osh_tensor_bytes(q.zero));
    }
    memcpy(codes, data[0]->data, (size_t)(w->O * w->I));
    *p = q, q = (osh_qparams){0}; // give
done:
    osh_qparams_deinit(cx, &q);
    return rc;
}

const osh_format osh_format_int = {"int-quantized", plain_tensors, pack, NULL, unpack};
const osh_format osh_format_float = {"float-quantized", plain_tensors, pack, NULL, unpack};
const osh_format osh_format_naive = {"naive-quantized", plain_tensors, pack, NULL, unpack};
