/* eval.c - measures perplexity. With a reference model, also measures KL divergence and top-1
 * agreement. The NLL of a token is computed from the logits of the token before it. The logits are
 * rounded to the compute dtype. The first token of a sample has no NLL. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/elementary.h"
#include "base/file.h"
#include "base/profile.h"
#include "eval/answers.h"
#include "eval/eval.h"
#include "eval/eval_gpu.h"
#include "eval/eval_memory.h"
#include "eval/panel.h"
#include "eval/saved.h"
#include "eval/share.h"
#include "math/isa.h"
#include "budget/cost.h"
#include "match/paths.h"

typedef struct scores {
    double nll, kl, kl_p99;
    char tokens[17]; // checksum of the token ids and the windows
    double ref_nll; // NLL of the reference
    int64_t n, agree, n_samples;
    float *per_token; // own: NLL of the scored tokens, in order
    float *kl_of;     // own: KL divergence of the scored tokens; NULL: no reference
} scores;

/* Writes an .npy file, version 1.0: magic, header padded to a multiple of 64 bytes, n F32 values in
 * little endian. */
static osh_status npy_write(osh_ctx *cx, const char *path, const float *v, int64_t n)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    char head[128];
    osh_buf_init(&b, 0);
    int len = snprintf(head, sizeof head,
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (%ld,), }", (long)n);
    int pad = 63 - (10 + len) % 64;
    unsigned char magic[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0,
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

static osh_status batch_score_on_host(osh_ctx *cx, const osh_forward *f, const osh_forward *ref,
                                      int64_t at, osh_tensor *targets, osh_tensor *const out[4])
{
    osh_status rc = OSH_OK;
    const osh_batch *b = f->batches[at];
    osh_vocab_attr rules = osh_forward_rules(f, ref);
    osh_op_args a = {.in = {b->values[f->graph->hidden], f->head, targets},
                     .out = {out[0]},
                     .attr = &rules,
                     .seqs = &b->seqs};
    OSH_TRY(osh_op_run(cx, &osh_op_nll, &a));
    if (ref) {
        osh_op_args k = {.in = {b->values[f->graph->hidden], f->head,
                                ref->batches[at]->values[ref->graph->hidden], ref->head},
                         .out = {out[1], out[2]},
                         .attr = &rules,
                         .seqs = &b->seqs};
        OSH_TRY(osh_op_run(cx, &osh_op_kl, &k));
        osh_vocab_attr own = osh_forward_rules(ref, NULL);
        osh_op_args n = {.in = {ref->batches[at]->values[ref->graph->hidden], ref->head, targets},
                         .out = {out[3]},
                         .attr = &own,
                         .seqs = &b->seqs};
        OSH_TRY(osh_op_run(cx, &osh_op_nll, &n));
    }
done:
    return rc;
}

/* Adds the scores of a batch. out [4][tokens]: NLL, KL divergence, top-1 agreement, and NLL of the
 * reference model. */
static void scores_add(scores *sc, const osh_tensor *targets, osh_tensor *const out[4])
{
    for (int64_t i = 0; i < targets->shape[0]; i++) {
        if (((int32_t *)targets->data)[i] < 0) continue;
        float v = ((float *)out[0]->data)[i];
        sc->per_token[sc->n++] = v;
        sc->nll += v;
        if (!out[1]) continue;
        sc->kl_of[sc->n - 1] = ((float *)out[1]->data)[i];
        sc->kl += ((float *)out[1]->data)[i], sc->agree += ((float *)out[2]->data)[i] > 0.5f;
        sc->ref_nll += ((float *)out[3]->data)[i];
    }
}

/* Scores batch b, or receives its scores from another rank. Rank 0 adds the scores, and the other
 * ranks send them. */
static osh_status score_batch(osh_ctx *cx, scores *sc, osh_eval_models *m, int64_t b)
{
    osh_status rc = OSH_OK;
    // own; `out` has the NLL, the KL divergence, the top-1 agreement and the NLL of the reference
    osh_tensor *targets = NULL, *out[4] = {NULL};
    osh_ranks *ranks = m->f->ranks;
    int64_t first, n;
    int n_out = m->ref ? 4 : 1, owner = osh_deal_owner(ranks, b);
    osh_eval_batch(m, b, &first, &n);
    OSH_TRY(osh_next_tokens(cx, &targets, &m->d, first, n));
    for (int i = 0; i < n_out; i++)
        OSH_TRY(osh_tensor_new(cx, &out[i], OSH_F32, 1, targets->shape));
    if (owner != osh_ranks_me(ranks)) OSH_TRY(osh_eval_recv(cx, ranks, out, n_out, owner));
    else if (m->gpu) OSH_TRY(osh_eval_gpu_score(cx, m->gpu, b, targets, out));
    else OSH_TRY(batch_score_on_host(cx, m->f, m->ref, osh_deal_local(ranks, b), targets, out));
    if (osh_ranks_me(ranks)) OSH_TRY(osh_eval_send(cx, ranks, out, n_out));
    else scores_add(sc, targets, out);
done:
    osh_tensor_free(cx, targets);
    for (int i = 0; i < 4; i++) osh_tensor_free(cx, out[i]);
    return rc;
}

static osh_status eval_load_data(osh_ctx *cx, osh_dataset *d, const osh_eval_options *o,
                                 const osh_forward *f)
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
        OSH_FAIL(cx, OSH_E_USAGE, "--max-seq-length %ld, but the model has %ld positions%s",
                 (long)length, (long)f->graph->max_positions, osh_positions_why(f->graph));
    osh_dataset_options opt = {.path = o->dataset,
                               .text_column = o->text_column,
                               .text_template = o->text_template,
                               .model_dir = o->model,
                               .chat_date = o->chat_date,
                               .split = o->splits,
                               .max_seq_length = length,
                               .n_vocab = f->graph->n_vocab};
    OSH_TRY(osh_dataset_load_eval(
        cx, d, tok, &opt, &(osh_dataset_windows){o->first_window, o->max_windows, o->stride}));
    bool scored = false;
    for (int64_t i = 0; i < d->n; i++) scored |= d->offsets[i + 1] - d->offsets[i] > 1;
    if (!scored)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: no token can be scored: every sample has a single token",
                 o->dataset);
