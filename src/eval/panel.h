/* panel.h - stores the figures of an evaluation in a JSON file, which `oneshot compare` reads. */
#ifndef OSH_PANEL_H
#define OSH_PANEL_H
#include "base/base.h"

typedef struct osh_panel {
    /* own: last part of the path of the panel's file; for a panel of an output, its directory */
    char *name;
    /* own: model, reference and data as on the command line. `reference` is NULL if there is
     * none. */
    char *model, *reference, *data;
    char *tokens;                   // own: checksum of the token ids and the windows
    int64_t n_samples, n_scored, n_vocab;
    int64_t model_bytes;            // bytes of the model's safetensors files
    double nll, perplexity;
    /* True if the output was not evaluated. The members that come from an evaluation are then not
     * set. */
    bool unscored;
    /* Loss of the modules' outputs, divided by the loss with rounding to nearest; below 0:
     * unknown. */
    double loss;
    /* Results against the reference.
     * kl_mean: mean KL divergence in nats.
     * kl_p99: 99 % of the tokens have at most this KL divergence.
     * top1: fraction of the tokens for which both models have the same most likely prediction. */
    double reference_perplexity, kl_mean, kl_p99, top1;
} osh_panel;

/* Writes the panel as JSON to the file `path`. An older file is overwritten. */
osh_status osh_panel_write(osh_ctx *cx, const char *path, const osh_panel *p);
/* Reads a panel. Fails with OSH_E_FORMAT if the file is not a panel or lacks a figure. */
osh_status osh_panel_read(osh_ctx *cx, osh_panel *p, const char *path);
void osh_panel_deinit(osh_ctx *cx, osh_panel *p);
/* Returns the smallest x of v [n] such that at least the fraction `share` of v is <= x. Sorts v. */
double osh_panel_quantile(float *v, int64_t n, double share);
#endif
