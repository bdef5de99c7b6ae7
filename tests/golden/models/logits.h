/* logits.h - contains the f32 logits of a checkpoint, for tests that compare with transformers.
 * Every failure aborts the test. */
#ifndef OSH_LOGITS_H
#define OSH_LOGITS_H
#include "golden/models/tiny.h"
#include "graph/exec.h"
#include "ops/kernel.h"

/* Returns f32 logits of the samples, computed as one ragged batch. offsets [n_samples + 1] has the
 * index of the first token of each sample. models_dir may be NULL. The caller frees the result with
 * free(). */
static inline float *logits_of(osh_ctx *cx, const char *dir, const char *models_dir,
                               const int32_t *ids, const int64_t *offsets, int n_samples,
                               int64_t *n_vocab)
{
    osh_checkpoint *ck = NULL;
    osh_graph *g = NULL;
    osh_weights *w = NULL;
    osh_batch *b = NULL;
    tiny_check(cx, osh_checkpoint_open(cx, &ck, dir));
    tiny_check(cx, osh_graph_new(cx, &g, ck, models_dir));
    tiny_check(cx, osh_weights_new(cx, &w, g));
    tiny_check(cx, osh_weights_load(cx, w, g, ck, 0, g->n_nodes));
    tiny_check(cx, osh_batch_new(cx, &b, g, ids, offsets, n_samples));
    bool *keep = calloc((size_t)g->n_values, sizeof *keep);
    int logits = g->nodes[g->head].out[0];
    keep[logits] = true;
    tiny_check(cx,
               osh_exec_run(cx, &(osh_exec_span){g, 0, g->n_nodes, NULL, keep}, w, b, NULL, true));
    for (int v = 0; v < g->n_values; v++)
        if ((b->values[v] != NULL) != keep[v]) abort();
    int64_t n = b->n_tokens * g->n_vocab;
    float *out = malloc((size_t)n * sizeof *out);
    osh_to_f32(out, b->values[logits]->data, b->values[logits]->dtype, n);
    for (int64_t i = 0; i < n; i++) out[i] = osh_logit_of(out[i], &g->logits, g->dtype);
    *n_vocab = g->n_vocab;
    free(keep);
    osh_batch_free(cx, b);
    osh_weights_free(cx, w);
    osh_graph_free(cx, g);
    osh_checkpoint_close(cx, ck);
    return out;
}
#endif
