/* match.h - compares the lists `targets` and `ignore` with module names and classes. Targets are
 * tried in the order of compressed-tensors (compressed_tensors/utils/match.py): first exact names,
 * then regexes (re:, Python's re.match), then classes. Targets of one kind are tried in the byte
 * order of their strings. */
#ifndef OSH_MATCH_H
#define OSH_MATCH_H
#include "text/regex.h"

/* A list of targets with compiled regexes. Only one thread may use it at a time. */
typedef struct osh_matcher osh_matcher;
/* Compiles n targets. Fails if one is not a valid regex. The caller frees *out with
 * osh_matcher_free. */
osh_status osh_matcher_new(osh_ctx *cx, osh_matcher **out, const char *const *targets, size_t n);
void osh_matcher_free(osh_ctx *cx, osh_matcher *m);
/* Returns the index of the winning target, or -1. If target strings are equal, the last target
 * wins, as in compressed-tensors. cls may be NULL (unknown). A module of vLLM's class LinearBase
 * also matches the target "Linear", as in compressed-tensors; a Linear does not match
 * "LinearBase". */
osh_status osh_matcher_find(osh_ctx *cx, int64_t *which, osh_matcher *m, const char *name,
                            const char *cls);
/* Returns the number of modules that the target has matched so far, including modules for which
 * osh_matcher_find returned another target. The caller should warn about a target that matches
 * nothing. */
int64_t osh_matcher_hits(const osh_matcher *m, size_t target);
#endif
