/* number.h - parses a text that is one finite decimal number, or a number of bytes such as
 * "20GB". */
#ifndef OSH_NUMBER_H
#define OSH_NUMBER_H
#include "base/base.h"

/* Set *v to the number. Return false if `text` has any other form. */
bool osh_text_is_number(const char *text, double *v);
bool osh_text_is_bytes(const char *text, int64_t *v);
#endif
