/* device_peaks.c - predicts the device memory of a range of nodes. Records the execution of the
 * nodes as a list of steps (device_peaks.h). Then simulates these steps in an arena for a number of
 * tokens. */
#include "graph/device_peaks.h"

#include <string.h>

#include "base/map.h"
#include "base/xxh3.h"
#include "graph/exec_walk.h"
#include "graph/picked.h"
#include "graph/routed.h"
#include "ops/device_ops.h"

/* One step of the list. Two equal layers must have equal bytes in their lists. So the struct has no
 * padding, and it has no indices of nodes or values, which differ between equal layers. */
typedef enum { ACT_TAKE, ACT_GIVE, ACT_TOUCH, ACT_NODE, ACT_ROUTES, ACT_MIXTURE } act_kind;
typedef struct act {
    /* slot:
     * ACT_NODE: an index in `scratches`.
     * ACT_MIXTURE: number of experts.
     * others: number of the block, in the order of allocation. */
    int32_t kind, slot;
    /* ACT_TAKE: the block has `a` bytes per token plus `b` bytes.
     * ACT_TOUCH: the step needs `b` bytes of scratch.
     * ACT_ROUTES: `a` is the number of experts.
     * ACT_MIXTURE: `a` is D (hidden size), and `b` is F (intermediate size). */
    int64_t a, b;
} act;

typedef struct scratch { // properties of a node that decide the bytes of its scratch
    const osh_op *op;    // view
    const void *attr;    // view
    /* The table of a lookup op (picked.h). NULL: the node is no lookup. */
    const osh_weight *rows; // view
    int64_t in_width[OSH_OP_MAX_IN], out_width;
} scratch;

typedef struct placed { size_t peak, left; } placed;

struct osh_device_peaks {
    const osh_graph *g; // view
    act *acts;          // own [room_acts]: the steps; the first n_acts elements are used
    size_t n_acts, room_acts;
    scratch *scratches; // own [room_scratches]: all elements differ
    size_t n_scratches, room_scratches;
    /* [values] True for values that exist at the current node of a walk. Between walks, all entries
     * are false. */
    bool *here;         // own
    int32_t *slot;      // own [values]: number of the block that has the value
    /* The values that the caller passes in, which exist before the first node runs. */
    const osh_exec_brought *in; // view
    bool grown;         // true if a block was allocated after the last step ACT_TOUCH
    /* n_slots: number of blocks in the list.
     * routes: index of the block that lists the rows of each expert; -1: none. */
    int32_t n_slots, routes;
    osh_status failed;  // error in a callback that cannot return a status
    XXH128_hash_t hash; // hash of the steps of the last walk
    osh_map *known; // own: maps a pair (hash of a list, number of tokens) to an index in `placed`
    placed *placed;     // own [room_placed]: results of the simulations
    size_t n_placed, room_placed;
};

osh_status osh_device_peaks_new(osh_ctx *cx, osh_device_peaks **out, const osh_graph *g)
{
    osh_status rc = OSH_OK;
    osh_device_peaks *p = NULL; // own
    OSH_NEW(cx, p, 1);
    p->g = g;
    OSH_NEW(cx, p->here, g->n_values);
    OSH_NEW(cx, p->slot, g->n_values);
    OSH_TRY(osh_map_new(cx, &p->known, 64));
    *out = p, p = NULL; // give
done:
    osh_device_peaks_free(cx, p);
    return rc;
}

void osh_device_peaks_free(osh_ctx *cx, osh_device_peaks *p)
{
    if (!p) return;
    osh_map_free(cx, p->known);
    osh_free(cx, p->acts);
    osh_free(cx, p->scratches);
    osh_free(cx, p->here);
    osh_free(cx, p->slot);
    osh_free(cx, p->placed);
    osh_free(cx, p);
}

int64_t osh_device_peaks_placed(const osh_device_peaks *p) { return (int64_t)p->n_placed; }

/* ---- list of steps ---- */

/* Makes room for one more item in the array *items (own), which has n items of `bytes` bytes each.
 * *room: number of items for which the array has memory. */
static osh_status items_grow(osh_ctx *cx, void **items, size_t *room, size_t n, size_t bytes)
{
    if (n < *room) return OSH_OK;
    void *more = osh_realloc(cx, *items, (2 * *room + 64) * bytes);
    if (!more) return osh_fail(cx, OSH_E_NOMEM, "no memory for the plan of a device");
    *items = more, *room = 2 * *room + 64;
    return OSH_OK;
}

