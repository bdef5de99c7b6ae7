/* identity.h - what decides the bytes of an output, field by field, so that a refusal can name the one that differs.
 * Threads, budgets, tiers and batch size are not among them. */
#ifndef OSH_IDENTITY_H
#define OSH_IDENTITY_H
#include "plan/plan.h"

typedef struct osh_identity {
    char **names, **values; // own [n]
    bool *here;             // own: holds on this machine only (times of files): in the journal, not in the output
    size_t n, cap;
} osh_identity;

osh_status osh_identity_new(osh_ctx *cx, osh_identity **out, const osh_plan *p); // reads a few bytes of each shard
osh_status osh_identity_of_source(osh_ctx *cx, osh_identity **out, const osh_checkpoint *ck); // its fields alone
void osh_identity_free(osh_ctx *cx, osh_identity *id);
/* {"name": "value", ...}; all: those of this machine too. own */
osh_status osh_identity_json(osh_ctx *cx, char **out, const osh_identity *id, bool all);
/* The first field in which the object differs: "recipe is 'a', was 'b'"; own; NULL: none. */
osh_status osh_identity_differs(osh_ctx *cx, char **out, const osh_identity *id, const cJSON *was, bool all);
#endif
