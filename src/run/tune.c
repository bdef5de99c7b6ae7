/* tune.c - tunes codes, scales and norms of the finished output, so that its predictions become
 * closer to those of the original model (learn/tune.h). If the predictions for held-out samples
 * improve, the tuned tensors replace the tensors of the output. */
#include <math.h>

#include "output/tuned.h"
#include "schedule/tuning.h"
#include "run/run.h"

typedef struct stored { // the tensors that the output has for one Linear
    osh_tensor *raw[OSH_FORMAT_MAX_TENSORS]; // own
    osh_qparams params;                      // own
    int8_t *codes;                           // own
} stored;

static void tune_stored_deinit(osh_ctx *cx, stored *s)
{
    for (int k = 0; k < OSH_FORMAT_MAX_TENSORS; k++) osh_tensor_free(cx, s->raw[k]);
    osh_qparams_deinit(cx, &s->params);
    osh_free(cx, s->codes);
    *s = (stored){0};
}

static osh_status tune_stored_read(osh_ctx *cx, stored *s, osh_run *r, int linear)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &r->budget->match->linears[linear];
    osh_format_weight weight = osh_linear_stored(l);
    OSH_TRY(osh_emit_read_linear(cx, r->emitter, linear, s->raw));
    if (!(s->codes = osh_alloc(cx, (size_t)(l->O * l->I))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for codes");
    OSH_TRY(
        l->format->unpack(cx, s->codes, &s->params, &weight, (const osh_tensor *const *)s->raw));
done:
    return rc;
}

static osh_status tune_take_all(osh_ctx *cx, osh_tune *t, osh_run *r)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = r->budget;
    stored s = {0}; // own
    for (int i = 0; i < p->match->n_linears; i++) {
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(tune_stored_read(cx, &s, r, i));
        OSH_TRY(osh_tune_take(cx, t, p->match->linears[i].weight,
                              &p->match->linears[i].scheme->weights, s.codes, &s.params));
        tune_stored_deinit(cx, &s);
    }
done:
    tune_stored_deinit(cx, &s);
    return rc;
}

/* Computes *nmse = |w - dq|^2 / |w|^2 of a Linear, row by row. The original weight w is read from
 * the source, and dq is decoded from the codes in `s`. */
static osh_status tune_stored_error(osh_ctx *cx, double *nmse, const osh_budget *p,
                                    const osh_linear *l, const stored *s)
{
    osh_status rc = OSH_OK;
    double sum[2] = {0, 0};
    char *dq = NULL;      // own: one row of dq
    osh_tensor *w = NULL; // own
    size_t row = (size_t)l->I * osh_dtype_bytes(l->dtype);
    osh_q_coded coded = {s->codes, &s->params, &l->scheme->weights, l->O, l->I};
    OSH_TRY(osh_weight_load(cx, &w, p->schedule->tune_graph, p->in->ck, l->weight));
    if (!(dq = osh_alloc(cx, row))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a row");
    for (int64_t o = 0; o < l->O; o++) {
        double one[2];
        osh_q_decode_rows(dq, l->dtype, &coded, o, 1);
        osh_q_row_error(one, (const char *)w->data + (size_t)o * row, dq, l->dtype, l->I);
        sum[0] += one[0], sum[1] += one[1];
    }
    *nmse = sum[1] > 0 ? sum[0] / sum[1] : 0;
done:
    osh_tensor_free(cx, w);
    osh_free(cx, dq);
    return rc;
}

/* Packs the tuned codes of a Linear. Writes the tensors and the new error to the output. */
static osh_status tune_write_linear(osh_ctx *cx, osh_tuned_writer *to, const osh_tune *t,
                                    osh_run *r, int linear)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &r->budget->match->linears[linear];
    osh_format_weight weight = osh_linear_stored(l);
    stored s = {0}; // own
    double nmse = 0;
    void *data[OSH_FORMAT_MAX_TENSORS];
    OSH_TRY(tune_stored_read(cx, &s, r, linear));
    OSH_TRY(osh_tune_codes_of(cx, t, l->weight, s.codes, &s.params));
    for (int k = 0; k < l->out.n; k++) data[k] = s.raw[k]->data;
    OSH_TRY(l->format->pack(cx, data, &weight, s.codes, &s.params, NULL));
    for (int k = 0; k < l->out.n; k++) OSH_TRY(osh_tuned_tensor(cx, to, l->out.first + k, data[k]));
    OSH_TRY(tune_stored_error(cx, &nmse, r->budget, l, &s));
    OSH_TRY(osh_tuned_error(cx, to, linear, nmse));
done:
    tune_stored_deinit(cx, &s);
    return rc;
}

