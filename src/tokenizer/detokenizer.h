/* detokenizer.h - converts token ids to text, one id after the other, as the decoder of a
 * tokenizer.json does (tokenizers' DecodeStream, special tokens skipped). */
#ifndef OSH_DETOKENIZER_H
#define OSH_DETOKENIZER_H
#include "base/buf.h"
#include "tokenizer/tokenizer.h"

typedef struct osh_detokenizer osh_detokenizer;
/* Reads tokenizer.json again: the vocabulary and the decoder. t: the tokenizer of the same file,
 * which need not outlive *out (own). A decoder that is not known is refused by name. */
osh_status osh_detokenizer_open(osh_ctx *cx, osh_detokenizer **out, const osh_tokenizer *t,
                                const char *model_dir);
void osh_detokenizer_close(osh_ctx *cx, osh_detokenizer *d); // accepts NULL
/* Appends the text that is certain after this id: whole characters of UTF-8. An id that the
 * vocabulary lacks has no text. */
osh_status osh_detokenizer_feed(osh_ctx *cx, osh_detokenizer *d, osh_buf *out, int32_t id);
/* Appends the rest; bytes that are no character become U+FFFD. */
osh_status osh_detokenizer_end(osh_ctx *cx, osh_detokenizer *d, osh_buf *out);
int32_t osh_detokenizer_find(const osh_detokenizer *d, const char *token); // -1: no such token
#endif
