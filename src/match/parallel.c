/* parallel.c - checks that Linears can be split among N GPUs as vLLM and SGLang do. The last part
 * of a Linear's name decides how it is split:
 *
 *   q, k, v, gate, up        rows: each GPU gets O / N rows
 *   o, down                  columns: each GPU gets I / N columns
 *
 * Queries, keys and values are split between heads. If a layer has fewer heads of keys than there
 * are GPUs, several GPUs get the same head. Scales and packed words are split together with the
 * weight. So the part of the weight that one GPU gets must consist of whole groups, blocks and
 * words. */
#include "match/parallel.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "match/dense.h"

/* WORD: bits of a word of packed codes. MAX_NAMED: largest number of rows in the error message. */
enum { WORD = 32, MAX_NAMED = 8 };

typedef enum { ROLE_OTHER, ROLE_ROWS, ROLE_QUERIES, ROLE_KEYS, ROLE_PAIR, ROLE_COLUMNS } role;

static role role_of(const char *module)
{
    static const struct {
        const char *name;
        role role;
    } roles[] = {
        {"q_proj", ROLE_QUERIES},    {"q_b_proj", ROLE_QUERIES},
        {"kv_b_proj", ROLE_QUERIES}, {"k_proj", ROLE_KEYS},
        {"v_proj", ROLE_KEYS},       {"gate_proj", ROLE_ROWS},
        {"up_proj", ROLE_ROWS},      {"w1", ROLE_ROWS},
        {"w3", ROLE_ROWS},           {"fc1", ROLE_ROWS},
        {"c_fc", ROLE_ROWS},         {"dense_h_to_4h", ROLE_ROWS},
        {"gate_up_proj", ROLE_PAIR}, {"o_proj", ROLE_COLUMNS},
        {"down_proj", ROLE_COLUMNS}, {"w2", ROLE_COLUMNS},
        {"out_proj", ROLE_COLUMNS},  {"dense", ROLE_COLUMNS},
        {"wo", ROLE_COLUMNS},        {"fc2", ROLE_COLUMNS},
        {"c_proj", ROLE_COLUMNS},    {"dense_4h_to_h", ROLE_COLUMNS},
    };
    const char *dot = strrchr(module, '.'), *leaf = dot ? dot + 1 : module;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(leaf, roles[i].name)) return roles[i].role;
    return ROLE_OTHER;
}

int64_t osh_parallel_parts(const osh_options *o, const char *module)
{
    return o->tensor_parallel > 1 && role_of(module) == ROLE_COLUMNS ? o->tensor_parallel : 1;
}

int64_t osh_parallel_columns(const osh_options *o, const char *module, int64_t I)
{
    int64_t n = osh_parallel_parts(o, module);
    return I % n == 0 ? I / n : I;
}

typedef struct splitting { // state of the check
    const osh_matching *p;
    int64_t n, heads, kv_heads; // n: number of GPUs; others: numbers of heads, 0: unknown
    osh_buf text;               // own: rows of the error message
    osh_map *rows;              // own: all rows of the message, also those that `text` omits
    int n_rows, n_bad;
} splitting;

static osh_status heads_find(osh_ctx *cx, splitting *s)
{
    osh_status rc = OSH_OK;
    double v = 0;
    bool found = false;
    OSH_TRY(osh_hf_config_num(cx, &v, &found, s->p->in->ck->config, "num_attention_heads"));
    s->heads = s->kv_heads = found ? (int64_t)v : 0;
    OSH_TRY(osh_hf_config_num(cx, &v, &found, s->p->in->ck->config, "num_key_value_heads"));
    if (found) s->kv_heads = (int64_t)v;
done:
    return rc;
}

/* Sets *words to true if the format packs the codes of the Linear into words of 32 bits. */
static osh_status linear_has_words(osh_ctx *cx, bool *words, const osh_linear *l)
{
    osh_status rc = OSH_OK;
    osh_format_tensor stored[OSH_FORMAT_MAX_TENSORS];
    const osh_format_weight w = osh_linear_stored(l);
    int n = 0;
    OSH_TRY(l->format->tensors(cx, stored, &n, &w));
    *words = n && stored[0].dtype == OSH_I32; // the first tensor of a format contains the codes
done:
    return rc;
}

/* Returns true and writes the reason to `why` if the weight cannot be split into n parts of I / n
 * columns. */
static bool columns_fault(char why[160], const osh_linear *l, int64_t n, bool words)
{
    const osh_q_args *a = &l->scheme->weights;
    int64_t part = l->I / n;
    if (l->I % n)
        return snprintf(why, 160, "%lld columns are not %lld equal parts", (long long)l->I,
                        (long long)n) > 0;
    if (osh_q_in_groups(a) && part % a->group_size)
        return snprintf(why, 160, "groups of %lld do not divide the %lld columns of a part",
                        (long long)a->group_size, (long long)part) > 0;
    if (a->strategy == OSH_Q_BLOCK && part % a->block[1])
        return snprintf(why, 160, "blocks of %lld columns do not divide the %lld of a part",
                        (long long)a->block[1], (long long)part) > 0;
    if (words && part * a->bits % WORD)
        return snprintf(why, 160, "%lld codes of %d bits do not fill whole words of 32 bits",
                        (long long)part, a->bits) > 0;
    if (osh_q_is_fp4(a) && part % 2)
        return snprintf(why, 160, "the %lld codes of a part do not fill whole bytes",
                        (long long)part) > 0;
    return false;
}

