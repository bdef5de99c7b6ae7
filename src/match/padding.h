/* padding.h - adds zeros to the MLPs of a source (--indivisible pad), if the group size does not
 * divide the columns of their Linears. */
#ifndef OSH_MATCH_PADDING_H
#define OSH_MATCH_PADDING_H
#include <string.h>

#include "match/matching.h"

static inline bool osh_padding_asked(const osh_options *o)
{
    return o->indivisible && !strcmp(o->indivisible, "pad");
}
/* Finds which sizes of MLPs must grow so that the group size divides the columns of all Linears.
 * Adds zeros to the tensors of the source, changes the sizes in its config, and builds the graph
 * again. *padded: set to false if no size must grow. Must be called before any tensor is read or
 * changed. */
osh_status osh_plan_padding(osh_ctx *cx, bool *padded, osh_inputs *in);
/* Appends a text such as "intermediate_size 176 to 192" for each size that grows, separated by
 * commas. Then appends the number of tensors that get zeros. */
osh_status osh_padding_print(osh_ctx *cx, osh_buf *b, const osh_inputs *in);
/* Adds the object "padding" to the JSON object `o` if sizes grow. Returns false if out of
 * memory. */
bool osh_padding_json(cJSON *o, const osh_inputs *in);
#endif
