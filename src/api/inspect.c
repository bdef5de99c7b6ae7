/* inspect.c - lists the contents of a checkpoint: tensors, dtypes, bytes, quantization. */
#include <string.h>

#include "api/api.h"
#include "api/inspect_summary.h"
#include "base/buf.h"
#include "base/name.h"
#include "graph/graph.h"
#include "io/checkpoint.h"
#include "match/loaders.h"
#include "quant/source.h"

static osh_status entry_shape_text(osh_ctx *cx, osh_buf *b, const osh_entry *e)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_append(cx, b, "[", 1));
    for (int i = 0; i < e->ndim; i++)
        OSH_TRY(osh_buf_printf(cx, b, i ? ", %ld" : "%ld", (long)e->shape[i]));
    OSH_TRY(osh_buf_append(cx, b, "]", 1));
done:
    return rc;
}

static osh_status checkpoint_list(osh_ctx *cx, osh_buf *b, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    osh_buf shape;
    osh_buf_init(&shape, 0);
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        const osh_entry *e = ck->tensors[i].e;
        osh_buf_clear(&shape);
        OSH_TRY(entry_shape_text(cx, &shape, e));
        OSH_TRY(osh_buf_line(cx, b, "%-60s %-8s %s  %s", osh_checkpoint_name_in_file(ck, i),
                             osh_dtype_name(e->dtype), shape.data,
                             ck->shard_names[ck->tensors[i].shard]));
    }
done:
    osh_buf_deinit(cx, &shape);
    return rc;
}

static osh_status checkpoint_as_text(osh_ctx *cx, osh_buf *b, const osh_checkpoint *ck,
                                     const osh_q_config *q)
{
    osh_status rc = OSH_OK;
    int64_t bytes = 0, of[OSH_N_DTYPES] = {0};
    const char *arch = ck->config->architecture;
    const char *fault = NULL, *name;
    const char *stranger = !arch ? "it" : osh_graph_knows(cx, arch, NULL) ? NULL : arch;
    OSH_TRY(checkpoint_list(cx, b, ck));
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        const osh_entry *e = ck->tensors[i].e;
        bytes += e->end - e->begin, of[e->dtype] += e->end - e->begin;
    }
    OSH_TRY(osh_buf_line(cx, b, "architecture %s, %ld tensors in %d files, %ld bytes:",
                         arch ? arch : "(none)", (long)ck->n_tensors, ck->n_shards, (long)bytes));
    b->len--; // removes the newline at the end of the text
    for (int d = 0; d < OSH_N_DTYPES; d++)
        if (of[d])
            OSH_TRY(osh_buf_printf(cx, b, " %s %ld", osh_dtype_name((osh_dtype)d), (long)of[d]));
    OSH_TRY(osh_buf_append(cx, b, "\n", 1));
    for (size_t i = 0; q && i < q->n; i++) {
        const osh_q_scheme *s = &q->schemes[i];
        char *who = osh_q_who_loads(cx, s, stranger); // own
        const osh_q_args *a = osh_q_of_attention(s) ? &s->inputs : &s->weights;
        rc = osh_buf_line(cx, b, "%s: %d-bit %s %s, format %s; %s", s->group_name, a->bits,
                          a->type == OSH_Q_FLOAT ? "float" : "int",
                          a == &s->inputs ? "attention" : "weights",
                          s->format[0] ? s->format : q->format, who ? who : "");
        osh_free(cx, who);
        if (rc) goto done;
    }
    if (q) OSH_TRY(osh_experts_of_file(cx, &fault, &name, ck, q));
    if (fault)
        OSH_TRY(osh_buf_line(cx, b, "transformers 5.17 %s experts (such as %s)", fault, name));
done:
    return rc;
}

