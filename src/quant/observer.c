/* observer.c - defines the table of observers, and checks of the keys in observer_kwargs. */
#include "quant/observer.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/near.h"
#include "quant/kernels.h"

#define OSH_OBSERVER(x) extern const osh_observer osh_observer_##x;
#include "quant/observers.def"
#undef OSH_OBSERVER

static const osh_observer *const observers[] = {
#define OSH_OBSERVER(x) &osh_observer_##x,
#include "quant/observers.def"
#undef OSH_OBSERVER
};

enum { N_OBSERVERS = sizeof observers / sizeof *observers };

const osh_observer *osh_observer_find(const char *name)
{
    for (size_t i = 0; i < N_OBSERVERS; i++)
        if (!strcmp(name, observers[i]->name)) return observers[i];
    return NULL;
}

const osh_observer *osh_observer_of(const osh_q_args *a)
{
    return osh_observer_find(a->observer[0] ? a->observer : "minmax");
}

bool osh_q_observer_is_plain(const osh_q_args *a)
{
    return !strcmp(a->observer, "") || strstr(a->observer, "minmax");
}

void osh_q_observer_plain(osh_q_args *a)
{
    snprintf(a->observer, sizeof a->observer, "memoryless_minmax");
    a->n_kwargs = 0;
}

void osh_q_observer_default(osh_q_args *a, bool is_weight)
{
    if (a->observer[0] || !a->present) return;
    if (is_weight)
        snprintf(a->observer, sizeof a->observer, "memoryless_minmax");
    else if (a->dynamic != OSH_Q_DYNAMIC)
        snprintf(a->observer, sizeof a->observer, "minmax");
}

static const osh_observer_key *key_of(const osh_observer *o, const char *name)
{
    for (const osh_observer_key *k = o->keys; k->name; k++)
        if (!strcmp(k->name, name)) return k;
    return NULL;
}

static const osh_q_kwarg *kwarg_of(const osh_q_args *a, const char *name)
{
    for (int i = 0; i < a->n_kwargs; i++)
        if (!strcmp(a->kwargs[i].name, name)) return &a->kwargs[i];
    return NULL;
}

double osh_observer_value(const osh_q_args *a, const char *key)
{
    const osh_q_kwarg *given = kwarg_of(a, key);
    return given ? given->value : key_of(osh_observer_of(a), key)->dflt;
}

int64_t osh_observer_bins(const osh_q_args *a)
{
    const osh_observer *o = osh_observer_of(a);
    int64_t bins = (int64_t)osh_observer_value(a, "bins");
    return o->halves(a) ? bins / 2 : bins;
}

static float moving_average(float old, float now, double share, osh_dtype dt)
{
    return osh_q_round_to(
        osh_q_round_to(old * (float)(1 - share), dt) + osh_q_round_to(now * (float)share, dt), dt);
}

void osh_observer_average(float *min, float *max, float lo, float hi, const osh_q_args *a,
                          osh_dtype dt)
{
    double share = osh_observer_value(a, "averaging_constant");
    *min = moving_average(*min, lo, share, dt);
    *max = moving_average(*max, hi, share, dt);
}

osh_status osh_q_observer_kwarg(osh_ctx *cx, osh_q_args *a, const osh_q_kwarg *given,
                                const char *where)
{
    const osh_q_kwarg *there = kwarg_of(a, given->name);
    // if a key occurs twice, the later value replaces the earlier one
    if (there) a->kwargs[there - a->kwargs] = *given;
    else if (a->n_kwargs < OSH_Q_KWARGS) a->kwargs[a->n_kwargs++] = *given;
    else return osh_fail(cx, OSH_E_USAGE, "%s: more than %d observer_kwargs", where, OSH_Q_KWARGS);
    return OSH_OK;
}

