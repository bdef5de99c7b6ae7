/* verify.h - the inside of `oneshot verify`: what is looked at, and the list of what was found. */
#ifndef OSH_VERIFY_H
#define OSH_VERIFY_H
#include "base/map.h"
#include "output/manifest_text.h"
#include "plan/globals.h"

typedef struct osh_finding {
    char *where, *found, *wanted; // own
} osh_finding;

typedef struct osh_verify {
    const char *dir;              // view: the output
    const osh_verify_options *opt; // view
    osh_checkpoint *ck;           // own: of the output; NULL: it cannot be opened
    cJSON *manifest;              // own: without its long lists; NULL: none
    bool quantized, pruned, changed; // the manifest has a tensor with this rule
    osh_map *recorded;            // own: by module, the bits of the relative squared error that the manifest has
    osh_options plan_options;     // its strings are own
    osh_plan *plan;               // own: what source and recipe make; NULL: no source
    osh_globals *globals;         // own: the plan's; NULL: none
    osh_finding *findings;        // own
    size_t n, cap;
    int64_t n_sums, n_compared, n_modules; // tensors whose checksum agreed, that equal the source's; modules looked at
} osh_verify;

enum { OSH_VERIFY_TEXT = 400, OSH_VERIFY_MAX = 1000 };
/* One more finding. Beyond OSH_VERIFY_MAX they are counted only. */
osh_status osh_verify_add(osh_ctx *cx, osh_verify *v, const char *where, const char *wanted, const char *found, ...)
    __attribute__((format(printf, 5, 6)));
/* A failure of the library is a finding unless it is one of this process: no memory, interrupted. Clears the error. */
osh_status osh_verify_failed(osh_ctx *cx, osh_verify *v, osh_status rc, const char *where, const char *wanted);

/* verify_manifest.c: reads it, and takes the modules' errors from it; where there is none, that is a finding. */
osh_status osh_verify_read_manifest(osh_ctx *cx, osh_verify *v);
/* Hands over the items of one of its long lists; no manifest: none. */
osh_status osh_verify_each(osh_ctx *cx, const osh_verify *v, const osh_json_taken *list, void *user);
osh_status osh_verify_manifest(osh_ctx *cx, osh_verify *v); // verify_files.c: manifest, checksums, index, files
osh_status osh_verify_side_files(osh_ctx *cx, osh_verify *v);
osh_status osh_verify_strangers(osh_ctx *cx, osh_verify *v); // what nobody knows; shards: with the manifest
osh_status osh_verify_config(osh_ctx *cx, osh_verify *v);   // verify_config.c: quantization_config against the tensors
osh_status osh_verify_plan(osh_ctx *cx, osh_verify *v);     // verify_source.c: names, shapes, config.json, copies
osh_status osh_verify_linear(osh_ctx *cx, osh_verify *v, int linear); // verify_weights.c: codes and scales
/* verify_weights.c: values of one quantized module alone: scales and zero points; codes [O, I] of shape. */
osh_status osh_verify_params(osh_ctx *cx, osh_verify *v, const char *module, const osh_q_args *a, const osh_qparams *p);
osh_status osh_verify_codes(osh_ctx *cx, osh_verify *v, const char *module, const osh_q_args *a, const uint8_t *codes,
                            const int64_t *shape);
/* What the run recorded as the relative squared error of this module; < 0: nothing. */
double osh_verify_recorded(const osh_verify *v, const char *name);
osh_status osh_verify_cache(osh_ctx *cx, osh_verify *v, int linear); // verify_cache.c: scales of its attention's cache
osh_status osh_verify_kept(osh_ctx *cx, osh_verify *v, int linear);  // a weight that only stands beside such scales
osh_status osh_verify_pruned(osh_ctx *cx, osh_verify *v, int linear); // verify_pruned.c: one that is written dense
/* Zeros of a weight that was pruned; source: and what is not 0, where the method leaves that alone. */
osh_status osh_verify_zeros(osh_ctx *cx, osh_verify *v, int linear, const osh_tensor *w, const osh_tensor *source);
#endif
