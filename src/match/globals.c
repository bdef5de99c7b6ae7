/* globals.c - finds the largest magnitudes of weights and computes global scales from them. The
 * format NVFP4 needs a global scale as a second scale of each weight. quant/fusion.h decides which
 * modules share a global scale. */
#include "match/globals.h"

#include <string.h>

#include "base/map.h"
#include "quant/arith.h"
#include "quant/fusion.h"
#include "quant/observer.h"

enum { PIECE_BYTES = 1 << 18, UNKNOWN = -1, QUEUED = -2 };

struct osh_globals {
    const osh_matching *plan; // view
    /* Largest magnitude in each weight. UNKNOWN: the weight was not read. QUEUED: the current call
     * of osh_globals_find reads the weight. */
    float *amax;          // own [linears]
    float *global; // own [linears]: global scale; 0: the Linear has none, or it is not known yet
};

osh_status osh_plan_joint(osh_ctx *cx, osh_matching *p)
{
    osh_status rc = OSH_OK;
    osh_map *first = NULL; // own: maps the name of a fused layer to the index of its first Linear
    char *key = NULL;      // own
    const osh_q_family family = osh_q_family_of(p->in->ck->config);
    // own [linears]: last[i] is the Linear that the loop found last among those that share a global
    // scale with Linear i. It is only valid if i is the first Linear with this scale.
    int *last = NULL;
    OSH_TRY(osh_map_new(cx, &first, 64));
    OSH_NEW(cx, last, p->n_linears);
    for (int i = 0; i < p->n_linears; i++) {
        osh_linear *l = &p->linears[i];
        l->next.joint = -1, last[i] = i;
        l->joint = l->scheme->weights.strategy == OSH_Q_TENSOR_GROUP ? i : -1;
        const osh_q_fusion f = osh_q_fusion_find(family, l->name);
        int64_t at;
        if (l->joint < 0 || !f.fused) continue;
        osh_free(cx, key);
        if (!(key = osh_q_fusion_name(cx, l->name, f.fused)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a module's name");
        if (osh_map_get(first, key, strlen(key), &at)) {
            l->joint = (int)at;
            p->linears[last[at]].next.joint = i, last[at] = i;
        } else {
            OSH_TRY(osh_map_put(cx, first, key, strlen(key), i));
        }
    }
done:
    osh_map_free(cx, first);
    osh_free(cx, last);
    osh_free(cx, key);
    return rc;
}

static bool globals_any(const osh_matching *p)
{
    for (int i = 0; i < p->n_linears; i++)
        if (p->linears[i].joint >= 0) return true;
    return false;
}

osh_status osh_globals_new(osh_ctx *cx, osh_globals **out, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    osh_globals *g = NULL; // own
    *out = NULL;
    if (!globals_any(p)) goto done;
    OSH_NEW(cx, g, 1);
    g->plan = p;
    OSH_NEW(cx, g->amax, p->n_linears);
    OSH_NEW(cx, g->global, p->n_linears);
    for (int i = 0; i < p->n_linears; i++) g->amax[i] = UNKNOWN;
    *out = g, g = NULL; // passes ownership
done:
    osh_globals_free(cx, g);
    return rc;
}

void osh_globals_free(osh_ctx *cx, osh_globals *g)
{
    if (!g) return;
    osh_free(cx, g->amax);
    osh_free(cx, g->global);
    osh_free(cx, g);
}

/* Returns the size in bytes of the chunks in which the weight is read. It is a multiple of the
 * weight's unit: the elements that must be changed together (osh_checkpoint_unit). */
static size_t globals_piece(const osh_matching *p, int linear)
{
    const osh_linear *l = &p->linears[linear];
    size_t unit = (size_t)osh_checkpoint_unit(p->in->ck, l->tensor) * osh_dtype_bytes(l->dtype);
    return unit < PIECE_BYTES ? PIECE_BYTES / unit * unit : unit;
}

typedef struct scan {
    osh_globals *g;
    int *which;     // own [n]: indices of the Linears whose weights are read
    uint8_t *rooms; // own [threads, room]: one buffer for each thread
    size_t room;
} scan;

static osh_status globals_scan_one(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const scan *s = user;
    const osh_matching *p = s->g->plan;
    int i = s->which[chunk];
    const osh_ckpt_tensor *t = &p->in->ck->tensors[p->linears[i].tensor];
    uint8_t *room = s->rooms + (size_t)worker * s->room;
    int64_t most = (int64_t)globals_piece(p, i);
    float amax = 0;
    for (int64_t at = 0, all = t->e->end - t->e->begin; at < all;) {
        float piece;
        size_t n = (size_t)(all - at < most ? all - at : most);
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_checkpoint_read_part(cx, room, p->in->ck, t, at, n));
        OSH_TRY(osh_checkpoint_apply(cx, p->in->ck, p->linears[i].tensor, room,
                                     at / (int64_t)osh_dtype_bytes(t->e->dtype),
                                     (int64_t)(n / osh_dtype_bytes(t->e->dtype))));
        int64_t m = (int64_t)(n / osh_dtype_bytes(t->e->dtype));
        osh_tensor part = osh_tensor_view(t->e->dtype, 2, (int64_t[]){1, m}, room);
        OSH_TRY(osh_q_weight_amax(cx, &piece, &part, &p->linears[i].scheme->weights, t->e->name));
        if (piece > amax) amax = piece;
        at += (int64_t)n;
    }
    s->g->amax[i] = amax;
done:
    return rc;
}

/* Lists the Linears whose largest magnitude is unknown, and that share a global scale with one of
 * `linears`. Returns their number. If `which` is NULL, only counts them. */
static int globals_unknown(int *which, const osh_globals *g, const int *linears, int n)
{
    const osh_matching *p = g->plan;
    int n_which = 0;
    for (int k = 0; k < n; k++)
        for (int i = p->linears[linears[k]].joint; i >= 0; i = p->linears[i].next.joint) {
            if (g->amax[i] >= 0 || (which && g->amax[i] == QUEUED)) continue;
            if (which) which[n_which] = i, g->amax[i] = QUEUED;
            n_which++;
        }
    return n_which;
}

static bool globals_searches(const osh_matching *p, int linear)
{
    return osh_observer_searches(&p->linears[linear].scheme->weights);
}

/* Computes the global scale that the Linear shares with other Linears. Does nothing if the largest
 * magnitude of one of them is not known. */
static void globals_settle(osh_globals *g, int linear)
{
    const osh_matching *p = g->plan;
    int first = p->linears[linear].joint;
    float joint = 0;
    if (first < 0 || g->global[linear] > 0) return;
    for (int i = first; i >= 0; i = p->linears[i].next.joint) {
        if (g->amax[i] < 0) return;
        if (g->amax[i] > joint) joint = g->amax[i];
    }
    for (int i = first; i >= 0; i = p->linears[i].next.joint)
        g->global[i] = osh_q_global_scale(joint, p->linears[i].dtype);
}

bool osh_globals_knows(const osh_globals *g, int linear) { return g->amax[linear] >= 0; }

void osh_globals_put(osh_globals *g, int linear, float amax)
{
    g->amax[linear] = amax;
    globals_settle(g, linear);
}

osh_status osh_globals_find(osh_ctx *cx, osh_globals *g, const int *linears, int n)
{
    osh_status rc = OSH_OK;
    scan s = {.g = g};
    int n_which = 0;
    if (!g) goto done;
    const osh_matching *p = g->plan;
    OSH_NEW(cx, s.which, globals_unknown(NULL, g, linears, n));
    n_which = globals_unknown(s.which, g, linears, n);
    for (int k = 0; k < n_which; k++)
        if (globals_piece(p, s.which[k]) > s.room) s.room = globals_piece(p, s.which[k]);
    if (n_which && !(s.rooms = osh_alloc(cx, (size_t)osh_threads(cx) * s.room)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory to look through weights");
    for (int k = 0; k < n_which; k++) {
        if (!globals_searches(p, s.which[k])) continue;
        // the search of an observer uses all threads, so these Linears are done one by one
        OSH_TRY(globals_scan_one(cx, &s, k, 0));
        s.which[k--] = s.which[--n_which];
    }
    OSH_TRY(osh_parallel_for(cx, n_which, globals_scan_one, &s));
    for (int k = 0; k < n; k++) globals_settle(g, linears[k]);
done:
    for (int i = 0; i < n_which; i++)
        /* After a failure, some queued weights may be unread. */
        if (g->amax[s.which[i]] == QUEUED) g->amax[s.which[i]] = UNKNOWN;
    osh_free(cx, s.which);
    osh_free(cx, s.rooms);
    return rc;
}

float osh_globals_of(const osh_globals *g, int linear) { return g ? g->global[linear] : 0; }

/* Returns an upper bound of the bytes of an osh_globals. Also counts the magnitudes that a streamed
 * output keeps (output/held.c). */
int64_t osh_globals_bytes(const osh_matching *p)
{
    return globals_any(p) ? 32 * (int64_t)p->n_linears + 2048 : 0;
}

size_t osh_globals_search_bytes(const osh_matching *p, int linear, size_t *piece)
{
    const osh_linear *l = &p->linears[linear];
    *piece = globals_piece(p, linear);
    int64_t n = (int64_t)(*piece / osh_dtype_bytes(l->dtype));
    if (!globals_searches(p, linear)) return 0;
    return osh_observer_bytes(&l->scheme->weights, 1, n, l->dtype) +
           2 * osh_mem_gross((size_t)(n / l->scheme->weights.group_size) * sizeof(float));
}
