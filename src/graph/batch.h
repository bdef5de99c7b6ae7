/* batch.h - the batches of threads that run nodes sample by sample, for batch.c and exec.c. */
#ifndef OSH_GRAPH_BATCH_H
#define OSH_GRAPH_BATCH_H
#include "graph/exec.h"

struct osh_lanes {
    int n_made; // number of threads that have a batch
    /* own [values]: true if the value is made sample by sample and later nodes read it. All entries
     * are false between calls of osh_exec_run. */
    bool *outer;
    /* A batch of one sample for each thread. The batches are empty between calls of
     * osh_exec_run. */
    osh_batch *batch; // own [n_made]
};
#endif
