/* dataset.c - converts rows to samples: chooses the rows, cuts them, and applies a collator.
 *
 * Agrees with llmcompressor/datasets/utils.py and transformers/data/base.py, with four differences:
 *   - Rows keep the order of the file. LLM Compressor sorts them by descending length.
 *   - A shuffle has a seed.
 *   - Padding is not stored. In LLM Compressor it is part of every statistic.
 *   - Concatenation drops tokens only once, after the last full block. LLM Compressor drops tokens
 *     after each 1000 rows. */
#include "data/loader.h"
#include "base/rng.h"
#include "data/split.h"
#include <string.h>

#define SHUFFLE_STREAM 1

static bool collator_is(const osh_dataset_options *opt, const char *name)
{
    return opt->collator && !strcmp(opt->collator, name);
}

osh_status osh_dataset_check_options(osh_ctx *cx, const osh_dataset_options *opt)
{
    if (opt->max_seq_length <= 0)
        return osh_fail(cx, OSH_E_USAGE, "max_seq_length is %lld, wanted at least 1",
                        (long long)opt->max_seq_length);
    if (opt->num_samples < 0)
        return osh_fail(cx, OSH_E_USAGE, "num_calibration_samples is %lld, wanted 0 (all) or more",
                        (long long)opt->num_samples);
    if (opt->collator && !collator_is(opt, "none") && !collator_is(opt, "truncation") &&
        !collator_is(opt, "padding"))
        return osh_fail(cx, OSH_E_USAGE,
                        "data_collator is '%s', wanted none, truncation or padding", opt->collator);
    if (collator_is(opt, "truncation") && opt->batch_size <= 0)
        return osh_fail(cx, OSH_E_USAGE, "batch_size is %lld, wanted at least 1",
                        (long long)opt->batch_size);
    return OSH_OK;
}

static void warn_empty_row(osh_ctx *cx, const osh_lines *lines)
{
    osh_place at = osh_lines_place(lines);
    osh_log(cx, OSH_LOG_WARN, "%s %s %lld: holds no token, skipped", at.path, at.what,
            (long long)at.number);
}

/* Ends the current sample. Drops it if it has no tokens or is one of the first n_skip samples. */
static osh_status loader_end_sample(osh_ctx *cx, osh_loader *l)
{
    if (l->ids.n == l->offsets[l->n]) return OSH_OK;
    if (l->n_skipped < l->n_skip) {
        l->n_skipped++;
        l->ids.n = l->offsets[l->n];
        return OSH_OK;
    }
    if (l->n + 2 > l->cap) {
        int64_t *more = osh_realloc(cx, l->offsets, (size_t)(2 * l->cap) * sizeof *more);
        if (!more) return OSH_E_NOMEM;
        l->offsets = more;
        l->cap *= 2;
    }
    l->offsets[++l->n] = l->ids.n;
    return OSH_OK;
}

osh_status osh_dataset_count(osh_ctx *cx, int64_t *n_rows, const osh_dataset_options *opt,
                             int64_t most)
{
    osh_status rc = OSH_OK;
    osh_lines *lines = NULL; // own
    bool any = true, blank = true;

    *n_rows = 0;
    OSH_TRY(osh_row_lines_open(cx, &lines, opt));
    for (; !most || *n_rows < most; *n_rows += !blank) {
        OSH_TRY(osh_lines_begin(cx, lines, &any));
        if (!any) break;
        OSH_TRY(osh_lines_skip(cx, lines, &blank));
    }
done:
    osh_lines_close(cx, lines);
    return rc;
}

/* Finds the rows of the split. If the split depends on the number of rows of the file, or if
 * `count` is true, counts the rows and sets *n_rows to their number. Otherwise sets *n_rows to
 * INT64_MAX. */
