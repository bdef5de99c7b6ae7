/* ada_learn.c - optimizes the codes of a weight with gradients that the caller computes, for
 * example from the output of a decoder layer. The methods are those of ada.c, one step per call.
 * Rows are independent, so the result does not depend on the number of threads.
 *
 * A learner (osh_ada_learner) stores v (or AdaQuant's weight), the gradient, Adam's means, and the
 * learned parameters of each group. A learner with a device stores them in the memory of the device
 * (ada_there.h). The host then only computes their initial values. */
#include "solver/ada.h"
#include "solver/cpu/ada_rows.h"
#include "math/vec.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

/* Numbers of arrays that a learner stores.
 * SIGN: number of arrays [O, ld] of AutoRound (v and its gradient).
 * ADAM: number of arrays [O, ld] of AdaRound and AdaQuant (v or the weight, the gradient, and
 * Adam's two moving averages).
 * SMALL: number of arrays [O, groups] of every method (in the order OSH_ADA_S0, OSH_ADA_D, ...).
 * ld is I, rounded up to a multiple of 8. */
enum { SIGN = 2, ADAM = 4, SMALL = OSH_ADA_N_SMALL };
/* Numbers of rows of ld floats in the scratch of one thread. ON_DEVICE: with a device, x and grad
 * of the row are scratch, too. */
enum { SCRATCH = 6, ON_DEVICE = SCRATCH + 2 };

typedef enum weight_is { // the weight that learner_all_rows writes to the tensor `to`
    OF_STEP,    // the weight after the steps done so far
    OF_NEAREST, // the weight that follows from the codes and scales in the arguments
    OF_END,     // the final weight
    KEPT        // the final weight; learner_all_rows then also stores the final codes and scales
} weight_is;

struct osh_ada_learner {
    osh_ada_args a;
    osh_ada_job j;
    /* Views of `kept`, [O, ld].
     * x: v, or AdaQuant's weight.
     * grad: gradient of x. */
    float *x, *grad;
    /* Views of `kept`, [O, ld]: Adam's moving averages of the gradient and of its square. NULL: the
     * method does not use Adam. */
    float *mean, *square;
    float *small[SMALL]; // learned parameters of each group, [O, groups]; views of `kept`
    float *kept;         // own
    float *room;         // own [threads, SCRATCH, ld]: scratch
    osh_tensor place;    // view of `grad` as a tensor [O, I]; only valid if ld equals I
    /* True: `grad` contains a gradient. False: the gradient is 0, whatever `grad` contains. */
    bool full;
    int n_threads;
    weight_is weight;    // argument `weight` of the current call of learner_all_rows
    /* AdaRound's rounding term of each row in the last step: sum of 1 - |2h - 1|^beta, [O]. */
    double *rounding;    // own
    /* The step that the current call of learner_all_rows does on each row. NULL: the call does no
     * step. */
    const osh_ada_row_step *step; // view
    osh_tensor *to;      // view: tensor to which the weight is written
    osh_device *device;  // view; NULL: all numbers are in host memory
    void *block;         // own: memory of the device
    osh_ada_there there; // arrays in `block`
};

static size_t learner_kept_floats(const osh_ada_args *a, int64_t ld, int64_t groups,
                                  bool on_device)
{
    int rows = a->rule.kind == OSH_ADA_SIGN ? SIGN : ADAM;
    // on a device, the host only computes the first x, which is 0 in AutoRound
    if (on_device) rows = a->rule.kind != OSH_ADA_SIGN;
    return (size_t)(a->O * (rows * ld + SMALL * groups));
}

static int64_t learner_room_rows(int n_threads, bool on_device)
{
    return (int64_t)n_threads * (on_device ? ON_DEVICE : SCRATCH);
}

