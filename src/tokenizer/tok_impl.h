/* tok_impl.h - the parts of a tokenizer, seen by tok_*.c only.
 *
 *   bytes -> UTF-8 clean-up -> added tokens (raw) -> normalizers -> added tokens (normalized)
 *         -> pre-tokenizers -> model -> ids of the post-processor around it
 *
 * Text between two stages is a byte array and a list of pieces of it. A piece is either text or an
 * added token that was already found (id >= 0), which no later stage touches. The order is that of
 * tokenizers' TokenizerImpl::encode. */
#ifndef OSH_TOK_IMPL_H
#define OSH_TOK_IMPL_H
#include "text/json.h"
#include "text/json_scan.h"
#include "text/regex.h"
#include "tokenizer/tokenizer.h"

/* tok_file.c: a long list or object of the file, and its items one after the other. */
typedef struct osh_tok_list {
    const char *text; // view: of the file; NULL: there is none
    size_t n, n_items; // n_items: at most
    const char *what; // view
} osh_tok_list;
typedef struct osh_tok_file {
    cJSON *tree; // own: all but the lists
    osh_tok_list added, vocab, merges, scores; // scores: a vocabulary that is a list
} osh_tok_file;
osh_status osh_tok_file_parse(osh_ctx *cx, osh_tok_file *f, const char *text, size_t n, const char *what);
void osh_tok_file_deinit(osh_tok_file *f);
typedef struct osh_tok_items {
    osh_json_scan scan;
    osh_buf key, text;  // own; of the item: its key, its string
    const char *value;  // view: its text
    size_t n_value, n_first, n_strings;
    double number;      // NAN: it is none
} osh_tok_items;
void osh_tok_items_init(osh_tok_items *it, osh_ctx *cx, const osh_tok_list *l);
void osh_tok_items_deinit(osh_ctx *cx, osh_tok_items *it);
osh_status osh_tok_items_next(osh_tok_items *it, bool *any);
/* Of an item that is a list of strings: joined in it->text, n_first bytes of the first; n_strings 0: it is not. */
osh_status osh_tok_items_join(osh_tok_items *it);
/* Of one that is [string, number]: the string in it->text; n_strings 0: it is not. */
osh_status osh_tok_items_pair(osh_tok_items *it, char number[OSH_JSON_MAX_NUMBER + 1]);

#define OSH_TOK_MAX_BYTES ((size_t)1 << 30) // of one text at any stage

typedef struct osh_tok_piece {
    uint32_t at, len; // bytes of the text
    int32_t id;       // of an added token, or -1
    bool first;       // its first character is the first of the whole input
    uint8_t cont;     // of pre-tokenizers before this one it is the rest of a piece whose begin was done before
} osh_tok_piece;

typedef struct osh_tok_text {
    char *s; // own
    size_t n, cap;
    osh_tok_piece *pieces; // own
    size_t n_pieces, cap_pieces;
    size_t limit, made_of; // > 0: more than so many bytes, made of so many, are refused
} osh_tok_text;

osh_status osh_tok_text_reserve(osh_ctx *cx, osh_tok_text *t, size_t n_more); // bytes
osh_status osh_tok_text_add(osh_ctx *cx, osh_tok_text *t, const char *s, size_t n);
osh_status osh_tok_piece_add(osh_ctx *cx, osh_tok_text *t, osh_tok_piece p);
void osh_tok_text_deinit(osh_ctx *cx, osh_tok_text *t);

/* UTF-8 and character classes. */
/* Bytes of the character at s (n > 0), or 0 where it is not valid. */
size_t osh_utf8_decode(const char *s, size_t n, uint32_t *cp);
/* The same for loops: never 0 and at most n. Bytes that are no character are U+FFFD, as osh_tok_utf8_clean makes it. */
size_t osh_utf8_next(const char *s, size_t n, uint32_t *cp);
size_t osh_utf8_encode(char *to, uint32_t cp);                 // 1 to 4
osh_status osh_tok_utf8_clean(osh_ctx *cx, osh_tok_text *out, const char *s, size_t n);
bool osh_cp_is_space(uint32_t cp);   // White_Space
bool osh_cp_is_word(uint32_t cp);    // \w of Rust's regex: Alphabetic, M, Nd, Pc, Join_Control
bool osh_cp_is_numeric(uint32_t cp); // N
bool osh_cp_is_punct(uint32_t cp);   // P or ASCII punctuation
bool osh_cp_is_mark(uint32_t cp);    // M
size_t osh_utf8_before(const char *s, size_t at); // start of the valid character ending at at > 0

/* A pattern of tokenizer.json: a string or an Oniguruma regex. Finds the first match at or after
 * from; *start == SIZE_MAX: none. An empty match right behind the last one is skipped. */
typedef struct osh_tok_pattern {
    osh_regex *re; // own; NULL: the literal
    char *literal; // own
    size_t n_literal;
    bool one_atom; // a regex of one character or class, or of such in a row, of three at most at least
    bool local; // a match depends on no text before the place where the search starts, and is not empty
} osh_tok_pattern;
osh_status osh_tok_pattern_load(osh_ctx *cx, osh_tok_pattern *p, const cJSON *o,
                                const char *what); // {"Regex"|"String": ...}
