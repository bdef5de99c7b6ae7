/* tok_impl.h - the parts of a tokenizer, for tok_*.c, and its UTF-8 functions, which src/chat uses,
 * too.
 *
 *   bytes -> UTF-8 clean-up -> added tokens (raw) -> normalizers -> added tokens (normalized)
 *         -> pre-tokenizers -> model -> ids, with the post-processor's ids before and after
 *
 * The text between two stages is a byte array and a list of its pieces. A piece is either text or
 * an added token that was already found (id >= 0), which no later stage changes. The order of the
 * stages is that of tokenizers' TokenizerImpl::encode. */
#ifndef OSH_TOK_IMPL_H
#define OSH_TOK_IMPL_H
#include "text/json.h"
#include "text/json_scan.h"
#include "text/regex.h"
#include "tokenizer/tokenizer.h"

/* tok_file.c: a long list or object of the file, which is read item by item. */
typedef struct osh_tok_list {
    const char *text; // view: lives as long as the file's text; NULL: no list
    size_t n, n_items; // n_items: an upper bound
    const char *what; // view: name for messages
} osh_tok_list;
typedef struct osh_tok_file {
    cJSON *tree; // own: everything but the lists
    osh_tok_list added, vocab, merges, scores; // scores: a vocabulary that is a list
} osh_tok_file;
osh_status osh_tok_file_parse(osh_ctx *cx, osh_tok_file *f, const char *text, size_t n,
                              const char *what);
void osh_tok_file_deinit(osh_tok_file *f);
typedef struct osh_tok_items {
    osh_json_scan scan;
    osh_buf key, text;  // own; the item's key and string
    const char *value;  // view: the item's text
    size_t n_value, n_first, n_strings;
    double number;      // NAN: the item is not a number
} osh_tok_items;
void osh_tok_items_init(osh_tok_items *it, osh_ctx *cx, const osh_tok_list *l);
void osh_tok_items_deinit(osh_ctx *cx, osh_tok_items *it);
osh_status osh_tok_items_next(osh_tok_items *it, bool *any);
/* Joins the strings of an item that is a list of strings in it->text; n_first is the size of the
 * first in bytes. n_strings is 0 if the item is no such list. */
osh_status osh_tok_items_join(osh_tok_items *it);
/* Splits an item [string, number]: the string is put in it->text. n_strings is 0 if the item has
 * another form. */
osh_status osh_tok_items_pair(osh_tok_items *it, char number[OSH_JSON_MAX_NUMBER + 1]);

#define OSH_TOK_MAX_BYTES ((size_t)1 << 30) // limit for one text at any stage

typedef struct osh_tok_piece {
    uint32_t at, len; // position and size in bytes
    int32_t id;       // id of an added token, or -1
    bool first;       // its first character is the first of the whole input
    uint8_t cont;     // steps with an index below this have already handled the piece's beginning
} osh_tok_piece;

typedef struct osh_tok_text {
    char *s; // own
    size_t n, cap;
    osh_tok_piece *pieces; // own
    size_t n_pieces, cap_pieces;
    size_t limit, made_of; // largest allowed size, 0: no limit; size of the input; bytes
} osh_tok_text;

osh_status osh_tok_text_reserve(osh_ctx *cx, osh_tok_text *t, size_t n_more); // bytes
osh_status osh_tok_text_add(osh_ctx *cx, osh_tok_text *t, const char *s, size_t n);
osh_status osh_tok_piece_add(osh_ctx *cx, osh_tok_text *t, osh_tok_piece p);
void osh_tok_text_deinit(osh_ctx *cx, osh_tok_text *t);

/* ---- UTF-8 and character classes ---- */
/* Decodes the character at s (n > 0). Returns its size in bytes, or 0 if it is not valid. */
size_t osh_utf8_decode(const char *s, size_t n, uint32_t *cp);
/* Decodes like osh_utf8_decode, but returns 1 to n: invalid bytes count as one U+FFFD, as in
 * osh_tok_utf8_clean. */
size_t osh_utf8_next(const char *s, size_t n, uint32_t *cp);
size_t osh_utf8_encode(char *to, uint32_t cp);                 // returns 1 to 4 bytes
osh_status osh_tok_utf8_clean(osh_ctx *cx, osh_tok_text *out, const char *s, size_t n);
bool osh_cp_is_space(uint32_t cp);   // White_Space
bool osh_cp_is_word(uint32_t cp);    // \w in Rust's regex: Alphabetic, M, Nd, Pc, Join_Control
bool osh_cp_is_numeric(uint32_t cp); // N
bool osh_cp_is_punct(uint32_t cp);   // P or ASCII punctuation
bool osh_cp_is_mark(uint32_t cp);    // M
/* Returns the start of the valid character that ends at at > 0. */
size_t osh_utf8_before(const char *s, size_t at);

/* A pattern of tokenizer.json: a string or an Oniguruma regex. osh_tok_pattern_find finds the first
 * match at or after `from`; at->start is SIZE_MAX if there is none. The caller skips an empty match
 * directly after the last one. */
