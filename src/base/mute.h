/* mute.h - switches off the progress of a job during work that is not part of the job. */
#ifndef OSH_MUTE_H
#define OSH_MUTE_H
#include "base/base.h"

/* While `muted` is true, osh_progress_show does nothing. */
void osh_progress_mute(osh_ctx *cx, bool muted);
#endif
