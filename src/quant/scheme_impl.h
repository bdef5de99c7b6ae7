/* scheme_impl.h - declares a function that scheme.c and config_parse.c share. */
#ifndef OSH_SCHEME_IMPL_H
#define OSH_SCHEME_IMPL_H
#include "quant/scheme.h"

/* Does the work of osh_q_scheme_check for the scheme of a finished checkpoint, in which the
 * observer has no effect and is not checked. */
osh_status osh_q_scheme_check_stored(osh_ctx *cx, osh_q_scheme *s, const char *where);
#endif