done:
    osh_free(cx, path);
    osh_tokenizer_close(cx, tok);
    return rc;
}

/* Prints the answers and then the perplexity. If answers->prompt is NULL, there are no answers. */
static osh_status scores_print(osh_ctx *cx, const scores *sc, const osh_answers *answers,
                               const osh_eval_options *o, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    double mean = sc->nll / (double)sc->n;
    osh_buf_init(&b, 0);
    if (o->json) {
        OSH_TRY(osh_buf_printf(
            cx, &b,
            "{\"samples\": %ld, \"scored_tokens\": %ld, \"tokens_xxh3\": \"%s\", \"nll\": %.8f, "
            "\"perplexity\": %.6f",
            (long)sc->n_samples, (long)sc->n, sc->tokens, mean, osh_math_exp(mean)));
        if (o->reference)
            OSH_TRY(osh_buf_printf(cx, &b,
                                   ", \"kl_divergence\": %.8f, \"kl_p99\": %.8f, "
                                   "\"top1_agreement\": %.6f, \"reference_perplexity\": %.6f",
                                   sc->kl / (double)sc->n, sc->kl_p99,
                                   (double)sc->agree / (double)sc->n,
                                   osh_math_exp(sc->ref_nll / (double)sc->n)));
        if (answers->prompt) {
            OSH_TRY(osh_buf_printf(cx, &b, ", \"sample\": "));
            OSH_TRY(osh_answers_json(cx, &b, answers));
        }
        OSH_TRY(osh_buf_printf(cx, &b, "}\n"));
    } else {
        if (answers->prompt) OSH_TRY(osh_answers_print(cx, &b, answers));
        OSH_TRY(osh_buf_printf(cx, &b, "samples %ld  scored tokens %ld  nll %.6f\n",
                               (long)sc->n_samples, (long)sc->n, mean));
        if (o->reference)
            OSH_TRY(osh_buf_printf(
                cx, &b, "kl divergence %.6f  top-1 agreement %.4f\nreference perplexity %.4f\n",
                sc->kl / (double)sc->n, (double)sc->agree / (double)sc->n,
                osh_math_exp(sc->ref_nll / (double)sc->n)));
        OSH_TRY(osh_buf_printf(cx, &b, "perplexity %.4f\n", osh_math_exp(mean)));
    }
    sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Opens the models and the data. Sets *load to the peak of host bytes while they are read. */
static osh_status models_open(osh_ctx *cx, osh_eval_models *m, int64_t *load,
                              const osh_eval_options *o, osh_progress *pr)
{
    osh_status rc = OSH_OK;
    double work = 0;
    bool saved = false;
    osh_mem_hold(cx, o->host_memory, OSH_MEM_LEAST);
    OSH_TRY(osh_saved_is(cx, &saved, o->model));
    if (saved)
        OSH_FAIL(cx, OSH_E_USAGE, "--model %s has saved logits, not a model: want --reference %s",
                 o->model, o->model);
    OSH_TRY(osh_forward_open(cx, &m->f, o->model, o->reference ? NULL : o->adapter,
                             o->models_dir));
    OSH_TRY(
        osh_graph_need_head(cx, m->f->graph, osh_source_checkpoint(m->f->source), "predictions"));
    OSH_TRY(osh_mem_refused(cx, eval_load_data(cx, &m->d, o, m->f), o->host_memory));
    *load = osh_mem_held(cx);
    /* Removes the memory limit, which osh_eval_memory sets again. */
    osh_mem_limit(cx, OSH_MEM_HOST, 0);
    if (o->reference) {
        OSH_TRY(osh_saved_is(cx, &saved, o->reference));
        if (saved && o->adapter)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "--reference %s has saved logits, which --adapter %s cannot change: want a "
                     "model",
                     o->reference, o->adapter);
        OSH_TRY(saved ? osh_forward_open_saved(cx, &m->ref, o->reference, &m->d) :
                        osh_forward_open(cx, &m->ref, o->reference, o->adapter, o->models_dir));
        OSH_TRY(osh_graph_need_head(cx, m->ref->graph, osh_source_checkpoint(m->ref->source),
                                    "predictions"));
        if (m->ref->graph->n_vocab != m->f->graph->n_vocab)
            OSH_FAIL(cx, OSH_E_USAGE, "the reference has a vocabulary of %ld, the model one of %ld",
                     (long)m->ref->graph->n_vocab, (long)m->f->graph->n_vocab);
        OSH_TRY(osh_forward_work(cx, &work, m->ref, &m->d, true));
        pr->work_total += work, pr->n_steps += m->ref->parts->n;
    }
    OSH_TRY(osh_eval_gpu_open(cx, &m->gpu, o, m->f, m->ref, &m->d));
    m->size = o->batch_size > 0 ? o->batch_size : 1;
    m->f->ranks = o->ranks;
    if (m->ref) m->ref->ranks = o->ranks;
    OSH_TRY(osh_eval_agree(cx, o->ranks, m));
    if (!m->gpu && o->use_gds && !strcmp(o->use_gds, "true"))
        osh_log(cx, OSH_LOG_WARN,
                "--use-gds true: nothing runs on a GPU, the host reads all files");
    pr->budget_bytes = o->host_memory;
    OSH_TRY(osh_forward_work(cx, &work, m->f, &m->d, true));
    /* The scores are one more step after the steps for the subgraphs. */
    pr->work_total += work, pr->n_steps += m->f->parts->n + 1;
done:
    return rc;
}

