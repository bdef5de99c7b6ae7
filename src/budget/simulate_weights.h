/* simulate_weights.h - counts the weights of a simulated run, and the host copies of a GPU's
 * weights. */
#ifndef OSH_SIMULATE_WEIGHTS_H
#define OSH_SIMULATE_WEIGHTS_H
#include "budget/sim.h"

int64_t osh_sim_weight_bytes(const osh_sim *s, int w);
void osh_sim_drop_copy(osh_sim *s, int weight);
/* Frees the host copies of weights, except the copies that a later solve needs, like
 * osh_engine_drop_copies of run/loading.c. */
void osh_sim_drop_copies(osh_sim *s);
/* Counts the memory for reading a solved weight back from the output: packed tensors and codes. */
void osh_sim_note_reload(osh_sim *s, const osh_linear *l);
osh_status osh_sim_load(osh_ctx *cx, osh_sim *s, const osh_range *r, const osh_step *st);
#endif
