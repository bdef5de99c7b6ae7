/* tok_pattern.h - declares the interfaces between tok_step.c, tok_pattern.c and tok_class.c. */
#ifndef OSH_TOK_PATTERN_H
#define OSH_TOK_PATTERN_H
#include "base/buf.h"

/* True if s is X, X+, X{n}, X{n,} or X{n,m} with n up to 3. X is a character, brackets without
 * escapes, or one of \s \d \n \r \t. */
bool osh_tok_is_one_atom(const char *s);

/* tok_class.c defines the next functions, which append text to the pattern `out` of PCRE2. kind:
 * the letter of the class escape, such as s or w. For any letter other than s, d, h and w, the
 * class is the property `prop`. */
/* Writes a class escape as members of a bracket class. */
osh_status osh_tok_class_members(osh_ctx *cx, osh_buf *out, char kind, const char *prop);
/* Writes a class escape outside of brackets, where Oniguruma's \w also contains the superscripts
 * and fractions of Latin-1. */
osh_status osh_tok_class(osh_ctx *cx, osh_buf *out, char kind, const char *prop, bool negated);
/* Writes \b or \B in terms of the \w of osh_tok_class. */
osh_status osh_tok_boundary(osh_ctx *cx, osh_buf *out, bool negated);
#endif
