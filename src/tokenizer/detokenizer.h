/* detokenizer.h - converts token ids to text, one id after the other, as the decoder of a
 * tokenizer.json does. Agrees with tokenizers' DecodeStream. Special tokens are skipped. */
#ifndef OSH_DETOKENIZER_H
#define OSH_DETOKENIZER_H
#include "base/buf.h"
#include "tokenizer/tokenizer.h"

typedef struct osh_detokenizer osh_detokenizer;
/* Opens a detokenizer: reads the vocabulary and the decoder of tokenizer.json. `t` is the tokenizer
 * of the same file; `t` may be closed before *out (own). Fails if a decoder is not known; the
 * message names this decoder. */
osh_status osh_detokenizer_open(osh_ctx *cx, osh_detokenizer **out, const osh_tokenizer *t,
                                const char *model_dir);
void osh_detokenizer_close(osh_ctx *cx, osh_detokenizer *d); // accepts NULL
/* Decodes the next id. Appends the part of the text that no later id can change; it has only whole
 * characters of UTF-8. Appends nothing for an id that is not in the vocabulary. */
osh_status osh_detokenizer_feed(osh_ctx *cx, osh_detokenizer *d, osh_buf *out, int32_t id);
/* Ends the text: appends the remaining text, which could depend on later ids. Bytes that form no
 * character become U+FFFD. */
osh_status osh_detokenizer_end(osh_ctx *cx, osh_detokenizer *d, osh_buf *out);
/* Returns the id of the token whose text is `token`, or -1 if there is none. */
int32_t osh_detokenizer_find(const osh_detokenizer *d, const char *token);
#endif
