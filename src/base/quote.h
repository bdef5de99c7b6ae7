/* quote.h - makes a text safe for a double-quoted JSON or YAML string (one escape serves both), or
 * for a line on a terminal. Names of tensors and files may hold anything, and a terminal obeys
 * control characters. */
#ifndef OSH_QUOTE_H
#define OSH_QUOTE_H
#include "base/buf.h"

enum { OSH_QUOTE_MOST = 6 }; // most bytes by which one byte of a text is replaced

/* Escapes a text for a quoted string. Writes at most room - 1 bytes and a NUL, and cuts only
 * between characters. Returns the number of bytes written. */
size_t osh_quote(char *to, size_t room, const char *text);
/* Escapes like osh_quote, except quotes and backslashes. If `rest` is not NULL, sets *rest to the
 * part of the text that did not fit. */
size_t osh_show(char *to, size_t room, const char *text, const char **rest);
/* Appends a word that a shell (bash, zsh) reads as `text`. A word with other characters than those
 * of names and paths is quoted; control characters and bytes that are not UTF-8 become \ooo. */
osh_status osh_shell_word(osh_ctx *cx, osh_buf *b, const char *text);
/* Appends a path as such a word; a '-' at its start would make an option of it. */
osh_status osh_shell_path(osh_ctx *cx, osh_buf *b, const char *path);
#endif