static osh_status checkpoint_as_json(osh_ctx *cx, osh_buf *b, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    char *text = NULL;                   // own
    cJSON *root = cJSON_CreateObject();  // own
    cJSON *list = cJSON_AddArrayToObject(root, "tensors");
    if (!list) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the list of tensors");
    if (ck->config->architecture)
        cJSON_AddStringToObject(root, "architecture", ck->config->architecture);
    if (ck->config->quantization_config)
        cJSON_AddItemToObject(root, "quantization_config",
                              cJSON_Duplicate(ck->config->quantization_config, 1));
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        const osh_entry *e = ck->tensors[i].e;
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "name", osh_checkpoint_name_in_file(ck, i));
        cJSON_AddStringToObject(o, "dtype", osh_dtype_name(e->dtype));
        cJSON_AddStringToObject(o, "file", ck->shard_names[ck->tensors[i].shard]);
        cJSON *shape = cJSON_AddArrayToObject(o, "shape");
        for (int k = 0; k < e->ndim; k++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)e->shape[k]));
        if (!cJSON_AddItemToArray(list, o))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the list of tensors");
    }
    OSH_TRY(osh_json_print(cx, &text, root, 0));
    OSH_TRY(osh_buf_printf(cx, b, "%s\n", text));
done:
    osh_free(cx, text);
    cJSON_Delete(root);
    return rc;
}

/* Fails if the tensors of a quantized checkpoint do not fit together. An unsupported kind of
 * quantization is not an error. */
static osh_status check_source(osh_ctx *cx, const char *dir)
{
    osh_source *s = NULL; // own
    osh_status rc = osh_source_open(cx, &s, dir);
    osh_source_close(cx, s);
    if (rc && rc != OSH_E_UNSUPPORTED) return rc;
    if (rc) osh_error_clear(cx);
    return osh_check_interrupt(cx);
}

osh_status osh_inspect(osh_ctx *cx, const char *dir, bool json, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_checkpoint *ck = NULL; // own
    osh_q_config *q = NULL;    // own
    osh_buf b;
    osh_buf_init(&b, 0);
    OSH_TRY(osh_checkpoint_open(cx, &ck, dir));
    const char *method = NULL;
    OSH_TRY(osh_source_method(cx, &method, ck->config));
    if (method && !strcmp(method, "compressed-tensors"))
        OSH_TRY(osh_q_config_parse(cx, &q, ck->config->quantization_config, ck->config->path));
    OSH_TRY(osh_check_interrupt(cx));
    if (!json) OSH_TRY(osh_inspect_summary(cx, &b, ck));
    OSH_TRY(json ? checkpoint_as_json(cx, &b, ck) : checkpoint_as_text(cx, &b, ck, q));
    sink(user, b.data, b.len);
    if (method) OSH_TRY(check_source(cx, dir));
done:
    osh_buf_deinit(cx, &b);
    osh_q_config_free(cx, q);
    osh_checkpoint_close(cx, ck);
    return rc;
}

/* Appends the classes that recipes use as targets. Without a template for the architecture, no
 * class is known. */
static osh_status classes_print(osh_ctx *cx, osh_buf *b, const osh_checkpoint *ck)
{
    osh_graph *g = NULL; // own
    osh_status rc = osh_graph_new(cx, &g, ck, NULL);
    if (rc == OSH_E_NOMEM) goto done;
    if (rc) osh_error_clear(cx), rc = OSH_OK;
    OSH_TRY(osh_buf_line(cx, b, "Linear"));
    if (g && g->layer_class) OSH_TRY(osh_buf_line(cx, b, "%s", g->layer_class));
done:
    osh_graph_free(cx, g);
    return rc;
}

osh_status osh_list_modules(osh_ctx *cx, const char *dir, osh_sink sink, void *user)
{
    static const char *const leaves[] = {".weight", ".weight_packed"};
    osh_status rc = OSH_OK;
    osh_checkpoint *ck = NULL; // own
    osh_buf b;
    osh_buf_init(&b, 0);
    OSH_TRY(osh_checkpoint_open(cx, &ck, dir));
    OSH_TRY(classes_print(cx, &b, ck));
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        const osh_entry *e = ck->tensors[i].e;
        for (size_t k = 0; k < sizeof leaves / sizeof *leaves && e->ndim == 2; k++)
            if (osh_ends_with(e->name, strlen(e->name), leaves[k]))
                OSH_TRY(osh_buf_line(cx, &b, "%.*s", (int)(strlen(e->name) - strlen(leaves[k])),
                                     e->name));
    }
    sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    osh_checkpoint_close(cx, ck);
    return rc;
}
