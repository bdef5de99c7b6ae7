/* verify_output.h - the job of `oneshot verify`. */
#ifndef OSH_VERIFY_OUTPUT_H
#define OSH_VERIFY_OUTPUT_H
#include "plan/options.h"

/* An output against its manifest, its config and, where opt has a model, its source. The findings go to the sink; with
 * any, the status is OSH_E_FORMAT. */
osh_status osh_verify_output(osh_ctx *cx, const char *dir, const osh_verify_options *opt, osh_sink sink, void *user);
#endif
