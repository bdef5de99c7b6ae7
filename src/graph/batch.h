/* batch.h - the batches of the threads that run nodes sample by sample. batch.c implements them for
 * exec.c. */
#ifndef OSH_GRAPH_BATCH_H
#define OSH_GRAPH_BATCH_H
#include "graph/exec.h"

struct osh_lanes {
    int n_made; // number of threads that have a batch
    /* own [values]: true if the value is made sample by sample and later nodes read it. Between
     * calls of osh_exec_run all are false. */
    bool *outer;
    /* For each thread a batch of one sample; empty between calls of osh_exec_run. */
    osh_batch *batch; // own [n_made]
};
#endif
