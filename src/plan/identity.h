/* identity.h - what decides the bytes of an output, field by field, so that a refusal can name the one that differs.
 * Threads, budgets, tiers and batch size are not among them. */
#ifndef OSH_IDENTITY_H
#define OSH_IDENTITY_H
#include "plan/plan.h"

/* What the journal's records have: one more where one of them changes, as a run of another program cannot go on. */
enum { OSH_IDENTITY_JOURNAL = 2 };

typedef struct osh_identity {
    char **names, **values; // own [n]
    bool *here;             // own: a file's stamp, which another copy of the same file has otherwise
    size_t n, cap;
} osh_identity;

osh_status osh_identity_new(osh_ctx *cx, osh_identity **out, const osh_plan *p);
/* Its fields alone, config.json as it is on the disk now. */
osh_status osh_identity_of_source(osh_ctx *cx, osh_identity **out, const osh_checkpoint *ck);
void osh_identity_free(osh_ctx *cx, osh_identity *id);
osh_status osh_identity_stamp(osh_ctx *cx, osh_identity *id, const char *file, const osh_stamp *s); // "stamp of FILE"
bool osh_identity_has_stamp(const osh_identity *id, const char *file, const cJSON *was); // the same as the object
typedef enum { OSH_IDENTITY_ALL, OSH_IDENTITY_FIELDS, OSH_IDENTITY_STAMPS } osh_identity_part;
/* {"name": "value", ...}; own */
osh_status osh_identity_json(osh_ctx *cx, char **out, const osh_identity *id, osh_identity_part part);
/* The first field of the source, stamps aside, in which a is not b; own; NULL: none. */
osh_status osh_identity_source_differs(osh_ctx *cx, char **out, const osh_identity *a, const osh_identity *b);
/* The first field, stamps aside, in which the object differs: "recipe is 'a', was 'b'"; own; NULL: none. */
osh_status osh_identity_differs(osh_ctx *cx, char **out, const osh_identity *id, const cJSON *was);
#endif
