/* python_regex.h - rejects patterns whose meaning differs between Python's re and PCRE2. */
#ifndef OSH_PYTHON_REGEX_H
#define OSH_PYTHON_REGEX_H
#include "base/base.h"

/* Fails with OSH_E_FORMAT on a pattern that PCRE2 may accept, but that Python's re refuses or reads
 * in another way. */
osh_status osh_python_regex_check(osh_ctx *cx, const char *pattern);
#endif
