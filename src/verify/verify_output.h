/* verify_output.h - the interface of `oneshot verify`. */
#ifndef OSH_VERIFY_OUTPUT_H
#define OSH_VERIFY_OUTPUT_H
#include "match/options.h"

/* Checks an output against its manifest, its config and, if opt->model is set, the source. Writes
 * the findings to the sink. Returns OSH_E_FORMAT if there are findings. */
osh_status osh_verify_output(osh_ctx *cx, const char *dir, const osh_verify_options *opt,
                             osh_sink sink, void *user);
#endif
