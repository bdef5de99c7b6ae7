/* verify.c - implements `oneshot verify OUT [--model SRC]`: reads every shard of an output again
 * and lists all problems. */
#include "verify/verify.h"
#include "verify/verify_output.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "graph/templates.h"
#include "output/emit_impl.h"

static osh_status verify_look(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    if (!osh_dir_exists(v->dir)) OSH_FAIL(cx, OSH_E_USAGE, "%s is not a directory", v->dir);
    if (v->opt->model && !osh_dir_exists(v->opt->model))
        OSH_FAIL(cx, OSH_E_USAGE, "%s is not a directory", v->opt->model);
    if (v->opt->models_dir) OSH_TRY(osh_templates_check(cx, v->opt->models_dir));
    rc = osh_checkpoint_open(cx, &v->ck, v->dir);
    OSH_TRY(osh_verify_failed(cx, v, rc, v->dir, "a checkpoint"));
    OSH_TRY(osh_verify_agree(cx, v, "another output", v->ck));
    OSH_TRY(osh_verify_read_manifest(cx, v));
    if (v->manifest) OSH_TRY(osh_verify_manifest(cx, v));
    osh_verify_alone(v);
    if (v->ck) OSH_TRY(osh_verify_config(cx, v));
    if (v->ck && v->opt->model) {
        OSH_TRY(osh_verify_plan(cx, v));
        OSH_TRY(osh_verify_side_files(cx, v));
    }
    OSH_TRY(osh_verify_strangers(cx, v));
    OSH_TRY(osh_verify_gather(cx, v));
    if (v->opt->complete) *v->opt->complete = true;
done:
    return rc;
}

static osh_status verify_as_text(osh_ctx *cx, osh_buf *b, const osh_verify *v)
{
    osh_status rc = OSH_OK;
    size_t shown = v->n < OSH_VERIFY_MAX ? v->n : OSH_VERIFY_MAX;
    for (size_t i = 0; i < shown; i++)
        OSH_TRY(osh_buf_line(cx, b, "%s: %s, wanted %s", v->findings[i].where, v->findings[i].found,
                             v->findings[i].wanted));
    if (v->n > shown) OSH_TRY(osh_buf_printf(cx, b, "and %zu more\n", v->n - shown));
    char count[32] = "no";
    if (v->n) snprintf(count, sizeof count, "%zu", v->n);
    OSH_TRY(osh_buf_line(cx, b,
                         "%s: %lld checksums agree, %lld modules checked, %lld tensors equal the "
                         "source's; %s findings",
                         v->dir, (long long)v->n_sums, (long long)v->n_modules,
                         (long long)v->n_compared, count));
done:
    return rc;
}

static osh_status verify_as_json(osh_ctx *cx, osh_buf *b, const osh_verify *v)
{
    osh_status rc = OSH_OK;
    char *text = NULL;                                            // own
    cJSON *root = cJSON_CreateObject();                           // own
    cJSON *list = cJSON_AddArrayToObject(root, "findings");
    bool ok = list && cJSON_AddBoolToObject(root, "ok", !v->n) &&
              cJSON_AddNumberToObject(root, "n_findings", (double)v->n) &&
              cJSON_AddNumberToObject(root, "checksums", (double)v->n_sums) &&
              cJSON_AddNumberToObject(root, "modules", (double)v->n_modules) &&
              cJSON_AddNumberToObject(root, "equal_tensors", (double)v->n_compared);
    for (size_t i = 0; ok && i < v->n && i < OSH_VERIFY_MAX; i++) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(list, o);
        ok = o && cJSON_AddStringToObject(o, "where", v->findings[i].where) &&
             cJSON_AddStringToObject(o, "found", v->findings[i].found) &&
             cJSON_AddStringToObject(o, "wanted", v->findings[i].wanted);
    }
    if (!ok) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the findings");
    OSH_TRY(osh_json_print(cx, &text, root, 0));
    OSH_TRY(osh_buf_printf(cx, b, "%s\n", text));
done:
    osh_free(cx, text);
    cJSON_Delete(root);
    return rc;
}

static void verify_deinit(osh_ctx *cx, osh_verify *v)
{
    for (size_t i = 0; i < v->cap; i++) {
        osh_free(cx, v->findings[i].where);
        osh_free(cx, v->findings[i].found);
        osh_free(cx, v->findings[i].wanted);
    }
    osh_free(cx, v->findings);
    osh_globals_free(cx, v->globals);
    osh_plan_free(cx, v->plan);
    osh_free(cx, v->plan_options.recipe);
    osh_strs_deinit(cx, &v->plan_options.only);
    osh_checkpoint_close(cx, v->ck);
    cJSON_Delete(v->manifest);
    osh_map_free(cx, v->recorded);
    osh_free(cx, v->load);
}

osh_status osh_verify_output(osh_ctx *cx, const char *dir, const osh_verify_options *opt,
                             osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_verify v = {.dir = dir, .opt = opt};
    bool others = osh_ranks_me(opt->ranks) > 0;
    osh_buf b;
    osh_buf_init(&b, 0);
    OSH_NEW(cx, v.load, osh_ranks_n(opt->ranks));
    osh_verify_alone(&v);
    OSH_TRY(verify_look(cx, &v));
    if (others) goto done; // only rank 0 has all findings
    OSH_TRY(opt->json ? verify_as_json(cx, &b, &v) : verify_as_text(cx, &b, &v));
    sink(user, b.data, b.len);
    if (v.n) OSH_FAIL(cx, OSH_E_FORMAT, "%s is not correct: %zu findings", dir, v.n);
done:
    verify_deinit(cx, &v);
    osh_buf_deinit(cx, &b);
    return rc;
}
