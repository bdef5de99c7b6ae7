/* eval.c - perplexity, and KL divergence and top-1 agreement against a reference model. A token's
 * NLL is scored from the logits of the token before it, rounded to the compute dtype; the first
 * token of a sample is not scored. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/elementary.h"
#include "base/file.h"
#include "oneshot.h"
#include "pipeline/cost.h"
#include "pipeline/eval_memory.h"

typedef struct scores {
    double nll, kl;
    int64_t n, agree;
    float *per_token; // own: scored tokens in order
} scores;

/* .npy version 1.0: magic, header padded to 64 bytes, f32 little endian. */
static osh_status write_npy(osh_ctx *cx, const char *path, const float *v, int64_t n)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    char head[128];
    osh_buf_init(&b, 0);
    int len = snprintf(head, sizeof head, "{'descr': '<f4', 'fortran_order': False, 'shape': (%ld,), }", (long)n);
    int pad = 63 - (10 + len) % 64;
    unsigned char magic[10] = {0x93,
                               'N',
                               'U',
                               'M',
                               'P',
                               'Y',
                               1,
                               0,
                               (unsigned char)((len + pad + 1) & 255),
                               (unsigned char)((len + pad + 1) >> 8)};
    OSH_TRY(osh_buf_append(cx, &b, magic, sizeof magic));
    OSH_TRY(osh_buf_append(cx, &b, head, (size_t)len));
    for (int i = 0; i < pad; i++) OSH_TRY(osh_buf_append(cx, &b, " ", 1));
    OSH_TRY(osh_buf_append(cx, &b, "\n", 1));
    OSH_TRY(osh_buf_append(cx, &b, v, (size_t)n * sizeof *v));
    OSH_TRY(osh_file_write_all(cx, path, b.data, b.len));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Target of each position: the next token of its sample; -1 for a sample's last. */
static osh_status make_targets(osh_ctx *cx, osh_tensor **out, const osh_batch *b, const osh_dataset *d)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_tensor_new(cx, out, OSH_I32, 1, (int64_t[]){b->n_tokens}));
    int32_t *t = (*out)->data;
    for (int64_t s = 0; s < b->seqs.n; s++) {
        int64_t from = d->offsets[b->first_sample + s], n = d->offsets[b->first_sample + s + 1] - from;
        for (int64_t i = 0; i < n; i++) t[b->seqs.offsets[s] + i] = i + 1 < n ? d->ids[from + i + 1] : -1;
    }
done:
    return rc;
}

static osh_status score_batch(osh_ctx *cx, scores *sc, const osh_forward *f, const osh_forward *ref,
                              int64_t at, const osh_dataset *d)
{
    osh_status rc = OSH_OK;
    const osh_batch *b = f->batches[at];
    osh_tensor *targets = NULL, *nll = NULL, *kl = NULL, *same = NULL; // own
    OSH_TRY(make_targets(cx, &targets, b, d));
    OSH_TRY(osh_tensor_new(cx, &nll, OSH_F32, 1, (int64_t[]){b->n_tokens}));
    if (ref) {
        OSH_TRY(osh_tensor_new(cx, &kl, OSH_F32, 1, (int64_t[]){b->n_tokens}));
        OSH_TRY(osh_tensor_new(cx, &same, OSH_F32, 1, (int64_t[]){b->n_tokens}));
    }
    osh_op_args a = {.in = {b->values[f->graph->hidden], f->head, targets}, .out = {nll}, .seqs = &b->seqs};
    OSH_TRY(osh_op_run(cx, osh_op_find("nll"), &a));
    if (ref) {
        osh_op_args k = {.in = {b->values[f->graph->hidden], f->head,
                                ref->batches[at]->values[ref->graph->hidden], ref->head},
                         .out = {kl, same},
                         .seqs = &b->seqs};
        OSH_TRY(osh_op_run(cx, osh_op_find("kl"), &k));
    }
    for (int64_t i = 0; i < b->n_tokens; i++) {
        if (((int32_t *)targets->data)[i] < 0) continue;
        float v = ((float *)nll->data)[i];
        sc->per_token[sc->n++] = v;
        sc->nll += v;
        if (ref) sc->kl += ((float *)kl->data)[i], sc->agree += ((float *)same->data)[i] > 0.5f;
    }
done:
    osh_tensor_free(cx, targets);
    osh_tensor_free(cx, nll);
    osh_tensor_free(cx, kl);
    osh_tensor_free(cx, same);
    return rc;
}

