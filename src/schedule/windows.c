/* windows.c - finds the calls and windows of a solve (windows.h). On the host, the calls of a
 * window are consecutive and have similar sizes. On a GPU, the calls of a window have equal shapes.
 * These calls may be anywhere in the range, because the Linears of a layer have different
 * shapes. */
#include "schedule/windows.h"

static bool windows_done(const osh_windows *w, int linear)
{
    return w->taken[linear - w->of.first] || (w->done && w->done(w->user, linear));
}

/* True if the Linear may be the first one of a call. It must need statistics, and these must be
 * complete. It must belong to no earlier call and be unsolved, and this process must be the one
 * that solves it. */
static bool windows_has(const osh_windows *w, int linear)
{
    const osh_linear *l = &w->p->match->linears[linear];
    return osh_wants(w->p, l) && w->open[l->input] && !windows_done(w, linear) &&
           (!w->mine || w->mine(w->user, l->input));
}

static bool call_joins(const osh_linear *l, const osh_linear *lead)
{
    return l->modifier == lead->modifier && l->prune.modifier == lead->prune.modifier &&
           /* true if both Linears learn by block, or if neither does */
           !((l->wants ^ lead->wants) & OSH_STAT_BLOCK);
}

static void call_deinit(osh_ctx *cx, osh_call *c)
{
    osh_free(cx, c->which);
    osh_free(cx, c->jobs);
    osh_free(cx, c->shapes);
    *c = (osh_call){0};
}

/* Makes the call whose first Linear is `first`: finds the Linears that are solved together with
 * it. */
static osh_status call_init(osh_ctx *cx, osh_call *c, const osh_windows *w, int first)
{
    osh_status rc = OSH_OK;
    const osh_matching *match = w->p->match;
    const osh_linear *l = match->linears, *lead = &l[first];
    int waiting = 0;
    *c = (osh_call){0};
    for (int i = osh_first_reader(match, lead->input); i >= 0; i = osh_next_reader(match, i))
        waiting += i >= w->of.first && i < w->of.end && !windows_done(w, i);
    OSH_NEW(cx, c->which, waiting);
    for (int i = first; i >= 0 && i < w->of.end; i = osh_next_reader(match, i))
        if (call_joins(&l[i], lead) && !windows_done(w, i)) c->which[c->n++] = i;
    c->others = waiting - c->n;
    OSH_NEW(cx, c->jobs, c->n);
    OSH_NEW(cx, c->shapes, c->n);
    for (int k = 0; k < c->n; k++) {
        const osh_linear *of = &l[c->which[k]];
        c->shapes[k] = osh_tensor_view(of->dtype, 2, (int64_t[]){of->O, of->I}, NULL);
        c->jobs[k] = (osh_linear_job){.name = of->name, .scheme = of->scheme, .w = &c->shapes[k],
                                      .sparsity = of->prune.sparsity,
                                      .apart = w->apart && !w->on_gpu,
                                      .pack = w->on_gpu && of->format->pack_rows};
        c->weights += of->O * of->I;
    }
done:
    return rc;
}

/* Returns how the call may be solved. Calls are solved at the same time only if each of them has
 * one modifier and no pruner, and if no other call needs its Hessian. */
static osh_window_kind call_kind(const osh_windows *w, const osh_call *c)
{
    const osh_linear *l = &w->p->match->linears[c->which[0]];
    const osh_modifier *m = &w->p->in->recipe->modifiers[l->modifier];
    if (l->wants & OSH_STAT_BLOCK) return OSH_WINDOW_BLOCK;
    if (w->most == 1 || c->others || l->kept || l->prune.modifier >= 0 || !m->type->solver->apart)
        return OSH_WINDOW_ALONE;
    if (w->on_gpu) {
        bool gathers = !w->p->in->by_route && m->type->solver->gathers &&
                       m->type->solver->gathers(m, c->jobs, c->n);
        return gathers ? OSH_WINDOW_GATHERED : OSH_WINDOW_ALONE;
    }
    // a call with many small Linears uses all threads by itself
    return osh_jobs_at_once(c->jobs, c->n, w->n_threads) > 1 ? OSH_WINDOW_ALONE : OSH_WINDOW_APART;
}

/* True if two calls have similar sizes: one call has at most twice as many weights as the other.
 * For example, an expert's down_proj has half as many weights as its gate_proj and up_proj
 * together. a, b: numbers of weights of the calls. */
