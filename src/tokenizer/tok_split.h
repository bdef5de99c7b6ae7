/* tok_split.h - cuts the pieces of a text at matches, for pre-tokenizers (tok_pretokenize.c). */
#ifndef OSH_TOK_SPLIT_H
#define OSH_TOK_SPLIT_H
#include "tokenizer/tok_impl.h"

/* A text to search, and a function that finds the first match at or after `from`. If `open` is
 * true, more text follows, and the function works like osh_tok_pattern_find_open. */
typedef struct osh_haystack {
    const char *s;
    size_t n;
    bool open;
} osh_haystack;
typedef osh_status (*osh_match_fn)(osh_ctx *cx, const osh_tok_step *st, const osh_haystack *h,
                                    size_t from, size_t *start, size_t *end);

/* Cuts each piece of w->cur that is no added token. kind: treatment of the matches
 * (osh_split_kind). invert: true if the gaps between matches count as matches. */
osh_status osh_tok_split(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w, osh_split_kind kind,
                       bool invert, osh_match_fn next_match);
/* Keeps the last n bytes of the text until more text is read. These bytes become the beginning of a
 * new piece, whose members `first` and `cont` are those of `begin`. No piece is open any more. */
void osh_tok_leave(osh_tok_work *w, osh_tok_piece begin, size_t n);
#endif
