/* tok_model.h - declares the interface of models, which convert one word to ids. Each model has one
 * file and one row in the table of tok_model.c. */
#ifndef OSH_TOK_MODEL_H
#define OSH_TOK_MODEL_H
#include "tokenizer/tok_impl.h"

typedef struct osh_tok_model_type {
    const char *name; // the "type" in tokenizer.json
    osh_status (*load)(osh_ctx *cx, void **state, const osh_tok_file *f, const char *what);
    void (*free)(osh_ctx *cx, void *state);
    osh_status (*encode)(osh_ctx *cx, void *state, osh_ids *ids, const char *word,
                         size_t n); // appends the ids of a word of n > 0 bytes
    bool (*find)(const void *state, const char *token, size_t n, int32_t *id);
    size_t (*size)(const void *state); // returns the number of tokens in the vocabulary
    int32_t (*max_id)(const void *state);
    /* osh_tok_model_parts calls this function. NULL: osh_tok_model_parts always returns false. */
    bool (*parts)(const void *state, uint32_t x, uint32_t y);
} osh_tok_model_type;
extern const osh_tok_model_type osh_tok_bpe, osh_tok_unigram, osh_tok_wordpiece, osh_tok_wordlevel;

/* Reads the id of a vocabulary item {"token": id}. */
osh_status osh_tok_item_id(osh_ctx *cx, const osh_tok_items *it, int32_t *id, const char *what);
#endif
