/* panel.c - writes and reads the JSON file of an evaluation's figures. */
#include "eval/panel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/name.h"
#include "text/json.h"

enum { MOST_PANEL_BYTES = 1 << 20 };

static int panel_by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double osh_panel_quantile(float *v, int64_t n, double share)
{
    if (n > 1) qsort(v, (size_t)n, sizeof *v, panel_by_value);
    int64_t at = (int64_t)ceil(share * (double)n) - 1;
    return n ? v[at < 0 ? 0 : at] : 0;
}

osh_status osh_panel_write(osh_ctx *cx, const char *path, const osh_panel *p)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_printf(cx, &b, "{\"oneshot_panel\": 1,\n \"model\": "));
    OSH_TRY(osh_json_put_string(cx, &b, p->model));
    OSH_TRY(osh_buf_printf(cx, &b, ",\n \"dataset\": "));
    OSH_TRY(osh_json_put_string(cx, &b, p->data));
    OSH_TRY(osh_buf_printf(cx, &b,
                           ",\n \"tokens_xxh3\": \"%s\",\n \"samples\": %lld,\n"
                           " \"scored_tokens\": %lld,\n \"vocabulary\": %lld,\n"
                           " \"model_bytes\": %lld,\n \"nll\": %.8f,\n \"perplexity\": %.6f",
                           p->tokens, (long long)p->n_samples, (long long)p->n_scored,
                           (long long)p->n_vocab, (long long)p->model_bytes, p->nll,
                           p->perplexity));
    if (p->reference) {
        OSH_TRY(osh_buf_printf(cx, &b, ",\n \"reference\": "));
        OSH_TRY(osh_json_put_string(cx, &b, p->reference));
        OSH_TRY(osh_buf_printf(cx, &b,
                               ",\n \"reference_perplexity\": %.6f,\n \"kl_mean\": %.8f,\n"
                               " \"kl_p99\": %.8f,\n \"top1_agreement\": %.6f",
                               p->reference_perplexity, p->kl_mean, p->kl_p99, p->top1));
    }
    OSH_TRY(osh_buf_printf(cx, &b, "}\n"));
    OSH_TRY(osh_file_write_all(cx, path, b.data, b.len));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status panel_text(osh_ctx *cx, char **out, const cJSON *o, const char *key,
                             const char *path)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!cJSON_IsString(v))
        return osh_fail(cx, OSH_E_FORMAT, "%s: \"%s\" is not a text: want a file of eval --panel",
                        path, key);
    *out = osh_strdup(cx, v->valuestring);
    return *out ? OSH_OK : OSH_E_NOMEM;
}

static osh_status panel_number(osh_ctx *cx, double *out, const cJSON *o, const char *key,
                               const char *path)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!cJSON_IsNumber(v))
        return osh_fail(cx, OSH_E_FORMAT, "%s: \"%s\" is not a number: want a file of eval --panel",
                        path, key);
    *out = v->valuedouble;
    return OSH_OK;
}

static osh_status panel_count(osh_ctx *cx, int64_t *out, const cJSON *o, const char *key,
                              const char *path)
{
    double v = 0;
    osh_status rc = panel_number(cx, &v, o, key, path);
    if (!rc && !(v >= 0 && v < 1e18))
        rc = osh_fail(cx, OSH_E_FORMAT, "%s: \"%s\" is %g, want a number from 0", path, key, v);
    if (!rc) *out = (int64_t)v;
    return rc;
}

osh_status osh_panel_read(osh_ctx *cx, osh_panel *p, const char *path)
{
    osh_status rc = OSH_OK;
    cJSON *root = NULL; // own
    *p = (osh_panel){.name = osh_strdup(cx, osh_path_last(path)), .loss = -1};
    if (!p->name) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_json_read(cx, &root, path, MOST_PANEL_BYTES, 0));
    const cJSON *mark = cJSON_GetObjectItemCaseSensitive(root, "oneshot_panel");
    if (!cJSON_IsNumber(mark) || mark->valuedouble != 1)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: is not a file of eval --panel", path);
    OSH_TRY(panel_text(cx, &p->model, root, "model", path));
    OSH_TRY(panel_text(cx, &p->data, root, "dataset", path));
    OSH_TRY(panel_text(cx, &p->tokens, root, "tokens_xxh3", path));
    OSH_TRY(panel_count(cx, &p->n_samples, root, "samples", path));
    OSH_TRY(panel_count(cx, &p->n_scored, root, "scored_tokens", path));
    OSH_TRY(panel_count(cx, &p->n_vocab, root, "vocabulary", path));
    OSH_TRY(panel_count(cx, &p->model_bytes, root, "model_bytes", path));
    OSH_TRY(panel_number(cx, &p->nll, root, "nll", path));
    OSH_TRY(panel_number(cx, &p->perplexity, root, "perplexity", path));
    if (!cJSON_HasObjectItem(root, "reference")) goto done;
    OSH_TRY(panel_text(cx, &p->reference, root, "reference", path));
    OSH_TRY(panel_number(cx, &p->reference_perplexity, root, "reference_perplexity", path));
    OSH_TRY(panel_number(cx, &p->kl_mean, root, "kl_mean", path));
    OSH_TRY(panel_number(cx, &p->kl_p99, root, "kl_p99", path));
    OSH_TRY(panel_number(cx, &p->top1, root, "top1_agreement", path));
done:
    cJSON_Delete(root);
    return rc;
}

void osh_panel_deinit(osh_ctx *cx, osh_panel *p)
{
    osh_free(cx, p->name);
    osh_free(cx, p->model);
    osh_free(cx, p->reference);
    osh_free(cx, p->data);
    osh_free(cx, p->tokens);
    *p = (osh_panel){.name = NULL};
}