static osh_status act_add(osh_ctx *cx, osh_device_peaks *p, act a)
{
    osh_status rc = items_grow(cx, (void **)&p->acts, &p->room_acts, p->n_acts, sizeof *p->acts);
    if (!rc) p->acts[p->n_acts++] = a;
    return rc;
}

static osh_status act_take(osh_ctx *cx, osh_device_peaks *p, int32_t *slot, act a)
{
    *slot = a.slot = p->n_slots++, p->grown = true;
    return act_add(cx, p, a);
}

/* Adds the step `a`, which reads the extent of the arena. An ACT_TOUCH of 0 bytes is left out if no
 * block was allocated after the last step of this kind, because the extent has not grown. */
static osh_status act_touch(osh_ctx *cx, osh_device_peaks *p, act a)
{
    if (a.kind == ACT_TOUCH && !a.b && !p->grown) return OSH_OK;
    p->grown = false;
    return act_add(cx, p, a);
}

static osh_status value_appear(osh_ctx *cx, osh_device_peaks *p, int v)
{
    p->here[v] = true;
    return act_take(cx, p, &p->slot[v], (act){ACT_TAKE, 0, (int64_t)osh_value_bytes(p->g, v), 0});
}

static osh_status value_go(osh_ctx *cx, osh_device_peaks *p, int v)
{
    if (!p->here[v]) return OSH_OK;
    p->here[v] = false;
    return act_add(cx, p, (act){ACT_GIVE, p->slot[v], 0, 0});
}

static bool scratch_same(const scratch *x, const scratch *y)
{
    if (x->op != y->op || x->rows != y->rows || x->out_width != y->out_width) return false;
    if (memcmp(x->in_width, y->in_width, sizeof x->in_width)) return false;
    return x->attr == y->attr ||
           (x->attr && y->attr && !memcmp(x->attr, y->attr, x->op->attr_bytes));
}

static osh_status scratch_find(osh_ctx *cx, osh_device_peaks *p, int32_t *at, const osh_node *n)
{
    osh_status rc = OSH_OK;
    scratch s = {.op = n->op, .attr = n->attr, .out_width = p->g->values[n->out[0]].width};
    for (int k = 0; k < n->op->n_in; k++)
        s.in_width[k] = n->in[k] >= 0 ? p->g->values[n->in[k]].width : 0;
    if (osh_is_picked(p->g, n, 0)) s.rows = &p->g->weights[n->w[0]];
    size_t i = 0;
    while (i < p->n_scratches && !scratch_same(&p->scratches[i], &s)) i++;
    *at = (int32_t)i;
    if (i < p->n_scratches) return OSH_OK;
    OSH_TRY(items_grow(cx, (void **)&p->scratches, &p->room_scratches, i, sizeof *p->scratches));
    p->scratches[p->n_scratches++] = s;
done:
    return rc;
}

/* ---- making the list: a walk over the nodes ---- */

static void peaks_gone(osh_ctx *cx, osh_walk *w, int v)
{
    osh_device_peaks *p = w->user;
    osh_status rc = value_go(cx, p, v);
    if (rc) p->failed = rc;
}

static int peaks_brought(const osh_walk *w, int from)
{
    const osh_device_peaks *p = w->user;
    return osh_next_set(p->here, from, w->s.of.v1);
}

static osh_status peaks_told(osh_ctx *cx, osh_walk *w, int v)
{
    osh_device_peaks *p = w->user;
    return act_touch(cx, p, (act){ACT_TOUCH, 0, 0, p->in->hook ? (int64_t)p->in->hook[v] : 0});
}

static osh_status peaks_made(osh_ctx *cx, osh_walk *w, int v)
{
    osh_device_peaks *p = w->user;
    // if an earlier execution of the nodes has kept the value, it is freed first
    osh_status rc = value_go(cx, p, v);
    return rc ? rc : value_appear(cx, p, v);
}

static osh_status peaks_node(osh_ctx *cx, osh_walk *w, int node)
{
    osh_status rc = OSH_OK;
    osh_device_peaks *p = w->user;
    const osh_node *n = &p->g->nodes[node];
    act a = {ACT_TOUCH, 0, 0, 0};
    for (int k = 0; k < n->op->n_out; k++) OSH_TRY(peaks_made(cx, w, n->out[k]));
    if (n->op->arena_bytes || osh_is_picked(p->g, n, 0)) {
        a.kind = ACT_NODE;
        OSH_TRY(scratch_find(cx, p, &a.slot, n));
    }
    OSH_TRY(act_touch(cx, p, a));
done:
    return rc;
}

