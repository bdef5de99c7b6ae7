/* quote.h - makes a text safe for a double-quoted string, or for a line on a terminal. The same
 * escapes work in JSON and in YAML. Names of tensors and files may have any bytes, and a terminal
 * executes control characters. */
#ifndef OSH_QUOTE_H
#define OSH_QUOTE_H
#include <stdbool.h>
#include <stddef.h>

enum { OSH_QUOTE_MOST = 6 }; // largest number of bytes that replace one byte of a text

/* Escapes a text for a quoted string. Writes at most room - 1 bytes and a NUL, and cuts only
 * between characters. Returns the number of bytes written. */
size_t osh_quote(char *to, size_t room, const char *text);
/* Escapes like osh_quote, but does not change quotes and backslashes. Sets *rest to the part of the
 * text that did not fit; rest may be NULL. */
size_t osh_show(char *to, size_t room, const char *text, const char **rest);
bool osh_is_printable(const char *text); // true if osh_show would write the text unchanged
#endif
