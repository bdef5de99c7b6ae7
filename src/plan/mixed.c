/* mixed.c - chooses a scheme for each unit. A unit is the Linears that must get the same scheme,
 * such as q, k and v of a layer. The schemes to choose from are the candidates.
 *
 * A candidate of a unit is a point (bytes, loss). Only the points on the lower convex hull are
 * used, in the order of their bytes. A step changes a unit from one of these candidates to the next
 * one. A step costs bytes and saves loss, but less loss per byte than the unit's previous step. The
 * steps of all units are done in the order of their savings per byte, as long as the size fits.
 * Then single candidates are exchanged, as long as an exchange fits and saves loss.
 *
 * The bound is a loss that no choice can go below. It is the loss if the first step that does not
 * fit is done in part, as far as it fits. */
#include "plan/mixed.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/number.h"
#include "modifiers/survey.h"
#include "quant/fusion.h"
#include "quant/source.h"

/* ---- units ---- */

/* Returns the number of bytes of an expert's name up to "experts". The names of all experts of a
 * layer begin with these bytes. Returns 0 if the module is no expert. */
static size_t experts_prefix(const char *name)
{
    static const char mark[] = ".experts.";
    const char *at = strstr(name, mark);
    return at && isdigit((unsigned char)at[sizeof mark - 1])
               ? (size_t)(at - name) + sizeof mark - 2 : 0;
}

/* Returns the name (own) of the unit that contains the module, or NULL if out of memory. All
 * modules of a unit must get the same scheme. */
static char *unit_name(osh_ctx *cx, const osh_plan *p, const char *name)
{
    size_t n = experts_prefix(name);
    if (n) return osh_sprintf(cx, "%.*s", (int)n, name);
    const osh_q_fusion f = osh_q_fusion_find(osh_q_family_of(p->in.ck->config), name);
    return f.fused ? osh_q_fusion_name(cx, name, f.parts[0]) : osh_strdup(cx, name);
}

static osh_status candidate_bytes(osh_ctx *cx, int64_t *bytes, const osh_linear *l,
                                  const osh_q_scheme *s)
{
    osh_status rc = OSH_OK;
    const osh_format *f = NULL; // view
    osh_format_tensor t[OSH_FORMAT_MAX_TENSORS];
    int n = 0;
    *bytes = 0;
    OSH_TRY(osh_format_infer(cx, &f, s, l->name));
    OSH_TRY(f->tensors(cx, t, &n, &(osh_format_weight){s, l->O, l->I, l->dtype}));
    for (int k = 0; k < n; k++) {
        int64_t numel = 0;
        osh_shape_numel(&numel, t[k].ndim, t[k].shape);
        *bytes += numel * (int64_t)osh_dtype_bytes(t[k].dtype);
    }
done:
    return rc;
}

static osh_status unit_add_linear(osh_ctx *cx, osh_mixed *m, const osh_plan *p, int linear,
                                  const osh_losses *losses)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &p->match.linears[linear];
    osh_mixed_unit *u = &m->units[m->unit_of[linear]];
    osh_q_scheme s;
    int k = 0;
    for (; osh_survey_scheme(&s, &p->in.recipe->modifiers[l->modifier], l->scheme, k); k++) {
        int64_t bytes = 0;
        OSH_TRY(candidate_bytes(cx, &bytes, l, &s));
        osh_survey_label(u->label[k], &p->in.recipe->modifiers[l->modifier], k);
        u->bits[k] = s.weights.bits, u->bytes[k] += bytes, u->loss[k] += losses->of[k];
    }
    u->n = k, u->rounded += losses->all;
    u->n_weights += l->O * l->I, m->n_weights += l->O * l->I;
done:
    return rc;
}

