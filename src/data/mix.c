/* mix.c - reads the shares of data sets and takes samples from them in turn. All arithmetic is with
 * whole numbers, so the order of the samples is the same on every machine. */
#include "data/mix.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/name.h"

enum { WHOLE = 1000000000, LEAST = 1000000, MAX_SETS = 1000 }; // shares count in units of 1e-9

/* ---- texts ---- */

size_t osh_mix_path_bytes(const char *text)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? strlen(colon + 1) : 0;
    bool number = n && strspn(colon + 1, "0123456789.") == n && isdigit((unsigned char)colon[n]);
    if (!number || colon == text || osh_file_exists(text) || osh_dir_exists(text))
        return strlen(text);
    return (size_t)(colon - text);
}

const char *osh_mix_item(const osh_strs *list, size_t i)
{
    const char *s = !list->n ? NULL : list->n == 1 ? list->items[0] : list->items[i];
    return s && *s ? s : NULL;
}

osh_status osh_mix_check_list(osh_ctx *cx, const osh_strs *list, size_t n, const char *flag)
{
    if (list->n <= 1 || list->n == n) return OSH_OK;
    return osh_fail(cx, OSH_E_USAGE,
                    "%s is given %zu times, want it once, or once for each of the %zu data sets",
                    flag, list->n, n);
}

/* Reads a share such as "0.25" into units of 1e-9. Returns false if the text is not a number from
 * 0.001 to 1 with at most 9 digits after the point. */
static bool share_read(int64_t *share, const char *s)
{
    int64_t v = 0, unit = WHOLE;
    if (!isdigit((unsigned char)*s)) return false;
    for (; isdigit((unsigned char)*s); s++)
        if ((v = 10 * v + (*s - '0') * (int64_t)WHOLE) > WHOLE) return false;
    if (*s == '.') s++;
    for (; isdigit((unsigned char)*s); s++) {
        if (!(unit /= 10)) return false;
        v += (*s - '0') * unit;
    }
    *share = v;
    return !*s && v >= LEAST && v <= WHOLE;
}

/* Sets *name (own) to the name of a data set for messages. If the rows were downloaded, `path` is
 * HF_HOME/oneshot/rows/org--name/config/split.jsonl (hub/data.c), and *name is "org/name". */
static osh_status mix_name(osh_ctx *cx, char **name, const char *path)
{
    osh_status rc = OSH_OK;
    static const char rows[] = "/oneshot/rows/";
    const char *at = strstr(path, rows), *last = osh_path_last(path);
    const char *org = at ? at + sizeof rows - 1 : NULL, *dash = org ? strstr(org, "--") : NULL;
    const char *slash = org ? strchr(org, '/') : NULL;
    char *copy = NULL; // own
    size_t n = slash && dash && dash < slash ? (size_t)(slash - org) : 0;
    if (n && osh_ends_with(org, n, "--text"))
        n -= 6;
    else if (n && osh_ends_with(org, n, "--chat"))
        n -= 6;
    if (n > (size_t)(dash - org) + 2 && n)
        copy = osh_sprintf(cx, "%.*s/%.*s", (int)(dash - org), org, (int)(org + n - dash - 2),
                           dash + 2);
    else
        copy = osh_strdup(cx, *last ? last : path);
    if (!copy) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the name of a data set");
    *name = copy;
done:
    return rc;
}

static osh_status set_read(osh_ctx *cx, osh_data_set *s, int64_t *share, const char *text)
{
    osh_status rc = OSH_OK;
    size_t n = osh_mix_path_bytes(text);
    *share = 0;
    if (!*text) OSH_FAIL(cx, OSH_E_USAGE, "--dataset is empty, want a file or a name");
    if (!(s->path = osh_sprintf(cx, "%.*s", (int)n, text))) OSH_TRY(OSH_E_NOMEM);
    if (text[n] && !share_read(share, text + n + 1))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--dataset %s: the share is '%s', want a number from 0.001 to 1 with at most 9 "
                 "digits after the point; no file has this name",
                 text, text + n + 1);
    OSH_TRY(mix_name(cx, &s->name, s->path));
done:
    return rc;
}

