/* verify.h - the parts of `oneshot verify` that its files share: checks, and the list of
 * findings. */
#ifndef OSH_VERIFY_H
#define OSH_VERIFY_H
#include "base/map.h"
#include "output/manifest_text.h"
#include "match/globals.h"
#include "plan/plan.h"

typedef struct osh_finding {
    char *where, *found, *wanted; // own
} osh_finding;

typedef struct osh_verify {
    const char *dir;              // view: directory of the output
    const osh_verify_options *opt; // view
    osh_checkpoint *ck;           // own: the output as a checkpoint; NULL: it cannot be opened
    cJSON *manifest;              // own: without its long lists; NULL: there is none
    bool quantized, pruned, changed; // the manifest has a tensor with this rule
    osh_map *recorded;            // own: name of a module -> bits of its error in the manifest
    osh_options plan_options;     // own: its strings
    osh_plan *plan;               // own: made from source and recipe; NULL: there is no source
    osh_globals *globals;         // own: global scales of the plan; NULL: none
    osh_finding *findings;        // own
    size_t n, cap;
    /* Number of checksums that agree; of tensors equal to the source's; of checked modules. */
    int64_t n_sums, n_compared, n_modules;
} osh_verify;

enum { OSH_VERIFY_TEXT = 400, OSH_VERIFY_MAX = 1000 };
/* Adds a finding. Findings after OSH_VERIFY_MAX are only counted. */
osh_status osh_verify_add(osh_ctx *cx, osh_verify *v, const char *where, const char *wanted,
                          const char *found, ...) __attribute__((format(printf, 5, 6)));
/* Turns the failure `rc` into a finding and clears the error. If it is a failure of this process
 * (no memory, or interrupted), returns rc instead. */
osh_status osh_verify_failed(osh_ctx *cx, osh_verify *v, osh_status rc, const char *where,
                             const char *wanted);


/* verify_manifest.c: reads the manifest and the errors of the modules in it. A missing manifest is
 * a finding. */
osh_status osh_verify_read_manifest(osh_ctx *cx, osh_verify *v);
/* Calls list->item for each item of one long list of the manifest. Does nothing if there is no
 * manifest. */
osh_status osh_verify_each(osh_ctx *cx, const osh_verify *v, const osh_json_taken *list,
                           void *user);


/* verify_files.c: checks tensors, checksums, index and files against the manifest. */
osh_status osh_verify_manifest(osh_ctx *cx, osh_verify *v);
/* Checks that the side files equal those of the source. */
osh_status osh_verify_side_files(osh_ctx *cx, osh_verify *v);
/* Finds files that are neither in the manifest nor in the plan, except shards, which
 * osh_verify_manifest checks. */
osh_status osh_verify_strangers(osh_ctx *cx, osh_verify *v);

/* verify_config.c: checks the tensors against the quantization_config. */
osh_status osh_verify_config(osh_ctx *cx, osh_verify *v);
/* verify_source.c: makes the plan again, and checks names, shapes, config.json, copies and Linears
 * against the plan and the source. */
osh_status osh_verify_plan(osh_ctx *cx, osh_verify *v);


/* verify_weights.c: checks codes and scales of a Linear against the source's weight. */
osh_status osh_verify_linear(osh_ctx *cx, osh_verify *v, int linear);
/* The next two check one quantized module without the source: osh_verify_params its scales and zero
 * points, osh_verify_codes its codes, whose shape is [O, I]. */
osh_status osh_verify_params(osh_ctx *cx, osh_verify *v, const char *module, const osh_q_args *a,
                             const osh_qparams *p);
osh_status osh_verify_codes(osh_ctx *cx, osh_verify *v, const char *module, const osh_q_args *a,
                            const uint8_t *codes, const int64_t *shape);

/* Returns the relative squared error of a module that the run has recorded (verify_manifest.c). <
 * 0: there is none. */
double osh_verify_recorded(const osh_verify *v, const char *name);


/* verify_cache.c: checks the scales of the cache that belong to a Linear, and its learned bias. */
osh_status osh_verify_cache(osh_ctx *cx, osh_verify *v, int linear);
/* Checks that a weight which has such scales but is not quantized equals the source's. */
osh_status osh_verify_kept(osh_ctx *cx, osh_verify *v, int linear);


/* verify_pruned.c: checks a pruned Linear whose weight is dense. */
osh_status osh_verify_pruned(osh_ctx *cx, osh_verify *v, int linear);
/* Checks the zeros of a pruned weight. If `source` is not NULL, also checks the other values,
 * provided that the method does not change them. */
osh_status osh_verify_zeros(osh_ctx *cx, osh_verify *v, int linear, const osh_tensor *w,
                            const osh_tensor *source);
#endif
