/* tune_take.c - makes the learners of the tuned weights, in host memory or on a device, and returns
 * the tuned values. */
#include "learn/tune_state.h"

#include <string.h>

/* Largest |v - code| before the first step; v is the real number that is rounded to the code. */
#define FROM_CODE 0.4f

osh_status osh_tune_fetch(osh_ctx *cx, osh_tensor **out, const osh_tensor *x)
{
    osh_status rc = osh_tensor_new(cx, out, x->dtype, x->ndim, x->shape);
    return rc ? rc : osh_tensor_copy(cx, *out, x);
}

/* Lengths of the arrays `room`, `zero` and `start` of a learner, in elements. osh_tune_new and
 * osh_tune_take allocate arrays of these lengths, and osh_tune_learner_count counts their bytes. */
typedef struct learner_room { int64_t floats, zeros, start; } learner_room;

static int64_t tune_norm_floats(int64_t n) { return 5 * n; }

static learner_room tune_codes_room(int64_t O, int64_t I, int64_t G, bool zero)
{
    return (learner_room){4 * O * I + 4 * O * G, zero ? O * G : 0, O * I};
}

/* Allocates n_bytes of zeros: on the device, or in host memory if d is NULL. */
static osh_status tune_room_new(osh_ctx *cx, void **out, osh_device *d, size_t n_bytes)
{
    *out = d ? osh_device_alloc(cx, d, n_bytes, OSH_LIFE_LONG) : osh_calloc(cx, n_bytes, 1);
    if (!*out) return OSH_E_NOMEM;
    return d ? d->type->fill(cx, d, *out, 0, n_bytes) : OSH_OK;
}

static osh_status learner_room_new(osh_ctx *cx, osh_tune_learner *l, osh_device *d,
                                   const learner_room *r)
{
    osh_status rc = OSH_OK;
    void *room = NULL, *zero = NULL;
    rc = tune_room_new(cx, &room, d, (size_t)r->floats * sizeof *l->room);
    l->room = room;
    if (!rc && r->zeros) rc = tune_room_new(cx, &zero, d, (size_t)r->zeros * sizeof *l->zero);
    l->zero = zero;
    if (rc) goto done;
    if (r->start) OSH_NEW(cx, l->start, r->start);
done:
    return rc;
}

static void tune_room_free(osh_ctx *cx, osh_device *d, void *p)
{
    if (d) osh_device_free(d, p);
    else osh_free(cx, p);
}

void osh_tune_learner_deinit(osh_ctx *cx, osh_device *d, osh_tune_learner *l)
{
    tune_room_free(cx, d, l->room);
    tune_room_free(cx, d, l->zero);
    osh_free(cx, l->start);
}

/* Sets *here to a tensor in host memory with the elements of w. If this tensor is a copy, the
 * caller frees it as *own. */
static osh_status tune_host_copy(osh_ctx *cx, const osh_tensor **here, osh_tensor **own,
                                 const osh_tensor *w)
{
    osh_status rc = w->device ? osh_tune_fetch(cx, own, w) : OSH_OK;
    *here = w->device ? *own : w;
    return rc;
}

/* Copies n floats to an array in the memory of the device d. */
static osh_status tune_put(osh_ctx *cx, osh_device *d, float *to, const float *from, int64_t n)
{
    return d->type->put(cx, d, to, from, (size_t)n * sizeof *to);
}

