/* tok_impl.h - has declarations that the files tok_*.c of a tokenizer share. src/chat uses texts
 * and character classes, too.
 *
 *   bytes -> UTF-8 clean-up -> added tokens (raw) -> normalizers -> added tokens (normalized)
 *         -> pre-tokenizers -> model -> ids, with the post-processor's ids before and after
 *
 * The text between two stages is a byte array and a list of its pieces. A piece is either text or
 * an added token that was already found (id >= 0). No later stage changes such a token. The order
 * of the stages is that of tokenizers' TokenizerImpl::encode. */
#ifndef OSH_TOK_IMPL_H
#define OSH_TOK_IMPL_H
#include "base/utf8.h"
#include "text/json.h"
#include "text/json_scan.h"
#include "text/regex.h"
#include "tokenizer/tokenizer.h"

/* A long list or object of tokenizer.json as text (tok_file.c). Its items are read one by one. */
typedef struct osh_tok_list {
    const char *text; // view: lives as long as the file's text; NULL: no list
    size_t n, n_items; // n: number of bytes; n_items: upper bound of the number of items
    const char *what; // view: name for messages
} osh_tok_list;
typedef struct osh_tok_file {
    cJSON *tree; // own: all members of tokenizer.json except the long lists
    /* scores: the vocabulary of a Unigram model, which is a list. */
    osh_tok_list added, vocab, merges, scores;
} osh_tok_file;
/* Reads the text [n] of a tokenizer.json, and finds its long lists. The text must outlive *f.
 * `what` names it in messages. */
osh_status osh_tok_file_parse(osh_ctx *cx, osh_tok_file *f, const char *text, size_t n,
                              const char *what);
void osh_tok_file_deinit(osh_tok_file *f);
typedef struct osh_tok_items {
    osh_json_scan scan;
    osh_buf key, text;  // own; key and string of the item
    const char *value;  // view: text of the item
    size_t n_value, n_first, n_strings;
    double number;      // NAN if the item is not a number
} osh_tok_items;
/* Begins to read the items of a list. The text of the list must outlive *it. */
void osh_tok_items_init(osh_tok_items *it, osh_ctx *cx, const osh_tok_list *l);
void osh_tok_items_deinit(osh_ctx *cx, osh_tok_items *it);
/* Reads the next item. Sets *any to false if there is none. */
osh_status osh_tok_items_next(osh_tok_items *it, bool *any);
/* If the item is a list of strings, joins the strings in it->text and sets it->n_first to the
 * number of bytes of the first string. If not, sets it->n_strings to 0. */
osh_status osh_tok_items_join(osh_tok_items *it);
/* Splits an item [string, number] and stores the string in it->text. If the item has another form,
 * sets it->n_strings to 0. */
osh_status osh_tok_items_pair(osh_tok_items *it, char number[OSH_JSON_MAX_NUMBER + 1]);

#define OSH_TOK_MAX_BYTES ((size_t)1 << 30) // largest size of a text between two stages, in bytes

typedef struct osh_tok_piece {
    uint32_t at, len; // at: offset; len: size; both in bytes
    int32_t id;       // id of an added token, or -1
    bool first;       // true if the piece begins with the first character of the whole input
    uint8_t cont;     // number of steps that have already handled the beginning of the piece
} osh_tok_piece;

typedef struct osh_tok_text {
    char *s; // own
    size_t n, cap;
    osh_tok_piece *pieces; // own
    size_t n_pieces, cap_pieces;
    /* Sizes in bytes.
     * limit: largest allowed size; 0: no limit.
     * made_of: size of the input. */
    size_t limit, made_of;
} osh_tok_text;

osh_status osh_tok_text_reserve(osh_ctx *cx, osh_tok_text *t, size_t n_more); // bytes
/* Appends n bytes to the text. Fails if the text would exceed its limit. */
osh_status osh_tok_text_add(osh_ctx *cx, osh_tok_text *t, const char *s, size_t n);
/* Appends a piece to the list of pieces. */
osh_status osh_tok_piece_add(osh_ctx *cx, osh_tok_text *t, osh_tok_piece p);
void osh_tok_text_deinit(osh_ctx *cx, osh_tok_text *t);

/* Appends n bytes to the text. Invalid UTF-8 becomes U+FFFD (osh_utf8_next). */
osh_status osh_tok_utf8_clean(osh_ctx *cx, osh_tok_text *out, const char *s, size_t n);

