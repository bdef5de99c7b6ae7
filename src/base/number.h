/* number.h - a whole text that is a number (not hexadecimal, finite), or bytes as OSH_F_BYTES has them. False: it is
 * none. */
#ifndef OSH_NUMBER_H
#define OSH_NUMBER_H
#include "base/base.h"

bool osh_text_is_number(const char *text, double *v);
bool osh_text_is_bytes(const char *text, int64_t *v);
#endif