/* Returns true and writes the reason to `why` if `rows` rows of the weight cannot be split into n
 * equal parts. */
static bool rows_fault(char why[160], const osh_linear *l, int64_t rows, int64_t n, bool words)
{
    const osh_q_args *a = &l->scheme->weights;
    int64_t part = rows / n;
    if (rows % n)
        return snprintf(why, 160, "%lld rows are not %lld equal parts", (long long)rows,
                        (long long)n) > 0;
    if (a->strategy == OSH_Q_BLOCK && part % a->block[0])
        return snprintf(why, 160, "blocks of %lld rows do not divide the %lld of a part",
                        (long long)a->block[0], (long long)part) > 0;
    if (words && !a->symmetric && part * a->bits % WORD)
        return snprintf(why, 160, "%lld zero points of %d bits do not fill whole words of 32 bits",
                        (long long)part, a->bits) > 0;
    return false;
}

static bool heads_fault(char why[160], int64_t heads, int64_t n, const char *what)
{
    return snprintf(why, 160, "%lld heads of %s are not %lld equal parts", (long long)heads, what,
                    (long long)n) > 0;
}

/* Returns true and writes the reason to `why` if the Linear cannot be split among the GPUs. */
static bool linear_fault(char why[160], const splitting *s, const osh_linear *l, bool words)
{
    int64_t n = s->n, kv = s->kv_heads;
    switch (role_of(l->name)) {
    case ROLE_COLUMNS:
        return columns_fault(why, l, n, words);
    case ROLE_ROWS:
        return rows_fault(why, l, l->O, n, words);
    case ROLE_PAIR:
        return rows_fault(why, l, l->O / 2, n, words);
    case ROLE_QUERIES:
        if (s->heads % n) return heads_fault(why, s->heads, n, "queries");
        return rows_fault(why, l, l->O, n, words);
    case ROLE_KEYS:
        if (kv >= n ? kv % n : kv && n % kv) return heads_fault(why, kv, n, "keys and values");
        return rows_fault(why, l, l->O, kv && kv < n ? kv : n, words);
    case ROLE_OTHER:
        break;
    }
    return false;
}

/* Adds a row "names: reason" to the error message, unless the message already has this row. */
static osh_status fault_add(osh_ctx *cx, splitting *s, const char *name, const char *why)
{
    osh_status rc = OSH_OK;
    int64_t unused;
    osh_buf key; // own
    osh_buf_init(&key, 0);
    OSH_TRY(osh_dense_pattern(cx, &key, name));
    OSH_TRY(osh_buf_printf(cx, &key, ": %s", why));
    s->n_bad++;
    if (osh_map_get(s->rows, key.data, key.len, &unused)) goto done;
    OSH_TRY(osh_map_put(cx, s->rows, key.data, key.len, 1));
    if (++s->n_rows <= MAX_NAMED)
        OSH_TRY(osh_buf_printf(cx, &s->text, "%s%s", s->n_rows > 1 ? "; " : "", key.data));
done:
    osh_buf_deinit(cx, &key);
    return rc;
}

osh_status osh_plan_parallel(osh_ctx *cx, int *n_checked, int *n_other, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    splitting s = {.p = p, .n = p->in->opt->tensor_parallel}; // own
    char why[160];
    bool words = false;
    *n_checked = *n_other = 0;
    osh_buf_init(&s.text, 0);
    if (s.n <= 1) goto done;
    OSH_TRY(heads_find(cx, &s));
    OSH_TRY(osh_map_new(cx, &s.rows, 16));
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        /* the weight is written dense, so a split cannot cut a group or a packed word */
        if (l->scheme_index < 0) continue;
        OSH_TRY(linear_has_words(cx, &words, l));
        if (role_of(l->name) == ROLE_OTHER) ++*n_other;
        else if (linear_fault(why, &s, l, words))
            OSH_TRY(fault_add(cx, &s, l->name, why));
        else
            ++*n_checked;
    }
    if (s.n_rows > MAX_NAMED)
        OSH_TRY(osh_buf_printf(cx, &s.text, "; and %d more", s.n_rows - MAX_NAMED));
    if (s.n_bad)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--tensor-parallel %lld: %d modules cannot be split: %s; want another group size, "
                 "--indivisible dense, or a number of GPUs that divides them",
                 (long long)s.n, s.n_bad, s.text.data);
done:
    osh_map_free(cx, s.rows);
    osh_buf_deinit(cx, &s.text);
    return rc;
}
