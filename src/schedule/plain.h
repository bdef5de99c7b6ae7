/* plain.h - a schedule that only runs a model: each visit loads the weights of a subgraph, runs the
 * subgraph for all batches, and frees the weights. No weight changes. */
#ifndef OSH_PLAIN_H
#define OSH_PLAIN_H
#include "schedule/schedule.h"

typedef struct osh_plain { // `schedule`, and the structs to which it points
    osh_options opt;       // all members are 0
    osh_inputs in;         // the caller sets `data`
    osh_matching match;    // no Linears
    osh_rewrites rewrites; // none
    osh_schedule schedule; // the caller sets the batches
} osh_plain;
/* parts: subgraphs; the member live_out of each also has the values that are read after the pass.
 * The arguments must outlive *out (own). */
osh_status osh_plain_new(osh_ctx *cx, osh_plain **out, osh_graph *graph, osh_checkpoint *ck,
                         osh_partition *parts);
void osh_plain_free(osh_ctx *cx, osh_plain *p); // accepts NULL
#endif