typedef struct osh_tok_pattern {
    osh_regex *re; // own; NULL: the pattern is the literal
    char *literal; // own
    size_t n_literal;
    bool one_atom; // a regex for one character or class, once or in a run of at least 1 to 3
    bool local; // a match is not empty and does not depend on text before the search
} osh_tok_pattern;
osh_status osh_tok_pattern_load(osh_ctx *cx, osh_tok_pattern *p, const cJSON *o,
                                const char *what); // {"Regex"|"String": ...}
osh_status osh_tok_pattern_regex(osh_ctx *cx, osh_tok_pattern *p, const char *onig,
                                 const char *what);
osh_status osh_tok_pattern_find(osh_ctx *cx, const osh_tok_pattern *p, const char *s, size_t n,
                                size_t from, osh_hit *at);
/* Finds the first match in a text that more text will follow. If at->start is SIZE_MAX, the next
 * match is not known yet, and starts at at->end or later. */
osh_status osh_tok_pattern_find_open(osh_ctx *cx, const osh_tok_pattern *p, const char *s, size_t n,
                                     size_t from, osh_hit *at);
void osh_tok_pattern_deinit(osh_ctx *cx, osh_tok_pattern *p);

/* One normalizer or pre-tokenizer; sequences are flattened when they are loaded. */
typedef enum {
    OSH_SPLIT_REMOVED,
    OSH_SPLIT_ISOLATED,
    OSH_SPLIT_PREVIOUS,
    OSH_SPLIT_NEXT,
    OSH_SPLIT_CONTIGUOUS
} osh_split_kind;
/* The positions where a normalizer's input may be cut, so that the outputs of both parts, joined,
 * are the output of the whole text. */
typedef enum {
    OSH_CUT_NEVER,
    OSH_CUT_ANYWHERE,
    OSH_CUT_STARTER, // before a character that begins a canonical form
    OSH_CUT_COMPAT,  // before a character that also begins a compatibility form
    OSH_CUT_CALM     // between letters that do not change (tok_cut.c)
} osh_cut_kind;
typedef struct osh_tok_step osh_tok_step;
typedef struct osh_tok_model osh_tok_model;
typedef struct osh_tok_charsmap osh_tok_charsmap;
/* If open, more text follows, and the end of the last piece is not known. Text whose pieces the
 * pre-tokenizers do not know yet stays for the next part. */
typedef struct osh_tok_work {
    osh_tok_text *cur, *next; // cur: input; next: output, then swapped with cur
    bool open;
    size_t left;         // bytes at the end of the text that stay for the next part
    size_t made_up;      // bytes that were inserted at the start of the open piece
    osh_tok_piece tail;  // first and cont of the text that stays
    const osh_tok_model *model;
} osh_tok_work;
typedef osh_status (*osh_tok_step_fn)(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w);
struct osh_tok_step {
    osh_tok_step_fn run;
    size_t index; // position in its list
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
    osh_cut_kind cuts; // for a normalizer; load may change it
} osh_tok_component;
typedef struct osh_tok_role {
    const char *name;     // "normalizer" or "pre_tokenizer"
    const char *list_key; // key of a Sequence's members
    const osh_tok_component *table;
} osh_tok_role;
/* Appends the step that o describes, or all steps of a Sequence. */
osh_status osh_tok_steps_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                              const osh_tok_role *role, const char *what);
void osh_tok_steps_deinit(osh_ctx *cx, osh_tok_steps *steps);
osh_status osh_tok_steps_run(osh_ctx *cx, const osh_tok_steps *steps, osh_tok_work *w);
/* Runs the normalizers, and limits the size of their output by that of their input. */
osh_status osh_tok_normalize(osh_ctx *cx, const osh_tok_steps *steps, osh_tok_work *w);
osh_status osh_tok_normalizers_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                                    const char *what);
osh_cut_kind osh_tok_normalizers_cut(const osh_tok_steps *steps); // for all of them together
typedef struct osh_tok_cuts osh_tok_cuts;
/* The normalizers must live as long as *out. */
osh_status osh_tok_cuts_new(osh_ctx *cx, osh_tok_cuts **out, const osh_tok_steps *normalizers);
void osh_tok_cuts_free(osh_ctx *cx, osh_tok_cuts *c);
/* *yes is true if s may be cut at byte `at` before the normalizers. */
osh_status osh_tok_cuts_at(osh_ctx *cx, osh_tok_cuts *c, const char *s, size_t n, size_t at,
                           bool *yes);
/* True if cp is a grapheme by itself when it is between letters. */
bool osh_cp_is_grapheme(uint32_t cp);
/* True if normalization never changes cp because of the text before it, or that text because of cp.
 * compat: this holds for the compatibility forms, too. */
