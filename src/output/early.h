/* early.h - reads large output tensors again and compares them, while the run goes on
 * (osh_memory.early). */
#ifndef OSH_EARLY_H
#define OSH_EARLY_H
#include "output/emit.h"

typedef struct osh_early osh_early;
/* Starts the thread that reads written tensors again. If the plan does not use early checks, *out
 * becomes NULL. */
osh_status osh_early_new(osh_ctx *cx, osh_early **out, const osh_emitter *e);


/* Queues output tensor `out` for the check. The tensor must be written and recorded. If y is NULL,
 * this function and the functions below do nothing, and osh_early_agrees returns false. */
void osh_early_add(osh_early *y, int64_t out);
/* Stops the thread and waits for its end. */
void osh_early_stop(osh_early *y);
/* True if the tensor was read again and has the bytes that were written. Called after
 * osh_early_stop. */
bool osh_early_agrees(const osh_early *y, int64_t out);
/* Frees y. Accepts NULL. */
void osh_early_free(osh_ctx *cx, osh_early *y);
#endif
