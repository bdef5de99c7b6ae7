/* awq.c - implements AWQModifier: Lin et al., "AWQ: Activation-aware Weight Quantization for
 * On-Device LLM Compression and Acceleration" (arXiv 2306.00978), with the grid and the arguments
 * of llmcompressor/modifiers/transform/awq/base.py. awq_search.c has the search. */
#include "modifiers/awq.h"
#include "modifiers/mappings.h"

#include <string.h>

typedef struct awq {
    int64_t n_grid;
    char *duo;             // own: "true", "false" or "both"
    osh_mapping *mappings; // own
    size_t n;
} awq;

static const osh_field fields[] = {
    {.name = "n_grid", .type = OSH_F_INT, .offset = offsetof(awq, n_grid), .dflt = "20", .min = 2,
     .max = 1000, .doc = "number of exponents that the search tries"},
    {0},
};

static osh_status duo_read(osh_ctx *cx, awq *q, const osh_yaml *v, const char *what)
{
    osh_status rc = OSH_OK;
    bool both = v->kind == OSH_Y_STR && !strcmp(v->text, "both");
    if (v->kind != OSH_Y_BOOL && !both)
        OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: duo_scaling: want true, false or both", what, v->line,
                 v->column);
    if (!(q->duo = osh_strdup(cx, both ? "both" : v->b ? "true" : "false")))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a recipe");
done:
    return rc;
}

static osh_status awq_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                          bool *known, const char *what)
{
    osh_status rc = OSH_OK;
    awq *q = m->args;
    *known = true;
    if (!strcmp(key, "mappings")) {
        OSH_TRY(osh_mappings_read(cx, &q->mappings, &q->n, v, what));
    } else if (!strcmp(key, "duo_scaling")) {
        OSH_TRY(duo_read(cx, q, v, what));
    // this key names the device on which LLM Compressor stores inputs; this program stores none
    } else if (!strcmp(key, "offload_device")) {
        if (v->kind != OSH_Y_NULL)
            osh_log(cx, OSH_LOG_WARN,
                    "%s:%d: offload_device has no effect: the search needs no stored inputs", what,
                    v->line);
    } else {
        *known = false;
    }
done:
    return rc;
}

static bool is_duo(const awq *q, const char *kind)
{
    return !strcmp(q->duo ? q->duo : "true", kind);
}

static osh_status awq_resolve(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    const awq *q = m->args;
    int64_t least = is_duo(q, "both") ? 4 : is_duo(q, "true") ? 3 : 2;
    if (q->n_grid < least)
        OSH_FAIL(cx, OSH_E_USAGE, "n_grid: %ld with duo_scaling %s: want at least %ld",
                 (long)q->n_grid, q->duo ? q->duo : "true", (long)least);
done:
    return rc;
}

static void awq_end(osh_ctx *cx, osh_modifier *m)
{
    awq *q = m->args;
    osh_mappings_free(cx, q->mappings, q->n);
    osh_free(cx, q->duo);
}

static const osh_mapping *awq_mappings(const osh_modifier *m, size_t *n)
{
    const awq *q = m->args;
    *n = q->n;
    return q->mappings;
}

static int awq_n_points(const awq *q)
{
    return (int)(is_duo(q, "both") ? q->n_grid / 2 * 2 : q->n_grid);
}

static int awq_points(const osh_modifier *m) { return awq_n_points(m->args); }

static osh_awq_point awq_point_at(const awq *q, int i)
{
    int n = awq_n_points(q);
    if (is_duo(q, "both")) return (osh_awq_point){(double)(i / 2) / (n / 2 - 1), i % 2};
    if (is_duo(q, "false")) return (osh_awq_point){(double)i / (n - 1), false};
    return i ? (osh_awq_point){(double)(i - 1) / (n - 2), true} : (osh_awq_point){0};
}

static osh_status awq_search(osh_ctx *cx, const osh_modifier *m, float *s, osh_search *j)
{
    osh_status rc = OSH_OK;
    const awq *q = m->args;
    int n = awq_n_points(q);
    osh_awq_point *grid = NULL; // own
    OSH_NEW(cx, grid, n);
    for (int i = 0; i < n; i++) grid[i] = awq_point_at(q, i);
    OSH_TRY(osh_awq_search(cx, s, j, grid, n, m->arithmetic));
done:
    osh_free(cx, grid);
    return rc;
}

static size_t awq_bytes(const osh_modifier *m, const osh_search *j, int n_threads)
{
    int n = awq_n_points(m->args);
    return osh_mem_gross((size_t)n * sizeof(osh_awq_point)) + osh_awq_search_bytes(j, n, n_threads);
}

static osh_status awq_takes(osh_ctx *cx, const osh_modifier *m, const char *name,
                            const osh_q_scheme *s)
{
    osh_status rc = OSH_OK;
    if (s->weights.present && s->weights.strategy == OSH_Q_TENSOR)
        OSH_FAIL(
            cx, OSH_E_USAGE,
            "%s: %s has one scale for the whole weight: want a strategy of groups, channels or "
            "blocks",
            m->type->name, name);
done:
    return rc;
}

static const osh_transform awq_transform = {
    .mappings = awq_mappings, .search = awq_search, .search_bytes = awq_bytes,
    .search_points = awq_points, .takes = awq_takes,
};
const osh_modifier_type osh_modifier_awq = {
    .name = "AWQModifier", .fields = fields, .bytes = sizeof(awq), .key = awq_key,
    .keys = "mappings, duo_scaling, offload_device", .resolve = awq_resolve, .end = awq_end,
    .transform = &awq_transform,
};