osh_ada_memory osh_ada_learner_bytes(const osh_ada_args *a, int n_threads, bool on_device,
                                    osh_dtype dtype)
{
    int64_t ld = osh_pad8(a->I), groups = osh_div_up(a->I, a->group);
    size_t at[OSH_ADA_N_PARTS];
    osh_ada_memory n = {.host = osh_mem_gross(sizeof(osh_ada_learner)) +
                               osh_mem_gross((size_t)a->O * sizeof(double))};
    size_t arrays =
        osh_mem_gross(learner_kept_floats(a, ld, groups, on_device) * sizeof(float)) +
        osh_mem_gross((size_t)(learner_room_rows(n_threads, on_device) * ld) * sizeof(float));
    if (!on_device) return n.host += arrays, n;
    n.making = arrays;
    osh_ada_there there = {.kind = a->rule.kind, .O = a->O, .I = a->I, .groups = groups,
                           .dtype = dtype};
    n.device = osh_arena_gross(osh_ada_there_offsets(at, &there));
    return n;
}

/* Returns views of the learned numbers of one row and of the scratch of thread `worker`. */
static osh_ada_room learner_row_room(const osh_ada_learner *l, int64_t row, int worker)
{
    int64_t ld = l->j.ld, g = row * l->j.groups, at_row = row * ld;
    bool adam = l->mean != NULL;
    float *at = l->room + learner_room_rows(worker, l->device) * ld;
    float *const *k = l->small;
    return (osh_ada_room){.w = at,
                          .e = at + ld,
                          .base = at + 2 * ld,
                          .soft = at + 3 * ld,
                          .s = at + 4 * ld,
                          .z = at + 5 * ld,
                          .x = l->x ? l->x + at_row : at + 6 * ld,
                          .grad = l->device ? at + 7 * ld : l->grad + at_row,
                          .mean = adam ? l->mean + at_row : NULL,
                          .square = adam ? l->square + at_row : NULL,
                          .s0 = k[OSH_ADA_S0] + g,
                          .d = k[OSH_ADA_D] + g,
                          .d_mean = k[OSH_ADA_MEAN] + g,
                          .d_square = k[OSH_ADA_SQUARE] + g,
                          .least = k[OSH_ADA_LEAST] + g,
                          .most = k[OSH_ADA_MOST] + g,
                          .best_s = k[OSH_ADA_BEST_S] + g,
                          .best_z = k[OSH_ADA_BEST_Z] + g};
}

static void learner_row_load(const osh_ada_learner *l, const osh_ada_room *m, int64_t row)
{
    osh_to_f32(m->w, osh_elem(l->a.w, row * l->a.I), l->a.w->dtype, l->a.I);
    for (int64_t i = l->a.I; i < l->j.ld; i++) m->w[i] = 0;
}

static osh_status learner_row_begin(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const osh_ada_learner *l = user;
    osh_ada_room m = learner_row_room(l, row, worker);
    (void)cx;
    learner_row_load(l, &m, row);
    for (int64_t g = 0; g < l->j.groups; g++) {
        int64_t k = osh_ada_scale_at(&l->j, row, g);
        m.s0[g] = l->a.scale[k], m.best_z[g] = l->a.zero ? l->a.zero[k] : 0;
    }
    if (l->a.rule.kind == OSH_ADA_SIGN)
        osh_ada_sign_begin(&l->j, &m, row, 1), osh_ada_sign_scales(&l->j, &m, 1);
    osh_ada_begin_row(&l->j, &m, row, 0);
    return OSH_OK;
}

/* For AutoRound: stores the codes of one row. If scales are learned, also stores the scales and
 * zero points of the row. */
static void learner_row_keep(const osh_ada_learner *l, osh_ada_room *m, int64_t row)
{
    osh_ada_row_step s = osh_ada_step_at(&l->j, 0);
    osh_ada_near_error(m, 0, l->j.ld, &s);
    osh_ada_keep_row(&l->j, m, row, 0);
    for (int64_t g = 0; osh_ada_moves_scales(&l->a) && g < l->j.groups; g++) {
        int64_t k = osh_ada_scale_at(&l->j, row, g);
        l->a.scale[k] = m->best_s[g];
        if (l->a.zero) l->a.zero[k] = m->best_z[g];
    }
}

/* Does one step of learning on one row. Then sets m->s and m->z to the new scale and zero point of
 * each column. */
