/* tokenizer.h - tokenizer.json to ids, equal to the Hugging Face tokenizers library's.
 *
 * Only tokenizer.json decides the ids; tokenizer_config.json gives the maximum length and nothing
 * else (transformers 5 also ignores add_bos_token there when a tokenizer.json is present).
 * Truncation, padding and the decoder in the file are ignored; what is not known is refused by name. A tokenizer holds
 * caches: one thread at a time. */
#ifndef OSH_TOKENIZER_H
#define OSH_TOKENIZER_H
#include "base/base.h"

typedef struct osh_tokenizer osh_tokenizer;
typedef struct osh_ids { int32_t *ids; int64_t n, cap; } osh_ids; // own
/* Reads tokenizer.json and, where there is one, tokenizer_config.json. */
osh_status osh_tokenizer_open(osh_ctx *cx, osh_tokenizer **out, const char *model_dir);
/* From the text of a tokenizer.json; what names it in messages. */
osh_status osh_tokenizer_parse(osh_ctx *cx, osh_tokenizer **out, const char *text, size_t n,
                               const char *what);
void osh_tokenizer_close(osh_ctx *cx, osh_tokenizer *t);
/* Appends to ids. text is any bytes: invalid UTF-8 becomes U+FFFD as Python's errors="replace"
 * does. */
osh_status osh_tokenizer_encode(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids, const char *text,
                                size_t n, bool special_tokens);
/* The same in parts, without special tokens: begin, feed as often as there is text, end. Ids that are appended are
 * those of the whole text, whatever follows. Who wants no more of them just stops. A part is held, and with it as much
 * text as there is up to a place where the tokenizer certainly cuts. */
void osh_tokenizer_begin(osh_tokenizer *t);
osh_status osh_tokenizer_feed(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids, const char *text, size_t n);
osh_status osh_tokenizer_end(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids);
osh_status osh_tokenizer_special(osh_ctx *cx, const osh_tokenizer *t, osh_ids *ids, bool behind); // or before a text
void osh_tokenizer_part_bytes(osh_tokenizer *t, size_t n); // for tests: 64 KiB else
int64_t osh_tokenizer_model_max_length(const osh_tokenizer *t); // 0: not given or absurdly large
int64_t osh_tokenizer_n_vocab(const osh_tokenizer *t); // highest id + 1, added tokens included
osh_status osh_ids_reserve(osh_ctx *cx, osh_ids *ids, int64_t n_more);
void osh_ids_deinit(osh_ctx *cx, osh_ids *ids);
#endif
