/* plain.h - makes a schedule that runs a model and changes no weight. Each visit loads the weights
 * of a subgraph, runs the subgraph for all batches, and frees the weights. A measurement
 * (eval/measure.h) also collects statistics. */
#ifndef OSH_PLAIN_H
#define OSH_PLAIN_H
#include "schedule/schedule.h"

typedef struct osh_plain { // a schedule, with the structs to which its views point
    osh_options opt;       // all members are 0
    osh_inputs in;         // the caller sets the member `data`
    osh_matching match;    // no Linears
    osh_rewrites rewrites; // none
    osh_schedule schedule; // the caller sets the batches
} osh_plain;
/* Makes the schedule *out, which the caller owns. parts: the subgraphs; `live_out` of each subgraph
 * must include the values that the caller reads after the pass. graph, ck and parts must outlive
 * *out. */
osh_status osh_plain_new(osh_ctx *cx, osh_plain **out, osh_graph *graph, osh_checkpoint *ck,
                         osh_partition *parts);
/* Makes the passes collect the statistics `measured` [graph nodes], whose ownership passes to p. A
 * subgraph with statistics has a single pass if `again` is false. If `again` is true, a second pass
 * computes the outputs of the subgraph after the statistics are complete. The last subgraph then
 * has no second pass. */
void osh_plain_measure(osh_plain *p, osh_measured *measured, bool again);
void osh_plain_free(osh_ctx *cx, osh_plain *p); // accepts NULL
#endif