osh_status osh_tune_take_norm(osh_ctx *cx, osh_tune *t, int weight, float offset)
{
    osh_status rc = OSH_OK;
    osh_tune_learner *l = &t->of[weight];
    osh_tensor *w = t->w->w[weight], *copy = NULL; // own: copy
    float *w0 = NULL; // own: initial weight in host memory; NULL: it is written to l->room directly
    int64_t n = osh_tensor_numel(w);
    // the learner exists, because an earlier node has the same weight
    if (l->role != OSH_TUNE_FIXED) goto done;
    OSH_TRY(learner_room_new(cx, l, t->device, &(learner_room){.floats = tune_norm_floats(n)}));
    float *r = l->room;
    l->n = (osh_tune_norm){r, r + n, r + 2 * n, r + 3 * n, r + 4 * n, offset, n, w};
    const osh_tensor *here;
    OSH_TRY(tune_host_copy(cx, &here, &copy, w));
    if (t->device) OSH_NEW(cx, w0, n);
    osh_to_f32(w0 ? w0 : l->n.w0, here->data, w->dtype, n);
    if (w0) OSH_TRY(tune_put(cx, t->device, l->n.w0, w0, n));
    l->role = OSH_TUNE_NORM, t->wants[weight] = true;
done:
    osh_tensor_free(cx, copy);
    osh_free(cx, w0);
    return rc;
}

/* Computes the initial values v [O, I] and s0 [O, G] of a Linear in host memory. w: the original
 * weight, in host memory. O, I and G are those of c. */
static void tune_first(float *v, float *s0, const osh_tune_codes *c, const osh_tensor *w,
                       const int8_t *codes, const osh_qparams *params)
{
    const int8_t *zero = params->zero ? params->zero->data : NULL;
    osh_to_f32(s0, params->scale->data, params->scale->dtype, c->O * c->G);
    osh_to_f32(v, w->data, w->dtype, c->O * c->I);
    for (int64_t i = 0; i < c->O * c->I; i++) {
        int64_t k = i / (c->I / c->G);
        float q = codes[i], u = v[i] / s0[k] + (zero ? (float)zero[k] : 0) - q;
        v[i] = q + (u > FROM_CODE ? FROM_CODE : u < -FROM_CODE ? -FROM_CODE : u == u ? u : 0);
    }
}

/* Sets the initial values of the learner `l` of a Linear, in host memory or on a device. */
static osh_status tune_begin(osh_ctx *cx, const osh_tune *t, osh_tune_learner *l,
                             const int8_t *codes, const osh_qparams *params)
{
    osh_status rc = OSH_OK;
    osh_device *d = t->device;
    osh_tensor *copy = NULL; // own
    float *v = NULL;         // own, with a device: v and s0 in host memory
    int64_t n = l->c.O * l->c.I, n_scales = l->c.O * l->c.G;
    const osh_tensor *w;
    OSH_TRY(tune_host_copy(cx, &w, &copy, l->c.w));
    if (d) OSH_NEW(cx, v, n + n_scales);
    tune_first(d ? v : l->c.v, d ? v + n : l->c.s0, &l->c, w, codes, params);
    memcpy(l->start, codes, (size_t)n);
    l->c.zero = params->zero ? l->zero : NULL;
    if (d) {
        OSH_TRY(tune_put(cx, d, l->c.v, v, n));
        OSH_TRY(tune_put(cx, d, l->c.s0, v + n, n_scales));
    }
    if (d && l->zero)
        OSH_TRY(d->type->put(cx, d, l->zero, params->zero->data, (size_t)n_scales));
    if (!d && l->zero) memcpy(l->zero, params->zero->data, (size_t)n_scales);
done:
    osh_tensor_free(cx, copy);
    osh_free(cx, v);
    return rc;
}

osh_status osh_tune_take(osh_ctx *cx, osh_tune *t, int weight, const osh_q_args *q,
                         const int8_t *codes, const osh_qparams *params)
{
    osh_status rc = OSH_OK;
    osh_tune_learner *l = &t->of[weight];
    osh_tensor *w = t->w->w[weight];
    int64_t O = w->shape[0], I = w->shape[1], G = osh_tensor_numel(params->scale) / O;
    float top = (float)(1 << (q->bits - 1));
    learner_room room = tune_codes_room(O, I, G, params->zero != NULL);
    OSH_TRY(learner_room_new(cx, l, t->device, &room));
    float *r = l->room, *s = r + 4 * O * I;
    l->c = (osh_tune_codes){.v = r,
                            .mean = r + O * I,
                            .square = r + 2 * O * I,
                            .grad = r + 3 * O * I,
                            .s0 = s,
                            .d = s + O * G,
                            .d_mean = s + 2 * O * G,
                            .d_square = s + 3 * O * G,
                            .O = O,
                            .I = I,
                            .G = G,
                            .lo = -top,
                            .hi = top - 1,
                            .w = w};
    if (w->dtype != params->scale->dtype)
        OSH_FAIL(cx, OSH_E_INTERNAL, "%s and its scales have two dtypes",
                 t->g->weights[weight].name);
    OSH_TRY(tune_begin(cx, t, l, codes, params));
    OSH_TRY(osh_tune_codes_step(cx, &l->c, NULL));
    l->role = OSH_TUNE_LINEAR, t->wants[weight] = true;
done:
    return rc;
}