/* Computes the weights from the given shares. An item of `shares` is 0 if no share was given. */
static osh_status mix_weigh(osh_ctx *cx, osh_mix *m, const int64_t *shares)
{
    int64_t sum = 0, n_rest = 0;
    for (size_t i = 0; i < m->n; i++) sum += shares[i], n_rest += !shares[i];
    int64_t rest = WHOLE - sum;
    if (rest < 0 || (n_rest && !rest) || (!n_rest && rest))
        return osh_fail(cx, OSH_E_USAGE, "the shares of --dataset add up to %.9g, want %s%s",
                        (double)sum / WHOLE, n_rest ? "less than 1" : "1",
                        n_rest ? ", because a data set without a number gets a part of the rest"
                               : ": without its number, a data set gets the rest");
    m->total = n_rest ? WHOLE * n_rest : WHOLE;
    for (size_t i = 0; i < m->n; i++)
        m->sets[i].weight = !shares[i] ? rest : n_rest ? shares[i] * n_rest : shares[i];
    return OSH_OK;
}

osh_status osh_mix_read(osh_ctx *cx, osh_mix *out, const osh_mix_texts *texts)
{
    osh_status rc = OSH_OK;
    osh_mix m = {.n = texts->sets->n}; // own
    int64_t *shares = NULL;            // own
    *out = (osh_mix){0};
    if (m.n > MAX_SETS)
        OSH_FAIL(cx, OSH_E_USAGE, "--dataset is given %zu times, want at most %d", m.n, MAX_SETS);
    OSH_TRY(osh_mix_check_list(cx, texts->splits, m.n, "--splits"));
    OSH_TRY(osh_mix_check_list(cx, texts->text_column, m.n, "--text-column"));
    OSH_TRY(osh_mix_check_list(cx, texts->text_template, m.n, "--text-template"));
    OSH_NEW(cx, m.sets, m.n);
    OSH_NEW(cx, shares, m.n);
    for (size_t i = 0; i < m.n; i++) {
        osh_data_set *s = &m.sets[i];
        OSH_TRY(set_read(cx, s, &shares[i], texts->sets->items[i]));
        s->split = osh_mix_item(texts->splits, i);
        s->text_column = osh_mix_item(texts->text_column, i);
        s->text_template = osh_mix_item(texts->text_template, i);
    }
    OSH_TRY(mix_weigh(cx, &m, shares));
    *out = m, m = (osh_mix){0}; // give
done:
    osh_mix_deinit(cx, &m);
    osh_free(cx, shares);
    return rc;
}

void osh_mix_deinit(osh_ctx *cx, osh_mix *m)
{
    for (size_t i = 0; m->sets && i < m->n; i++) {
        osh_free(cx, m->sets[i].path);
        osh_free(cx, m->sets[i].name);
    }
    osh_free(cx, m->sets);
    *m = (osh_mix){0};
}

/* ---- samples ---- */

double osh_mix_share(const osh_mix *m, const osh_data_set *s)
{
    return (double)s->weight / (double)m->total;
}

int64_t osh_mix_quota(const osh_mix *m, size_t i, int64_t n_samples)
{
    __int128 part = (__int128)n_samples * m->sets[i].weight;
    /* The share of n_samples, rounded up. The data set never gives more samples than this. */
    return (int64_t)((part + m->total - 1) / m->total);
}

/* Returns the data set from which the next sample is taken, and updates the credits. */
static size_t mix_turn(const osh_mix *m, int64_t *credits)
{
    size_t which = 0;
    for (size_t i = 0; i < m->n; i++) {
        credits[i] += m->sets[i].weight;
        if (credits[i] > credits[which]) which = i;
    }
    credits[which] -= m->total;
    return which;
}

/* Takes samples from the data sets in turn and appends them to `out`, which has room for all. Stops
 * in these cases:
 *
 *   - opt->num_samples turns are done.
 *   - There are opt->num_tokens tokens (0: no limit).
 *   - No data set has more samples. */