static osh_status models_run(osh_ctx *cx, osh_eval_models *m, const osh_eval_options *o,
                             osh_progress *pr)
{
    osh_status rc = OSH_OK;
    if (m->gpu) return osh_eval_gpu_run(cx, m->gpu, pr);
    if (m->ref)
        OSH_TRY(
            osh_forward_run(cx, m->ref, &m->d, o->batch_size, !o->no_activation_quantization, pr));
    OSH_TRY(osh_forward_run(cx, m->f, &m->d, o->batch_size, !o->no_activation_quantization, pr));
done:
    return rc;
}

static osh_status score_batches(osh_ctx *cx, scores *sc, osh_eval_models *m, osh_progress *pr)
{
    osh_status rc = OSH_OK;
    int64_t n = osh_eval_batches(m);
    int me = osh_ranks_me(m->f->ranks);
    double work = (osh_cost_of_head(m->f->graph, &m->d) +
                   (m->ref ? osh_cost_of_head(m->ref->graph, &m->d) : 0)) /
                  (double)n;
    OSH_NEW(cx, sc->per_token, m->d.offsets[m->d.n]);
    if (m->ref) OSH_NEW(cx, sc->kl_of, m->d.offsets[m->d.n]);
    pr->step++, pr->name = "the scores", pr->phase = "score", pr->total = n;
    osh_ranks_phase(m->f->ranks, "scores", NULL);
    for (int64_t b = 0; b < n; b++) {
        OSH_TRY(osh_check_interrupt(cx));
        if (me && osh_deal_owner(m->f->ranks, b) != me) continue;
        OSH_TRY(score_batch(cx, sc, m, b));
        pr->done = b + 1, pr->work_done += work, pr->finished = b + 1 == n;
        if (pr->finished) pr->work_done = pr->work_total;
        osh_forward_rate(pr, (double)m->d.offsets[m->d.n], m->f->begun);
        osh_progress_show(cx, pr);
    }
    if (me) OSH_TRY(osh_eval_sent(cx, m->f->ranks));
done:
    return rc;
}

