/* simulate_weights.h - counts the weights of a simulated run, and the host copies of a GPU's
 * weights. */
#ifndef OSH_SIMULATE_WEIGHTS_H
#define OSH_SIMULATE_WEIGHTS_H
#include "budget/sim.h"

int64_t osh_sim_weight_bytes(const osh_sim *s, int w);
void osh_sim_drop_copy(osh_sim *s, int weight);
/* Does the same as osh_engine_drop_copies of run/loading.c: frees the host copies of weights,
 * except those that wait for a solve. */
void osh_sim_drop_copies(osh_sim *s);
/* Counts the memory for reloading a solved weight: its packed tensors and its codes. */
void osh_sim_note_reload(osh_sim *s, const osh_linear *l);
osh_status osh_sim_load(osh_ctx *cx, void *user, const osh_range *r, const osh_step *st,
                        const bool *values);
#endif
