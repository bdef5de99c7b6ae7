/* tok_charsmap.h - applies SentencePiece's precompiled map of characters. */
#ifndef OSH_TOK_CHARSMAP_H
#define OSH_TOK_CHARSMAP_H
#include "tokenizer/tok_impl.h"

/* Reads a map from its base64 text; `what` names the file in messages. */
osh_status osh_tok_charsmap_load(osh_ctx *cx, osh_tok_charsmap **out, const char *base64,
                                 const char *what);
/* Frees the map. Accepts NULL. */
void osh_tok_charsmap_free(osh_ctx *cx, osh_tok_charsmap *m);
/* Maps the text s and appends the result to `out`. */
osh_status osh_tok_charsmap_apply(osh_ctx *cx, const osh_tok_charsmap *m, osh_tok_text *out,
                                  const char *s, size_t n);
#endif
