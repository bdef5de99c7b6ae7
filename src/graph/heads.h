/* heads.h - the output head of a checkpoint that has no tensor of it. transformers makes a
 * Linear of it all the same: of the table of tokens where the model ties the two, and of random
 * numbers where it does not. A quantized checkpoint must name such a head in `ignore`, or
 * loaders look for its codes. */
#ifndef OSH_HEADS_H
#define OSH_HEADS_H
#include "io/checkpoint.h"

typedef struct osh_missing_head {
    const char *name; // static: what transformers calls the Linear, the last parts of it: "lm_head"
    int64_t embedding; // tensor: the table of tokens
    bool tied;         // they share a weight
    bool renamed;      // other names may stand before it than in the checkpoint
} osh_missing_head;

/* False: the checkpoint has a head, or no table of tokens. */
bool osh_head_missing(osh_missing_head *out, const osh_checkpoint *ck);
#endif
