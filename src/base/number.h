/* number.h - parses a text that is one finite decimal number, or a number of bytes such as
 * "20GB". */
#ifndef OSH_NUMBER_H
#define OSH_NUMBER_H
#include "base/base.h"

/* osh_text_is_number reads a decimal number. osh_text_is_bytes reads a number of bytes. Both set
 * *v, and return false for any other text. */
bool osh_text_is_number(const char *text, double *v);
bool osh_text_is_bytes(const char *text, int64_t *v);
#endif
