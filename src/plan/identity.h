/* identity.h - lists the settings and inputs that decide the bytes of an output. Each setting or
 * input is a field with a name and a value. So if two outputs differ, a message can name the field.
 * Threads, budgets, tiers and the batch size are no fields, because they do not change the
 * bytes. */
#ifndef OSH_IDENTITY_H
#define OSH_IDENTITY_H
#include "plan/plan.h"

/* Version of the records in the journal. It increases when the layout of a record changes, because
 * a run cannot continue from records with another layout. */
enum { OSH_IDENTITY_JOURNAL = 2 };

typedef struct osh_identity {
    char **names, **values; // own [n]
    /* True if the field is the stamp of a file (inode, times). A copy of the file has another
     * stamp, so comparisons skip stamps. */
    bool *here; // own [n]
    size_t n, cap;
} osh_identity;

/* Makes the identity of a run with the plan p: the program, the source, the recipe, the data and
 * the options that change the output. The caller frees *out with osh_identity_free. */
osh_status osh_identity_new(osh_ctx *cx, osh_identity **out, const osh_plan *p);
/* Makes an identity with only the fields for the source. Reads config.json again from the disk. */
osh_status osh_identity_of_source(osh_ctx *cx, osh_identity **out, const osh_checkpoint *ck);
void osh_identity_free(osh_ctx *cx, osh_identity *id);
/* Adds the field "stamp of FILE", or replaces its value. */
osh_status osh_identity_stamp(osh_ctx *cx, osh_identity *id, const char *file, const osh_stamp *s);
/* True if the field "stamp of FILE" has the same value in `id` and in the JSON object `was`. */
bool osh_identity_has_stamp(const osh_identity *id, const char *file, const cJSON *was);
typedef enum { OSH_IDENTITY_ALL, OSH_IDENTITY_FIELDS, OSH_IDENTITY_STAMPS } osh_identity_part;
/* Sets *out (own) to the fields in the form {"name": "value", ...}. */
osh_status osh_identity_json(osh_ctx *cx, char **out, const osh_identity *id,
                             osh_identity_part part);
/* Compares the fields for the source, except stamps. Sets *out (own) to a text about the first
 * field that differs between `a` and `b`, or to NULL if no field differs. */
osh_status osh_identity_source_differs(osh_ctx *cx, char **out, const osh_identity *a,
                                       const osh_identity *b);
/* Compares all fields of `id`, except stamps, with the JSON object `was`. Sets *out (own) to a text
 * about the first field that differs, such as "recipe is 'a', was 'b'". Sets *out to NULL if no
 * field differs. */
osh_status osh_identity_differs(osh_ctx *cx, char **out, const osh_identity *id, const cJSON *was);
#endif
