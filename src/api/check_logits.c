/* check_logits.c - compares the logits of a model with logits that another program has computed.
 * The file of the other program is a safetensors file with two tensors:
 *
 *   input_ids  I32 or I64 [T]     one sample of T tokens
 *   logits     F32 [T, V]         the logits of each token */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/check_logits.h"
#include "eval/forward.h"
#include "io/container.h"
#include "ops/kernel.h"

enum { LOGITS_MOST_TOKENS = 4096 };

/* Largest accepted difference of the logits of an F32 model, divided by the largest |logit|. */
static const double logits_limit = 5e-6;

typedef struct wanted { // content of the file: a sample and its logits
    osh_dataset sample; // own: one sample
    float *logits;      // own [T, V]
    int64_t n_vocab;    // V
} wanted;

static osh_status logits_file_find(osh_ctx *cx, const osh_entry **out, const osh_container *st,
                                   const char *name, const char *path)
{
    for (int64_t i = 0; i < osh_container_count(st); i++)
        if (!strcmp(osh_container_at(st, i)->name, name)) {
            *out = osh_container_at(st, i);
            return OSH_OK;
        }
    return osh_fail(cx, OSH_E_FORMAT, "%s: has no tensor %s, want input_ids [T] and logits [T, V]",
                    path, name);
}

static osh_status logits_file_ids(osh_ctx *cx, wanted *w, const osh_container *st,
                                  const osh_entry *e, const char *path)
{
    osh_status rc = OSH_OK;
    void *raw = NULL; // own [T]
    int64_t n = e->ndim == 1 ? e->shape[0] : 0;
    if ((e->dtype != OSH_I64 && e->dtype != OSH_I32) || n < 2 || n > LOGITS_MOST_TOKENS)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: input_ids is %s with %d dimensions, want I32 or I64 [T] with 2 to %d tokens",
                 path, osh_dtype_name(e->dtype), e->ndim, LOGITS_MOST_TOKENS);
    raw = osh_calloc(cx, (size_t)n, osh_dtype_bytes(e->dtype));
    if (!raw) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(osh_container_read(cx, raw, st, e));
    OSH_NEW(cx, w->sample.offsets, 2);
    w->sample.offsets[1] = n, w->sample.n = 1;
    OSH_NEW(cx, w->sample.ids, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t id = e->dtype == OSH_I64 ? ((int64_t *)raw)[i] : ((int32_t *)raw)[i];
        if (id < 0 || id >= w->n_vocab)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: input_ids[%lld] is %lld, want 0 to %lld", path,
                     (long long)i, (long long)id, (long long)w->n_vocab - 1);
        w->sample.ids[i] = (int32_t)id;
    }
done:
    osh_free(cx, raw);
    return rc;
}

/* Fails if one of the logits of the file is not finite. */
static osh_status logits_file_check(osh_ctx *cx, const wanted *w, const char *path)
{
    int64_t V = w->n_vocab;
    for (int64_t i = 0; i < w->sample.offsets[1] * V; i++)
        if (!isfinite(w->logits[i]))
            return osh_fail(cx, OSH_E_FORMAT, "%s: logits[%lld, %lld] is %g, want a finite number",
                            path, (long long)(i / V), (long long)(i % V), (double)w->logits[i]);
    return OSH_OK;
}

static osh_status logits_file_read(osh_ctx *cx, wanted *w, const char *path, int64_t n_vocab)
{
    osh_status rc = OSH_OK;
    osh_container *st = NULL;                    // own
    const osh_entry *ids = NULL, *logits = NULL; // views
    w->n_vocab = n_vocab;
    OSH_TRY(osh_container_open(cx, &st, path));
    OSH_TRY(logits_file_find(cx, &ids, st, "input_ids", path));
    OSH_TRY(logits_file_find(cx, &logits, st, "logits", path));
    OSH_TRY(logits_file_ids(cx, w, st, ids, path));
    if (logits->dtype != OSH_F32 || logits->ndim != 2 ||
        logits->shape[0] != w->sample.offsets[1] || logits->shape[1] != n_vocab)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: logits is %s with %d dimensions, want F32 [%lld, %lld]",
                 path, osh_dtype_name(logits->dtype), logits->ndim,
                 (long long)w->sample.offsets[1], (long long)n_vocab);
    OSH_NEW(cx, w->logits, w->sample.offsets[1] * n_vocab);
    OSH_TRY(osh_container_read(cx, w->logits, st, logits));
    OSH_TRY(logits_file_check(cx, w, path));
