/* stream.c - chooses the Linears that a stream (stream.h) rounds in bands of rows, and the number
 * of rows of a band. */
#include "schedule/stream.h"

#include "quant/observer.h"
#include "rewrite/folds.h"

/* Largest number of bytes of the rows that must be rounded together (osh_band_unit). If they have
 * more bytes, a stream does not round the Linear in bands. */
enum { BAND_MOST = 64 << 20 };

int64_t osh_band_unit(const osh_linear *l)
{
    const osh_q_args *a = &l->scheme->weights;
    return a->strategy == OSH_Q_BLOCK ? a->block[0] : 1;
}

int64_t osh_band_rows(int64_t n_rows, size_t row_bytes, int64_t unit)
{
    int64_t per = OSH_BAND_BYTES / (int64_t)row_bytes, n_bands;
    if (per < 1) per = 1;
    n_bands = (n_rows + per - 1) / per;
    int64_t rows = n_bands ? (n_rows + n_bands - 1) / n_bands : 1;
    return (rows + unit - 1) / unit * unit;
}

int64_t osh_band_of_linear(const osh_linear *l)
{
    return osh_band_rows(l->O, osh_band_row_in(l), osh_band_unit(l));
}

int64_t osh_band_count(const osh_linear *l)
{
    int64_t rows = osh_band_of_linear(l);
    return (l->O + rows - 1) / rows;
}

size_t osh_band_row_in(const osh_linear *l) { return (size_t)l->I * osh_dtype_bytes(l->dtype); }

bool osh_stream_takes(const osh_schedule *p, int linear)
{
    const osh_linear *l = &p->match->linears[linear];
    const osh_q_args *a = &l->scheme->weights;
    /* A stream rounds the stored elements of a weight, so it cannot round a weight with folded
     * factors. */
    if (osh_is_folded(p->rewrites, l->tensor)) return false;
    // a pruner needs the whole weight to make its mask
    if (l->prune.modifier >= 0) return false;
    if (!osh_observer_by_rows(a)) return false;
    if (!a->present || !p->in->recipe->modifiers[l->modifier].type->solver->by_rows ||
        a->strategy == OSH_Q_TENSOR || !osh_wants_no_data(l))
        return false;
    return osh_band_unit(l) <= BAND_MOST / (int64_t)osh_band_row_in(l);
}

bool osh_streams_all(const osh_schedule *p)
{
    for (int i = 0; i < p->match->n_linears; i++)
        if (!osh_stream_takes(p, i)) return false;
    return p->in->pipeline == OSH_PIPELINE_DATAFREE;
}

bool osh_stream_looks(const osh_schedule *p, int linear)
{
    int first = p->match->linears[linear].joint;
    for (int i = first; i >= 0; i = p->match->linears[i].next.joint)
        if (!osh_stream_takes(p, i) || osh_observer_searches(&p->match->linears[i].scheme->weights))
            return false;
    return first >= 0;
}