static osh_status loader_find_split(osh_ctx *cx, osh_loader *l, int64_t *n_rows, bool count)
{
    osh_status rc = OSH_OK;
    bool wants = false, any = !l->opt->split;
    *n_rows = INT64_MAX;
    OSH_TRY(osh_split_check(cx, &wants, l->opt->split));
    if (wants || count) OSH_TRY(osh_dataset_count(cx, n_rows, l->opt, 0));
    for (int i = 0; osh_split_rows(&l->from, &l->to, l->opt->split, i, *n_rows); i++)
        any |= l->from < l->to;
    if (!any) OSH_FAIL(cx, OSH_E_USAGE, "%s: splits '%s' has no row", l->opt->path, l->opt->split);
    osh_split_rows(&l->from, &l->to, l->opt->split, 0, *n_rows);
done:
    return rc;
}

/* True if enough was read. With opt->concatenate, `limit` blocks are enough; otherwise `limit` rows
 * or opt->num_tokens tokens are enough. A limit of 0 is no limit. */
static bool loader_is_full(const osh_loader *l, int64_t limit)
{
    if (l->opt->concatenate) return limit && l->ids.n / l->opt->max_seq_length >= limit;
    return (limit && l->n_seen >= limit) || (l->opt->num_tokens && l->ids.n >= l->opt->num_tokens);
}

/* Sets l->rows.kind (text, ids, ...) if it is unknown. For this, reads row `which`, or the next row
 * that is not blank. */
static osh_status loader_find_kind(osh_ctx *cx, osh_loader *l, int64_t which)
{
    osh_status rc = OSH_OK;
    osh_lines *lines = NULL; // own
    bool any = true, blank = true;

    if (l->rows.kind != OSH_ROW_UNKNOWN) goto done;
    OSH_TRY(osh_row_lines_open(cx, &lines, l->opt));
    for (int64_t i = 0; l->rows.kind == OSH_ROW_UNKNOWN;) {
        OSH_TRY(osh_lines_begin(cx, lines, &any));
        if (!any) break;
        if (i == which) OSH_TRY(osh_row_look(cx, &l->rows, lines));
        else OSH_TRY(osh_lines_skip(cx, lines, &blank));
        i += i < which && !blank;
    }
done:
    osh_lines_close(cx, lines);
    return rc;
}

/* Reads rows [l->from, l->to) in one pass over the file, and adds them as samples. */
static osh_status loader_read_slice(osh_ctx *cx, osh_loader *l, int64_t limit)
{
    osh_status rc = OSH_OK;
    osh_lines *lines = NULL; // own
    bool any = true, blank = false;
    int64_t row = 0;

    OSH_TRY(loader_find_kind(cx, l, l->from));
    OSH_TRY(osh_row_lines_open(cx, &lines, l->opt));
    for (; row < l->to && !loader_is_full(l, limit); row += !blank) {
        OSH_TRY(osh_lines_begin(cx, lines, &any));
        if (!any) break;
        if (row < l->from) {
            OSH_TRY(osh_lines_skip(cx, lines, &blank));
            continue;
        }
        OSH_TRY(osh_row_read(cx, &l->rows, &l->ids, lines, &blank));
        if (blank) continue;
        if (l->ids.n == l->offsets[l->n]) warn_empty_row(cx, lines);
        OSH_TRY(loader_end_sample(cx, l));
        l->n_seen++;
    }
done:
    osh_lines_close(cx, lines);
    return rc;
}

osh_status osh_loader_read_in_order(osh_ctx *cx, osh_loader *l, int64_t limit)
{
    osh_status rc = OSH_OK;
    int64_t n_rows = 0;

    OSH_TRY(loader_find_split(cx, l, &n_rows, false));
    for (int i = 0;
         osh_split_rows(&l->from, &l->to, l->opt->split, i, n_rows) && !loader_is_full(l, limit);
         i++)
        if (l->from < l->to) OSH_TRY(loader_read_slice(cx, l, limit));
done:
    return rc;
}

/* Shuffles rows: place[row] is the position of the row after the shuffle (Fisher-Yates from the
 * last row to the first). */
