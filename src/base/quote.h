/* quote.h - a text as the inside of a double-quoted JSON or YAML string (one escape serves both), or as a person sees
 * it in a line: names of tensors and files may hold anything, and a terminal obeys control characters. */
#ifndef OSH_QUOTE_H
#define OSH_QUOTE_H
#include <stddef.h>

enum { OSH_QUOTE_MOST = 6 }; // bytes that one byte of a text becomes, at most

/* Writes at most room - 1 bytes and a NUL; what does not fit is left out at a character's border. Returns the
 * bytes written. */
size_t osh_quote(char *to, size_t room, const char *text);
/* The same but for quotes and backslashes, which stay. *rest, unless NULL: where text was left. */
size_t osh_show(char *to, size_t room, const char *text, const char **rest);
#endif
