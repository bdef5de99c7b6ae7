/* closing.h - prints the last lines of a run: the loss of the outputs, and the next commands. */
#ifndef OSH_CLOSING_H
#define OSH_CLOSING_H
#include "run/run.h"

/* Sets *share to the quotient of two losses of the modules' outputs: the loss of this run, and the
 * loss of rounding to nearest. Returns the number of modules with a known loss. If there are none,
 * *share is not set. */
int osh_closing_share(double *share, const osh_run *r);
/* Appends two texts: the loss as a percentage of the loss with rounding to nearest, and the effect
 * of tuning. Appends nothing if the loss is not known. */
osh_status osh_closing_loss(osh_ctx *cx, osh_buf *b, const osh_run *r);
/* Appends the path of the report, and commands for the finished output. */
osh_status osh_closing_next(osh_ctx *cx, osh_buf *b, const osh_options *opt);
#endif
