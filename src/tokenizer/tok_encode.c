/* tok_encode.c - opens a tokenizer from a model directory, and converts a text to ids in all
 * stages.
 *
 * Agrees with tokenizers.Tokenizer.from_file(...).encode(text, add_special_tokens). */
#include "base/file.h"
#include "tokenizer/tok_impl.h"
#include <string.h>

#define MAX_FILE_BYTES ((size_t)256 << 20)
/* PART_BYTES: number of bytes of text that are processed together; CHECK_EVERY: number of pieces
 * between checks for an interrupt. */
enum { PART_BYTES = 64 << 10, CHECK_EVERY = 4096 };
#define MAX_CONFIG_BYTES ((size_t)64 << 20)

struct osh_tokenizer {
    osh_tok_steps normalizers, pretokenizers; // own
    osh_tok_model *model;                     // own
    osh_tok_added *added;                     // own
    osh_tok_post post;                        // own
    osh_tok_text texts[2];                    // own; scratch
    int64_t model_max_length;
    osh_tok_cuts *cuts; // own; tells where a text may be cut before the normalizers
    /* Text that is not yet encoded: raw (valid UTF-8), norm (normalized pieces). */
    osh_tok_text raw, norm;         // own
    /* If `raw` or `norm` has more bytes than this, the next stage runs. */
    size_t raw_enough, norm_enough;
    size_t part_bytes;
    bool begun;                     // true after the first bytes were moved from `raw` to `norm`
    bool goes_on; // true if `raw` begins inside a piece whose start is already in `norm`
    char partial[4];                // bytes of an incomplete character at the end of the text
    size_t n_partial;
};

void osh_tokenizer_close(osh_ctx *cx, osh_tokenizer *t)
{
    if (!t) return;
    osh_tok_cuts_free(cx, t->cuts);
    osh_tok_steps_deinit(cx, &t->normalizers);
    osh_tok_steps_deinit(cx, &t->pretokenizers);
    osh_tok_model_free(cx, t->model);
    osh_tok_added_free(cx, t->added);
    osh_tok_post_deinit(cx, &t->post);
    for (int i = 0; i < 2; i++) osh_tok_text_deinit(cx, &t->texts[i]);
    osh_tok_text_deinit(cx, &t->raw);
    osh_tok_text_deinit(cx, &t->norm);
    osh_free(cx, t);
}

static osh_status tokenizer_build(osh_ctx *cx, osh_tokenizer **out, const osh_tok_file *f,
                                  const char *what)
{
    osh_status rc = OSH_OK;
    const cJSON *o = f->tree;
    osh_tokenizer *t = NULL; // own
    const cJSON *model = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, "model") : NULL;

    OSH_NEW(cx, t, 1);
    t->part_bytes = PART_BYTES;
    if (!cJSON_IsObject(model)) OSH_FAIL(cx, OSH_E_FORMAT, "%s: no object \"model\"", what);
    OSH_TRY(osh_tok_normalizers_load(cx, &t->normalizers,
                                     cJSON_GetObjectItemCaseSensitive(o, "normalizer"), what));
    OSH_TRY(osh_tok_cuts_new(cx, &t->cuts, &t->normalizers));
    OSH_TRY(osh_tok_pretokenizers_load(cx, &t->pretokenizers,
                                       cJSON_GetObjectItemCaseSensitive(o, "pre_tokenizer"), what));
    OSH_TRY(osh_tok_post_load(cx, &t->post, cJSON_GetObjectItemCaseSensitive(o, "post_processor"),
                              what));
    OSH_TRY(osh_tok_model_load(cx, &t->model, f, what));
    OSH_TRY(osh_tok_added_load(cx, &t->added, f, t->model, &t->normalizers, what));
    *out = t, t = NULL; // give
done:
    osh_tokenizer_close(cx, t);
    return rc;
}

osh_status osh_tokenizer_parse(osh_ctx *cx, osh_tokenizer **out, const char *text, size_t n,
                               const char *what)
{
    osh_status rc = OSH_OK;
    osh_tok_file f = {.tree = NULL}; // own

    OSH_TRY(osh_tok_file_parse(cx, &f, text, n, what));
    OSH_TRY(tokenizer_build(cx, out, &f, what));
done:
    osh_tok_file_deinit(&f);
    return rc;
}