done:
    osh_container_close(cx, st);
    return rc;
}

/* Sets *largest to the largest |logit| of the file, and *off to the largest difference between the
 * file and `made` [T, V]. Fails if a logit of `made` is not finite. */
static osh_status logits_compare(osh_ctx *cx, double *off, double *largest, const osh_forward *f,
                                 const wanted *w, const osh_tensor *made)
{
    *off = *largest = 0;
    for (int64_t i = 0; i < osh_tensor_numel(made); i++) {
        float here = osh_logit_of((float)osh_tensor_at(made, i), &f->graph->logits,
                                  f->graph->dtype);
        if (!isfinite(here))
            return osh_fail(cx, OSH_E_NUMERIC,
                            "the model's logits[%lld, %lld] is %g, want a finite number",
                            (long long)(i / w->n_vocab), (long long)(i % w->n_vocab), (double)here);
        *off = fmax(*off, fabs((double)here - w->logits[i]));
        *largest = fmax(*largest, fabs((double)w->logits[i]));
    }
    return OSH_OK;
}

static osh_status logits_make(osh_ctx *cx, osh_tensor **made, const osh_forward *f)
{
    osh_status rc = OSH_OK;
    const osh_batch *b = f->batches[0];
    osh_linear_attr attr = {.out_features = f->graph->n_vocab, .bias = f->head_bias != NULL};
    int64_t shape[2] = {b->n_tokens, f->graph->n_vocab};
    OSH_TRY(osh_tensor_new(cx, made, f->graph->dtype, 2, shape));
    osh_op_args a = {.in = {b->values[f->graph->hidden], f->head, f->head_bias},
                     .out = {*made},
                     .attr = &attr,
                     .seqs = &b->seqs};
    OSH_TRY(osh_op_run(cx, &osh_op_linear, &a));
done:
    return rc;
}

osh_status osh_check_logits(osh_ctx *cx, osh_buf *b, const char *dir, const char *file,
                            const char *models_dir)
{
    osh_status rc = OSH_OK;
    osh_forward *f = NULL;   // own
    osh_tensor *made = NULL; // own [T, V]
    wanted w = {0};          // own
    osh_progress pr = {.error = -1};
    double off = 0, largest = 0, share = 0;
    OSH_TRY(osh_forward_open(cx, &f, dir, NULL, models_dir));
    OSH_TRY(logits_file_read(cx, &w, file, f->graph->n_vocab));
    OSH_TRY(osh_forward_run(cx, f, &w.sample, 1, true, &pr));
    OSH_TRY(logits_make(cx, &made, f));
    OSH_TRY(logits_compare(cx, &off, &largest, f, &w, made));
    share = largest > 0 ? off / largest : off;
    OSH_TRY(osh_buf_line(cx, b,
                         "%lld tokens: logits differ from those of %s by at most %.2e of the "
                         "largest, %.4g",
                         (long long)w.sample.offsets[1], file, share, largest));
    if (f->graph->dtype == OSH_F32 && !(off <= logits_limit * largest))
        OSH_FAIL(cx, OSH_E_NUMERIC,
                 "%s: logits differ by %.2e of the largest logit of %s, want at most %g", dir,
                 share, file, logits_limit);
done:
    osh_free(cx, w.logits);
    osh_dataset_deinit(cx, &w.sample);
    osh_tensor_free(cx, made);
    osh_forward_close(cx, f);
    return rc;
}