static osh_status peaks_routes(osh_ctx *cx, osh_walk *w, int route)
{
    osh_status rc = OSH_OK;
    osh_device_peaks *p = w->user;
    if (p->routes >= 0) OSH_TRY(act_add(cx, p, (act){ACT_GIVE, p->routes, 0, 0}));
    p->routes = -1;
    if (route < 0) return OSH_OK;
    OSH_TRY(act_take(cx, p, &p->routes, (act){ACT_ROUTES, 0, p->g->values[route].width, 0}));
    OSH_TRY(act_touch(cx, p, (act){ACT_TOUCH, 0, 0, 0}));
done:
    return rc;
}

static osh_status peaks_mixture(osh_ctx *cx, osh_walk *w, int first, int end)
{
    osh_device_peaks *p = w->user;
    int gate = osh_expert_first(p->g, first), n = (end - first) / (OSH_EXPERT_NODES + gate - first);
    const osh_node *of = &p->g->nodes[gate];
    int64_t D = p->g->values[of->in[0]].width, F = p->g->values[of->out[0]].width;
    osh_status rc = peaks_made(cx, w, p->g->nodes[end - 1].out[0]);
    return rc ? rc : act_touch(cx, p, (act){ACT_MIXTURE, n, D, F});
}

static osh_status peaks_observed(osh_ctx *cx, osh_walk *w, int first, int end)
{
    osh_status rc = OSH_OK;
    osh_device_peaks *p = w->user;
    const osh_graph *g = p->g;
    int each = OSH_EXPERT_NODES + 1, n = (end - first) / each;
    const osh_value *in = &g->values[g->nodes[first].in[0]];
    int glu = first + 1 + OSH_EXPERT_GLU, of = g->nodes[glu].out[0];
    int32_t slot; // number of the block with the activations
    int64_t hook = 0;
    OSH_TRY(act_take(cx, p, &slot, (act){ACT_TAKE, 0, (int64_t)osh_value_bytes(g, of), 0}));
    OSH_TRY(act_touch(cx, p, (act){ACT_MIXTURE, n, in->width, g->values[of].width}));
    for (int e = 0; p->in->hook && e < n; e++) {
        size_t x = p->in->hook[g->nodes[first + e * each].out[0]],
               f = p->in->hook[g->nodes[glu + e * each].out[0]];
        if ((int64_t)(x > f ? x : f) > hook) hook = (int64_t)(x > f ? x : f);
    }
    OSH_TRY(act_touch(cx, p, (act){ACT_TOUCH, 0, 0, hook}));
    OSH_TRY(act_add(cx, p, (act){ACT_GIVE, slot, 0, 0}));
done:
    return rc;
}

static const osh_walk_acts peaks_acts = {.brought = peaks_brought, .told = peaks_told,
                                         .made = peaks_made, .node = peaks_node,
                                         .gone = peaks_gone, .routes = peaks_routes,
                                         .mixture = peaks_mixture, .observed = peaks_observed};

/* Begins the list with the blocks that exist before the first node runs. These are the token ids,
 * the values that the caller passes in, and the array with the positions of non-finite elements. */
static osh_status peaks_list_begin(osh_ctx *cx, osh_device_peaks *p, const osh_exec_span *s,
                                   osh_exec_values of, int32_t *found)
{
    osh_status rc = OSH_OK;
    int ids = p->g->input_ids;
    p->n_acts = 0, p->n_slots = 0, p->routes = -1, p->failed = OSH_OK;
    OSH_TRY(value_appear(cx, p, ids));
    for (int v = osh_next_set(p->in->in, of.v0, of.v1); v < of.v1;
         v = osh_next_set(p->in->in, v + 1, of.v1))
        if (v != ids) OSH_TRY(value_appear(cx, p, v));
    *found = -1;
    int64_t bytes = (int64_t)s->n * OSH_OP_MAX_OUT * (int64_t)sizeof(int64_t);
    if (s->n) OSH_TRY(act_take(cx, p, found, (act){ACT_TAKE, 0, 0, bytes}));
    OSH_TRY(act_touch(cx, p, (act){ACT_TOUCH, 0, 0, 0}));
done:
    return rc;
}