/* ---- character classes (tok_class.c) ---- */
bool osh_cp_is_space(uint32_t cp);   // true for characters with the property White_Space
/* True for characters of \w in Rust's regex: Alphabetic, M, Nd, Pc, Join_Control. */
bool osh_cp_is_word(uint32_t cp);
bool osh_cp_is_numeric(uint32_t cp); // true for characters of category N
bool osh_cp_is_punct(uint32_t cp);   // true for characters of category P, and ASCII punctuation
bool osh_cp_is_mark(uint32_t cp);    // true for characters of category M

/* A pattern of tokenizer.json: a string or an Oniguruma regex. osh_tok_pattern_find finds the first
 * match at or after `from`. If there is none, it sets at->start to SIZE_MAX. The caller must ignore
 * an empty match directly after the previous match. */
typedef struct osh_tok_pattern {
    osh_regex *re; // own: the compiled regex; NULL: the pattern is the literal string
    char *literal; // own
    size_t n_literal;
    /* True if the regex is X, X+, X{n}, X{n,} or X{n,m} with n up to 3, where X is one character or
     * class. */
    bool one_atom;
    /* True if every match has at least one character, and depends only on text after the start of
     * the search. */
    bool local;
} osh_tok_pattern;
osh_status osh_tok_pattern_load(osh_ctx *cx, osh_tok_pattern *p, const cJSON *o,
                                const char *what); // o: {"Regex": ...} or {"String": ...}
/* Compiles a regex of Oniguruma. `what` names its place in messages. */
osh_status osh_tok_pattern_regex(osh_ctx *cx, osh_tok_pattern *p, const char *onig,
                                 const char *what);
osh_status osh_tok_pattern_find(osh_ctx *cx, const osh_tok_pattern *p, const char *s, size_t n,
                                size_t from, osh_hit *at);
/* Finds the first match in the n bytes `s`, which are only the first part of a text. If at->start
 * is SIZE_MAX, the match depends on the rest of the text, and starts at at->end or later. */
osh_status osh_tok_pattern_find_open(osh_ctx *cx, const osh_tok_pattern *p, const char *s, size_t n,
                                     size_t from, osh_hit *at);
void osh_tok_pattern_deinit(osh_ctx *cx, osh_tok_pattern *p);

/* Treatment of the matches of a pattern, as in SplitDelimiterBehavior of tokenizers. */
typedef enum {
    OSH_SPLIT_REMOVED,
    OSH_SPLIT_ISOLATED,
    OSH_SPLIT_PREVIOUS,
    OSH_SPLIT_NEXT,
    OSH_SPLIT_CONTIGUOUS
} osh_split_kind;
/* Positions where the input of a normalizer may be cut in two. The two outputs, joined, equal the
 * output of the whole text. */
typedef enum {
    OSH_CUT_NEVER,
    OSH_CUT_ANYWHERE,
    OSH_CUT_STARTER, // a cut before a character that begins a canonical form
    OSH_CUT_COMPAT,  // a cut before a character that begins a canonical and a compatibility form
    OSH_CUT_CALM     // a cut between two letters; no normalizer changes them (tok_cut.c)
} osh_cut_kind;
typedef struct osh_tok_step osh_tok_step;
typedef struct osh_tok_model osh_tok_model;
typedef struct osh_tok_charsmap osh_tok_charsmap;
/* State between two steps. If `open` is true, more text follows, and the last piece may be
 * incomplete. Text that a pre-tokenizer cannot cut yet is kept until more text is read. */
typedef struct osh_tok_work {
    /* cur and next are swapped after each step.
     * cur: the step's input.
     * next: the step's output. */
    osh_tok_text *cur, *next;
    bool open;
    size_t left; // number of bytes at the end of the text that are kept until more text is read
    size_t made_up;      // number of bytes that a step has inserted at the start of the open piece
    osh_tok_piece tail;  // members `first` and `cont` of the piece that will hold the kept text
    const osh_tok_model *model;
} osh_tok_work;
typedef osh_status (*osh_tok_step_fn)(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w);
/* One normalizer or pre-tokenizer. A Sequence becomes several steps. */
struct osh_tok_step {
    osh_tok_step_fn run;
    size_t index; // index of the step in the list of steps
    osh_cut_kind cuts;
    osh_tok_pattern pattern;
    char *content; // own: text that Replace, Prepend or Metaspace writes
    size_t n_content;
    osh_split_kind split;
    bool invert;      // for Split: the option invert
    bool left, right; // for Strip: the options strip_left, strip_right
    bool each;        // for Digits: the option individual_digits
    /* ByteLevel: the option add_prefix_space. Metaspace: true if prepend_scheme is "always". */
    bool add_prefix;
    bool first_only;  // for Metaspace: true if prepend_scheme is "first"
    bool do_split;    // for ByteLevel: the option use_regex; for Metaspace: the option split
    bool clean, ideographs, accents, lower; // for BertNormalizer: its four options
    osh_tok_charsmap *charsmap; // own: for Precompiled: map of characters
    size_t n_chars;   // FixedLength: length
};
typedef struct osh_tok_steps { osh_tok_step *items; size_t n, cap; } osh_tok_steps; // own