osh_status osh_mixed_new(osh_ctx *cx, osh_mixed **out, const osh_plan *p,
                         const osh_losses *const *losses)
{
    osh_status rc = OSH_OK;
    osh_mixed *m = NULL;  // own
    /* own: map with the index of each unit; the key is the unit's name and its scheme's index */
    osh_map *first = NULL;
    char *name = NULL, *key = NULL; // own
    OSH_NEW(cx, m, 1);
    OSH_NEW(cx, m->units, p->match.n_linears);
    OSH_NEW(cx, m->unit_of, p->match.n_linears);
    if (p->gradients_not && !(m->gradients_not = osh_strdup(cx, p->gradients_not)))
        OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_map_new(cx, &first, (size_t)p->match.n_linears));
    for (int i = 0; i < p->match.n_linears; i++) {
        int64_t at;
        osh_free(cx, key);
        key = NULL;
        if (!(name = unit_name(cx, p, p->match.linears[i].name)) ||
            !(key = osh_sprintf(cx, "%s %d", name, p->match.linears[i].scheme_index)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a module's name");
        if (!osh_map_get(first, key, strlen(key), &at)) {
            at = m->n_units;
            OSH_TRY(osh_map_put(cx, first, key, strlen(key), at));
            m->units[m->n_units++] = (osh_mixed_unit){.name = name};
            name = NULL; // passes ownership
        }
        osh_free(cx, name), name = NULL;
        m->unit_of[i] = (int)at;
        OSH_TRY(unit_add_linear(cx, m, p, i, losses[i]));
    }
    *out = m, m = NULL; // passes ownership
done:
    osh_map_free(cx, first);
    osh_free(cx, name);
    osh_free(cx, key);
    osh_mixed_free(cx, m);
    return rc;
}

void osh_mixed_weigh(osh_mixed *m, const double *effect)
{
    for (int i = 0; i < m->n_units; i++) {
        osh_mixed_unit *u = &m->units[i];
        double worth = u->rounded > 0 ? effect[i] / u->rounded : 0;
        u->effect = effect[i];
        for (int k = 0; k < u->n; k++) u->loss[k] *= worth > 0 ? worth : 0;
    }
}

void osh_mixed_by_gradients(osh_mixed *m, const osh_plan *p)
{
    double each = 0.5 / (double)p->in.data.offsets[p->in.data.n];
    for (int i = 0; i < m->n_units; i++) {
        osh_mixed_unit *u = &m->units[i];
        u->effect = each * u->rounded;
        for (int k = 0; k < u->n; k++) u->loss[k] *= each;
    }
}

void osh_mixed_free(osh_ctx *cx, osh_mixed *m)
{
    if (!m) return;
    for (int i = 0; i < m->n_units; i++) osh_free(cx, m->units[i].name);
    osh_free(cx, m->units);
    osh_free(cx, m->unit_of);
    osh_free(cx, m->curve);
    osh_free(cx, m->gradients_not);
    osh_free(cx, m);
}

/* ---- choice of candidates ---- */

typedef struct step { // change of a unit from one candidate to a candidate with more bytes
    double per_byte;  // decrease of the loss, divided by the additional bytes
    int unit, from, to;
} step;

static int compare_savings(const void *a, const void *b)
{
    const step *x = a, *y = b;
    if (x->per_byte != y->per_byte) return x->per_byte > y->per_byte ? -1 : 1;
    if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
    return x->from - y->from;
}

static double saved_per_byte(const osh_mixed_unit *u, int from, int to)
{
    return (u->loss[from] - u->loss[to]) / (double)(u->bytes[to] - u->bytes[from]);
}

/* Sets `hull` to the indices of the unit's candidates on the lower convex hull of the points
 * (bytes, loss), in the order of rising bytes and falling loss. Returns the number of these
 * candidates. */
static int unit_hull(int *hull, const osh_mixed_unit *u)
{
    int n = 0, by_bytes[OSH_CANDIDATES];
    // sorts the candidates by bytes; if they have different formats, they may not be in this order
    // yet
    for (int i = 0; i < u->n; i++) {
        int at = i;
        for (; at > 0 && u->bytes[by_bytes[at - 1]] > u->bytes[i]; at--)
            by_bytes[at] = by_bytes[at - 1];
        by_bytes[at] = i;
    }
    for (int i = 0; i < u->n; i++) {
        int k = by_bytes[i];
        if (n && u->bytes[k] == u->bytes[hull[n - 1]] && u->loss[k] < u->loss[hull[n - 1]]) n--;
        if (n && (u->loss[k] >= u->loss[hull[n - 1]] || u->bytes[k] <= u->bytes[hull[n - 1]]))
            continue;
        while (n > 1 &&
               saved_per_byte(u, hull[n - 2], hull[n - 1]) <= saved_per_byte(u, hull[n - 1], k))
            n--;
        hull[n++] = k;
    }
    return n;
}

static void mixed_take(osh_mixed *m, int unit, int to)
{
    osh_mixed_unit *u = &m->units[unit];
    m->bytes += u->bytes[to] - u->bytes[u->chosen];
    m->loss += u->loss[to] - u->loss[u->chosen];
    u->chosen = to;
}

/* Changes the candidate of one unit. Among the changes that fit in the limit, takes the change that
 * saves the most loss. Returns false if none of these changes saves loss. */
static bool mixed_fill(osh_mixed *m)
{
    int unit = -1, to = 0;
    double most = 0;
    for (int i = 0; i < m->n_units; i++) {
        const osh_mixed_unit *u = &m->units[i];
        for (int k = 0; k < u->n; k++) {
            double saved = u->loss[u->chosen] - u->loss[k];
            if (m->bytes + u->bytes[k] - u->bytes[u->chosen] > m->limit || saved <= most) continue;
            most = saved, unit = i, to = k;
        }
    }
    if (unit >= 0) mixed_take(m, unit, to);
    return unit >= 0;
}

static osh_status mixed_add_steps(osh_ctx *cx, osh_mixed *m, step **out, int *n)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, *out, (size_t)m->n_units * OSH_CANDIDATES);
    *n = 0, m->bytes = 0, m->loss = 0;
    for (int i = 0; i < m->n_units; i++) {
        osh_mixed_unit *u = &m->units[i];
        int hull[OSH_CANDIDATES] = {0}, n_hull = unit_hull(hull, u);
        u->chosen = hull[0];
        m->bytes += u->bytes[u->chosen], m->loss += u->loss[u->chosen];
        for (int k = 0; k + 1 < n_hull; k++)
            (*out)[(*n)++] =
                (step){saved_per_byte(u, hull[k], hull[k + 1]), i, hull[k], hull[k + 1]};
    }
    qsort(*out, (size_t)*n, sizeof **out, compare_savings);
