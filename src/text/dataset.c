/* dataset.c - rows to samples: which rows, how they are cut, what a collator leaves of them.
 *
 * Agrees with llmcompressor/datasets/utils.py and transformers/data/base.py, but for: rows come in file order (there:
 * by descending length), a shuffle has a seed, padding is not stored (there it is counted in every statistic), and
 * concatenation drops one remainder (there: one per 1000 rows). */
#include "text/dataset.h"
#include "base/rng.h"
#include "text/dataset_row.h"
#include "text/lines.h"
#include <string.h>

#define SHUFFLE_STREAM 1
#define MAX_TEXT ((size_t)1 << 30) // of an evaluation text, which is tokenized whole

typedef struct row {
    char *text; // own
    size_t n;
    int64_t line;
} row;

typedef struct loader {
    const osh_dataset_options *opt; // view
    osh_row_reader rows;
    osh_ids ids;      // own; samples one after the other
    int64_t *offsets; // own [n + 1]
    int64_t n, cap;   // samples
    int64_t n_seen;   // rows
} loader;

static bool collator_is(const osh_dataset_options *opt, const char *name)
{
    return opt->collator && !strcmp(opt->collator, name);
}

static osh_status check_options(osh_ctx *cx, const osh_dataset_options *opt)
{
    if (opt->max_seq_length <= 0)
        return osh_fail(cx, OSH_E_USAGE, "max_seq_length is %lld, wanted at least 1", (long long)opt->max_seq_length);
    if (opt->num_samples < 0)
        return osh_fail(cx, OSH_E_USAGE, "num_calibration_samples is %lld, wanted 0 (all) or more",
                        (long long)opt->num_samples);
    if (opt->collator && !collator_is(opt, "none") && !collator_is(opt, "truncation") && !collator_is(opt, "padding"))
        return osh_fail(cx, OSH_E_USAGE, "data_collator is '%s', wanted none, truncation or padding", opt->collator);
    if (collator_is(opt, "truncation") && opt->batch_size <= 0)
        return osh_fail(cx, OSH_E_USAGE, "batch_size is %lld, wanted at least 1", (long long)opt->batch_size);
    return OSH_OK;
}

static bool is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!s[i] || !strchr(" \t\r\n\v\f", s[i])) return false;
    return true;
}