static void learner_row_step(const osh_ada_learner *l, osh_ada_room *m, int64_t row)
{
    if (l->a.rule.kind == OSH_ADA_SIGN) {
        osh_ada_sign_step(m, 0, l->j.ld, l->step);
        if (l->a.rule.scale_rate > 0) osh_ada_move_shares(&l->j, m, 0, l->step);
    } else if (l->a.rule.kind == OSH_ADA_QUANT) {
        osh_ada_quant_row(&l->j, m, 0, l->step);
    } else {
        osh_ada_soft_error(m, 0, l->j.ld, l->step);
        l->rounding[row] = osh_ada_round_step(m, 0, l->j.ld, l->step);
    }
    osh_ada_spread(&l->j, m, row, 0);
}

/* Sets m->e to the weight that follows from the codes and scales in the arguments. */
static void learner_row_nearest(const osh_ada_learner *l, const osh_ada_room *m, int64_t row)
{
    for (int64_t i = 0; i < l->a.I; i++) {
        int64_t k = osh_ada_scale_at(&l->j, row, i / l->a.group);
        float q = osh_grid_value(&l->a.scales.grid, l->a.codes[row * l->a.I + i]);
        m->e[i] = (q - (l->a.zero ? l->a.zero[k] : 0)) * l->a.scale[k];
    }
}

/* For AdaRound and AdaQuant: sets m->e to the final weight of one row. Stores the final codes and
 * scales if l->weight is KEPT. */
static void learner_row_end(const osh_ada_learner *l, const osh_ada_room *m, int64_t row)
{
    for (int64_t i = 0; i < l->a.I; i++) {
        float q = osh_ada_last_code(&l->j, m, 0, i);
        if (l->weight == KEPT) l->a.codes[row * l->a.I + i] = osh_grid_code(&l->a.scales.grid, q);
        m->e[i] = (q - m->z[i]) * m->s[i];
    }
    for (int64_t g = 0; l->weight == KEPT && l->a.rule.scale_rate > 0 && g < l->j.groups; g++)
        l->a.scale[osh_ada_scale_at(&l->j, row, g)] = osh_ada_scale_now(&l->j, m, 0, g);
}

/* Does the step l->step on one row, if l->step is not NULL. Writes the resulting weights of the row
 * to l->to. */
static osh_status learner_row_move(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const osh_ada_learner *l = user;
    osh_ada_room m = learner_row_room(l, row, worker);
    osh_ada_row_step plain = osh_ada_step_at(&l->j, 0);
    (void)cx;
    learner_row_load(l, &m, row);
    osh_ada_spread(&l->j, &m, row, 0);
    if (l->a.rule.kind == OSH_ADA_ROUND) osh_ada_base(&l->j, &m, 0);
    if (l->weight == KEPT && l->a.rule.kind == OSH_ADA_SIGN) learner_row_keep(l, &m, row);
    if (l->step) learner_row_step(l, &m, row);
    plain.plain = 1;
    if (l->weight == OF_NEAREST) learner_row_nearest(l, &m, row);
    else if (l->weight >= OF_END && l->a.rule.kind != OSH_ADA_SIGN) learner_row_end(l, &m, row);
    else if (l->a.rule.kind == OSH_ADA_ROUND) osh_ada_soft_error(&m, 0, l->j.ld, &plain);
    else osh_ada_near_error(&m, 0, l->j.ld, &plain);
    for (int64_t i = 0; l->a.keep_zeros && i < l->a.I; i++)
        if (m.w[i] == 0) m.e[i] = 0;
    osh_from_f32(osh_elem(l->to, row * l->a.I), l->to->dtype, m.e, l->a.I);
    return OSH_OK;
}