done:
    return rc;
}

static osh_status mixed_draw_curve(osh_ctx *cx, osh_mixed *m, const step *steps, int n)
{
    osh_status rc = OSH_OK;
    osh_mixed_step at = {m->bytes, m->loss};
    OSH_NEW(cx, m->curve, n + 1);
    m->n_curve = n + 1;
    m->curve[0] = at;
    for (int k = 0; k < n; k++) {
        const osh_mixed_unit *u = &m->units[steps[k].unit];
        at.bytes += u->bytes[steps[k].to] - u->bytes[steps[k].from];
        at.loss += u->loss[steps[k].to] - u->loss[steps[k].from];
        m->curve[k + 1] = at;
    }
done:
    return rc;
}

osh_status osh_mixed_choose(osh_ctx *cx, osh_mixed *m, int64_t limit)
{
    osh_status rc = OSH_OK;
    step *steps = NULL; // own
    bool relaxed = false;
    int n = 0;
    OSH_TRY(mixed_add_steps(cx, m, &steps, &n));
    m->limit = limit;
    if (m->bytes > limit)
        OSH_FAIL(
            cx, OSH_E_USAGE,
            "the quantized modules may take %lld bytes, but with the fewest bits of each module "
            "they take %lld, %.4f bits a weight: want a larger target, or fewer bits in candidates",
            (long long)limit, (long long)m->bytes, 8.0 * (double)m->bytes / (double)m->n_weights);
    OSH_TRY(mixed_draw_curve(cx, m, steps, n));
    for (int k = 0; k < n; k++) {
        osh_mixed_unit *u = &m->units[steps[k].unit];
        int64_t more = u->bytes[steps[k].to] - u->bytes[steps[k].from], room = limit - m->bytes;
        if (more > room && !relaxed)
            m->bound = m->loss - steps[k].per_byte * (double)room, relaxed = true;
        if (more <= room && u->chosen == steps[k].from) mixed_take(m, steps[k].unit, steps[k].to);
    }
    while (mixed_fill(m)) {}
    if (!relaxed) m->bound = m->loss;
done:
    osh_free(cx, steps);
    return rc;
}

osh_status osh_mixed_limit(osh_ctx *cx, int64_t *limit, const osh_mixed *m, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_options *o = p->in.opt;
    int64_t source = 0, total = 0;
    double share;
    if (o->target_bits > 0) {
        *limit = (int64_t)floor(o->target_bits * (double)m->n_weights / 8);
        goto done;
    }
    for (int i = 0; i < p->match.n_linears; i++)
        source += osh_source_stored_bytes(p->in.source, p->match.linears[i].tensor);
    size_t n = strlen(o->target_size);
    if (n && o->target_size[n - 1] == 'x') {
        char *text = osh_sprintf(cx, "%.*s", (int)n - 1, o->target_size); // own
        bool ok = text && osh_text_is_number(text, &share) && share > 0 && share <= 1;
        osh_free(cx, text);
        if (!ok)
            OSH_FAIL(cx, OSH_E_USAGE, "--target-size %s: want a share above 0 and up to 1x",
                     o->target_size);
        *limit = (int64_t)floor(share * (double)source);
        goto done;
    }
    if (!osh_text_is_bytes(o->target_size, &total))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--target-size %s: want bytes, such as 90MB, or a share of the source's, such as "
                 "0.35x",
                 o->target_size);
    *limit = total - p->manifest.dense_bytes;
    if (*limit <= 0)
        OSH_FAIL(cx, OSH_E_USAGE, "--target-size %s: the dense tensors alone take %lld bytes",
                 o->target_size, (long long)p->manifest.dense_bytes);