static void mix_take(osh_dataset *out, osh_mix *m, const osh_dataset *parts, int64_t *credits,
                     const osh_dataset_options *opt)
{
    int64_t at = 0, left = 0;
    for (size_t i = 0; i < m->n; i++) left += parts[i].n;
    for (int64_t turn = 0; left && (!opt->num_samples || turn < opt->num_samples) &&
                           (!opt->num_tokens || at < opt->num_tokens);
         turn++) {
        osh_data_set *s = &m->sets[mix_turn(m, credits)];
        const osh_dataset *d = &parts[s - m->sets];
        if (s->n_samples == d->n) {
            s->n_skipped++;
            continue;
        }
        int64_t from = d->offsets[s->n_samples], n = d->offsets[++s->n_samples] - from;
        memcpy(out->ids + at, d->ids + from, (size_t)n * sizeof *d->ids);
        out->offsets[++out->n] = at += n;
        s->n_tokens += n, left--;
    }
}

static osh_status mix_interleave(osh_ctx *cx, osh_dataset *out, osh_mix *m,
                                 const osh_dataset *parts, const osh_dataset_options *opt)
{
    osh_status rc = OSH_OK;
    osh_dataset d = {0};     // own
    int64_t *credits = NULL; // own
    int64_t n = 0, n_tokens = 0;
    for (size_t i = 0; i < m->n; i++) n += parts[i].n, n_tokens += parts[i].offsets[parts[i].n];
    OSH_NEW(cx, credits, m->n);
    OSH_NEW(cx, d.ids, n_tokens);
    OSH_NEW(cx, d.offsets, n + 1);
    mix_take(&d, m, parts, credits, opt);
    *out = d, d = (osh_dataset){0}; // give
done:
    osh_dataset_deinit(cx, &d);
    osh_free(cx, credits);
    return rc;
}

static bool texts_equal(const char *a, const char *b)
{
    return !strcmp(a ? a : "", b ? b : "");
}

/* Fails if two data sets have the same rows, which is a mistake. */
static osh_status mix_check_twice(osh_ctx *cx, const osh_mix *m)
{
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < i; k++)
            if (texts_equal(m->sets[i].path, m->sets[k].path) &&
                texts_equal(m->sets[i].split, m->sets[k].split))
                return osh_fail(cx, OSH_E_USAGE,
                                "--dataset was given twice: '%s' and '%s', want other data, or "
                                "other rows by --splits",
                                m->sets[k].path, m->sets[i].path);
    return OSH_OK;
}

osh_status osh_mix_load(osh_ctx *cx, osh_dataset *out, osh_mix *m, osh_tokenizer *tok,
                        const osh_dataset_options *opt)
{
    osh_status rc = OSH_OK;
    osh_dataset *parts = NULL; // own [m->n]
    bool texts = true, all_texts = true;
    *out = (osh_dataset){0};
    OSH_TRY(mix_check_twice(cx, m));
    OSH_NEW(cx, parts, m->n);
    for (size_t i = 0; i < m->n; i++) {
        osh_dataset_options o = *opt;
        osh_data_set *s = &m->sets[i];
        o.path = s->path, o.split = s->split;
        o.text_column = s->text_column, o.text_template = s->text_template;
        o.num_samples = osh_mix_quota(m, i, opt->num_samples);
        OSH_TRY(osh_dataset_read(cx, &parts[i], &texts, tok, &o));
        all_texts = all_texts && texts;
        s->n_samples = s->n_tokens = s->n_skipped = 0;
    }
    if (m->n == 1) {
        *out = parts[0], parts[0] = (osh_dataset){0}; // give
        m->sets[0].n_samples = out->n, m->sets[0].n_tokens = out->offsets[out->n];
    } else {
        OSH_TRY(mix_interleave(cx, out, m, parts, opt));
    }
    for (size_t i = 0; i < m->n; i++) {
        const osh_data_set *s = &m->sets[i];
        if (s->n_skipped && opt->num_samples)
            osh_log(cx, OSH_LOG_WARN, "%s: %lld samples, fewer than the %lld of its share", s->path,
                    (long long)s->n_samples, (long long)(s->n_samples + s->n_skipped));
    }
    osh_dataset_collate(out, opt, all_texts);
    if (opt->answers) OSH_TRY(osh_dataset_unmark(cx, out));
done:
    if (rc) osh_dataset_deinit(cx, out);
    for (size_t i = 0; parts && i < m->n; i++) osh_dataset_deinit(cx, &parts[i]);
    osh_free(cx, parts);
    return rc;
}
