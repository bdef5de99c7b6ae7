/* early.h - output tensors are read again and compared while the run goes on (osh_memory.early). */
#ifndef OSH_EARLY_H
#define OSH_EARLY_H
#include "output/emit.h"

typedef struct osh_early osh_early;
osh_status osh_early_new(osh_ctx *cx, osh_early **out, const osh_emitter *e); // *out stays NULL where the plan has none
void osh_early_add(osh_early *y, int64_t out);          // it is written and recorded; y: NULL will do here and below
void osh_early_stop(osh_early *y);                      // no more is read
bool osh_early_agrees(const osh_early *y, int64_t out); // behind osh_early_stop: it was read, and is what was written
void osh_early_free(osh_ctx *cx, osh_early *y);
#endif