static osh_status shuffle(osh_ctx *cx, uint32_t *place, int64_t n, uint64_t seed)
{
    osh_status rc = OSH_OK;
    uint32_t *order = NULL; // own; order[position] is the row at that position

    OSH_NEW(cx, order, n);
    for (int64_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k = (int64_t)(osh_rng_u64(seed, SHUFFLE_STREAM, (uint64_t)i) % (uint64_t)(i + 1));
        uint32_t row_i = order[i];
        order[i] = order[k];
        order[k] = row_i;
    }
    for (int64_t i = 0; i < n; i++) place[order[i]] = (uint32_t)i;
done:
    osh_free(cx, order);
    return rc;
}

/* Tokens of one row. at: index of the first token in reading.ids; n: number of tokens. */
typedef struct span {
    int64_t at, n;
} span;

typedef struct reading { // tokens of some rows, which are read in one pass over the file
    osh_ids ids; // own
    /* spans[i] belongs to the row with position first + i, where `first` is the first position of
     * the pass. */
    span *spans; // own
} reading;

/* Reads and tokenizes the rows with shuffled positions [first, end), in one pass over the file.
 * place[i] is the position of row i of the split after the shuffle. r->ids gets the tokens in the
 * order of the file. r->spans gets the span of each row, in shuffled order. */
static osh_status loader_read_positions(osh_ctx *cx, osh_loader *l, reading *r,
                                        const uint32_t *place, int64_t first, int64_t end)
{
    osh_status rc = OSH_OK;
    osh_lines *lines = NULL; // own
    bool any = true, blank = false;

    OSH_TRY(osh_row_lines_open(cx, &lines, l->opt));
    for (int64_t i = 0, n_read = 0; n_read < end - first; i += !blank) {
        OSH_TRY(osh_lines_begin(cx, lines, &any));
        if (!any || i >= l->to)
            OSH_FAIL(cx, OSH_E_IO, "%s: was changed while it was read", l->opt->path);
        int64_t at = r->ids.n, to = i < l->from ? -1 : (int64_t)place[i - l->from];
        if (to < first || to >= end) {
            OSH_TRY(osh_lines_skip(cx, lines, &blank));
            continue;
        }
        OSH_TRY(osh_row_read(cx, &l->rows, &r->ids, lines, &blank));
        if (blank) continue;
        r->spans[to - first] = (span){at, r->ids.n - at};
        if (r->ids.n == at) warn_empty_row(cx, lines);
        n_read++;
    }
done:
    osh_lines_close(cx, lines);
    return rc;
}

/* Reads the rows with shuffled positions [first, end), and adds them as samples in the order of
 * their positions. */
static osh_status loader_add_positions(osh_ctx *cx, osh_loader *l, const uint32_t *place,
                                       int64_t first, int64_t end, int64_t limit)
{
    osh_status rc = OSH_OK;
    reading r = {0}; // own

    OSH_NEW(cx, r.spans, end - first);
    OSH_TRY(loader_read_positions(cx, l, &r, place, first, end));
    OSH_TRY(osh_ids_reserve(cx, &l->ids, r.ids.n));
    for (int64_t i = 0; i < end - first && !loader_is_full(l, limit); i++, l->n_seen++) {
        const span *s = &r.spans[i];
        if (s->n)
            memcpy(l->ids.ids + l->ids.n, r.ids.ids + s->at, (size_t)s->n * sizeof *r.ids.ids);
        l->ids.n += s->n;
        OSH_TRY(loader_end_sample(cx, l));
    }
done:
    osh_ids_deinit(cx, &r.ids);
    osh_free(cx, r.spans);
    return rc;
}

/* Returns the number of rows to read next. If a number of tokens or blocks is wanted, estimates the
 * number of rows from the average length of the rows so far. */
