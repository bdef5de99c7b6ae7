/* identity.h - lists the settings and inputs that decide the bytes of an output, field by field, so
 * that the message of a refusal can name the field that differs. Threads, budgets, tiers and batch
 * size are not in the list, because they do not change the bytes. */
#ifndef OSH_IDENTITY_H
#define OSH_IDENTITY_H
#include "plan/plan.h"

/* Version of the journal's records. It is increased when a record changes: a run of another version
 * cannot be resumed. */
enum { OSH_IDENTITY_JOURNAL = 2 };

typedef struct osh_identity {
    char **names, **values; // own [n]
    bool *here; // own [n]: true for the stamp of a file, which differs between copies of the file
    size_t n, cap;
} osh_identity;

osh_status osh_identity_new(osh_ctx *cx, osh_identity **out, const osh_plan *p);
/* Makes the fields of the source only, with config.json as it is on the disk now. */
osh_status osh_identity_of_source(osh_ctx *cx, osh_identity **out, const osh_checkpoint *ck);
void osh_identity_free(osh_ctx *cx, osh_identity *id);
/* Adds "stamp of FILE". */
osh_status osh_identity_stamp(osh_ctx *cx, osh_identity *id, const char *file, const osh_stamp *s);
/* True if the stamp of the file is equal in `id` and in the JSON object `was`. */
bool osh_identity_has_stamp(const osh_identity *id, const char *file, const cJSON *was);
typedef enum { OSH_IDENTITY_ALL, OSH_IDENTITY_FIELDS, OSH_IDENTITY_STAMPS } osh_identity_part;
/* Prints {"name": "value", ...}. *out: own. */
osh_status osh_identity_json(osh_ctx *cx, char **out, const osh_identity *id,
                             osh_identity_part part);
/* Finds the first field of the source, except stamps, that differs between a and b. *out: own;
 * NULL: no difference. */
osh_status osh_identity_source_differs(osh_ctx *cx, char **out, const osh_identity *a,
                                       const osh_identity *b);
/* Finds the first field, except stamps, that differs from the JSON object `was`: "recipe is 'a',
 * was 'b'". *out: own; NULL: no difference. */
osh_status osh_identity_differs(osh_ctx *cx, char **out, const osh_identity *id, const cJSON *was);
#endif
