/* stream_item.c - makes the state of one tensor in a stream, and completes the tensor when all its
 * bands are written. */
#include "output/stream_item.h"

#include "budget/bands.h"

_Static_assert(sizeof(osh_item) <= OSH_BAND_ITEM_BYTES,
               "the plan counts an item with OSH_BAND_ITEM_BYTES");

void osh_item_free(osh_ctx *cx, osh_item *it)
{
    if (!it) return;
    XXH3_freeState(it->sum);
    XXH3_freeState(it->source);
    osh_qparams_deinit(cx, &it->params);
    osh_free(cx, it);
}

static osh_status item_new_params(osh_ctx *cx, osh_qparams *q, const osh_linear *l, float global)
{
    osh_status rc = OSH_OK;
    osh_q_shape shape;
    OSH_TRY(osh_q_scale_shape(cx, &shape, &l->scheme->weights, l->O, l->I, l->name));
    q->global = global;
    OSH_TRY(osh_tensor_new(cx, &q->scale, global ? OSH_FP8 : l->dtype, shape.ndim, shape.dim));
    if (!l->scheme->weights.symmetric)
        OSH_TRY(osh_tensor_new(cx, &q->zero, OSH_I8, shape.ndim, shape.dim));
done:
    return rc;
}

osh_status osh_item_new(osh_ctx *cx, osh_item **out, const osh_emitter *e, int64_t id)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    osh_item *it = NULL; // own
    OSH_NEW(cx, it, 1);
    it->linear = p->manifest.out_info[id].source >= 0 ? -1 : p->manifest.out_info[id].linear,
    it->out = id;
    if (!(it->sum = XXH3_createState())) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(it->sum);
    if (it->linear >= 0) {
        const osh_linear *l = &p->match.linears[it->linear];
        if (!(it->source = XXH3_createState()))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
        XXH3_64bits_reset(it->source);
        it->n_rows = l->O, it->stays = osh_stream_stays(&p->budget, it->linear);
        it->row_in = osh_band_row_in(l), it->row_out = osh_band_row_out(&p->budget, l);
        it->band = osh_band_of_linear(l);
        OSH_TRY(item_new_params(cx, &it->params, l, osh_globals_of(e->globals, it->linear)));
    } else {
        it->stays = osh_stream_copy_stays();
        bool changed = osh_checkpoint_is_changed(p->in.ck, p->manifest.out_info[id].source);
        if (changed && !(it->source = XXH3_createState()))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
        if (changed) XXH3_64bits_reset(it->source);
        it->row_in = it->row_out = osh_band_row_copy(&p->budget, id, &it->columns);
        it->n_rows = (p->manifest.out[id].end - p->manifest.out[id].begin) / (int64_t)it->row_in;
        it->band = osh_band_rows(it->n_rows, it->row_in, 1);
    }
    it->left = it->n_rows ? (it->n_rows + it->band - 1) / it->band
                          : 1; // an empty tensor has one band without rows
    *out = it, it = NULL; // give
done:
    osh_item_free(cx, it);
    return rc;
}

/* Writes all tensors of a Linear except tensor 0, which the stream has already written in bands.
 * Then records the Linear. */
static osh_status item_finish_linear(osh_ctx *cx, osh_emitter *e, osh_item *it)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    const osh_linear *l = &p->match.linears[it->linear];
    void *blocks[OSH_FORMAT_MAX_TENSORS] = {0}; // own
    void *packed[OSH_FORMAT_MAX_TENSORS] = {0};
    uint64_t sums[OSH_FORMAT_MAX_TENSORS] = {XXH3_64bits_digest(it->sum)};
    osh_format_weight weight = osh_linear_stored(l);
    for (int k = 1; k < l->out.n; k++) {
        const osh_entry *t = &p->manifest.out[l->out.first + k];
        if (!(blocks[k] = osh_alloc(cx, (size_t)(t->end - t->begin) + 2 * OSH_BLOCK_BYTES)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory to pack %s", l->name);
        packed[k] = (uint8_t *)osh_file_align(blocks[k]) + t->begin % OSH_BLOCK_BYTES;
    }
    OSH_TRY(l->format->pack(cx, packed, &weight, NULL, &it->params, NULL));
    for (int k = 1; k < l->out.n; k++) {
        const osh_entry *t = &p->manifest.out[l->out.first + k];
        OSH_TRY(osh_emit_piece(cx, e, l->out.first + k, packed[k], (size_t)(t->end - t->begin),
                               t->begin));
        sums[k] = XXH3_64bits(packed[k], (size_t)(t->end - t->begin));
    }
    OSH_TRY(osh_checkpoint_saw(cx, p->in.ck, l->tensor, XXH3_64bits_digest(it->source)));
    OSH_TRY(osh_emit_written_linear(cx, e, it->linear, it->ref > 0 ? it->err / it->ref : 0, sums));
done:
    for (int k = 1; k < l->out.n; k++) osh_free(cx, blocks[k]);
    return rc;
}

osh_status osh_item_finish(osh_ctx *cx, osh_emitter *e, osh_item *it)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    uint64_t sum = XXH3_64bits_digest(it->sum);
    if (it->linear >= 0) return item_finish_linear(cx, e, it);
    OSH_TRY(osh_checkpoint_saw(cx, p->in.ck, p->manifest.out_info[it->out].source,
                               it->source ? XXH3_64bits_digest(it->source)
                                          /* the checksum of an unchanged copy is that of its
                                           * source */
                                          : sum));
    OSH_TRY(osh_emit_written_copy(cx, e, it->out, sum));
done:
    return rc;
}