static int64_t loader_next_rows(const osh_loader *l, int64_t limit, int64_t n_left)
{
    int64_t n = limit && !l->opt->concatenate ? limit - l->n_seen : INT64_MAX;
    int64_t tokens = l->opt->num_tokens;

    if (l->opt->concatenate && __builtin_mul_overflow(limit, l->opt->max_seq_length, &tokens))
        tokens = INT64_MAX;
    if (tokens) {
        int64_t each = l->n_seen && l->ids.n ? l->ids.n / l->n_seen + 1 : l->opt->max_seq_length;
        int64_t rows = (tokens - l->ids.n) / each + 1 + l->n_seen / 8;
        if (rows < n) n = rows;
    }
    return n < n_left ? n : n_left;
}

/* Reads rows in shuffled order. The shuffle needs the number of rows, so a first pass counts
 * them. */
static osh_status loader_read_shuffled(osh_ctx *cx, osh_loader *l, int64_t limit)
{
    osh_status rc = OSH_OK;
    int64_t n_rows = 0, row = 0;
    uint32_t *place = NULL; // own

    if (l->opt->split && strchr(l->opt->split, '+'))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: splits '%s' is a sum: only the rows of one slice can be shuffled",
                 l->opt->path, l->opt->split);
    OSH_TRY(loader_find_split(cx, l, &n_rows, true));
    n_rows = l->to - l->from;
    if (n_rows > UINT32_MAX)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: more than %u rows to shuffle", l->opt->path,
                 UINT32_MAX);
    OSH_NEW(cx, place, n_rows);
    OSH_TRY(shuffle(cx, place, n_rows, l->opt->seed));
    while (row < n_rows && place[row]) row++;
    OSH_TRY(loader_find_kind(cx, l, l->from + row));
    for (int64_t first = 0, end; first < n_rows && !loader_is_full(l, limit); first = end) {
        end = first + loader_next_rows(l, limit, n_rows - first);
        OSH_TRY(loader_add_positions(cx, l, place, first, end, limit));
    }
done:
    osh_free(cx, place);
    return rc;
}

/* Cuts the tokens of all samples into at most `limit` blocks of max_seq_length (0: all blocks). */
static osh_status loader_cut_blocks(osh_ctx *cx, osh_loader *l, int64_t limit)
{
    int64_t len = l->opt->max_seq_length, n = l->ids.n / len;

    if (!n)
        return osh_fail(cx, OSH_E_FORMAT, "%s: %lld tokens, fewer than one block of %lld",
                        l->opt->path, (long long)l->ids.n, (long long)len);
    if (limit && n > limit) n = limit;
    int64_t *more = osh_realloc(cx, l->offsets, (size_t)(n + 1) * sizeof *more);
    if (!more) return OSH_E_NOMEM;
    l->offsets = more;
    l->cap = n + 1;
    for (int64_t i = 0; i <= n; i++) more[i] = i * len;
    l->n = n;
    return OSH_OK;
}

/* Cuts all samples of a batch to the length of the shortest sample of the batch, as
 * DataCollatorWithTruncation does. */
static void dataset_truncate_batches(osh_dataset *d, int64_t batch_size)
{
    int64_t to = 0, start = 0;

    for (int64_t b = 0; b < d->n; b += batch_size) {
        int64_t end = d->n - b < batch_size ? d->n : b + batch_size;
        int64_t shortest = INT64_MAX;
        for (int64_t i = b, from = start; i < end; from = d->offsets[++i])
            if (d->offsets[i + 1] - from < shortest) shortest = d->offsets[i + 1] - from;
        for (int64_t i = b; i < end; i++) {
            int64_t next_start = d->offsets[i + 1];
            memmove(d->ids + to, d->ids + start, (size_t)shortest * sizeof *d->ids);
            to += shortest;
            d->offsets[i + 1] = to;
            start = next_start;
        }
    }
}