/* Allocates the memory of a learner on its device, and sets the arrays of l->there. */
static osh_status learner_alloc_there(osh_ctx *cx, osh_ada_learner *l)
{
    osh_status rc = OSH_OK;
    const osh_ada_args *a = &l->a;
    osh_ada_there *t = &l->there;
    size_t at[OSH_ADA_N_PARTS];
    *t = (osh_ada_there){.kind = a->rule.kind, .O = a->O, .I = a->I, .group = a->group,
                         .groups = l->j.groups, .rule = a->scales, .keep_zeros = a->keep_zeros,
                         .signed_scales = a->rule.signed_scales,
                         .whole_range = a->rule.whole_range, .has_zero = a->zero != NULL,
                         .dtype = a->w->dtype};
    l->block = osh_device_alloc(cx, l->device, osh_ada_there_offsets(at, t), OSH_LIFE_SHORT);
    if (!l->block) OSH_TRY(OSH_E_NOMEM);
    char *base = l->block;
    t->x = (float *)(base + at[OSH_ADA_PART_X]), t->grad = (float *)(base + at[OSH_ADA_PART_GRAD]);
    t->mean = (float *)(base + at[OSH_ADA_PART_MEAN]);
    t->square = (float *)(base + at[OSH_ADA_PART_SQUARE]);
    t->small = (float *)(base + at[OSH_ADA_PART_SMALL]);
    t->terms = (double *)(base + at[OSH_ADA_PART_TERMS]);
    t->w = base + at[OSH_ADA_PART_W];
done:
    return rc;
}

/* Moves a learner to its device: copies the original weight and the first values of all numbers
 * there. */
static osh_status learner_move(osh_ctx *cx, osh_ada_learner *l)
{
    osh_status rc = OSH_OK;
    osh_device *d = l->device;
    const osh_tensor *w = l->a.w;
    int64_t O = l->a.O, I = l->a.I;
    size_t row = (size_t)I * sizeof(float), n = (size_t)O * row;
    OSH_TRY(learner_alloc_there(cx, l));
    const osh_ada_there *t = &l->there;
    OSH_TRY(d->type->put(cx, d, t->small, l->kept,
                         (size_t)(SMALL * O * l->j.groups) * sizeof(float)));
    OSH_TRY(d->type->put(cx, d, (void *)t->w, w->data, osh_tensor_bytes(w)));
    if (t->kind == OSH_ADA_SIGN) OSH_TRY(d->type->fill(cx, d, t->x, 0, n));
    for (int64_t r = 0; t->kind != OSH_ADA_SIGN && r < O; r++)
        OSH_TRY(d->type->put(cx, d, t->x + r * I, l->x + r * l->j.ld, row));
    if (t->kind != OSH_ADA_SIGN) OSH_TRY(d->type->fill(cx, d, t->mean, 0, n));
    if (t->kind != OSH_ADA_SIGN) OSH_TRY(d->type->fill(cx, d, t->square, 0, n));
    osh_free(cx, l->kept), l->kept = NULL;
    osh_free(cx, l->room), l->room = NULL;
    l->x = t->x, l->grad = t->grad;
done:
    return rc;
}

static osh_status learner_check_device(osh_ctx *cx, const osh_ada_args *a, const osh_device *d)
{
    if (!d || a->row_block == 1 || !osh_ada_moves_scales(a)) return OSH_OK;
    return osh_fail(cx, OSH_E_INTERNAL, "a GPU does not learn scales of several rows");
}

osh_status osh_ada_learner_new(osh_ctx *cx, osh_ada_learner **out, const osh_ada_args *a,
                               osh_device *d)
{
    osh_status rc = OSH_OK;
    osh_ada_learner *l = NULL; // own
    int64_t ld = osh_pad8(a->I), groups = osh_div_up(a->I, a->group);
    OSH_TRY(learner_check_device(cx, a, d));
    OSH_NEW(cx, l, 1);
    l->a = *a, l->a.n_tokens = 2; // with 2, the factor 2 / n_tokens of gradients is 1
    l->n_threads = osh_threads(cx), l->device = d;
    l->j = (osh_ada_job){.a = &l->a, .ld = ld, .groups = groups, .rows = 1};
    OSH_NEW(cx, l->kept, learner_kept_floats(a, ld, groups, d));
    OSH_NEW(cx, l->room, learner_room_rows(l->n_threads, d) * ld);
    OSH_NEW(cx, l->rounding, a->O);
    float *at = l->kept;
    for (int k = 0; k < SMALL; k++, at += a->O * groups) l->small[k] = at;
    if (!d || a->rule.kind != OSH_ADA_SIGN) l->x = at, at += a->O * ld;
    if (!d) l->grad = at, at += a->O * ld;
    if (!d && a->rule.kind != OSH_ADA_SIGN) l->mean = at, l->square = at + a->O * ld;
    OSH_TRY(osh_parallel_for(cx, a->O, learner_row_begin, l));
    if (d) OSH_TRY(learner_move(cx, l));
    l->place = osh_tensor_view(OSH_F32, 2, (int64_t[]){a->O, a->I}, l->grad);
    l->place.device = d;
    *out = l, l = NULL; // give
done:
    osh_ada_learner_free(cx, l);
    return rc;
}

