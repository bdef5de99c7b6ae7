/* batch.h - declares struct osh_lanes for batch.c and exec.c. The struct has one batch for each
 * thread that runs nodes sample by sample. */
#ifndef OSH_GRAPH_BATCH_H
#define OSH_GRAPH_BATCH_H
#include "graph/exec.h"

struct osh_lanes {
    int n_made; // number of threads that have a batch
    /* own [values]: true for values that are made sample by sample and that later nodes read.
     * Between calls of osh_exec_run, all entries are false. */
    bool *outer;
    /* One batch of one sample for each thread. Between calls of osh_exec_run, the batches are
     * empty. */
    osh_batch *batch; // own [n_made]
};
#endif
