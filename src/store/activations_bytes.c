/* activations_bytes.c - predicts the bytes that the activation store needs for values. */
#include <zstd.h>

#include "store/activations.h"
#include "store/blocks.h"
#include "store/slots.h"

static int64_t sample_tokens(const osh_dataset *d, int64_t sample)
{
    return d->offsets[sample + 1] - d->offsets[sample];
}

int64_t osh_acts_bytes(const osh_graph *g, const osh_dataset *d, osh_tier tier, int value,
                       int64_t first)
{
    int64_t n = 0;
    if (tier == OSH_TIER_DISK) return osh_slots_bytes(g, d, value, first, false);
    size_t row = osh_value_bytes(g, value);
    for (int64_t s = first; s < d->n; s++)
        n += (int64_t)osh_mem_gross((size_t)sample_tokens(d, s) * row);
    return n + (int64_t)osh_mem_gross((size_t)d->n * sizeof(void *));
}

int64_t osh_acts_kept_bytes(const osh_graph *g, const osh_dataset *d, int value,
                            const int64_t *batch_at, int64_t n)
{
    int64_t sum = n ? (int64_t)osh_mem_gross((size_t)d->n * sizeof(void *)) : 0;
    for (int64_t b = 0; b < n; b++) {
        int64_t rows = d->offsets[batch_at[b + 1]] - d->offsets[batch_at[b]];
        sum += (int64_t)osh_value_gross(g, value, rows);
    }
    return sum;
}

int64_t osh_acts_batch_bytes(const osh_graph *g, int value, int64_t n_tokens)
{
    return (int64_t)osh_blocks_gross((size_t)n_tokens * osh_value_bytes(g, value));
}

/* Returns the number of bytes of the largest sample of any value. */
static size_t largest_sample(const osh_graph *g, const osh_dataset *d)
{
    int64_t most = 0;
    size_t widest = 0;
    for (int64_t s = 0; s < d->n; s++)
        most = sample_tokens(d, s) > most ? sample_tokens(d, s) : most;
    for (int v = 0; v < g->n_values; v++)
        widest = osh_value_bytes(g, v) > widest ? osh_value_bytes(g, v) : widest;
    return (size_t)most * widest;
}

int64_t osh_acts_frame_bytes(const osh_graph *g, const osh_dataset *d)
{
    return (int64_t)osh_mem_gross(ZSTD_compressBound(largest_sample(g, d)));
}

int64_t osh_acts_stage_bytes(const osh_graph *g, const osh_dataset *d)
{
    return (int64_t)osh_mem_gross(largest_sample(g, d));
}

int64_t osh_acts_way_bytes(const osh_graph *g, int value, int64_t n_tokens)
{
    return (int64_t)osh_arena_gross((size_t)n_tokens * osh_value_bytes(g, value));
}