/* The next line that is a row; *text NULL: there is none. */
static osh_status next_row(osh_ctx *cx, osh_lines *lines, const char **text, size_t *n)
{
    osh_status rc = OSH_OK;

    do OSH_TRY(osh_lines_next(cx, lines, text, n));
    while (*text && is_blank(*text, *n));
    if (osh_interrupted(cx)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted while reading the dataset");
done:
    return rc;
}

static osh_status end_sample(osh_ctx *cx, loader *l, int64_t line)
{
    if (l->ids.n == l->offsets[l->n]) {
        osh_log(cx, OSH_LOG_WARN, "%s line %lld: holds no token, skipped", l->opt->path, (long long)line);
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

static osh_status add_row(osh_ctx *cx, loader *l, const char *text, size_t n, int64_t line)
{
    osh_status rc = OSH_OK;

    OSH_TRY(osh_row_encode(cx, &l->rows, &l->ids, text, n, line));
    OSH_TRY(end_sample(cx, l, line));
    l->n_seen++;
done:
    return rc;
}

/* Enough rows were read; limit 0: never. */
static bool is_full(const loader *l, int64_t limit)
{
    if (!limit) return false;
    return l->opt->concatenate ? l->ids.n / l->opt->max_seq_length >= limit : l->n_seen >= limit;
}

static osh_status read_in_order(osh_ctx *cx, loader *l, int64_t limit)
{
    osh_status rc = OSH_OK;
    osh_lines *lines = NULL; // own
    const char *text = NULL;
    size_t n = 0;

    OSH_TRY(osh_lines_open(cx, &lines, l->opt->path));
    while (!is_full(l, limit)) {
        OSH_TRY(next_row(cx, lines, &text, &n));
        if (!text) break;
        OSH_TRY(add_row(cx, l, text, n, osh_lines_number(lines)));
    }
done:
    osh_lines_close(cx, lines);
    return rc;
}

static osh_status count_rows(osh_ctx *cx, int64_t *n_rows, const char *path)
{
    osh_status rc = OSH_OK;
    osh_lines *lines = NULL; // own
    const char *text = NULL;
    size_t n = 0;

    *n_rows = 0;
    OSH_TRY(osh_lines_open(cx, &lines, path));
    for (;; ++*n_rows) {
        OSH_TRY(next_row(cx, lines, &text, &n));
        if (!text) break;
    }
done:
    osh_lines_close(cx, lines);
    return rc;
}

/* place[row] = where the shuffle puts it: Fisher-Yates from the back. */
static osh_status shuffle(osh_ctx *cx, int64_t *place, int64_t n, uint64_t seed)
{
    osh_status rc = OSH_OK;
    int64_t *order = NULL; // own; place -> row

    OSH_NEW(cx, order, n);
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k = (int64_t)(osh_rng_u64(seed, SHUFFLE_STREAM, (uint64_t)i) % (uint64_t)(i + 1));
        int64_t row_i = order[i];
        order[i] = order[k];
        order[k] = row_i;
    }
    for (int64_t i = 0; i < n; i++) place[order[i]] = i;
done:
    osh_free(cx, order);
    return rc;
}

/* Keeps the lines whose place is below n_kept, each at its place. */
static osh_status keep_rows(osh_ctx *cx, row *kept, int64_t n_kept, const int64_t *place,
                            int64_t n_rows, const char *path)
{
    osh_status rc = OSH_OK;
    osh_lines *lines = NULL; // own
    const char *text = NULL;
    size_t n = 0;

    OSH_TRY(osh_lines_open(cx, &lines, path));
    for (int64_t i = 0; i < n_rows; i++) {
        OSH_TRY(next_row(cx, lines, &text, &n));
        if (!text) OSH_FAIL(cx, OSH_E_IO, "%s: became shorter while it was read", path);
        if (place[i] >= n_kept) continue;
        row *r = &kept[place[i]];
        r->text = osh_alloc(cx, n + 1);
        if (!r->text) {
            rc = OSH_E_NOMEM;
            goto done;
        }
        memcpy(r->text, text, n);
        r->text[n] = 0;
        r->n = n;
        r->line = osh_lines_number(lines);
    }
done:
    osh_lines_close(cx, lines);
    return rc;
}

/* Two readings of the file: one counts, one keeps what was chosen. Only that is tokenized. */
static osh_status read_shuffled(osh_ctx *cx, loader *l, int64_t limit)
{
    osh_status rc = OSH_OK;
    int64_t n_rows = 0, n_kept = 0;
    int64_t *place = NULL; // own
    row *kept = NULL;      // own

    OSH_TRY(count_rows(cx, &n_rows, l->opt->path));
    OSH_NEW(cx, place, n_rows);
    OSH_TRY(shuffle(cx, place, n_rows, l->opt->seed));
    bool all = !limit || l->opt->concatenate || limit > n_rows;
    n_kept = all ? n_rows : limit;
    OSH_NEW(cx, kept, n_kept);
    OSH_TRY(keep_rows(cx, kept, n_kept, place, n_rows, l->opt->path));
    for (int64_t i = 0; i < n_kept && !is_full(l, limit); i++)
        OSH_TRY(add_row(cx, l, kept[i].text, kept[i].n, kept[i].line));
done:
    for (int64_t i = 0; kept && i < n_kept; i++) osh_free(cx, kept[i].text);
    osh_free(cx, kept);
    osh_free(cx, place);
    return rc;
}

/* Samples become blocks of max_seq_length tokens. */
static osh_status cut_blocks(osh_ctx *cx, loader *l)
{
    int64_t len = l->opt->max_seq_length, n = l->ids.n / len;

    if (!n)
        return osh_fail(cx, OSH_E_FORMAT, "%s: %lld tokens, fewer than one block of %lld", l->opt->path,
                        (long long)l->ids.n, (long long)len);
    if (l->opt->num_samples && n > l->opt->num_samples) n = l->opt->num_samples;
    int64_t *more = osh_realloc(cx, l->offsets, (size_t)(n + 1) * sizeof *more);
    if (!more) return OSH_E_NOMEM;
    l->offsets = more;
    l->cap = n + 1;
    for (int64_t i = 0; i <= n; i++) more[i] = i * len;
    l->n = n;
    return OSH_OK;
}

/* DataCollatorWithTruncation: each batch, in order, cut to its shortest sample. */
static void truncate_batches(loader *l)
{
    int64_t to = 0, start = 0;

    for (int64_t b = 0; b < l->n; b += l->opt->batch_size) {
        int64_t end = l->n - b < l->opt->batch_size ? l->n : b + l->opt->batch_size;
        int64_t shortest = INT64_MAX;
        for (int64_t i = b, from = start; i < end; from = l->offsets[++i])
            if (l->offsets[i + 1] - from < shortest) shortest = l->offsets[i + 1] - from;
        for (int64_t i = b; i < end; i++) {
            int64_t next_start = l->offsets[i + 1];
            memmove(l->ids.ids + to, l->ids.ids + start, (size_t)shortest * sizeof *l->ids.ids);
            to += shortest;
            l->offsets[i + 1] = to;
            start = next_start;
        }
    }
    l->ids.n = to;
}

static osh_status loader_init(osh_ctx *cx, loader *l, osh_tokenizer *tok, const osh_dataset_options *opt)
{
    osh_status rc = OSH_OK;

    *l = (loader){.opt = opt, .cap = 16};
    OSH_NEW(cx, l->offsets, l->cap);
    OSH_TRY(osh_row_reader_init(cx, &l->rows, opt, tok));
done:
    return rc;
}

static void loader_deinit(osh_ctx *cx, loader *l)
{
    osh_ids_deinit(cx, &l->ids);
    osh_free(cx, l->offsets);
}

static void give_samples(loader *l, osh_dataset *out)
{
    *out = (osh_dataset){.ids = l->ids.ids, .offsets = l->offsets, .n = l->n};
    l->ids = (osh_ids){0};
    l->offsets = NULL;
}

static osh_status check_any(osh_ctx *cx, const loader *l)
{
    if (!l->n_seen) return osh_fail(cx, OSH_E_FORMAT, "%s: the dataset is empty", l->opt->path);
    if (!l->n)
        return osh_fail(cx, OSH_E_FORMAT, "%s: no row holds a token, of %lld read", l->opt->path,
                        (long long)l->n_seen);
    return OSH_OK;
}

osh_status osh_dataset_load(osh_ctx *cx, osh_dataset *out, osh_tokenizer *tok,
                            const osh_dataset_options *opt)
{
    osh_status rc = OSH_OK;
    loader l = {0}; // own
    int64_t asked = opt->num_samples;

    *out = (osh_dataset){0};
    OSH_TRY(check_options(cx, opt));
    OSH_TRY(loader_init(cx, &l, tok, opt));
    /* As there: text is cut where it is tokenized, before it is concatenated; ids only by the collator, and the one
     * that pads does not. */
    l.rows.cut_ids = !opt->concatenate && !collator_is(opt, "padding");
    OSH_TRY(opt->shuffle ? read_shuffled(cx, &l, asked) : read_in_order(cx, &l, asked));
    OSH_TRY(check_any(cx, &l));
    if (opt->concatenate) OSH_TRY(cut_blocks(cx, &l));
    /* Text padded to one length has no shortest sample: what a batch would be cut to is padding. */
    bool padded = opt->pad_to_max_length && !opt->concatenate && l.rows.kind == OSH_ROW_TEXT;
    if (collator_is(opt, "truncation") && !padded) truncate_batches(&l);
    if (l.n < asked)
        osh_log(cx, OSH_LOG_INFO, "%s: %lld samples, fewer than the %lld asked for", opt->path,
                (long long)l.n, (long long)asked);
    give_samples(&l, out);
done:
    loader_deinit(cx, &l);
    return rc;
}

/* [first, first + count) of n windows. */
static osh_status choose_windows(osh_ctx *cx, int64_t *n_out, int64_t n, int64_t first, int64_t count,
                                 const char *path)
{
    if (first < 0 || count < 0)
        return osh_fail(cx, OSH_E_USAGE, "first_window is %lld and max_windows %lld, wanted 0 or more",
                        (long long)first, (long long)count);
    if (first >= n)
        return osh_fail(cx, OSH_E_USAGE, "%s: first_window is %lld of %lld windows", path, (long long)first,
                        (long long)n);
    *n_out = count && count < n - first ? count : n - first;
    return OSH_OK;
}

/* ids -> overlapping or disjoint windows. */
static osh_status cut_windows(osh_ctx *cx, osh_dataset *out, const loader *l, int64_t stride,
                              int64_t first, int64_t count)
{
    osh_status rc = OSH_OK;
    int64_t len = l->opt->max_seq_length, n = 0;
    osh_dataset d = {0}; // own

    if (l->ids.n < len)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %lld tokens, fewer than one window of %lld", l->opt->path,
                 (long long)l->ids.n, (long long)len);
    OSH_TRY(choose_windows(cx, &n, (l->ids.n - len) / stride + 1, first, count, l->opt->path));
    d.ids = osh_calloc(cx, (size_t)n, (size_t)len * sizeof *d.ids);
    if (!d.ids) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_NEW(cx, d.offsets, n + 1);
    for (d.n = 0; d.n < n; d.n++) {
        memcpy(d.ids + d.n * len, l->ids.ids + (first + d.n) * stride, (size_t)len * sizeof *d.ids);
        d.offsets[d.n + 1] = (d.n + 1) * len;
    }
    *out = d, d = (osh_dataset){0}; // give
done:
    osh_dataset_deinit(cx, &d);
    return rc;
}

static osh_status encode_whole(osh_ctx *cx, loader *l)
{
    osh_status rc = OSH_OK;
    osh_lines *lines = NULL; // own
    osh_buf text;            // own

    osh_buf_init(&text, MAX_TEXT);
    if (!l->rows.tok) OSH_FAIL(cx, OSH_E_USAGE, "%s: a text needs a tokenizer, and there is none", l->opt->path);
    OSH_TRY(osh_lines_open(cx, &lines, l->opt->path));
    OSH_TRY(osh_lines_rest(cx, lines, &text));
    if (!text.len) OSH_FAIL(cx, OSH_E_FORMAT, "%s: the dataset is empty", l->opt->path);
    OSH_TRY(osh_tokenizer_encode(cx, l->rows.tok, &l->ids, text.data, text.len, false));
    OSH_TRY(osh_ids_check(cx, &l->ids, 0, l->opt->n_vocab, l->opt->path));
done:
    osh_lines_close(cx, lines);
    osh_buf_deinit(cx, &text);
    return rc;
}

/* Rows [first, first + count) of a .jsonl. */
static osh_status load_rows(osh_ctx *cx, osh_dataset *out, loader *l, int64_t first, int64_t count)
{
    osh_status rc = OSH_OK;
    int64_t n = 0, limit = 0;

    if (first >= 0 && count > 0 && __builtin_add_overflow(first, count, &limit)) limit = 0;
    OSH_TRY(read_in_order(cx, l, limit));
    OSH_TRY(check_any(cx, l));
    OSH_TRY(choose_windows(cx, &n, l->n, first, count, l->opt->path));
    int64_t skip = l->offsets[first];
    memmove(l->ids.ids, l->ids.ids + skip, (size_t)(l->ids.n - skip) * sizeof *l->ids.ids);
    for (int64_t i = 0; i <= n; i++) l->offsets[i] = l->offsets[first + i] - skip;
    l->n = n;
    give_samples(l, out);
done:
    return rc;
}

osh_status osh_dataset_load_eval(osh_ctx *cx, osh_dataset *out, osh_tokenizer *tok,
                                 const osh_dataset_options *opt, int64_t stride, int64_t first_window,
                                 int64_t max_windows)
{
    osh_status rc = OSH_OK;
    loader l = {0}; // own
    osh_dataset_options plain = {.path = opt->path, .text_column = opt->text_column,
                                 .max_seq_length = opt->max_seq_length, .n_vocab = opt->n_vocab};

    *out = (osh_dataset){0};
    OSH_TRY(check_options(cx, &plain));
    if (stride < 0) OSH_FAIL(cx, OSH_E_USAGE, "stride is %lld, wanted at least 1", (long long)stride);
    OSH_TRY(loader_init(cx, &l, tok, &plain));
    if (l.rows.json) {
        if (stride && stride != opt->max_seq_length)
            OSH_FAIL(cx, OSH_E_USAGE, "%s: a stride is for a text, and every row here is a sample", opt->path);
        OSH_TRY(load_rows(cx, out, &l, first_window, max_windows));
    } else {
        OSH_TRY(encode_whole(cx, &l));
        OSH_TRY(cut_windows(cx, out, &l, stride ? stride : opt->max_seq_length, first_window, max_windows));
    }
done:
    loader_deinit(cx, &l);
    return rc;
}

void osh_dataset_deinit(osh_ctx *cx, osh_dataset *d)
{
    osh_free(cx, d->ids);
    osh_free(cx, d->offsets);
    *d = (osh_dataset){0};
}