osh_status osh_device_peaks_walk(osh_ctx *cx, osh_device_peaks *p, const osh_exec_span *s,
                                 const osh_exec_brought *in)
{
    osh_status rc = OSH_OK;
    osh_walk w = {.acts = &peaks_acts, .user = p, .s = *s, .on_device = true};
    osh_exec_values of = w.s.of = osh_exec_values_of(s);
    int ids = p->g->input_ids;
    int32_t found;
    p->in = in;
    OSH_TRY(peaks_list_begin(cx, p, s, of, &found));
    OSH_TRY(osh_walk_run(cx, &w));
    OSH_TRY(p->failed);
    if ((ids < of.v0 || ids >= of.v1) && s->keep && !s->keep[ids]) OSH_TRY(value_go(cx, p, ids));
    if (found >= 0) OSH_TRY(act_add(cx, p, (act){ACT_GIVE, found, 0, 0}));
    p->hash = XXH3_128bits(p->acts, p->n_acts * sizeof *p->acts);
done:
    p->in = NULL;
    p->here[ids] = false;
    memset(p->here + of.v0, 0, (size_t)(of.v1 - of.v0) * sizeof *p->here);
    return rc;
}

/* ---- simulation of the list ---- */

static size_t act_bytes(const osh_device_peaks *p, const act *a, int64_t n)
{
    if (a->kind == ACT_TAKE) return (size_t)(a->a * n + a->b);
    if (a->kind == ACT_TOUCH) return (size_t)a->b;
    if (a->kind == ACT_ROUTES) return (size_t)osh_routes_n(a->a, n) * sizeof(int32_t);
    if (a->kind == ACT_MIXTURE) return osh_mixture_bytes(n, a->a, a->b, a->slot);
    const scratch *s = &p->scratches[a->slot];
    size_t bytes = s->rows ? osh_picked_arena_bytes(s->rows, n) : 0;
    if (s->op->arena_bytes)
        bytes += s->op->arena_bytes(s->attr, s->in_width, s->out_width, n, p->g->dtype);
    return bytes;
}

enum { WITHOUT_END = 62 }; // the arena has 2^62 bytes, so it is never full

static osh_status peaks_list_place(osh_ctx *cx, placed *out, const osh_device_peaks *p,
                                   int64_t n_tokens)
{
    osh_status rc = OSH_OK;
    osh_arena *arena = NULL; // own
    size_t *at = NULL;       // own [n_slots]: address of each block
    *out = (placed){0};
    OSH_NEW(cx, at, p->n_slots);
    OSH_TRY(osh_arena_new(cx, &arena, (size_t)1 << WITHOUT_END));
    for (const act *a = p->acts, *end = a + p->n_acts; a < end; a++) {
        if (a->kind == ACT_GIVE) {
            osh_arena_give(arena, at[a->slot]);
            continue;
        }
        size_t bytes = act_bytes(p, a, n_tokens), now, moment;
        bool stays = a->kind == ACT_TAKE || a->kind == ACT_ROUTES;
        bool ok = (!stays && !bytes) ||
                  osh_arena_take(arena, stays ? &at[a->slot] : &moment, bytes, OSH_LIFE_SHORT);
        if (!ok) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the plan of a device");
        if (stays) continue;
        now = osh_arena_extent(arena);
        if (now > out->peak) out->peak = now;
        if (bytes) osh_arena_give(arena, moment);
    }
    out->left = osh_arena_extent(arena);
done:
    osh_arena_free(cx, arena);
    osh_free(cx, at);
    return rc;
}

osh_status osh_device_peaks_at(osh_ctx *cx, size_t *peak, size_t *left, osh_device_peaks *p,
                               int64_t n_tokens)
{
    osh_status rc = OSH_OK;
    const uint64_t key[3] = {p->hash.low64, p->hash.high64, (uint64_t)n_tokens};
    int64_t i = (int64_t)p->n_placed;
    if (!osh_map_get(p->known, (const char *)key, sizeof key, &i)) {
        OSH_TRY(
            items_grow(cx, (void **)&p->placed, &p->room_placed, p->n_placed, sizeof *p->placed));
        OSH_TRY(peaks_list_place(cx, &p->placed[p->n_placed], p, n_tokens));
        OSH_TRY(osh_map_put(cx, p->known, (const char *)key, sizeof key, i));
        p->n_placed++;
    }
    *peak = p->placed[i].peak, *left = p->placed[i].left;
done:
    return rc;
}

osh_status osh_exec_peak_on_device(osh_ctx *cx, size_t *peak, size_t *left, const osh_exec_span *s,
                                   const osh_exec_brought *in, int64_t n_tokens)
{
    osh_status rc = OSH_OK;
    osh_device_peaks *p = NULL; // own
    OSH_TRY(osh_device_peaks_new(cx, &p, s->g));
    OSH_TRY(osh_device_peaks_walk(cx, p, s, in));
    OSH_TRY(osh_device_peaks_at(cx, peak, left, p, n_tokens));
done:
    osh_device_peaks_free(cx, p);
    return rc;
}