/* Returns the number of floats of a copy of v, s0 and d. */
static int64_t tune_here_floats(int64_t O, int64_t I, int64_t G) { return O * I + 2 * O * G; }

osh_status osh_tune_here(osh_ctx *cx, osh_tune_codes *c, float **own, const osh_tune_learner *l)
{
    osh_status rc = OSH_OK;
    osh_device *d = l->c.w->device;
    int64_t n = l->c.O * l->c.I, n_scales = l->c.O * l->c.G;
    *c = l->c, *own = NULL;
    if (!d) goto done;
    OSH_NEW(cx, *own, tune_here_floats(c->O, c->I, c->G));
    c->v = *own, c->s0 = c->v + n, c->d = c->s0 + n_scales;
    OSH_TRY(d->type->get(cx, d, c->v, l->c.v, (size_t)n * sizeof *c->v));
    OSH_TRY(d->type->get(cx, d, c->s0, l->c.s0, (size_t)n_scales * sizeof *c->v));
    OSH_TRY(d->type->get(cx, d, c->d, l->c.d, (size_t)n_scales * sizeof *c->v));
done:
    return rc;
}

osh_status osh_tune_codes_of(osh_ctx *cx, const osh_tune *t, int weight, int8_t *codes,
                             osh_qparams *params)
{
    osh_status rc = OSH_OK;
    osh_tune_codes c;
    float *own = NULL; // own
    OSH_TRY(osh_tune_here(cx, &c, &own, &t->of[weight]));
    for (int64_t i = 0; i < c.O * c.I; i++) codes[i] = osh_tune_code(&c, i);
    for (int64_t i = 0; i < c.O * c.G; i++) osh_q_scale_put(params, i, osh_tune_scale(&c, i));
done:
    osh_free(cx, own);
    return rc;
}

osh_status osh_tune_norm_of(osh_ctx *cx, osh_tensor **out, const osh_tune *t, int weight)
{
    const osh_tune_learner *l = &t->of[weight];
    *out = NULL;
    return l->role == OSH_TUNE_NORM ? osh_tune_fetch(cx, out, l->n.w) : OSH_OK;
}

size_t osh_tune_learner_count(osh_tune_memory *m, const osh_weight *w, int64_t n_scales,
                              bool on_device)
{
    const osh_tune_learner *l = NULL; // l is used only for sizeof, and never dereferenced
    int64_t O = w->shape[0], I = w->ndim > 1 ? w->shape[1] : 1, G = n_scales / O;
    learner_room r = {.floats = tune_norm_floats(O * I)};
    if (n_scales) r = tune_codes_room(O, I, G, true);
    size_t floats = (size_t)r.floats * sizeof *l->room, zeros = (size_t)r.zeros * sizeof *l->zero;
    if (on_device) m->device_kept += osh_arena_gross(floats) + (zeros ? osh_arena_gross(zeros) : 0);
    else m->kept += osh_mem_gross(floats) + (zeros ? osh_mem_gross(zeros) : 0);
    if (r.start) m->kept += osh_mem_gross((size_t)r.start * sizeof *l->start);
    return osh_mem_gross((size_t)tune_here_floats(O, I, G) * sizeof(float));
}
