/* compare_output.c - reads the results of an output directory from its oneshot-report.json. The
 * file has an evaluation if the run had --eval, or if tuning held samples back and measured
 * them. */
#include "report/compare.h"

#include <string.h>

#include "base/file.h"
#include "io/container.h"
#include "text/json.h"

/* Sums over the modules whose losses are known.
 * lost: sum of the losses.
 * nearest: sum of the losses after rounding to nearest. */
typedef struct module_losses {
    double lost, nearest;
} module_losses;

static osh_status losses_add(osh_ctx *cx, void *user, const cJSON *o)
{
    module_losses *s = user;
    const cJSON *lost = cJSON_GetObjectItemCaseSensitive(o, "objective"),
                *nearest = cJSON_GetObjectItemCaseSensitive(o, "nearest_objective");
    (void)cx;
    if (!cJSON_IsNumber(lost) || !cJSON_IsNumber(nearest) || nearest->valuedouble <= 0)
        return OSH_OK;
    s->lost += lost->valuedouble, s->nearest += nearest->valuedouble;
    return OSH_OK;
}

/* Sets *bytes to the size of all files with tensors in a directory. */
static osh_status output_bytes(osh_ctx *cx, int64_t *bytes, const char *dir)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *path = NULL; // own
    size_t n = 0;
    *bytes = 0;
    OSH_TRY(osh_dir_list(cx, &names, &n, dir));
    for (size_t i = 0; i < n; i++) {
        int64_t size, mtime;
        if (!osh_container_kind_of(names[i])) continue;
        osh_free(cx, path);
        if (!(path = osh_path_join(cx, dir, names[i]))) OSH_TRY(OSH_E_NOMEM);
        OSH_TRY(osh_file_stat(cx, &size, &mtime, path));
        *bytes += size;
    }
done:
    osh_free(cx, path);
    osh_strings_free(cx, names, n);
    return rc;
}

static osh_status output_text(osh_ctx *cx, char **out, const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    *out = osh_strdup(cx, cJSON_IsString(v) ? v->valuestring : "");
    return *out ? OSH_OK : OSH_E_NOMEM;
}

static osh_status output_number(osh_ctx *cx, double *out, const cJSON *o, const char *key,
                                const char *path)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!cJSON_IsNumber(v))
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s: the evaluation has no number \"%s\", which this version of oneshot "
                        "writes: want a run with --eval, or a file of `oneshot eval --panel`",
                        path, key);
    *out = v->valuedouble;
    return OSH_OK;
}

/* Reads the evaluation `e` of the report `root`. The file `path` has the report. */
static osh_status output_scores(osh_ctx *cx, osh_panel *p, const cJSON *root, const cJSON *e,
                                const char *path)
{
    osh_status rc = OSH_OK;
    double n = 0;
    OSH_TRY(output_number(cx, &p->kl_p99, e, "kl_p99", path));
    OSH_TRY(output_number(cx, &p->kl_mean, e, "kl_divergence", path));
    OSH_TRY(output_number(cx, &p->top1, e, "top1_agreement", path));
    OSH_TRY(output_number(cx, &p->nll, e, "nll", path));
    OSH_TRY(output_number(cx, &p->perplexity, e, "perplexity", path));
    OSH_TRY(output_number(cx, &p->reference_perplexity, e, "reference_perplexity", path));
    OSH_TRY(output_number(cx, &n, e, "scored_tokens", path));
    if (!(n >= 1 && n < 1e18))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: \"scored_tokens\" is %g, want a number from 1", path, n);
    p->n_scored = (int64_t)n;
    OSH_TRY(output_text(cx, &p->tokens, e, "tokens_xxh3"));
    bool named = cJSON_GetObjectItemCaseSensitive(e, "data") != NULL;
    OSH_TRY(output_text(cx, &p->data, named ? e : cJSON_GetObjectItemCaseSensitive(root, "options"),
                        named ? "data" : "eval"));
    OSH_TRY(output_text(cx, &p->reference, root, "model"));
done:
    return rc;
}

osh_status osh_compare_output(osh_ctx *cx, osh_panel *p, const char *dir)
{
    osh_status rc = OSH_OK;
    module_losses sums = {0};
    const osh_json_taken lists[] = {{.key = "modules", .item = losses_add}, {.key = NULL}};
    cJSON *root = NULL;                                         // own
    char *path = osh_path_join(cx, dir, "oneshot-report.json"); // own
    *p = (osh_panel){.name = osh_strdup(cx, dir), .model = osh_strdup(cx, dir), .loss = -1};
    if (!path || !p->name || !p->model) OSH_TRY(OSH_E_NOMEM);
    if (!osh_file_exists(path))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: is a directory without oneshot-report.json, want an output of oneshot, or "
                 "the file of `oneshot eval --model %s --reference DIR --dataset TEXT --panel "
                 "FILE.json`",
                 dir, dir);
    OSH_TRY(osh_json_read_lists(cx, &root, path, lists, &sums));
    if (!cJSON_IsString(cJSON_GetObjectItemCaseSensitive(root, "version")) ||
        !cJSON_GetObjectItemCaseSensitive(root, "modules"))
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: has no \"version\" or no \"modules\", so it is not a report of oneshot: want "
                 "the file that the run wrote",
                 path);
    OSH_TRY(output_bytes(cx, &p->model_bytes, dir));
    if (sums.nearest > 0) p->loss = sums.lost / sums.nearest;
    const cJSON *e = cJSON_GetObjectItemCaseSensitive(root, "evaluation");
    p->unscored = !e;
    if (e) OSH_TRY(output_scores(cx, p, root, e, path));
done:
    cJSON_Delete(root);
    osh_free(cx, path);
    return rc;
}