static osh_status tokenizer_read_config(osh_ctx *cx, osh_tokenizer *t, const char *dir)
{
    osh_status rc = OSH_OK;
    cJSON *o = NULL;                                              // own
    char *path = osh_path_join(cx, dir, "tokenizer_config.json"); // own
    double max = 0;

    if (!path) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    if (!osh_file_exists(path)) goto done;
    OSH_TRY(osh_json_read(cx, &o, path, MAX_CONFIG_BYTES, OSH_JSON_NUL));
    OSH_TRY(osh_json_num_or(cx, &max, o, "model_max_length", 0, path));
    // a larger number, such as 1e30, stands for an unknown length
    if (max >= 1 && max <= 1e9) t->model_max_length = (int64_t)max;
done:
    cJSON_Delete(o);
    osh_free(cx, path);
    return rc;
}

osh_status osh_tokenizer_other(osh_ctx *cx, const char **name, const char *model_dir)
{
    static const char *const others[] = {"tokenizer.model", "tiktoken.model", "tekken.json",
                                         "vocab.json", "vocab.txt", "spiece.model"};
    osh_status rc = OSH_OK;
    char *path = NULL; // own
    *name = NULL;
    for (size_t i = 0; i < sizeof others / sizeof *others && !*name; i++) {
        osh_free(cx, path);
        if (!(path = osh_path_join(cx, model_dir, others[i]))) OSH_TRY(OSH_E_NOMEM);
        if (osh_file_exists(path)) *name = others[i];
    }
done:
    osh_free(cx, path);
    return rc;
}

/* Fails if the directory has no tokenizer.json. The message names a tokenizer file of another
 * library if there is one. */
static osh_status check_tokenizer_file(osh_ctx *cx, const char *path, const char *model_dir)
{
    osh_status rc = OSH_OK;
    const char *other;
    if (osh_file_exists(path)) goto done;
    OSH_TRY(osh_tokenizer_other(cx, &other, model_dir));
    if (other)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s is missing, and %s is not supported: want " OSH_TOKENIZER_WANTED, path, other);
    OSH_FAIL(cx, OSH_E_IO, "%s is missing: want the tokenizer of the model", path);
done:
    return rc;
}

osh_status osh_tokenizer_open(osh_ctx *cx, osh_tokenizer **out, const char *model_dir)
{
    osh_status rc = OSH_OK;
    osh_tokenizer *t = NULL;                                     // own
    char *text = NULL;                                           // own
    size_t n = 0;
    char *path = osh_path_join(cx, model_dir, "tokenizer.json"); // own

    if (!path) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(check_tokenizer_file(cx, path, model_dir));
    OSH_TRY(osh_file_read_all(cx, &text, &n, path, MAX_FILE_BYTES));
    OSH_TRY(osh_tokenizer_parse(cx, &t, text, n, path));
    OSH_TRY(tokenizer_read_config(cx, t, model_dir));
    *out = t, t = NULL; // give
done:
    if (rc) osh_note(cx, "loading the tokenizer of %s", model_dir);
    osh_free(cx, text);
    osh_free(cx, path);
    osh_tokenizer_close(cx, t);
    return rc;
}

/* ---- a text in parts ----
 *
 *   bytes -> raw -> | added tokens, normalizers | -> norm
 *                -> | added tokens, pre-tokenizers, model | -> ids
 *
 * raw and norm are buffers of text. When a buffer has PART_BYTES bytes, its stage runs on the first
 * part of the text, whose result no later text can change. In raw, this part ends between two
 * characters, at a position at which the input of every normalizer may be cut. In norm, this part
 * ends at a cut that a pre-tokenizer certainly makes, or at a position that no merge crosses. If
 * there is no such position, the buffer collects more text. */

void osh_tokenizer_begin(osh_tokenizer *t)
{
    t->raw.n = t->norm.n = t->norm.n_pieces = 0;
    t->raw_enough = t->norm_enough = t->part_bytes;
    t->begun = t->goes_on = false;
    t->n_partial = 0;
}