void osh_ada_learner_free(osh_ctx *cx, osh_ada_learner *l)
{
    if (!l) return;
    if (l->device) osh_device_free(l->device, l->block);
    osh_free(cx, l->kept);
    osh_free(cx, l->rounding);
    osh_free(cx, l->room);
    osh_free(cx, l);
}

typedef struct add_job {
    osh_ada_learner *l;
    const float *x;
} add_job;

static osh_status learner_row_add(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const add_job *j = user;
    int64_t I = j->l->a.I;
    float *to = j->l->grad + row * j->l->j.ld;
    (void)cx, (void)worker;
    if (!j->l->full) memcpy(to, j->x + row * I, (size_t)I * sizeof *to);
    for (int64_t i = 0; j->l->full && i < I; i++) to[i] += j->x[row * I + i];
    return OSH_OK;
}

bool osh_ada_learner_places(const osh_ada_args *a) { return osh_pad8(a->I) == a->I; }

osh_tensor *osh_ada_learner_place(osh_ada_learner *l)
{
    return l->full || !osh_ada_learner_places(&l->a) ? NULL : &l->place;
}

/* Adds dw to the gradient of a learner on a device. */
static osh_status learner_add_there(osh_ctx *cx, const osh_ada_learner *l, const osh_tensor *dw)
{
    osh_device *d = l->device;
    if (!l->full) return d->type->copy(cx, d, l->grad, dw->data, osh_tensor_bytes(dw));
    return osh_ada_there_add(cx, d, l->grad, dw->data, l->a.O * l->a.I);
}

osh_status osh_ada_learner_add(osh_ctx *cx, osh_ada_learner *l, const osh_tensor *dw)
{
    osh_status rc = OSH_OK;
    add_job j = {l, dw->data};
    if (dw->data == l->grad) goto done;
    OSH_TRY(l->device ? learner_add_there(cx, l, dw)
                      : osh_parallel_for(cx, l->a.O, learner_row_add, &j));
done:
    l->full = true;
    return rc;
}

/* Runs learner_row_move on all rows. */
static osh_status learner_all_rows(osh_ctx *cx, osh_ada_learner *l, weight_is weight,
                                   osh_tensor *to)
{
    l->weight = weight, l->to = to;
    osh_status rc = osh_parallel_for(cx, l->a.O, learner_row_move, l);
    l->to = NULL;
    return rc;
}

/* Does step t on the device, or no step if t is negative. */
static osh_status learner_step_there(osh_ctx *cx, osh_ada_learner *l, int64_t t, osh_tensor *to)
{
    osh_status rc = OSH_OK;
    osh_device *d = l->device;
    osh_ada_there *x = &l->there;
    osh_ada_row_step s = osh_ada_step_at(&l->j, t < 0 ? 0 : t);
    x->to = to->data, x->step = t >= 0;
    x->rate = s.rate, x->root_part = s.root_part, x->reg = s.reg, x->beta = s.beta;
    x->share_rate = l->a.rule.scale_rate > 0 ? osh_ada_share_rate(&l->a, &s) : 0;
    if (t >= 0 && !l->full)
        OSH_TRY(d->type->fill(cx, d, l->grad, 0, (size_t)(l->a.O * l->a.I) * sizeof *l->grad));
    OSH_TRY(osh_ada_there_run(cx, d, x));
    if (t < 0) goto done;
    l->full = false;
    if (x->kind == OSH_ADA_ROUND)
        OSH_TRY(d->type->get(cx, d, l->rounding, x->terms, (size_t)l->a.O * sizeof(double)));
done:
    return rc;
}