osh_status osh_q_observer_known(osh_ctx *cx, const char *name, const char *where)
{
    if (osh_observer_find(name)) return OSH_OK;
    osh_near near;
    osh_buf b;
    osh_buf_init(&b, 1024);
    osh_near_init(&near, name);
    for (size_t i = 0; i < N_OBSERVERS; i++) {
        osh_buf_printf(cx, &b, "%s%s", i ? ", " : "", observers[i]->name);
        osh_near_see(&near, observers[i]->name);
    }
    osh_status rc = osh_fail(cx, OSH_E_USAGE, "%s: unknown observer '%s': want %s%s", where,
                             near.word, b.data ? b.data : "", osh_near_hint(&near, ""));
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status unknown_kwarg(osh_ctx *cx, const osh_observer *o, const char *name,
                                const char *where)
{
    osh_near near;
    osh_buf b;
    osh_buf_init(&b, 1024);
    osh_near_init(&near, name);
    for (const osh_observer_key *k = o->keys; k->name; k++) {
        osh_buf_printf(cx, &b, "%s%s", k == o->keys ? "" : ", ", k->name);
        osh_near_see(&near, k->name);
    }
    osh_status rc =
        osh_fail(cx, OSH_E_USAGE, "%s: unknown observer_kwargs '%s' of %s: want %s%s", where,
                 near.word, o->name, b.data && b.len ? b.data : "none", osh_near_hint(&near, ""));
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Fails if the observer does not support NVFP4. The global scale of NVFP4 depends on the ranges of
 * several weights, and each weight is read in pieces of a few rows. So the observer must find the
 * ranges of a piece without the other rows. */
static osh_status check_relative(osh_ctx *cx, const osh_observer *o, const osh_q_args *a,
                                 const char *where)
{
    if (o->choose)
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "%s: observer %s with strategy tensor_group (NVFP4) is not supported: "
                        "want minmax or static_minmax",
                        where, o->name);
    if (!o->search) return OSH_OK;
    if (a->dynamic == OSH_Q_LOCAL || o->search(a).weighted)
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "%s: observer %s does not search ranges of strategy tensor_group (NVFP4) "
                        "yet: want minmax, static_minmax%s",
                        where, o->name, a->dynamic == OSH_Q_LOCAL ? "" : " or nvfp4_expanded_mse");
    if (osh_observer_by_rows(a)) return OSH_OK;
    return osh_fail(
        cx, OSH_E_UNSUPPORTED,
        "%s: observer %s of strategy tensor_group (NVFP4) may end before its %ld steps: want "
        "nvfp4_expanded_mse, or observer_kwargs with patience: %ld",
        where, o->name, (long)o->search(a).steps, (long)o->search(a).steps);
}

osh_status osh_q_observer_check(osh_ctx *cx, const osh_q_args *a, const char *where)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_q_observer_known(cx, osh_observer_of(a) ? "minmax" : a->observer, where));
    const osh_observer *o = osh_observer_of(a);
    if (a->strategy == OSH_Q_TENSOR_GROUP) OSH_TRY(check_relative(cx, o, a, where));
    bool weighted = o->search && o->search(a).weighted;
    if (weighted && !osh_observer_weighs(a)) {
        if (osh_observer_value(a, "strict") != 0)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s: observer %s with strict: true wants weights of strategy channel or group",
                     where, o->name);
        osh_log(cx, OSH_LOG_WARN,
                "%s: observer %s gives all input channels the same weight with this strategy",
                where, o->name);
    }
    for (int i = 0; i < a->n_kwargs; i++) {
        const osh_q_kwarg *given = &a->kwargs[i];
        const osh_observer_key *k = key_of(o, given->name);
        if (!k) return unknown_kwarg(cx, o, given->name, where);
        bool whole = given->value == (double)(int64_t)given->value;
        if (!(given->value >= k->min && given->value <= k->max) || (k->whole && !whole))
            OSH_FAIL(cx, OSH_E_USAGE, "%s: observer_kwargs.%s is %g, want a %snumber in [%g, %g]",
                     where, k->name, given->value, k->whole ? "whole " : "", k->min, k->max);
        if (k->idle)
            osh_log(cx, OSH_LOG_INFO, "%s: observer_kwargs.%s has no effect here", where, k->name);
    }
done:
    return rc;
}