done:
    return rc;
}

/* ---- recipe with the chosen schemes ---- */

typedef struct lists { // groups of the recipe, each with a name and a list of modules
    osh_recipe_group *groups; // own
    size_t n;
} lists;

static void lists_deinit(osh_ctx *cx, lists *l)
{
    for (size_t i = 0; i < l->n; i++) {
        for (size_t k = 0; k < l->groups[i].n; k++) osh_free(cx, (char *)l->groups[i].modules[k]);
        osh_free(cx, (void *)l->groups[i].modules);
        osh_free(cx, (char *)l->groups[i].name);
    }
    osh_free(cx, l->groups);
}

/* Returns the target (own) for a module, or NULL if out of memory. For a module of an expert, such
 * as its down_proj, the target is a regex. It matches this module of all experts of the layer. */
static char *module_target(osh_ctx *cx, const char *name)
{
    size_t n = experts_prefix(name);
    const char *leaf = n ? strchr(name + n + 1, '.') : NULL;
    if (!leaf) return osh_strdup(cx, name);
    osh_buf b; // own
    char *out = NULL;
    osh_buf_init(&b, 0);
    osh_status rc = osh_buf_append(cx, &b, "re:^", 4);
    for (const char *c = name; !rc && *c; c++) {
        if (c == name + n + 1) rc = osh_buf_append(cx, &b, "\\d+", 3), c = leaf;
        if (!rc) rc = osh_buf_append(cx, &b, *c == '.' ? "\\." : c, *c == '.' ? 2 : 1);
    }
    if (!rc) rc = osh_buf_append(cx, &b, "$", 1);
    if (!rc) out = osh_strdup(cx, b.data);
    osh_buf_deinit(cx, &b);
    return out;
}

/* Adds a target to the group g. Takes ownership of `target`, even if it fails. */
static osh_status group_add_target(osh_ctx *cx, osh_recipe_group *g, char *target)
{
    osh_status rc = OSH_OK;
    if (!target) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a target");
    for (size_t i = 0; i < g->n; i++)
        if (!strcmp(g->modules[i], target)) {
            osh_free(cx, target);
            return OSH_OK;
        }
    const char **more = osh_realloc(cx, (void *)g->modules, (g->n + 1) * sizeof *more);
    if (!more) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a target");
    more[g->n++] = target;
    g->modules = more;
    return OSH_OK;
done:
    osh_free(cx, target);
    return rc;
}

osh_status osh_mixed_recipe(osh_ctx *cx, char **out, const osh_mixed *m, const osh_plan *p,
                            const char *head)
{
    osh_status rc = OSH_OK;
    lists l = {0};                // own
    osh_q_scheme *schemes = NULL; // own: schemes of the groups; the strings in them are views
    OSH_NEW(cx, l.groups, p->match.n_schemes * OSH_CANDIDATES);
    OSH_NEW(cx, schemes, p->match.n_schemes * OSH_CANDIDATES);
    for (size_t s = 0; s < p->match.n_schemes; s++)
        for (int k = 0; k < OSH_CANDIDATES; k++) {
            osh_recipe_group *g = &l.groups[l.n];
            for (int i = 0; i < p->match.n_linears; i++) {
                const osh_linear *x = &p->match.linears[i];
                if (x->scheme_index != (int)s || m->units[m->unit_of[i]].chosen != k) continue;
                if (!g->n)
                    osh_survey_scheme(&schemes[l.n], &p->in.recipe->modifiers[x->modifier],
                                      x->scheme, k);
                g->modifier = x->modifier, g->scheme = &schemes[l.n];
                OSH_TRY(group_add_target(cx, g, module_target(cx, x->name)));
            }
            if (!g->n) continue;
            l.n++;
            const osh_modifier *of = &p->in.recipe->modifiers[g->modifier];
            bool named = of->n_candidates && !of->candidates[k].bits;
            g->name = named ? osh_sprintf(cx, "%s_%s", p->match.schemes[s].group_name,
                                          of->candidates[k].name)
                            : osh_sprintf(cx, "%s_%dbit", p->match.schemes[s].group_name,
                                          g->scheme->weights.bits);
            if (!g->name)
                OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a group's name");
        }
    OSH_TRY(osh_recipe_with_groups(cx, out, p->in.recipe, head, l.groups, l.n));
done:
    // after a failure, the last group may be incomplete, so the whole array is freed
    if (rc && l.groups) l.n = p->match.n_schemes * OSH_CANDIDATES;
    lists_deinit(cx, &l);
    osh_free(cx, schemes);
    return rc;
}
