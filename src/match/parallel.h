/* parallel.h - checks that the stored tensors of each Linear can be split among the GPUs of an
 * inference engine with tensor parallelism (--tensor-parallel). */
#ifndef OSH_PARALLEL_H
#define OSH_PARALLEL_H
#include "match/matching.h"

/* Fails if a quantized Linear cannot be split among the GPUs. The message has the names of such
 * Linears, with * for numbers, and the reasons. Sets *n_checked to the number of Linears that can
 * be split. Sets *n_other to the number of Linears whose names have no known role. */
osh_status osh_plan_parallel(osh_ctx *cx, int *n_checked, int *n_other, const osh_matching *p);
/* Returns the number of GPUs among which the columns of a module are split, or 1 if they are not
 * split. */
int64_t osh_parallel_parts(const osh_options *o, const char *module);
/* Returns how many columns of a module one GPU gets. Returns I (all columns) without
 * --tensor-parallel, or if the module is not split along its columns. */
int64_t osh_parallel_columns(const osh_options *o, const char *module, int64_t I);
#endif
