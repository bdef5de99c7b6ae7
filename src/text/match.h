/* match.h - targets and ignores against module names and classes, with compressed-tensors' precedence
 * (compressed_tensors/utils/match.py): exact name, then regex (re:, Python's re.match), then class; inside one kind by the
 * byte order of the target string. */
#ifndef OSH_MATCH_H
#define OSH_MATCH_H
#include "text/regex.h"

typedef struct osh_matcher osh_matcher; // one list of targets, regexes compiled once
osh_status osh_matcher_new(osh_ctx *cx, osh_matcher **out, const char *const *targets, size_t n);
void osh_matcher_free(osh_ctx *cx, osh_matcher *m);
/* Index into targets of the winning one, or -1. cls may be NULL (unknown). A module of class Linear also matches "LinearBase"
 * targets the other way round as the reference does. */
osh_status osh_matcher_find(osh_ctx *cx, int64_t *which, osh_matcher *m, const char *name, const char *cls);
/* How many modules each target has matched so far: a target that matched nothing deserves a warning. */
int64_t osh_matcher_hits(const osh_matcher *m, size_t target);
#endif