static void models_close(osh_ctx *cx, osh_eval_models *m)
{
    osh_eval_gpu_close(cx, m->gpu);
    osh_dataset_deinit(cx, &m->d);
    osh_forward_close(cx, m->f);
    osh_forward_close(cx, m->ref);
    *m = (osh_eval_models){.f = NULL};
}

/* Sets the members that depend on all tokens: the checksum, and the quantile of KL divergence. */
static void scores_end(scores *sc, const osh_eval_models *m)
{
    sc->n_samples = m->d.n;
    snprintf(sc->tokens, sizeof sc->tokens, "%016llx", (unsigned long long)osh_saved_sum(&m->d));
    if (m->ref) sc->kl_p99 = osh_panel_quantile(sc->kl_of, sc->n, 0.99);
}

static osh_status scores_write_panel(osh_ctx *cx, scores *sc, const osh_eval_models *m,
                                     const osh_eval_options *o)
{
    double n = (double)sc->n;
    const osh_checkpoint *ck = osh_source_checkpoint(m->f->source);
    osh_panel p = {.model = o->model,
                   .reference = o->reference,
                   .data = o->dataset,
                   .tokens = sc->tokens,
                   .n_samples = m->d.n,
                   .n_scored = sc->n,
                   .n_vocab = m->f->graph->n_vocab,
                   .nll = sc->nll / n,
                   .perplexity = osh_math_exp(sc->nll / n)};
    for (int64_t i = 0; i < ck->n_shards; i++)
        p.model_bytes += osh_container_stamp(ck->shards[i])->n_bytes;
    if (m->ref)
        p.reference_perplexity = osh_math_exp(sc->ref_nll / n), p.kl_mean = sc->kl / n,
        p.kl_p99 = sc->kl_p99, p.top1 = (double)sc->agree / n;
    return osh_panel_write(cx, o->panel, &p);
}

static osh_question eval_question(const osh_eval_options *o)
{
    return (osh_question){.prompt = o->sample,
                          .models_dir = o->models_dir,
                          .chat_date = o->chat_date,
                          .isa = o->isa,
                          .host_memory = o->host_memory,
                          .no_activation_quantization = o->no_activation_quantization};
}

/* Checks before the evaluation that the models can answer within the budget. */
static osh_status answers_check(osh_ctx *cx, const osh_eval_options *o)
{
    osh_status rc = OSH_OK;
    osh_question q = eval_question(o);
    const char *const models[] = {o->model, o->reference}, *of = NULL;
    int64_t most = 0, scored = 0;
    for (int i = 0; i < 2 && models[i]; i++) {
        int64_t least = 0;
        q.adapter = i || !o->reference ? o->adapter : NULL;
        OSH_TRY(osh_answer_least(cx, &least, models[i], &q));
        if (least > most) most = least, of = models[i];
    }
    if (o->host_memory <= 0 || most <= o->host_memory) goto done;
    // the scores may need more memory than the answers, so the message names the larger budget
    OSH_TRY(osh_eval_predict(cx, &scored, o));
    if (scored > most) most = scored;
    OSH_FAIL(cx, OSH_E_USAGE,
             "--host-memory %.2fMiB is too small, because %s answers --sample: want at least "
             "--host-memory %.0fMiB",
             (double)o->host_memory / (1 << 20), of, mib_for(most));
done:
    return rc;
}

