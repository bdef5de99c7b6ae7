/* number.h - parses a text that is one decimal, finite number, or a number of bytes as OSH_F_BYTES
 * has it. */
#ifndef OSH_NUMBER_H
#define OSH_NUMBER_H
#include "base/base.h"

/* Both return false if the whole text is not such a number. */
bool osh_text_is_number(const char *text, double *v);
bool osh_text_is_bytes(const char *text, int64_t *v);
#endif