osh_status osh_tok_pattern_regex(osh_ctx *cx, osh_tok_pattern *p, const char *onig,
                                 const char *what);
osh_status osh_tok_pattern_find(osh_ctx *cx, const osh_tok_pattern *p, const char *s, size_t n,
                                size_t from, osh_hit *at);
/* The same where more text will follow. at->start SIZE_MAX: the next match starts at at->end or behind it, and cannot
 * be told yet. */
osh_status osh_tok_pattern_find_open(osh_ctx *cx, const osh_tok_pattern *p, const char *s, size_t n, size_t from,
                                     osh_hit *at);
void osh_tok_pattern_deinit(osh_ctx *cx, osh_tok_pattern *p);

/* One normalizer or pre-tokenizer; sequences are flattened when they are loaded. */
typedef enum {
    OSH_SPLIT_REMOVED,
    OSH_SPLIT_ISOLATED,
    OSH_SPLIT_PREVIOUS,
    OSH_SPLIT_NEXT,
    OSH_SPLIT_CONTIGUOUS
} osh_split_kind;
/* Between which characters a normalizer's input may be cut: made of both parts, one after the other, is what is made of
 * the whole. */
typedef enum {
    OSH_CUT_NEVER,
    OSH_CUT_ANYWHERE,
    OSH_CUT_STARTER, // before one that begins a canonical form
    OSH_CUT_COMPAT,  // or a compatibility form
    OSH_CUT_CALM     // amid letters that stay as they are (tok_cut.c)
} osh_cut_kind;
typedef struct osh_tok_step osh_tok_step;
typedef struct osh_tok_model osh_tok_model;
typedef struct osh_tok_charsmap osh_tok_charsmap;
/* open: more text follows behind the last piece, whose end is not known. What pre-tokenizers cannot tell yet stays. */
typedef struct osh_tok_work {
    osh_tok_text *cur, *next; // cur is read, next is written and then swapped in
    bool open;
    size_t left;         // bytes at the end of the text that stay
    size_t made_up;      // bytes at the start of the open piece that are not of the text
    osh_tok_piece tail;  // what the text that stays begins with: first and cont
    const osh_tok_model *model;
} osh_tok_work;
typedef osh_status (*osh_tok_step_fn)(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w);
struct osh_tok_step {
    osh_tok_step_fn run;
    size_t index; // in its list
    osh_cut_kind cuts;
    osh_tok_pattern pattern;
    char *content; // own: Replace, Prepend, Metaspace
    size_t n_content;
    osh_split_kind split;
    bool invert;      // Split
    bool left, right; // Strip
    bool each;        // Digits: individual_digits
    bool add_prefix;  // ByteLevel; Metaspace: prepend_scheme always
    bool first_only;  // Metaspace: prepend_scheme first
    bool do_split;    // ByteLevel: use_regex; Metaspace: split
    bool clean, ideographs, accents, lower; // BertNormalizer
    osh_tok_charsmap *charsmap; // own: Precompiled
    size_t n_chars;   // FixedLength
};
typedef struct osh_tok_steps { osh_tok_step *items; size_t n, cap; } osh_tok_steps; // own

typedef osh_status (*osh_tok_load_fn)(osh_ctx *cx, osh_tok_step *st, const cJSON *o,
                                      const char *what);
typedef struct osh_tok_component {
    const char *type;
    osh_tok_load_fn load;
    osh_tok_step_fn run;
    osh_cut_kind cuts; // of a normalizer; load may change it
} osh_tok_component;
typedef struct osh_tok_role {
    const char *name;     // "normalizer" or "pre_tokenizer"
    const char *list_key; // of a Sequence's members
    const osh_tok_component *table;
} osh_tok_role;
/* Appends what o describes. */
osh_status osh_tok_steps_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o, const osh_tok_role *role,
                              const char *what);
void osh_tok_steps_deinit(osh_ctx *cx, osh_tok_steps *steps);
osh_status osh_tok_steps_run(osh_ctx *cx, const osh_tok_steps *steps, osh_tok_work *w);
/* Normalizers: what they make is bounded by what they are given. */
osh_status osh_tok_normalize(osh_ctx *cx, const osh_tok_steps *steps, osh_tok_work *w);
osh_status osh_tok_normalizers_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                                    const char *what);
osh_cut_kind osh_tok_normalizers_cut(const osh_tok_steps *steps); // of all of them
typedef struct osh_tok_cuts osh_tok_cuts;
osh_status osh_tok_cuts_new(osh_ctx *cx, osh_tok_cuts **out, const osh_tok_steps *normalizers); // view of normalizers
void osh_tok_cuts_free(osh_ctx *cx, osh_tok_cuts *c);
osh_status osh_tok_cuts_at(osh_ctx *cx, osh_tok_cuts *c, const char *s, size_t n, size_t at, bool *yes);
bool osh_cp_is_grapheme(uint32_t cp); // by itself, between letters
bool osh_cp_starts_form(uint32_t cp, bool compat); // nothing before it changes it or is changed by it in a normal form
osh_status osh_tok_pretokenizers_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                                      const char *what);
/* Text pieces through a per-piece function that appends to next and may clear p->first. */
typedef osh_status (*osh_tok_map_fn)(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                                     const char *s, size_t n, osh_tok_piece *p);
osh_status osh_tok_map_pieces(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w,
                              osh_tok_map_fn fn);