typedef osh_status (*osh_tok_load_fn)(osh_ctx *cx, osh_tok_step *st, const cJSON *o,
                                      const char *what);
typedef struct osh_tok_component {
    const char *type;
    osh_tok_load_fn load;
    osh_tok_step_fn run;
    osh_cut_kind cuts; // positions at which the input may be cut, unless `load` sets another kind
} osh_tok_component;
typedef struct osh_tok_role {
    const char *name;     // "normalizer" or "pre_tokenizer"
    const char *list_key; // key of a Sequence's list of steps
    const osh_tok_component *table;
} osh_tok_role;
/* Appends the step that the JSON object o describes. If o is a Sequence, appends a step for each
 * member of its list. */
osh_status osh_tok_steps_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                              const osh_tok_role *role, const char *what);
void osh_tok_steps_deinit(osh_ctx *cx, osh_tok_steps *steps);
/* Runs the steps one after the other on the text in w. */
osh_status osh_tok_steps_run(osh_ctx *cx, const osh_tok_steps *steps, osh_tok_work *w);
/* Runs the normalizers. The size of their output is limited by the size of their input. */
osh_status osh_tok_normalize(osh_ctx *cx, const osh_tok_steps *steps, osh_tok_work *w);
/* Appends the steps of the normalizer o of tokenizer.json. */
osh_status osh_tok_normalizers_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                                    const char *what);
/* Returns the kind of positions where all normalizers together allow a cut. */
osh_cut_kind osh_tok_normalizers_cut(const osh_tok_steps *steps);
typedef struct osh_tok_cuts osh_tok_cuts;
/* Makes an object that tells where a text may be cut. `normalizers` must outlive *out. */
osh_status osh_tok_cuts_new(osh_ctx *cx, osh_tok_cuts **out, const osh_tok_steps *normalizers);
void osh_tok_cuts_free(osh_ctx *cx, osh_tok_cuts *c);
/* Sets *yes to true if s may be cut at byte `at` before the normalizers. */
osh_status osh_tok_cuts_at(osh_ctx *cx, osh_tok_cuts *c, const char *s, size_t n, size_t at,
                           bool *yes);
/* True if cp is a grapheme by itself when it is between letters. */
bool osh_cp_is_grapheme(uint32_t cp);
/* Returns true if a text may be cut before cp, because neither part changes the normalized form of
 * the other. If `compat` is false, the result holds only for NFC and NFD. If `compat` is true, the
 * result also holds for NFKC and NFKD. */
bool osh_cp_starts_form(uint32_t cp, bool compat);
/* Appends the steps of the pre-tokenizer o of tokenizer.json. */
osh_status osh_tok_pretokenizers_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                                      const char *what);
/* Calls fn for each text piece p. `fn` appends the output for the piece to `out`, and may set
 * p->first to false. */
typedef osh_status (*osh_tok_map_fn)(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                                     const char *s, size_t n, osh_tok_piece *p);
osh_status osh_tok_map_pieces(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w,
                              osh_tok_map_fn fn);
/* The next two functions are callbacks (fn) of osh_tok_map_pieces. */
osh_status osh_tok_map_nfd(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                           size_t n, osh_tok_piece *p);
osh_status osh_tok_map_lowercase(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                                 const char *s, size_t n, osh_tok_piece *p);
/* tok_clean.c defines the next functions. */
osh_status osh_tok_load_bert(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what);
osh_status osh_tok_run_bert(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w);
osh_status osh_tok_run_nmt(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w);
/* Maps bytes to GPT-2's printable characters; an osh_tok_map_fn. */
osh_status osh_tok_map_bytes(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                             size_t n, osh_tok_piece *p);
/* Ends the open piece at the last position that no merge of the model crosses. Keeps the text after
 * that position until more text is read. If there is no such position, keeps the whole piece. A
 * later step replaces characters of the text: `space` is the replacement of a space, or NULL;
 * `bytes` is true if bytes will become GPT-2's characters. */
void osh_tok_close_open(osh_tok_work *w, const char *space, bool bytes);

