/* match.h - targets and ignores against module names and classes, with compressed-tensors' precedence
 * (compressed_tensors/utils/match.py): exact name, then regex (re:, Python's re.match), then class; inside one kind by
 * the byte order of the target string. */
#ifndef OSH_MATCH_H
#define OSH_MATCH_H
#include "text/regex.h"

typedef struct osh_matcher osh_matcher; // one list of targets, regexes compiled once; one thread at a time
osh_status osh_matcher_new(osh_ctx *cx, osh_matcher **out, const char *const *targets, size_t n);
void osh_matcher_free(osh_ctx *cx, osh_matcher *m);
/* Index into targets of the winning one, or -1. Of equal target strings the last one wins, as the later group does in
 * the reference. cls may be NULL (unknown). A module of class LinearBase (vLLM's) also matches the target "Linear", as
 * in the reference; a Linear does not match "LinearBase". */
osh_status osh_matcher_find(osh_ctx *cx, int64_t *which, osh_matcher *m, const char *name, const char *cls);
/* How many modules each target has matched so far, winning or not: one that matched nothing deserves a warning. */
int64_t osh_matcher_hits(const osh_matcher *m, size_t target);
#endif
