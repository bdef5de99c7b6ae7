/* layout.c - see layout.h: the arena's own code on a range without end. */
#include "pipeline/layout.h"

#include "ops/cuda/cuda.h"
#include "pipeline/stats.h"
#include "tensor/device.h"

typedef struct slot {
    size_t at;
    bool taken;
} slot;

struct osh_layout {
    const osh_plan *p; // view
    osh_arena *arena;  // own
    slot *slots[OSH_LAYOUT_N_KINDS]; // own
    int64_t n[OSH_LAYOUT_N_KINDS];
};

enum { WITHOUT_END = 62 }; // bits

osh_status osh_layout_new(osh_ctx *cx, osh_layout **out, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_layout *c = NULL; // own
    size_t workspace;
    OSH_NEW(cx, c, 1);
    c->p = p;
    c->n[OSH_LAYOUT_WEIGHT] = p->graph->n_weights;
    c->n[OSH_LAYOUT_HESSIAN] = c->n[OSH_LAYOUT_RANGE] = p->graph->n_values;
    c->n[OSH_LAYOUT_ROWS] = p->graph->n_values * p->n_batches;
    for (int k = 0; k < OSH_LAYOUT_N_KINDS; k++) OSH_NEW(cx, c->slots[k], c->n[k]);
    OSH_TRY(osh_arena_new(cx, &c->arena, (size_t)1 << WITHOUT_END));
    osh_arena_take(c->arena, &workspace, OSH_CUDA_WORKSPACE, OSH_LIFE_LONG); // as osh_cuda_open
    *out = c, c = NULL; // give
done:
    osh_layout_free(cx, c);
    return rc;
}

void osh_layout_free(osh_ctx *cx, osh_layout *c)
{
    if (!c) return;
    for (int k = 0; k < OSH_LAYOUT_N_KINDS; k++) osh_free(cx, c->slots[k]);
    osh_arena_free(cx, c->arena);
    osh_free(cx, c);
}

int64_t osh_layout_bytes(const osh_layout *c, osh_layout_kind kind, int64_t index)
{
    const osh_plan *p = c->p;
    const osh_graph *g = p->graph;
    if (kind == OSH_LAYOUT_WEIGHT) {
        const osh_st_entry *e = p->ck->tensors[g->weights[index].tensor].e;
        return (int64_t)osh_arena_gross((size_t)(e->end - e->begin));
    }
    if (kind != OSH_LAYOUT_ROWS) {
        bool hessian = kind == OSH_LAYOUT_HESSIAN;
        return osh_stats_device_bytes(p, (int)index, hessian, !hessian);
    }
    int64_t b = index % p->n_batches, n = p->data.offsets[p->batch_at[b + 1]] - p->data.offsets[p->batch_at[b]];
    return (int64_t)osh_arena_gross((size_t)(n * g->values[index / p->n_batches].width) * osh_dtype_bytes(g->dtype));
}

osh_status osh_layout_take(osh_ctx *cx, osh_layout *c, osh_layout_kind kind, int64_t index)
{
    slot *s = &c->slots[kind][index];
    if (s->taken) return OSH_OK;
    s->taken = osh_arena_take(c->arena, &s->at, (size_t)osh_layout_bytes(c, kind, index), OSH_LIFE_LONG);
    return s->taken ? OSH_OK : osh_fail(cx, OSH_E_NOMEM, "no memory for the plan of a card");
}

void osh_layout_give(osh_layout *c, osh_layout_kind kind, int64_t index)
{
    slot *s = &c->slots[kind][index];
    if (s->taken) osh_arena_give(c->arena, s->at);
    s->taken = false;
}

bool osh_layout_has(const osh_layout *c, osh_layout_kind kind, int64_t index) { return c->slots[kind][index].taken; }
int64_t osh_layout_extent(const osh_layout *c) { return (int64_t)osh_arena_extent(c->arena); }