void osh_tokenizer_part_bytes(osh_tokenizer *t, size_t n) { t->part_bytes = n; }

/* Appends the pieces of `from` to norm. If goes_on is true, the first piece of `from` continues the
 * last piece of norm. */
static osh_status norm_append(osh_ctx *cx, osh_tokenizer *t, const osh_tok_text *from, bool goes_on)
{
    osh_status rc = OSH_OK;
    osh_tok_text *norm = &t->norm;
    size_t at = norm->n;

    OSH_TRY(osh_tok_text_add(cx, norm, from->s, from->n));
    for (size_t i = 0; i < from->n_pieces; i++) {
        osh_tok_piece p = from->pieces[i],
                      *last = norm->n_pieces ? &norm->pieces[norm->n_pieces - 1] : NULL;
        p.at += (uint32_t)at, p.cont = 0;
        if (i == 0 && goes_on && last && last->id < 0 && p.id < 0) last->len += p.len;
        else OSH_TRY(osh_tok_piece_add(cx, norm, p));
    }
done:
    return rc;
}

static void text_drop_begin(osh_tok_text *t, size_t n)
{
    if (n < t->n) memmove(t->s, t->s + n, t->n - n);
    t->n -= n;
}

/* The stage of a buffer (raw or norm) runs when the buffer has a certain number of bytes. Returns
 * this number for the next run. n_left is the number of bytes that the stage could not process the
 * last time. The result is chosen so that at most half of the text is processed twice. */
static size_t enough_bytes(const osh_tokenizer *t, size_t n_left)
{
    return 2 * n_left > t->part_bytes ? 2 * n_left : t->part_bytes;
}

/* Normalizes the text of `raw` that later text cannot change, and moves it to `norm`. `last` is
 * true if no more text follows. */
static osh_status raw_normalize(osh_ctx *cx, osh_tokenizer *t, bool last)
{
    osh_status rc = OSH_OK;
    osh_tok_work w = {.cur = &t->texts[0], .next = &t->texts[1]};
    osh_tok_text *raw = &t->raw;
    size_t n = raw->n;

    if (!last) OSH_TRY(osh_tok_added_cut(cx, t->added, t->cuts, raw->s, raw->n, &n));
    t->raw_enough = enough_bytes(t, raw->n - n);
    if (!n) goto done;
    for (int i = 0; i < 2; i++) t->texts[i].n = t->texts[i].n_pieces = 0;
    OSH_TRY(osh_tok_text_add(cx, w.cur, raw->s, n));
    OSH_TRY(osh_tok_piece_add(
        cx, w.cur,
        (osh_tok_piece){
            .len = (uint32_t)n, .id = -1, .first = !t->begun, .cont = t->goes_on ? 255 : 0}));
    OSH_TRY(osh_tok_added_split(cx, t->added, false, &w));
    bool goes_on = t->goes_on;
    t->goes_on = w.cur->n_pieces && w.cur->pieces[w.cur->n_pieces - 1].id < 0;
    t->begun = true;
    OSH_TRY(osh_tok_normalize(cx, &t->normalizers, &w));
    OSH_TRY(norm_append(cx, t, w.cur, goes_on));
    text_drop_begin(raw, n);
done:
    return rc;
}

/* If later text may continue the last text piece, ends the piece at a position that no added token
 * can cross. The text after that position is kept until more text is read. */
static osh_status norm_shorten_open(osh_ctx *cx, const osh_tokenizer *t, osh_tok_work *w)
{
    osh_status rc = OSH_OK;
    osh_tok_piece *p = w->cur->n_pieces ? &w->cur->pieces[w->cur->n_pieces - 1] : NULL;
    size_t n = 0;

    if (!p || p->id >= 0) goto done;
    OSH_TRY(osh_tok_added_cut(cx, t->added, NULL, w->cur->s + p->at, p->len, &n));
    w->left = p->len - n;
    w->tail = *p;
    w->open = n > 0;
    p->len = (uint32_t)n;
    w->cur->n_pieces -= !n;
done:
    return rc;
}