static osh_status tune_write_norm(osh_ctx *cx, osh_tuned_writer *to, const osh_tune *t, int weight,
                                  int64_t out)
{
    osh_status rc = OSH_OK;
    osh_tensor *x = NULL; // own
    OSH_TRY(osh_tune_norm_of(cx, &x, t, weight));
    if (x) OSH_TRY(osh_tuned_tensor(cx, to, out, x->data));
done:
    osh_tensor_free(cx, x);
    return rc;
}

static osh_status tune_write_norms(osh_ctx *cx, osh_tuned_writer *to, const osh_tune *t,
                                   const osh_budget *p)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->schedule->tune_graph;
    for (int64_t i = 0; i < p->manifest->n_out; i++)
        for (int w = 0; p->manifest->out_info[i].source >= 0 && w < g->n_weights; w++)
            if (g->weights[w].tensor == p->manifest->out_info[i].source)
                OSH_TRY(tune_write_norm(cx, to, t, w, i));
done:
    return rc;
}

static osh_status tune_write_result(osh_ctx *cx, const osh_tune *t, osh_run *r,
                                    const osh_tuned *what)
{
    osh_status rc = OSH_OK;
    osh_tuned_writer *to = NULL; // own
    OSH_TRY(osh_tuned_begin(cx, &to, r->emitter));
    for (int i = 0; what->kept && i < r->budget->match->n_linears; i++)
        OSH_TRY(tune_write_linear(cx, to, t, r, i));
    if (what->kept) OSH_TRY(tune_write_norms(cx, to, t, r->budget));
    OSH_TRY(osh_tuned_end(cx, to, what, r->results));
done:
    osh_tuned_free(cx, to);
    return rc;
}

/* Shows the progress of tuning. If standard error is no terminal, prints a line after each eighth
 * of the steps. */
static void tune_on_step(osh_ctx *cx, void *user, int64_t step)
{
    enum { LINES = 8 };
    osh_run *r = user;
    int64_t all = r->budget->schedule->tune.steps;
    r->progress.done = step, r->progress.total = all;
    r->progress.finished = step && step * LINES / all > (step - 1) * LINES / all;
    osh_run_step(cx, r, (double)step / (double)all);
    r->progress.finished = false;
}

static osh_status tune_learn(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = r->budget;
    osh_tune *t = NULL; // own
    osh_tune_result of = {0};
    osh_tune_model model = {p->schedule->tune_graph, p->in->ck, &p->in->data,
                            p->in->device != NULL, p->in->device};
    OSH_TRY(osh_tune_new(cx, &t, &model, &p->schedule->tune));
    OSH_TRY(tune_take_all(cx, t, r));
    rc = osh_tune_run(cx, t, &of, tune_on_step, r);
    if (rc == OSH_E_NUMERIC) { // a step has diverged, so the output is not changed
        osh_log(cx, OSH_LOG_WARN, "tuning ended: %s", osh_error_text(cx));
        osh_error_clear(cx);
        rc = OSH_OK, of.after = INFINITY;
    }
    if (rc) goto done;
    osh_tuned what = {.known = true,
                      .kept = of.after < of.before,
                      .before = of.before,
                      .after = of.after,
                      .n_changed = (uint64_t)of.n_changed,
                      .n_codes = (uint64_t)of.n_codes};
    OSH_TRY(tune_write_result(cx, t, r, &what));
done:
    osh_tune_free(cx, t);
    return rc;
}

osh_status osh_run_tune(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = r->budget;
    const osh_tuned *t = osh_emit_tuned(r->emitter);
    if (!p->schedule->tune.steps) goto done;
    osh_scope scope = osh_run_begin(cx, r, OSH_PHASE_TUNE, -1);
    /* The live line of a terminal ends with step n_steps, so `step` stays below n_steps during
     * tuning. */
    r->progress.step = r->progress.n_steps - 1;
    if (!t->known) rc = tune_learn(cx, r);
    if (!rc) rc = osh_tuned_apply(cx, r->emitter);
    osh_run_end(cx, r, scope);
    r->progress.step = r->progress.n_steps;
    if (rc) goto done;
    osh_log(cx, OSH_LOG_INFO,
            "tuned: KL divergence of held-back rows %.5f, before tuning %.5f; %lld of %lld codes "
            "changed%s",
            t->after, t->before, (long long)t->n_changed, (long long)t->n_codes,
            t->kept ? "" : "; the model stays untuned");
done:
    return rc;
}
