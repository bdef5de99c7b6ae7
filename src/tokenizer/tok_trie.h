/* tok_trie.h - declares a trie of the bytes of tokens. The trie is built once. The children of a
 * node are neighbours. */
#ifndef OSH_TOK_TRIE_H
#define OSH_TOK_TRIE_H
#include "base/buf.h"

/* Tokens in the order in which they were read; osh_tok_trie_build sorts them. */
typedef struct osh_tok_words {
    osh_buf bytes;    // own; bytes of all tokens, without separators
    struct osh_tok_word {
        const char *s; // view of `bytes`; valid after the trie is built
        size_t at;
        uint32_t n;
        int32_t id;
    } *items;         // own
    size_t n, cap;
} osh_tok_words;
/* Makes an empty list of words. */
void osh_tok_words_init(osh_tok_words *w);
void osh_tok_words_deinit(osh_ctx *cx, osh_tok_words *w);
/* Adds a word of n bytes with its id. */
osh_status osh_tok_words_add(osh_ctx *cx, osh_tok_words *w, const char *s, size_t n, int32_t id);

/* The children of node i are nodes child[i] to child[i + 1] - 1, sorted by label. Node 0 is the
 * root. */
typedef struct osh_tok_trie {
    uint32_t *child; // own; [n + 1] index of the first child of each node
    int32_t *id;     // own; [n]; id of the token that ends at the node; -1: none
    uint8_t *label;  // own; [n]; the byte on the edge to the node
    size_t n;
} osh_tok_trie;
/* Sorts the words and builds the trie. If two words are equal, the one with the higher id is kept.
 * Sets *twice to a word that occurs twice, or to NULL if all words differ. */
osh_status osh_tok_trie_build(osh_ctx *cx, osh_tok_trie *t, osh_tok_words *w,
                              const struct osh_tok_word **twice);
void osh_tok_trie_deinit(osh_ctx *cx, osh_tok_trie *t);
/* Returns the id of the token s of n bytes, or -1 if the trie does not have the token. */
int32_t osh_tok_trie_find(const osh_tok_trie *t, const char *s, size_t n);
/* Moves *node to the child with label c. Returns false if there is no such child. */
static inline bool osh_tok_trie_step(const osh_tok_trie *t, uint32_t *node, unsigned char c)
{
    uint32_t from = t->child[*node], to = t->child[*node + 1];

    while (to - from > 8) { // binary search by label
        uint32_t mid = from + (to - from) / 2;
        if (t->label[mid] <= c) from = mid;
        else to = mid;
    }
    for (; from < to; from++)
        if (t->label[from] == c) {
            *node = from;
            return true;
        }
    return false;
}
#endif