/* Writes the final weight to `to`. */
static osh_status learner_last_there(osh_ctx *cx, osh_ada_learner *l, osh_tensor *to)
{
    l->there.last = true;
    osh_status rc = learner_step_there(cx, l, -1, to);
    l->there.last = false;
    return rc;
}

/* Copies the final codes, scales and zero points of the device to the arguments of the learner. The
 * memory of the gradient holds the codes, because no step follows. */
static osh_status learner_end_there(osh_ctx *cx, osh_ada_learner *l, osh_tensor *to)
{
    osh_status rc = OSH_OK;
    const osh_ada_args *a = &l->a;
    osh_device *d = l->device;
    int64_t n = a->O * l->j.groups;
    const float *small = l->there.small; // view
    l->there.codes = (int8_t *)l->grad;
    OSH_TRY(learner_last_there(cx, l, to));
    OSH_TRY(d->type->get(cx, d, a->codes, l->grad, (size_t)(a->O * a->I)));
    if (!osh_ada_moves_scales(a)) goto done;
    OSH_TRY(d->type->get(cx, d, a->scale, small + OSH_ADA_BEST_S * n, (size_t)n * sizeof(float)));
    if (a->zero)
        OSH_TRY(d->type->get(cx, d, a->zero, small + OSH_ADA_BEST_Z * n,
                             (size_t)n * sizeof(float)));
done:
    l->there.codes = NULL;
    return rc;
}

/* Writes to `to`, row by row, the weight that follows from the codes and scales in the
 * arguments. */
static osh_status learner_nearest_there(osh_ctx *cx, const osh_ada_learner *l, osh_tensor *to)
{
    osh_status rc = OSH_OK;
    int64_t I = l->a.I;
    size_t row = (size_t)I * osh_dtype_bytes(to->dtype);
    osh_ada_room m = {0};
    void *stored = NULL; // own: a row in the dtype of `to`
    OSH_NEW(cx, m.e, I);
    if (!(stored = osh_alloc(cx, row))) OSH_TRY(OSH_E_NOMEM);
    for (int64_t r = 0; r < l->a.O; r++) {
        learner_row_nearest(l, &m, r);
        for (int64_t i = 0; l->a.keep_zeros && i < I; i++)
            if (osh_tensor_at(l->a.w, r * I + i) == 0) m.e[i] = 0;
        osh_from_f32(stored, to->dtype, m.e, I);
        OSH_TRY(osh_tensor_put(cx, to, (size_t)r * row, stored, row));
    }
done:
    osh_free(cx, m.e);
    osh_free(cx, stored);
    return rc;
}

osh_status osh_ada_learner_step(osh_ctx *cx, osh_ada_learner *l, int64_t t, osh_tensor *to)
{
    if (l->device) return learner_step_there(cx, l, t, to);
    osh_ada_row_step s = osh_ada_step_at(&l->j, t < 0 ? 0 : t);
    l->step = t < 0 ? NULL : &s;
    if (l->step && !l->full) memset(l->grad, 0, (size_t)(l->a.O * l->j.ld) * sizeof *l->grad);
    osh_status rc = learner_all_rows(cx, l, OF_STEP, to);
    if (l->step) l->full = false;
    l->step = NULL;
    return rc;
}

osh_status osh_ada_learner_end(osh_ctx *cx, osh_ada_learner *l, osh_tensor *to)
{
    return l->device ? learner_end_there(cx, l, to) : learner_all_rows(cx, l, KEPT, to);
}

osh_status osh_ada_learner_show(osh_ctx *cx, osh_ada_learner *l, bool learned, osh_tensor *to)
{
    if (l->device)
        return learned ? learner_last_there(cx, l, to) : learner_nearest_there(cx, l, to);
    return learner_all_rows(cx, l, learned ? OF_END : OF_NEAREST, to);
}

void osh_ada_learner_rate(osh_ada_learner *l, double rate) { l->a.rule.rate = rate; }

double osh_ada_learner_term(const osh_ada_learner *l, int64_t t)
{
    double sum = 0;
    for (int64_t r = 0; r < l->a.O; r++) sum += l->rounding[r];
    return osh_ada_step_at(&l->j, t).reg * sum;
}