static osh_status load_data(osh_ctx *cx, osh_dataset *d, const osh_eval_options *o, const osh_forward *f)
{
    osh_status rc = OSH_OK;
    osh_tokenizer *tok = NULL; // own
    char *path = osh_path_join(cx, o->model, "tokenizer.json"); // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (osh_file_exists(path)) OSH_TRY(osh_tokenizer_open(cx, &tok, o->model));
    int64_t length = o->max_seq_length ? o->max_seq_length : f->graph->max_positions;
    int64_t most = tok ? osh_tokenizer_model_max_length(tok) : 0;
    if (!o->max_seq_length && most && most < length) length = most;
    if (length > f->graph->max_positions)
        OSH_FAIL(cx, OSH_E_USAGE, "--max-seq-length %ld, but the model has %ld positions",
                 (long)length, (long)f->graph->max_positions);
    osh_dataset_options opt = {.path = o->dataset,
                               .text_column = o->text_column,
                               .max_seq_length = length,
                               .n_vocab = f->graph->n_vocab};
    OSH_TRY(osh_dataset_load_eval(cx, d, tok, &opt, o->stride, o->first_window, o->max_windows));
done:
    osh_free(cx, path);
    osh_tokenizer_close(cx, tok);
    return rc;
}

static osh_status print(osh_ctx *cx, const scores *sc, const osh_dataset *d,
                        const osh_eval_options *o, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    double mean = sc->nll / (double)sc->n;
    osh_buf_init(&b, 0);
    if (o->json) {
        OSH_TRY(osh_buf_printf(
            cx, &b,
            "{\"samples\": %ld, \"scored_tokens\": %ld, \"nll\": %.8f, \"perplexity\": %.6f",
            (long)d->n, (long)sc->n, mean, osh_math_exp(mean)));
        if (o->reference)
            OSH_TRY(osh_buf_printf(cx, &b, ", \"kl_divergence\": %.8f, \"top1_agreement\": %.6f",
                                   sc->kl / (double)sc->n, (double)sc->agree / (double)sc->n));
        OSH_TRY(osh_buf_printf(cx, &b, "}\n"));
    } else {
        OSH_TRY(osh_buf_printf(cx, &b, "samples %ld  scored tokens %ld  nll %.6f\n", (long)d->n, (long)sc->n, mean));
        if (o->reference)
            OSH_TRY(osh_buf_printf(cx, &b, "kl divergence %.6f  top-1 agreement %.4f\n",
                                   sc->kl / (double)sc->n, (double)sc->agree / (double)sc->n));
        OSH_TRY(osh_buf_printf(cx, &b, "perplexity %.4f\n", osh_math_exp(mean)));
    }
    sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

osh_status osh_eval(osh_ctx *cx, const osh_eval_options *o, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_forward *f = NULL, *ref = NULL; // own
    osh_dataset d = {0};                // own
    scores sc = {0};
    osh_progress pr = {.error = -1};
    double work = 0;
    if (!o->model || !o->dataset) OSH_FAIL(cx, OSH_E_USAGE, "eval wants --model DIR and --dataset FILE");
    OSH_TRY(osh_isa_use(cx, o->isa));
    OSH_TRY(osh_forward_open(cx, &f, o->model, o->models_dir));
    OSH_TRY(load_data(cx, &d, o, f));
    if (o->reference) {
        OSH_TRY(osh_forward_open(cx, &ref, o->reference, o->models_dir));
        if (ref->graph->n_vocab != f->graph->n_vocab)
            OSH_FAIL(cx, OSH_E_USAGE, "the reference has a vocabulary of %ld, the model one of %ld",
                     (long)ref->graph->n_vocab, (long)f->graph->n_vocab);
        OSH_TRY(osh_forward_work(cx, &work, ref, &d, true));
        pr.work_total += work, pr.n_steps += ref->parts->n;
    }
    OSH_TRY(osh_eval_memory(cx, o, f, ref, &d));
    pr.budget_bytes = o->host_memory;
    OSH_TRY(osh_forward_work(cx, &work, f, &d, true));
    pr.work_total += work, pr.n_steps += f->parts->n + 1; // and the scores
    if (ref) OSH_TRY(osh_forward_run(cx, ref, &d, o->batch_size, !o->no_activation_quantization, &pr));
    OSH_TRY(osh_forward_run(cx, f, &d, o->batch_size, !o->no_activation_quantization, &pr));
    OSH_NEW(cx, sc.per_token, d.offsets[d.n]);
    work = (osh_cost_of_head(f->graph, &d) + (ref ? osh_cost_of_head(ref->graph, &d) : 0)) / (double)f->n_batches;
    pr.step++, pr.name = "the scores", pr.phase = "score", pr.tokens_per_s = 0;
    for (int64_t b = 0; b < f->n_batches; b++) {
        if (osh_interrupted(cx)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted");
        OSH_TRY(score_batch(cx, &sc, f, ref, b, &d));
        pr.done = b + 1, pr.work_done += work, pr.finished = b + 1 == f->n_batches;
        if (pr.finished) pr.work_done = pr.work_total;
        osh_progress_show(cx, &pr);
    }
    if (!sc.n) OSH_FAIL(cx, OSH_E_USAGE, "%s: no token can be scored: every sample has a single token", o->dataset);
    if (o->per_token) OSH_TRY(write_npy(cx, o->per_token, sc.per_token, sc.n));
    OSH_TRY(print(cx, &sc, &d, o, sink, user));
done:
    osh_free(cx, sc.per_token);
    osh_dataset_deinit(cx, &d);
    osh_forward_close(cx, f);
    osh_forward_close(cx, ref);
    return rc;
}
