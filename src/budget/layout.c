/* layout.c - simulates the allocation of blocks in a GPU's memory for a plan. It runs the program's
 * allocator of GPU memory (the arena) with an unlimited size, but without actual memory. */
#include "budget/layout.h"

#include <stdlib.h>

#include "budget/bytes.h"
#include "rewrite/folds.h"
#include "tensor/device.h"

typedef struct slot {
    size_t at;
    bool taken;
} slot;

typedef struct place {
    uint32_t visit;
    uint8_t way, kind;
    int64_t index;
    size_t at;
} place;

struct osh_places {
    /* [room] The first n elements are used. osh_layout_places sorts them for a binary search. */
    place *all; // own
    size_t n, room;
};

struct osh_layout {
    const osh_budget *p; // view
    osh_arena *arena;  // own
    slot *slots[OSH_LAYOUT_N_KINDS]; // own
    int visit;
    osh_way way;
    osh_places *places; // own: addresses that were recorded so far
    bool record;
};

enum { WITHOUT_END = 62 }; // the simulated arena has 2^62 bytes

static bool layout_is_fold(int kind)
{
    return kind >= OSH_LAYOUT_FOLD && kind <= OSH_LAYOUT_FOLD_HESSIAN_PART;
}

osh_status osh_layout_new(osh_ctx *cx, osh_layout **out, const osh_budget *p, bool record)
{
    osh_status rc = OSH_OK;
    osh_layout *c = NULL; // own
    size_t workspace;
    OSH_NEW(cx, c, 1);
    c->p = p, c->record = record;
    for (int k = 0; k < OSH_LAYOUT_N_KINDS; k++) {
        int64_t n = layout_is_fold(k)          ? p->rewrites->n_folds
                    : k == OSH_LAYOUT_WEIGHT ? p->in->graph->n_weights
                                             : p->in->graph->n_values;
        if (k == OSH_LAYOUT_ROWS) n *= p->schedule->n_batches;
        OSH_NEW(cx, c->slots[k], n);
    }
    OSH_TRY(osh_arena_new(cx, &c->arena, (size_t)1 << WITHOUT_END));
    // the workspace is the first block, as in the arena of a real GPU
    osh_arena_take(c->arena, &workspace, osh_plan_kind(p->in)->workspace, OSH_LIFE_LONG);
    *out = c, c = NULL; // passes ownership
done:
    osh_layout_free(cx, c);
    return rc;
}

void osh_layout_free(osh_ctx *cx, osh_layout *c)
{
    if (!c) return;
    for (int k = 0; k < OSH_LAYOUT_N_KINDS; k++) osh_free(cx, c->slots[k]);
    osh_arena_free(cx, c->arena);
    osh_places_free(cx, c->places);
    osh_free(cx, c);
}

static int64_t layout_stat_bytes(const osh_stat_type *t, int64_t n)
{
    osh_tensor state = osh_stat_shape(t, n);
    return (int64_t)osh_arena_gross(osh_tensor_bytes(&state));
}

int64_t osh_layout_bytes(const osh_layout *c, osh_layout_kind kind, int64_t index)
{
    const osh_budget *p = c->p;
    const osh_graph *g = p->in->graph;
    if (kind == OSH_LAYOUT_WEIGHT) {
        const osh_entry *e = osh_weight_entry(g, p->in->ck, (int)index);
        return (int64_t)osh_arena_gross((size_t)(e->end - e->begin));
    }
    if (kind == OSH_LAYOUT_RANGE)
        return (int64_t)osh_arena_gross((size_t)p->in->data.n * 2 * sizeof(float));
    if (kind == OSH_LAYOUT_SQUARES || kind == OSH_LAYOUT_SQUARES_PART)
        return layout_stat_bytes(&osh_stat_squares, g->values[index].width);
    if (layout_is_fold(kind)) {
        const osh_fold *f = &p->rewrites->folds[index];
        osh_fold_types types = osh_fold_types_of(p->rewrites, f);
        return layout_stat_bytes(kind < OSH_LAYOUT_FOLD_HESSIAN ? types.channels : types.squares,
                                 f->n);
    }
    if (kind != OSH_LAYOUT_ROWS) // a Hessian or a shift: both have the same size
        return layout_stat_bytes(&osh_stat_hessian, g->values[index].width);
    size_t n = (size_t)osh_batch_tokens(p->schedule, index % p->schedule->n_batches);
    return (int64_t)osh_arena_gross(n * osh_value_bytes(g, (int)(index / p->schedule->n_batches)));
}

