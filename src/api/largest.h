/* largest.h - finds the subgraph with the highest predicted memory. The plan prints this subgraph;
 * a trial run runs it alone and measures the peak. */
#ifndef OSH_LARGEST_H
#define OSH_LARGEST_H
#include "run/run.h"

typedef struct osh_largest {
    /* Index of the visit (the work on the subgraph); in a run without data, index of the Linear. */
    int index;
    const char *name; // view: lives as long as the plan
    /* Predicted peaks in bytes; host_bytes includes the memory that the program always needs. */
    int64_t host_bytes, device_bytes;
} osh_largest;
osh_status osh_print_largest(osh_ctx *cx, char **out, const osh_plan *p, bool json); // own
/* Plans the job, runs the largest subgraph alone, and prints the measured and the predicted peak.
 * Writes only into a temporary directory. */
osh_status osh_try_largest(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user);
#endif