osh_status osh_loader_init(osh_ctx *cx, osh_loader *l, osh_tokenizer *tok,
                           const osh_dataset_options *opt)
{
    osh_status rc = OSH_OK;

    *l = (osh_loader){.opt = opt, .cap = 16};
    OSH_NEW(cx, l->offsets, l->cap);
    OSH_TRY(osh_row_reader_init(cx, &l->rows, opt, tok));
done:
    return rc;
}

void osh_loader_deinit(osh_ctx *cx, osh_loader *l)
{
    osh_ids_deinit(cx, &l->ids);
    osh_free(cx, l->offsets);
    osh_row_reader_deinit(cx, &l->rows);
}

void osh_loader_give_samples(osh_loader *l, osh_dataset *out)
{
    *out = (osh_dataset){.ids = l->ids.ids, .offsets = l->offsets, .n = l->n};
    l->ids = (osh_ids){0};
    l->offsets = NULL;
}

osh_status osh_loader_check_any(osh_ctx *cx, const osh_loader *l)
{
    if (!l->n_seen) return osh_fail(cx, OSH_E_FORMAT, "%s: the dataset is empty", l->opt->path);
    if (!l->n)
        return osh_fail(cx, OSH_E_FORMAT, "%s: no row holds a token (%lld read)", l->opt->path,
                        (long long)l->n_seen);
    return OSH_OK;
}

/* Returns the number of rows or blocks to read, or 0 to read all. */
static int64_t samples_wanted(const osh_dataset_options *opt)
{
    int64_t n = opt->num_samples, length = opt->max_seq_length;
    if (!opt->num_tokens || !opt->concatenate) return n;
    int64_t blocks = opt->num_tokens / length + (opt->num_tokens % length != 0);
    return n && n < blocks ? n : blocks;
}

osh_status osh_dataset_read(osh_ctx *cx, osh_dataset *out, bool *texts, osh_tokenizer *tok,
                            const osh_dataset_options *opt)
{
    osh_status rc = OSH_OK;
    osh_loader l = {0}; // own
    int64_t asked = samples_wanted(opt);

    *out = (osh_dataset){0};
    OSH_TRY(osh_dataset_check_options(cx, opt));
    OSH_TRY(osh_loader_init(cx, &l, tok, opt));
    /* Text is always cut when it is tokenized. Ids that will be concatenated are not cut. All other
     * ids are cut, except with the padding collator (as in LLM Compressor). */
    l.rows.cut_ids = !opt->concatenate && !collator_is(opt, "padding");
    OSH_TRY(opt->shuffle ? loader_read_shuffled(cx, &l, asked)
                         : osh_loader_read_in_order(cx, &l, asked));
    OSH_TRY(osh_loader_check_any(cx, &l));
    if (opt->concatenate) OSH_TRY(loader_cut_blocks(cx, &l, asked));
    if (l.n < asked && !opt->num_tokens)
        osh_log(cx, OSH_LOG_INFO, "%s: %lld samples, fewer than the %lld asked for", opt->path,
                (long long)l.n, (long long)asked);
    *texts = l.rows.kind == OSH_ROW_TEXT;
    osh_loader_give_samples(&l, out);
done:
    osh_loader_deinit(cx, &l);
    return rc;
}

void osh_dataset_collate(osh_dataset *d, const osh_dataset_options *opt, bool texts)
{
    /* If all texts are padded to one length, truncation to the shortest sample changes nothing. */
    bool padded = opt->pad_to_max_length && !opt->concatenate && texts;
    if (collator_is(opt, "truncation") && !padded) dataset_truncate_batches(d, opt->batch_size);
}

osh_status osh_dataset_load(osh_ctx *cx, osh_dataset *out, osh_tokenizer *tok,
                            const osh_dataset_options *opt)
{
    bool texts = false;
    osh_status rc = osh_dataset_read(cx, out, &texts, tok, opt);
    if (!rc) osh_dataset_collate(out, opt, texts);
    if (!rc && opt->answers) rc = osh_dataset_unmark(cx, out);
    if (rc) osh_dataset_deinit(cx, out);
    return rc;
}
