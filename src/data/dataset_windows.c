/* dataset_windows.c - loads the samples of an evaluation: rows, or windows of one text. Windows may
 * overlap. */
#include "data/loader.h"
#include <string.h>

/* The text has n windows. Sets *n_out to the number of windows to load. */
static osh_status choose_windows(osh_ctx *cx, int64_t *n_out, int64_t n,
                                 const osh_dataset_windows *w, const char *path)
{
    int64_t first = w->first, count = w->count;

    if (first < 0 || count < 0)
        return osh_fail(cx, OSH_E_USAGE,
                        "first_window is %lld and max_windows %lld, wanted 0 or more",
                        (long long)first, (long long)count);
    if (first >= n)
        return osh_fail(cx, OSH_E_USAGE, "%s: first_window is %lld, but there are %lld windows",
                        path, (long long)first, (long long)n);
    *n_out = count && count < n - first ? count : n - first;
    return OSH_OK;
}

/* Cuts the ids into windows. The windows overlap if the stride is less than the length of a
 * window. */
static osh_status cut_windows(osh_ctx *cx, osh_dataset *out, const osh_loader *l,
                              const osh_dataset_windows *w)
{
    osh_status rc = OSH_OK;
    int64_t stride = w->stride, first = w->first, len = l->opt->max_seq_length, n = 0;
    osh_dataset d = {0}; // own

    if (l->ids.n < len)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %lld tokens, fewer than one window of %lld", l->opt->path,
                 (long long)l->ids.n, (long long)len);
    OSH_TRY(choose_windows(cx, &n, (l->ids.n - len) / stride + 1, w, l->opt->path));
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

/* Returns the number of tokens up to the end of the last window to keep, or 0 to keep all
 * tokens. */
static int64_t tokens_wanted(const osh_dataset_windows *w, int64_t len)
{
    int64_t last, wanted;

    if (w->first < 0 || w->count <= 0 || __builtin_add_overflow(w->first, w->count - 1, &last))
        return 0;
    if (__builtin_mul_overflow(last, w->stride, &wanted) ||
        __builtin_add_overflow(wanted, len, &wanted))
        return 0;
    return wanted;
}

/* Tokenizes the whole text, or its first n_wanted tokens if n_wanted is not 0. */
static osh_status loader_encode_whole(osh_ctx *cx, osh_loader *l, int64_t n_wanted)
{
    osh_status rc = OSH_OK;
    osh_lines *lines = NULL; // own
    osh_tokenizer *tok = l->rows.tok;
    const char *text = NULL;
    size_t n = 0, n_text = 0;

    if (!tok)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: a text needs a tokenizer, and there is none", l->opt->path);
    OSH_TRY(osh_row_lines_open(cx, &lines, l->opt));
    osh_tokenizer_begin(tok);
    do {
        OSH_TRY(osh_lines_bytes(cx, lines, &text, &n));
        OSH_TRY(osh_tokenizer_feed(cx, tok, &l->ids, text, n));
        n_text += n;
    } while (n && !(n_wanted && l->ids.n >= n_wanted));
    if (!n_text) OSH_FAIL(cx, OSH_E_FORMAT, "%s: the dataset is empty", l->opt->path);
    if (n_wanted && l->ids.n >= n_wanted) l->ids.n = n_wanted;
    else OSH_TRY(osh_tokenizer_end(cx, tok, &l->ids));
    OSH_TRY(osh_ids_check(cx, &l->ids, 0, l->opt->n_vocab, l->opt->path));
done:
    osh_lines_close(cx, lines);
    return rc;
}

/* Loads rows [w->first, w->first + w->count) of a file that is not a .txt. */
static osh_status loader_load_rows(osh_ctx *cx, osh_dataset *out, osh_loader *l,
                                   const osh_dataset_windows *w)
{
    osh_status rc = OSH_OK;
    int64_t n = 0, limit = 0;

    if (w->first >= 0 && w->count > 0 && __builtin_add_overflow(w->first, w->count, &limit))
        limit = 0;
    l->n_skip = w->first;
    OSH_TRY(osh_loader_read_in_order(cx, l, limit));
    l->n += l->n_skipped;
    OSH_TRY(osh_loader_check_any(cx, l));
    OSH_TRY(choose_windows(cx, &n, l->n, w, l->opt->path));
    l->n = n;
    osh_loader_give_samples(l, out);
done:
    return rc;
}

osh_status osh_dataset_load_eval(osh_ctx *cx, osh_dataset *out, osh_tokenizer *tok,
                                 const osh_dataset_options *opt, const osh_dataset_windows *which)
{
    osh_status rc = OSH_OK;
    int64_t stride = which->stride;
    osh_loader l = {0}; // own
    osh_dataset_options plain = {.path = opt->path, .text_column = opt->text_column,
                                 .text_template = opt->text_template, .model_dir = opt->model_dir,
                                 .chat_date = opt->chat_date, .max_seq_length = opt->max_seq_length,
                                 .split = opt->split, .n_vocab = opt->n_vocab};

    osh_dataset_windows w = {which->first, which->count, stride ? stride : opt->max_seq_length};

    *out = (osh_dataset){0};
    OSH_TRY(osh_dataset_check_options(cx, &plain));
    if (stride < 0)
        OSH_FAIL(cx, OSH_E_USAGE, "stride is %lld, wanted at least 1", (long long)stride);
    OSH_TRY(osh_loader_init(cx, &l, tok, &plain));
    if (l.rows.json) {
        if (stride && stride != opt->max_seq_length)
            OSH_FAIL(cx, OSH_E_USAGE, "%s: a stride needs one text, but each row here is a sample",
                     opt->path);
        OSH_TRY(loader_load_rows(cx, out, &l, &w));
    } else {
        if (opt->split)
            OSH_FAIL(cx, OSH_E_USAGE, "%s: splits select rows, but this is one text", opt->path);
        OSH_TRY(loader_encode_whole(cx, &l, tokens_wanted(&w, opt->max_seq_length)));
        OSH_TRY(cut_windows(cx, out, &l, &w));
    }
done:
    osh_loader_deinit(cx, &l);
    return rc;
}
