/* tokenizer.h - converts text to token ids with a tokenizer.json, as the Hugging Face tokenizers
 * library does.
 *
 * Only tokenizer.json decides the ids. Only the maximum length is read from tokenizer_config.json.
 * The key add_bos_token of tokenizer_config.json is ignored; transformers 5 also ignores it if
 * there is a tokenizer.json. The truncation, the padding and the decoder of tokenizer.json are
 * ignored. An unknown component is an error that names it. A tokenizer contains caches: only one
 * thread may use it at a time. */
#ifndef OSH_TOKENIZER_H
#define OSH_TOKENIZER_H
#include "base/base.h"

typedef struct osh_tokenizer osh_tokenizer;
typedef struct osh_ids { int32_t *ids; int64_t n, cap; } osh_ids; // own
/* Opens a tokenizer. Reads tokenizer.json and, if it exists, tokenizer_config.json. */
osh_status osh_tokenizer_open(osh_ctx *cx, osh_tokenizer **out, const char *model_dir);
/* Sets *name to the name (a static string) of another library's tokenizer file in the directory,
 * such as tiktoken.model. *name is NULL if there is none. */
osh_status osh_tokenizer_other(osh_ctx *cx, const char **name, const char *model_dir);
/* Text after "want " in a message about a tokenizer file of another library. */
#define OSH_TOKENIZER_WANTED                                                                      \
    "tokenizer.json, which `python -c \"from transformers import AutoTokenizer as T; "            \
    "T.from_pretrained('DIR').save_pretrained('DIR')\"` writes"
/* Makes a tokenizer from the text of a tokenizer.json; `what` names the text in messages. */
osh_status osh_tokenizer_parse(osh_ctx *cx, osh_tokenizer **out, const char *text, size_t n,
                               const char *what);
/* Frees the tokenizer. Accepts NULL. */
void osh_tokenizer_close(osh_ctx *cx, osh_tokenizer *t);
/* Appends the ids of a text to `ids`. The text may contain any bytes: invalid UTF-8 becomes U+FFFD,
 * as with Python's errors="replace". */
osh_status osh_tokenizer_encode(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids, const char *text,
                                size_t n, bool special_tokens);
/* The next functions encode a text in parts, without special tokens. Call osh_tokenizer_begin once,
 * then osh_tokenizer_feed for each part, then osh_tokenizer_end. Together they append the ids of
 * the whole text. A caller that needs no more ids may omit osh_tokenizer_end. The tokenizer stores
 * only the text whose ids still depend on later text, and at most one more part. */
void osh_tokenizer_begin(osh_tokenizer *t);
/* Adds the n bytes of `text`. Appends the ids that no later bytes can change. */
osh_status osh_tokenizer_feed(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids, const char *text,
                              size_t n);
/* Appends the ids of the rest of the text. */
osh_status osh_tokenizer_end(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids);
/* Appends to `ids` the ids that later text cannot change. Sets *tail (owned by the caller) to the
 * other ids, which osh_tokenizer_end would append if the text ended here. Keeps the text of *tail
 * for later parts. */
osh_status osh_tokenizer_peek(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids, osh_ids *tail);
/* Appends the special tokens that the post-processor adds to a text. `after` false: the tokens
 * before the text. `after` true: the tokens after the text. */
osh_status osh_tokenizer_special(osh_ctx *cx, const osh_tokenizer *t, osh_ids *ids, bool after);
/* Sets the size of a part (osh_tokenizer_feed) in bytes; for tests. The default is 64 KiB. */
void osh_tokenizer_part_bytes(osh_tokenizer *t, size_t n);
/* Returns the maximum length of a text in tokens. Returns 0 if the length is unknown, or above
 * 1e9. */
int64_t osh_tokenizer_model_max_length(const osh_tokenizer *t);
/* Returns the highest id + 1, including added tokens. */
int64_t osh_tokenizer_n_vocab(const osh_tokenizer *t);
/* Reserves memory for n_more ids. */
osh_status osh_ids_reserve(osh_ctx *cx, osh_ids *ids, int64_t n_more);
void osh_ids_deinit(osh_ctx *cx, osh_ids *ids);
#endif