static osh_status pieces_encode(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids,
                                const osh_tok_text *from)
{
    osh_status rc = OSH_OK;

    for (size_t i = 0; i < from->n_pieces; i++) {
        osh_tok_piece p = from->pieces[i];
        if (i % CHECK_EVERY == 0 && osh_interrupted(cx))
            OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted while tokenizing");
        if (p.id < 0) {
            OSH_TRY(osh_tok_model_encode(cx, t->model, ids, from->s + p.at, p.len));
            continue;
        }
        OSH_TRY(osh_ids_reserve(cx, ids, 1));
        ids->ids[ids->n++] = p.id;
    }
done:
    return rc;
}

/* Encodes the text of norm to ids. `last` is true if no more text follows. */
static osh_status norm_encode(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids, bool last)
{
    osh_status rc = OSH_OK;
    osh_tok_work w = {.cur = &t->texts[0], .next = &t->texts[1], .model = t->model};
    osh_tok_text *norm = &t->norm;

    for (int i = 0; i < 2; i++) t->texts[i].n = t->texts[i].n_pieces = 0;
    OSH_TRY(osh_tok_text_add(cx, w.cur, norm->s, norm->n));
    for (size_t i = 0; i < norm->n_pieces; i++)
        OSH_TRY(osh_tok_piece_add(cx, w.cur, norm->pieces[i]));
    if (!last) OSH_TRY(norm_shorten_open(cx, t, &w));
    OSH_TRY(osh_tok_added_split(cx, t->added, true, &w));
    // if an added token ends at the end of the text, no piece is open
    if (w.open && w.cur->pieces[w.cur->n_pieces - 1].id >= 0)
        w.open = false, w.tail = (osh_tok_piece){.id = -1};
    OSH_TRY(osh_tok_steps_run(cx, &t->pretokenizers, &w));
    osh_tok_close_open(&w, NULL, false);
    OSH_TRY(pieces_encode(cx, t, ids, w.cur));
    text_drop_begin(norm, norm->n - w.left);
    norm->n_pieces = 0;
    w.tail.at = 0, w.tail.len = (uint32_t)norm->n, w.tail.id = -1;
    if (norm->n) OSH_TRY(osh_tok_piece_add(cx, norm, w.tail));
    t->norm_enough = enough_bytes(t, norm->n);
done:
    return rc;
}

/* Returns the number of bytes at the end of s that may be the beginning of a character. */
static size_t partial_bytes(const char *s, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char c = (unsigned char)s[n - k];
        if ((c & 0xC0) == 0x80) continue;
        size_t want = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
        return want > k ? k : 0;
    }
    return 0;
}

/* Appends text to raw. Invalid bytes become U+FFFD. The bytes of an incomplete last character are
 * stored in t->partial. */
static osh_status raw_append(osh_ctx *cx, osh_tokenizer *t, const char *s, size_t n)
{
    osh_status rc = OSH_OK;
    size_t k = 0;

    for (; t->n_partial && n; s++, n--) {
        t->partial[t->n_partial++] = *s;
        k = partial_bytes(t->partial, t->n_partial);
        OSH_TRY(osh_tok_utf8_clean(cx, &t->raw, t->partial, t->n_partial - k));
        memmove(t->partial, t->partial + t->n_partial - k, k);
        t->n_partial = k;
    }
    if (!n) goto done;
    k = partial_bytes(s, n);
    OSH_TRY(osh_tok_utf8_clean(cx, &t->raw, s, n - k));
    memcpy(t->partial, s + n - k, k);
    t->n_partial = k;
done:
    return rc;
}

