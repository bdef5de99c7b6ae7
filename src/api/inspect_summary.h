/* inspect_summary.h - prints the first lines of `oneshot inspect`. */
#ifndef OSH_INSPECT_SUMMARY_H
#define OSH_INSPECT_SUMMARY_H
#include "base/buf.h"
#include "io/checkpoint.h"

/* Appends a description of the checkpoint, in lines of at most 80 columns, and an empty line. A
 * fault of the model is part of the text and not an error. */
osh_status osh_inspect_summary(osh_ctx *cx, osh_buf *b, const osh_checkpoint *ck);
#endif