bool osh_cp_starts_form(uint32_t cp, bool compat);
osh_status osh_tok_pretokenizers_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                                      const char *what);
/* Calls fn for each text piece; fn appends its output to `out` and may clear p->first. */
typedef osh_status (*osh_tok_map_fn)(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                                     const char *s, size_t n, osh_tok_piece *p);
osh_status osh_tok_map_pieces(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w,
                              osh_tok_map_fn fn);
osh_status osh_tok_map_nfd(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                           size_t n, osh_tok_piece *p);
osh_status osh_tok_map_lowercase(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                                 const char *s, size_t n, osh_tok_piece *p);
/* tok_clean.c */
osh_status osh_tok_load_bert(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what);
osh_status osh_tok_run_bert(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w);
osh_status osh_tok_run_nmt(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w);
/* Maps bytes to GPT-2's printable characters; an osh_tok_map_fn. */
osh_status osh_tok_map_bytes(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                             size_t n, osh_tok_piece *p);
/* Ends the open piece, before its bytes are mapped, at the last position that no merge of the model
 * crosses; the text after it stays. Without such a position the whole piece stays. space: the
 * replacement of a space, or NULL. bytes: bytes will become GPT-2's characters. */
void osh_tok_close_open(osh_tok_work *w, const char *space, bool bytes);

/* A hash table from 64-bit keys to two 32-bit values; ~0 is not allowed as a key. */
typedef struct osh_tok_pairs {
    struct osh_tok_pair { uint64_t key; uint32_t a, b; } *slots; // own
    size_t n, mask;
} osh_tok_pairs;
osh_status osh_tok_pairs_init(osh_ctx *cx, osh_tok_pairs *p, size_t n_expected);
/* Replaces the values of a key that exists. */
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
osh_status osh_tok_model_load(osh_ctx *cx, osh_tok_model **out, const osh_tok_file *f,
                              const char *what);
void osh_tok_model_free(osh_ctx *cx, osh_tok_model *m);
bool osh_tok_model_find(const osh_tok_model *m, const char *token, size_t n, int32_t *id);
size_t osh_tok_model_size(const osh_tok_model *m); // entries
int32_t osh_tok_model_max_id(const osh_tok_model *m);
/* True if no token can cross a cut after character x and before character y. False if a whole word
 * may be a token that merges do not make. */
bool osh_tok_model_parts(const osh_tok_model *m, uint32_t x, uint32_t y);
osh_status osh_tok_model_encode(osh_ctx *cx, osh_tok_model *m, osh_ids *ids, const char *word,
                                size_t n);
uint32_t osh_tok_byte_char(unsigned char b); // GPT-2's character for a byte

/* Added tokens. */
typedef struct osh_tok_added osh_tok_added;
osh_status osh_tok_added_load(osh_ctx *cx, osh_tok_added **out, const osh_tok_file *f,
                              const osh_tok_model *m, const osh_tok_steps *normalizers,
                              const char *what);
void osh_tok_added_free(osh_ctx *cx, osh_tok_added *a);
osh_status osh_tok_added_split(osh_ctx *cx, const osh_tok_added *a, bool normalized,
                               osh_tok_work *w);
typedef struct osh_tok_added_token {
    int32_t id;
    const char *content; // view [n]
    size_t n;
    bool special;
} osh_tok_added_token;
/* Calls fn for each added token, in the order of the file. */
osh_status osh_tok_added_each(osh_ctx *cx, const osh_tok_added *a,
                              osh_status (*fn)(osh_ctx *cx, void *user,
                                               const osh_tok_added_token *t),
                              void *user);
const osh_tok_added *osh_tokenizer_added(const osh_tokenizer *t); // view
int32_t osh_tok_added_max_id(const osh_tok_added *a); // -1: none
/* Sets *at to the last position in the second half of s, before its last character, where s may be
 * cut: no token of the set touches the position or removes white space across it, whatever text
 * follows. *at is 0 if there is none. cuts: the cuts of the normalizers, or NULL after the
 * normalizers. */
osh_status osh_tok_added_cut(osh_ctx *cx, const osh_tok_added *a, osh_tok_cuts *cuts, const char *s,
                             size_t n, size_t *at);

/* The post-processor, for one sequence: the ids before and after it. */
typedef struct osh_tok_post { osh_ids before, after; } osh_tok_post;
osh_status osh_tok_post_load(osh_ctx *cx, osh_tok_post *p, const cJSON *o, const char *what);
void osh_tok_post_deinit(osh_ctx *cx, osh_tok_post *p);

/* Copies a string of the JSON tree to *out. json.c writes U+0000 as C0 80; *out has the real
 * bytes. */
osh_status osh_tok_string(osh_ctx *cx, char **out, size_t *n, const char *s); // own
/* Copies the string member `key` of o, which must exist, to *out. */
osh_status osh_tok_member(osh_ctx *cx, char **out, size_t *n, const cJSON *o, const char *key,
                          const char *what); // own
osh_status osh_tok_type(osh_ctx *cx, const char **type, const cJSON *o, const char *role,
                        const char *what); // view: of o
#endif
