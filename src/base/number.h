/* number.h - parses a text that is one finite decimal number, or a number of bytes in the form of
 * OSH_F_BYTES. */
#ifndef OSH_NUMBER_H
#define OSH_NUMBER_H
#include "base/base.h"

/* Set *v to the number. Return false if the whole text is not such a number. */
bool osh_text_is_number(const char *text, double *v);
bool osh_text_is_bytes(const char *text, int64_t *v);
#endif