/* A hash table from 64-bit keys to two 32-bit values; ~0 is not allowed as a key. */
typedef struct osh_tok_pairs {
    struct osh_tok_pair { uint64_t key; uint32_t a, b; } *slots; // own
    size_t n, mask;
} osh_tok_pairs;
/* Makes an empty table with memory for n_expected keys. */
osh_status osh_tok_pairs_init(osh_ctx *cx, osh_tok_pairs *p, size_t n_expected);
/* Sets the two values of the key. The key may be new. */
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

/* tok_model.c: the model of a tokenizer. */
osh_status osh_tok_model_load(osh_ctx *cx, osh_tok_model **out, const osh_tok_file *f,
                              const char *what);
void osh_tok_model_free(osh_ctx *cx, osh_tok_model *m);
/* Sets *id to the id of a token of n bytes. Returns false if the model does not have it. */
bool osh_tok_model_find(const osh_tok_model *m, const char *token, size_t n, int32_t *id);
size_t osh_tok_model_size(const osh_tok_model *m); // returns the number of tokens in the vocabulary
/* Returns the highest id of the vocabulary. */
int32_t osh_tok_model_max_id(const osh_tok_model *m);
/* True if no token of the model contains the character x directly before the character y. Always
 * false for models in which a whole word may be a token although no merge makes it. */
bool osh_tok_model_parts(const osh_tok_model *m, uint32_t x, uint32_t y);
/* Appends the ids of a word of n bytes. */
osh_status osh_tok_model_encode(osh_ctx *cx, osh_tok_model *m, osh_ids *ids, const char *word,
                                size_t n);
uint32_t osh_tok_byte_char(unsigned char b); // returns GPT-2's printable character for a byte

/* tok_added.c: the added tokens. */
typedef struct osh_tok_added osh_tok_added;
/* Reads the added tokens of tokenizer.json. The caller frees *out with osh_tok_added_free. */
osh_status osh_tok_added_load(osh_ctx *cx, osh_tok_added **out, const osh_tok_file *f,
                              const osh_tok_model *m, const osh_tok_steps *normalizers,
                              const char *what);
void osh_tok_added_free(osh_ctx *cx, osh_tok_added *a);
/* Cuts the text of w at the added tokens. If `normalized` is true, only the added tokens for
 * normalized text are used, else only those for raw text. */
osh_status osh_tok_added_split(osh_ctx *cx, const osh_tok_added *a, bool normalized,
                               osh_tok_work *w);
typedef struct osh_tok_added_token {
    int32_t id;
    const char *content; // view: text of the token, n bytes
    size_t n;
    bool special;
} osh_tok_added_token;
/* Calls fn for each added token, in the order of the file. */
osh_status osh_tok_added_each(osh_ctx *cx, const osh_tok_added *a,
                              osh_status (*fn)(osh_ctx *cx, void *user,
                                               const osh_tok_added_token *t),
                              void *user);
/* Returns the tokenizer's added tokens (view). */
const osh_tok_added *osh_tokenizer_added(const osh_tokenizer *t);
/* Returns the highest id of an added token, or -1 if there are no added tokens. */
int32_t osh_tok_added_max_id(const osh_tok_added *a);
/* Sets *at to the last position at which s may be cut. The position is in the second half of s and
 * before its last character. Sets *at to 0 if there is no such position. Whatever text follows, no
 * added token touches the position or removes white space across it. `cuts` tells where the
 * normalizers allow a cut; it is NULL if `s` is already normalized. */
osh_status osh_tok_added_cut(osh_ctx *cx, const osh_tok_added *a, osh_tok_cuts *cuts, const char *s,
                             size_t n, size_t *at);

/* The ids that the post-processor adds before and after one sequence. */
typedef struct osh_tok_post { osh_ids before, after; } osh_tok_post;
/* Reads the post-processor o of tokenizer.json; NULL: there is none. The caller calls
 * osh_tok_post_deinit. */
osh_status osh_tok_post_load(osh_ctx *cx, osh_tok_post *p, const cJSON *o, const char *what);
void osh_tok_post_deinit(osh_ctx *cx, osh_tok_post *p);

/* Copies a string of the JSON tree to *out (own). json.c writes U+0000 as C0 80; *out has a real
 * byte 0 in its place. */
osh_status osh_tok_string(osh_ctx *cx, char **out, size_t *n, const char *s); // own
/* Copies the string member `key` of o to *out. The member must exist. */
osh_status osh_tok_member(osh_ctx *cx, char **out, size_t *n, const cJSON *o, const char *key,
                          const char *what); // own
osh_status osh_tok_type(osh_ctx *cx, const char **type, const cJSON *o, const char *role,
                        const char *what); // *type is a view, valid as long as o
#endif
