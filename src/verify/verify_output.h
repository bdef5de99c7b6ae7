/* verify_output.h - declares the function that does `oneshot verify`. */
#ifndef OSH_VERIFY_OUTPUT_H
#define OSH_VERIFY_OUTPUT_H
#include "match/options.h"

/* Checks the output in `dir` against its manifest and its config. If opt->model is set, also checks
 * the output against the source opt->model. Writes the findings (problems) to the sink. Returns
 * OSH_E_FORMAT if there are findings. */
osh_status osh_verify_output(osh_ctx *cx, const char *dir, const osh_verify_options *opt,
                             osh_sink sink, void *user);
#endif
