/* shell.h - writes words and paths for a command line of a shell. */
#ifndef OSH_SHELL_H
#define OSH_SHELL_H
#include "base/buf.h"

/* Appends a word that a shell (bash, zsh) reads as `text`. A word is quoted if it has characters
 * that names and paths usually do not have; control characters and bytes that are not UTF-8 become
 * \ooo. */
osh_status osh_shell_word(osh_ctx *cx, osh_buf *b, const char *text);
/* Appends a path as a word of a shell. A path that begins with '-' gets "./" in front; otherwise a
 * program would read it as an option. */
osh_status osh_shell_path(osh_ctx *cx, osh_buf *b, const char *path);
#endif
