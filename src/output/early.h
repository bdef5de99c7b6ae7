/* early.h - reads large output tensors again and compares them while the run goes on
 * (osh_memory.early). */
#ifndef OSH_EARLY_H
#define OSH_EARLY_H
#include "output/emit.h"

typedef struct osh_early osh_early;
/* Starts the thread that reads tensors again. *out stays NULL if the plan does not use early
 * checks. */
osh_status osh_early_new(osh_ctx *cx, osh_early **out, const osh_emitter *e);


/* Queues an output tensor that was written and recorded. All functions below accept y NULL and then
 * do nothing; osh_early_agrees returns false. */
void osh_early_add(osh_early *y, int64_t out);
/* Stops and joins the thread. */
void osh_early_stop(osh_early *y);
/* True if the tensor was read and has the bytes that were written. Called after osh_early_stop. */
bool osh_early_agrees(const osh_early *y, int64_t out);
void osh_early_free(osh_ctx *cx, osh_early *y);
#endif