static osh_status layout_note_place(osh_ctx *cx, osh_layout *c, osh_layout_kind kind, int64_t index,
                                    size_t at)
{
    osh_status rc = OSH_OK;
    osh_places *l = c->places;
    if (!l) OSH_NEW(cx, c->places, 1);
    l = c->places;
    if (l->n == l->room) {
        place *more = osh_realloc(cx, l->all, (2 * l->room + 64) * sizeof *more);
        if (!more) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the plan of a GPU");
        l->all = more, l->room = 2 * l->room + 64;
    }
    l->all[l->n++] = (place){(uint32_t)c->visit, (uint8_t)c->way, (uint8_t)kind, index, at};
done:
    return rc;
}

osh_status osh_layout_take(osh_ctx *cx, osh_layout *c, osh_layout_kind kind, int64_t index)
{
    slot *s = c ? &c->slots[kind][index] : NULL;
    if (!c || s->taken) return OSH_OK;
    s->taken =
        osh_arena_take(c->arena, &s->at, (size_t)osh_layout_bytes(c, kind, index), OSH_LIFE_LONG);
    if (!s->taken) return osh_fail(cx, OSH_E_NOMEM, "no memory for the plan of a GPU");
    return c->record ? layout_note_place(cx, c, kind, index, s->at) : OSH_OK;
}

void osh_layout_give(osh_layout *c, osh_layout_kind kind, int64_t index)
{
    if (!c) return;
    slot *s = &c->slots[kind][index];
    if (s->taken) osh_arena_give(c->arena, s->at);
    s->taken = false;
}

int64_t osh_layout_extent(const osh_layout *c)
{
    return c ? (int64_t)osh_arena_extent(c->arena) : 0;
}

void osh_layout_enter(osh_layout *c, int visit, osh_way way)
{
    if (c) c->visit = visit, c->way = way;
}

static int compare_places(const void *x, const void *y)
{
    const place *a = x, *b = y;
    if (a->visit != b->visit) return a->visit < b->visit ? -1 : 1;
    if (a->way != b->way) return a->way < b->way ? -1 : 1;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

osh_status osh_layout_places(osh_ctx *cx, osh_places **out, osh_layout *c)
{
    osh_places *l = c->places;
    *out = NULL;
    if (!l) return OSH_OK;
    qsort(l->all, l->n, sizeof *l->all, compare_places);
    place *fit = osh_realloc(cx, l->all, l->n * sizeof *fit);
    if (fit) l->all = fit, l->room = l->n;
    *out = l, c->places = NULL; // passes ownership
    return OSH_OK;
}

void osh_places_free(osh_ctx *cx, osh_places *l)
{
    if (!l) return;
    osh_free(cx, l->all);
    osh_free(cx, l);
}

size_t osh_places_bytes(const osh_places *l)
{
    return l ? osh_mem_gross(l->room * sizeof *l->all) + osh_mem_gross(sizeof *l) : 0;
}

static const place *places_find(const osh_budget *p, int visit, osh_way way, osh_layout_kind kind,
                                int64_t index)
{
    const osh_places *l = p->memory.places;
    place key = {(uint32_t)visit, (uint8_t)way, (uint8_t)kind, index, 0};
    return l ? bsearch(&key, l->all, l->n, sizeof key, compare_places) : NULL;
}

bool osh_places_has(const osh_budget *p, int visit, osh_way way, osh_layout_kind kind,
                    int64_t index)
{
    return places_find(p, visit, way, kind, index) != NULL;
}

void osh_places_aim(const osh_budget *p, int visit, osh_way way, osh_layout_kind kind,
                    int64_t index)
{
    static const osh_way order[OSH_N_WAYS][OSH_N_WAYS] = {
        [OSH_WAY_FIRST] = {OSH_WAY_FIRST, OSH_WAY_FOLD, OSH_WAY_AGAIN, OSH_WAY_AHEAD},
        [OSH_WAY_AGAIN] = {OSH_WAY_AGAIN, OSH_WAY_FIRST, OSH_WAY_FOLD, OSH_WAY_AHEAD},
        [OSH_WAY_AHEAD] = {OSH_WAY_AHEAD, OSH_WAY_FIRST, OSH_WAY_FOLD, OSH_WAY_AGAIN},
        [OSH_WAY_FOLD] = {OSH_WAY_FOLD, OSH_WAY_AHEAD, OSH_WAY_FIRST, OSH_WAY_AGAIN}};
    const place *at = NULL;
    for (int k = 0; k < OSH_N_WAYS && !at; k++)
        at = places_find(p, visit, order[way][k], kind, index);
    if (at && p->in->device) osh_arena_aim(p->in->device->arena, at->at);
}

void osh_places_aim_off(const osh_budget *p)
{
    if (p->in->device) osh_arena_aim(p->in->device->arena, OSH_ANYWHERE);
}
