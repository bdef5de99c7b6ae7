/* batch.h - the batches of the threads that run nodes sample by sample. The interface between
 * batch.c and exec.c. */
#ifndef OSH_GRAPH_BATCH_H
#define OSH_GRAPH_BATCH_H
#include "graph/exec.h"

struct osh_lanes {
    int n_made; // number of threads that have a batch
    /* own [values]: true if nodes that run sample by sample make the value and later nodes read it;
     * all false between calls of osh_exec_run. */
    bool *outer;
    osh_batch *batch; // own [n_made]: for each thread a batch of one sample; empty between calls of
                      // osh_exec_run
};
#endif
