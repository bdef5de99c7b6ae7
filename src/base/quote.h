/* quote.h - a text as the inside of a double-quoted JSON or YAML string: one escape serves both. */
#ifndef OSH_QUOTE_H
#define OSH_QUOTE_H
#include <stddef.h>

/* Writes at most room - 1 bytes and a NUL; what does not fit is left out at a character's border. Returns the
 * bytes written. */
size_t osh_quote(char *to, size_t room, const char *text);
#endif