static bool calls_are_similar(int64_t a, int64_t b) { return a <= 2 * b && b <= 2 * a; }

static bool linears_are_alike(const osh_linear *a, const osh_linear *b)
{
    return a->O == b->O && a->I == b->I && a->dtype == b->dtype && a->scheme == b->scheme &&
           a->modifier == b->modifier;
}

static int64_t window_largest(const osh_windows *w)
{
    int64_t largest = 0;
    for (int k = 0; k < w->n; k++)
        if (w->calls[k].weights > largest) largest = w->calls[k].weights;
    return largest;
}

/* Adds the call to the window. Returns false if the call cannot be solved together with the calls
 * that are already in the window. */
static bool window_add(osh_windows *w, const osh_call *c)
{
    osh_window_kind kind = call_kind(w, c);
    const osh_call *lead = w->calls;
    bool fits = !w->n || (kind == w->kind &&
                          (kind == OSH_WINDOW_GATHERED
                               ? c->n == lead->n && osh_jobs_are_alike(lead->jobs, c->jobs, c->n)
                               : calls_are_similar(c->weights, window_largest(w))));
    if (!fits) return false;
    for (int k = 0; k < c->n; k++) w->taken[c->which[k] - w->of.first] = true;
    w->kind = kind, w->n++;
    return true;
}

static osh_status windows_init(osh_ctx *cx, osh_windows *w)
{
    osh_status rc = OSH_OK;
    w->most = !w->apart ? 1 : w->on_gpu ? OSH_GROUPS_AT_ONCE
              : w->n_threads > 1 ? osh_jobs_waiting(w->n_threads) : 1;
    w->at = w->of.first;
    OSH_NEW(cx, w->calls, w->most);
    OSH_NEW(cx, w->taken, w->of.end - w->of.first);
done:
    return rc;
}

osh_status osh_windows_next(osh_ctx *cx, osh_windows *w)
{
    osh_status rc = OSH_OK;
    if (!w->calls) OSH_TRY(windows_init(cx, w));
    for (int k = 0; k < w->n; k++) call_deinit(cx, &w->calls[k]);
    w->n = 0;
    const osh_linear *l = w->p->match->linears;
    for (int i = w->at; i < w->of.end && w->n < w->most; i++) {
        if (!windows_has(w, i)) continue;
        bool gathers = w->n && w->kind == OSH_WINDOW_GATHERED;
        if (gathers && !linears_are_alike(&l[i], &l[w->calls->which[0]])) continue;
        if (!w->n) w->at = i + 1;
        osh_call *c = &w->calls[w->n];
        OSH_TRY(call_init(cx, c, w, i));
        bool added = window_add(w, c);
        if (!added) call_deinit(cx, c);
        if (!added && !gathers) break;
        if (w->kind == OSH_WINDOW_ALONE || w->kind == OSH_WINDOW_BLOCK) break;
    }
    int64_t all = 0;
    for (int k = 0; k < w->n; k++) all += w->calls[k].weights;
    if ((w->kind == OSH_WINDOW_GATHERED && w->n == 1) ||
        (w->kind == OSH_WINDOW_APART &&
         !osh_jobs_are_many(all, window_largest(w), w->n_threads)))
        w->kind = OSH_WINDOW_ALONE;
done:
    return rc;
}

void osh_windows_deinit(osh_ctx *cx, osh_windows *w)
{
    for (int k = 0; w->calls && k < w->most; k++) call_deinit(cx, &w->calls[k]);
    osh_free(cx, w->calls);
    osh_free(cx, w->taken);
    w->calls = NULL, w->taken = NULL, w->n = 0;
}

size_t osh_windows_bytes(int n_linears, int n_threads)
{
    const osh_windows *w = NULL; // never dereferenced: sizeof needs only the types of its members
    const osh_call *c = NULL;
    int waiting = osh_jobs_waiting(n_threads);
    size_t n = (size_t)n_linears,
           most = (size_t)(waiting > OSH_GROUPS_AT_ONCE ? waiting : OSH_GROUPS_AT_ONCE);
    return osh_mem_gross(n * sizeof *c->which) + osh_mem_gross(n * sizeof *c->jobs) +
           osh_mem_gross(n * sizeof *c->shapes) + osh_mem_gross(n * sizeof *w->taken) +
           osh_mem_gross(most * sizeof *w->calls);
}