/* Runs the models and scores their predictions. If several ranks share the evaluation, rank 0 gets
 * all scores and writes the logits. */
static osh_status eval_run(osh_ctx *cx, scores *sc, osh_eval_models *m, const osh_eval_options *o)
{
    osh_status rc = OSH_OK;
    osh_progress pr = {.error = -1};
    int64_t load = 0;
    OSH_TRY(models_open(cx, m, &load, o, &pr));
    OSH_TRY(osh_eval_memory(cx, o, m, load));
    m->f->begun = osh_now();
    if (m->ref) m->ref->begun = m->f->begun;
    OSH_TRY(models_run(cx, m, o, &pr));
    if (o->save_logits)
        OSH_TRY(osh_ranks_me(o->ranks) ? osh_saved_send(cx, m)
                                       : osh_saved_write(cx, o->save_logits, o->model, m));
    OSH_TRY(score_batches(cx, sc, m, &pr));
done:
    return rc;
}

osh_status osh_eval(osh_ctx *cx, const osh_eval_options *given, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_eval_options mine = *given, *o = &mine; // views
    osh_eval_models m = {.f = NULL}; // own
    scores sc = {0};
    char *texts[2] = {NULL, NULL}; // own
    const char *const models[] = {o->reference ? o->reference : o->model, o->model};
    if (!o->model || !o->dataset)
        OSH_FAIL(cx, OSH_E_USAGE, "eval wants --model DIR and --dataset FILE");
    OSH_TRY(osh_paths_check(cx, osh_eval_fields, o));
    OSH_TRY(osh_eval_divide(cx, o));
    osh_question q = eval_question(o);
    bool others = osh_ranks_me(o->ranks) > 0;
    if (o->save_logits && !others)
        /* A wrong directory must fail before the long work. */
        OSH_TRY(osh_saved_make_dir(cx, o->save_logits));
    OSH_TRY(osh_isa_use(cx, o->isa));
    OSH_TRY(osh_isa_load(cx));
    if (o->sample && !others) OSH_TRY(answers_check(cx, o));
    OSH_TRY(eval_run(cx, &sc, &m, o));
    if (others) goto done; // rank 0 has the scores and prints them
    if (o->per_token) OSH_TRY(npy_write(cx, o->per_token, sc.per_token, sc.n));
    scores_end(&sc, &m);
    if (o->panel) OSH_TRY(scores_write_panel(cx, &sc, &m, o));
    models_close(cx, &m); // frees the memory of the evaluation before the answers need memory
    osh_mem_limit(cx, OSH_MEM_HOST, 0);
    for (int i = 0; o->sample && i < (o->reference ? 2 : 1); i++) {
        q.adapter = i ? NULL : o->adapter;
        OSH_TRY(osh_answer(cx, &texts[i], models[i], &q));
    }
    OSH_TRY(scores_print(cx, &sc,
                         &(osh_answers){.prompt = o->sample,
                                        .names = {o->reference ? "reference" : "model",
                                                  o->reference ? "model" : NULL},
                                        .texts = {texts[0], texts[1]}},
                         o, sink, user));
done:
    osh_free(cx, texts[0]);
    osh_free(cx, texts[1]);
    osh_free(cx, sc.per_token);
    osh_free(cx, sc.kl_of);
    models_close(cx, &m);
    return rc;
}

osh_status osh_eval_predict(osh_ctx *cx, int64_t *host, const osh_eval_options *o)
{
    osh_status rc = OSH_OK;
    osh_eval_models m = {.f = NULL}; // own
    osh_progress pr = {.error = -1};
    int64_t load = 0;
    OSH_TRY(osh_isa_use(cx, o->isa));
    OSH_TRY(osh_isa_load(cx));
    OSH_TRY(models_open(cx, &m, &load, o, &pr));
    OSH_TRY(osh_eval_least(cx, host, o, &m, load));
done:
    models_close(cx, &m);
    return rc;
}