osh_status osh_tokenizer_feed(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids, const char *text,
                              size_t n)
{
    osh_status rc = OSH_OK;

    while (n) {
        size_t some = n < t->part_bytes ? n : t->part_bytes;
        if (osh_interrupted(cx)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted while tokenizing");
        OSH_TRY(raw_append(cx, t, text, some));
        text += some, n -= some;
        if (t->raw.n > t->raw_enough) OSH_TRY(raw_normalize(cx, t, false));
        if (t->norm.n > t->norm_enough) OSH_TRY(norm_encode(cx, t, ids, false));
    }
done:
    if (rc == OSH_E_NOMEM && t->raw.n + t->norm.n > 4 * t->part_bytes)
        osh_note(cx, "tokenizing %zu bytes at once, because the tokenizer cannot cut them",
                 t->raw.n + t->norm.n);
    return rc;
}

osh_status osh_tokenizer_end(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids)
{
    osh_status rc = OSH_OK;

    OSH_TRY(osh_tok_utf8_clean(cx, &t->raw, t->partial, t->n_partial));
    t->n_partial = 0;
    OSH_TRY(raw_normalize(cx, t, true));
    OSH_TRY(norm_encode(cx, t, ids, true));
done:
    return rc;
}

/* Replaces the content of `to` by a copy of the text `from` and of its pieces. */
static osh_status text_copy(osh_ctx *cx, osh_tok_text *to, const osh_tok_text *from)
{
    osh_status rc = OSH_OK;
    to->n = to->n_pieces = 0;
    OSH_TRY(osh_tok_text_add(cx, to, from->s, from->n));
    for (size_t i = 0; i < from->n_pieces; i++)
        OSH_TRY(osh_tok_piece_add(cx, to, from->pieces[i]));
done:
    return rc;
}

osh_status osh_tokenizer_peek(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids, osh_ids *tail)
{
    osh_status rc = OSH_OK;
    osh_tok_text raw = {0}, norm = {0}; // own
    /* Normalizes most of the text, so that little is left to copy. */
    OSH_TRY(raw_normalize(cx, t, false));
    OSH_TRY(norm_encode(cx, t, ids, false));
    osh_tokenizer kept = *t; // a copy of the flags and sizes; its pointers are not used
    OSH_TRY(text_copy(cx, &raw, &t->raw));
    OSH_TRY(text_copy(cx, &norm, &t->norm));
    OSH_TRY(osh_tokenizer_end(cx, t, tail));
    OSH_TRY(text_copy(cx, &t->raw, &raw));
    OSH_TRY(text_copy(cx, &t->norm, &norm));
    t->begun = kept.begun, t->goes_on = kept.goes_on, t->n_partial = kept.n_partial;
    t->raw_enough = kept.raw_enough, t->norm_enough = kept.norm_enough;
    memcpy(t->partial, kept.partial, sizeof t->partial);
done:
    osh_tok_text_deinit(cx, &raw);
    osh_tok_text_deinit(cx, &norm);
    return rc;
}

static osh_status ids_add_all(osh_ctx *cx, osh_ids *ids, const osh_ids *more)
{
    osh_status rc = osh_ids_reserve(cx, ids, more->n);

    if (rc || more->n == 0) return rc;
    memcpy(ids->ids + ids->n, more->ids, (size_t)more->n * sizeof *ids->ids);
    ids->n += more->n;
    return OSH_OK;
}

osh_status osh_tokenizer_special(osh_ctx *cx, const osh_tokenizer *t, osh_ids *ids, bool after)
{
    return ids_add_all(cx, ids, after ? &t->post.after : &t->post.before);
}

osh_status osh_tokenizer_encode(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids, const char *text,
                                size_t n, bool special_tokens)
{
    osh_status rc = OSH_OK;

    osh_tokenizer_begin(t);
    if (special_tokens) OSH_TRY(osh_tokenizer_special(cx, t, ids, false));
    OSH_TRY(osh_tokenizer_feed(cx, t, ids, text, n));
    OSH_TRY(osh_tokenizer_end(cx, t, ids));
    if (special_tokens) OSH_TRY(osh_tokenizer_special(cx, t, ids, true));
done:
    return rc;
}

int64_t osh_tokenizer_model_max_length(const osh_tokenizer *t) { return t->model_max_length; }

int64_t osh_tokenizer_n_vocab(const osh_tokenizer *t)
{
    int32_t a = osh_tok_model_max_id(t->model), b = osh_tok_added_max_id(t->added);

    return (int64_t)(a > b ? a : b) + 1;
}

const osh_tok_added *osh_tokenizer_added(const osh_tokenizer *t) { return t->added; }