osh_status osh_tok_map_nfd(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s, size_t n,
                           osh_tok_piece *p);
osh_status osh_tok_map_lowercase(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s, size_t n,
                                 osh_tok_piece *p);
/* tok_clean.c */
osh_status osh_tok_load_bert(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what);
osh_status osh_tok_run_bert(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w);
osh_status osh_tok_run_nmt(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w);
/* Such a function: bytes to GPT-2's printable characters. */
osh_status osh_tok_map_bytes(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                             size_t n, osh_tok_piece *p);
/* The open piece ends, before its bytes are mapped: at a place that no merge of the model crosses, if there is one;
 * what is behind it stays. space: what a space becomes, or NULL; bytes: they become GPT-2's characters. */
void osh_tok_close_open(osh_tok_work *w, const char *space, bool bytes);

/* Hash of 64-bit keys to two 32-bit values; ~0 is no key. */
typedef struct osh_tok_pairs {
    struct osh_tok_pair { uint64_t key; uint32_t a, b; } *slots; // own
    size_t n, mask;
} osh_tok_pairs;
osh_status osh_tok_pairs_init(osh_ctx *cx, osh_tok_pairs *p, size_t n_expected);
/* Replaces what the key had. */
osh_status osh_tok_pairs_put(osh_ctx *cx, osh_tok_pairs *p, uint64_t key, uint32_t a, uint32_t b);
static inline const struct osh_tok_pair *osh_tok_pairs_get(const osh_tok_pairs *p, uint64_t key)
{
    size_t i = (size_t)((key * 0x9E3779B97F4A7C15ull) >> 20) & p->mask;

    while (p->slots[i].key != UINT64_MAX) {
        if (p->slots[i].key == key) return &p->slots[i];
        i = (i + 1) & p->mask;
    }
    return NULL;
}

/* tok_model.c: the model. */
osh_status osh_tok_model_load(osh_ctx *cx, osh_tok_model **out, const osh_tok_file *f, const char *what);
void osh_tok_model_free(osh_ctx *cx, osh_tok_model *m);
bool osh_tok_model_find(const osh_tok_model *m, const char *token, size_t n, int32_t *id);
size_t osh_tok_model_size(const osh_tok_model *m); // entries
int32_t osh_tok_model_max_id(const osh_tok_model *m);
/* In a text of which x ends one part and y begins the next, no token is made across. Where a whole word may be a token
 * that merges do not make, the answer is no. */
bool osh_tok_model_parts(const osh_tok_model *m, uint32_t x, uint32_t y);
osh_status osh_tok_model_encode(osh_ctx *cx, osh_tok_model *m, osh_ids *ids, const char *word, size_t n);
uint32_t osh_tok_byte_char(unsigned char b); // GPT-2's

/* Added tokens. */
typedef struct osh_tok_added osh_tok_added;
osh_status osh_tok_added_load(osh_ctx *cx, osh_tok_added **out, const osh_tok_file *f, const osh_tok_model *m,
                              const osh_tok_steps *normalizers, const char *what);
void osh_tok_added_free(osh_ctx *cx, osh_tok_added *a);
osh_status osh_tok_added_split(osh_ctx *cx, const osh_tok_added *a, bool normalized,
                               osh_tok_work *w);
int32_t osh_tok_added_max_id(const osh_tok_added *a); // -1: none
/* The last place in s, in its second half and before its last character, where it may be cut: no token of the set
 * touches the place or swallows white space across it, whatever follows. cuts: of the normalizers; NULL: they are done.
 * *at 0: none. */
osh_status osh_tok_added_cut(osh_ctx *cx, const osh_tok_added *a, osh_tok_cuts *cuts, const char *s, size_t n,
                             size_t *at);

/* The post-processor, for one sequence: ids before and after. */
typedef struct osh_tok_post { osh_ids before, after; } osh_tok_post;
osh_status osh_tok_post_load(osh_ctx *cx, osh_tok_post *p, const cJSON *o, const char *what);
void osh_tok_post_deinit(osh_ctx *cx, osh_tok_post *p);

/* Strings of the JSON tree: json.c writes U+0000 as C0 80; *out holds the real bytes. */
osh_status osh_tok_string(osh_ctx *cx, char **out, size_t *n, const char *s); // own
osh_status osh_tok_member(osh_ctx *cx, char **out, size_t *n, const cJSON *o, const char *key,
                          const char *what); // own: of a member that must be there
osh_status osh_tok_type(osh_ctx *cx, const char **type, const cJSON *o, const char *role,
                        const char *what); // view: of o
#endif
