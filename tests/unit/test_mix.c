/* test_mix.c - tests mixes of several data sets. Each data set gives a share of the samples. Tests
 * the texts of options, the order of the samples, limits and errors. Also tests options that are
 * lists with one value per data set. */
#include "dir_fixture.h"
#include "data/mix.h"
#include "torture.h"

#include <stdio.h>

enum { MOST = 4 };

typedef struct job { // a mix of the files of a test; all strings are views
    char *sets[MOST], *splits[MOST];
    size_t n, n_splits;
    osh_dataset_options opt;
    fixture *f;
} job;

static osh_status job_run(osh_ctx *cx, osh_dataset *d, osh_mix *m, const job *j)
{
    osh_status rc = OSH_OK;
    char texts[MOST][200], *items[MOST];
    const osh_strs none = {0}, sets = {items, j->n}, splits = {(char **)(uintptr_t)j->splits,
                                                               j->n_splits};
    const osh_mix_texts t = {&sets, &splits, &none, &none};
    for (size_t i = 0; i < j->n; i++) {
        snprintf(texts[i], sizeof texts[i], "%s/%s", j->f->dir, j->sets[i]);
        items[i] = texts[i];
    }
    *d = (osh_dataset){0};
    OSH_TRY(osh_mix_read(cx, m, &t));
    OSH_TRY(osh_mix_load(cx, d, m, NULL, &j->opt));
done:
    return rc;
}

static osh_status job_try(osh_ctx *cx, void *user)
{
    osh_dataset d;
    osh_mix m = {0};
    osh_status rc = job_run(cx, &d, &m, user);
    osh_dataset_deinit(cx, &d);
    osh_mix_deinit(cx, &m);
    return rc;
}

/* Asserts that the first tokens of the samples are `wanted`. The reported numbers of samples and
 * tokens of each data set must agree with the samples. Data set k has the tokens 10 k, 10 k + 1,
 * ... */
static void gives(job *j, const char *wanted)
{
    osh_ctx *cx = j->f->cx;
    osh_dataset d;
    osh_mix m = {0};
    char s[400] = "";
    int64_t n[MOST] = {0}, tokens[MOST] = {0};
    assert_ok(cx, job_run(cx, &d, &m, j));
    for (int64_t i = 0, at = 0; i < d.n; i++) {
        int32_t id = d.ids[d.offsets[i]];
        at += snprintf(s + at, sizeof s - (size_t)at, "%s%d", i ? " " : "", id);
        n[id / 10]++, tokens[id / 10] += d.offsets[i + 1] - d.offsets[i];
    }
    assert_string_equal(s, wanted);
    for (size_t i = 0; i < m.n; i++) {
        assert_int_equal(m.sets[i].n_samples, n[i]);
        assert_int_equal(m.sets[i].n_tokens, tokens[i]);
    }
    osh_dataset_deinit(cx, &d);
    osh_mix_deinit(cx, &m);
}

/* Makes a.jsonl with 10 rows of 2 tokens, b.jsonl with 10 rows of 1 token, and c.jsonl with 2
 * rows. */
static job job_make(fixture *f)
{
    char rows[3][2000] = {"", "", ""};
    for (int i = 0; i < 10; i++) {
        sprintf(rows[0] + strlen(rows[0]), "{\"input_ids\": [%d, 1]}\n", i);
        sprintf(rows[1] + strlen(rows[1]), "{\"input_ids\": [%d]}\n", 10 + i);
        if (i < 2) sprintf(rows[2] + strlen(rows[2]), "{\"input_ids\": [%d]}\n", 20 + i);
    }
    put(f, "a.jsonl", rows[0], strlen(rows[0]));
    put(f, "b.jsonl", rows[1], strlen(rows[1]));
    put(f, "c.jsonl", rows[2], strlen(rows[2]));
    return (job){.f = f, .opt = {.max_seq_length = 8, .batch_size = 2, .n_vocab = 99, .seed = 1}};
}

static job job_of(fixture *f, size_t n, const char *a, const char *b, const char *c)
{
    job j = job_make(f);
    const char *words[] = {a, b, c};
    for (size_t i = 0; i < n; i++) j.sets[i] = (char *)(uintptr_t)words[i];
    j.n = n;
    return j;
}

static void test_order(void **state)
{
    job j = job_of(*state, 2, "a.jsonl", "b.jsonl", NULL);
    gives(&j, "0 10 1 11 2 12 3 13 4 14 5 15 6 16 7 17 8 18 9 19");
    j.opt.num_samples = 5;
    gives(&j, "0 10 1 11 2");
    j = job_of(*state, 2, "a.jsonl", "b.jsonl:0.3", NULL), j.opt.num_samples = 10;
    gives(&j, "0 10 1 2 3 11 4 5 12 6");
    j = job_of(*state, 2, "a.jsonl:0.7", "b.jsonl:0.300000000", NULL), j.opt.num_samples = 3;
    gives(&j, "0 10 1");
    j = job_of(*state, 3, "a.jsonl:0.5", "b.jsonl", "c.jsonl"), j.opt.num_samples = 8;
    gives(&j, "0 10 20 1 2 11 21 3");
    j.opt.num_samples = 12; // c has only 2 samples, so it gives no third sample
    gives(&j, "0 10 20 1 2 11 21 3 4 12 5");
}

static void test_limits(void **state)
{
    job j = job_of(*state, 2, "a.jsonl", "b.jsonl", NULL);
    j.opt.num_tokens = 7;
    gives(&j, "0 10 1 11 2"); // these samples have 2 + 1 + 2 + 1 + 2 tokens
    j.opt.num_samples = 3;
    gives(&j, "0 10 1");
    j = job_of(*state, 1, "a.jsonl", NULL, NULL), j.opt.num_tokens = 5;
    gives(&j, "0 1 2");
    j.opt.concatenate = true, j.opt.max_seq_length = 4; // 5 tokens need two blocks of 4
    gives(&j, "0 2");
    j.opt.num_samples = 1;
    gives(&j, "0");
    j.opt.concatenate = false, j.opt.num_samples = 0, j.opt.num_tokens = 3, j.opt.shuffle = true;
    osh_dataset d;
    osh_mix m = {0};
    assert_ok(j.f->cx, job_run(j.f->cx, &d, &m, &j));
    assert_true(d.n == 2 && d.offsets[2] == 4);
    osh_dataset_deinit(j.f->cx, &d);
    osh_mix_deinit(j.f->cx, &m);
}

static void test_collator(void **state)
{
    job j = job_of(*state, 2, "a.jsonl", "b.jsonl", NULL);
    osh_dataset d;
    osh_mix m = {0};
    j.opt.collator = "truncation", j.opt.num_samples = 4;
    assert_ok(j.f->cx, job_run(j.f->cx, &d, &m, &j)); // each batch has a row of a and a row of b
    assert_true(d.n == 4 && d.offsets[4] == 4 && d.ids[1] == 10);
    osh_dataset_deinit(j.f->cx, &d);
    osh_mix_deinit(j.f->cx, &m);
}

static void test_lists(void **state)
{
    job j = job_of(*state, 2, "a.jsonl", "b.jsonl", NULL);
    char all[] = "train[8:]", none[] = "", one[] = "x[:1]";
    j.splits[0] = all, j.n_splits = 1;
    gives(&j, "8 18 9 19");
    j.splits[0] = one, j.splits[1] = none, j.n_splits = 2, j.opt.num_samples = 4;
    gives(&j, "0 10 11");
    j.splits[0] = none, j.splits[1] = one;
    gives(&j, "0 10 1");
    j.n_splits = 3, j.splits[2] = none;
    assert_fails(j.f->cx, OSH_E_USAGE, job_try(j.f->cx, &j),
                 "--splits is given 3 times, want it once, or once for each of the 2 data sets");
    j = job_of(*state, 2, "a.jsonl", "a.jsonl", NULL);
    assert_fails(j.f->cx, OSH_E_USAGE, job_try(j.f->cx, &j), "--dataset was given twice");
    j.splits[0] = all, j.splits[1] = one, j.n_splits = 2;
    assert_ok(j.f->cx, job_try(j.f->cx, &j));
}

/* A directory may have a name that looks like a share, such as `d:0.3`. The share then follows this
 * name. */
static void test_names(void **state)
{
    job j = job_of(*state, 2, "d:0.3", "b.jsonl", NULL);
    char *path = osh_path_join(j.f->cx, j.f->dir, "d:0.3");
    assert_ok(j.f->cx, osh_dir_make(j.f->cx, path));
    put_text(j.f, "d:0.3/x.jsonl", "{\"input_ids\": [0]}\n{\"input_ids\": [1]}\n");
    osh_free(j.f->cx, path);
    j.opt.num_samples = 4;
    gives(&j, "0 10 1 11");
    j.sets[0] = (char *)(uintptr_t)"d:0.3:0.75";
    gives(&j, "0 1 10");
}

static void test_bad(void **state)
{
    static const struct { const char *a, *b, *says; } bad[] = {
        {"a.jsonl:0.7", "b.jsonl:0.4", "add up to 1.1, want 1: without its number"},
        {"a.jsonl:0.7", "b.jsonl:0.1", "add up to 0.8, want 1: without its number"},
        {"a.jsonl:1", "b.jsonl", "add up to 1, want less than 1"},
        {"a.jsonl:1.5", "b.jsonl", "the share is '1.5', want a number from 0.001 to 1"},
        {"a.jsonl:.7", "b.jsonl", "the share is '.7', want"},
        {"a.jsonl:0", "b.jsonl", "the share is '0', want"},
        {"a.jsonl:0.0009", "b.jsonl", "the share is '0.0009', want"},
        {"a.jsonl:0.1234567891", "b.jsonl", "the share is '0.1234567891', want"},
        {"a.jsonl:0.1.2", "b.jsonl", "the share is '0.1.2', want"},
        {"a.jsonl:99999999999999999999", "b.jsonl", "the share is '99999999999999999999', want"},
        {"a.jsonl:0.5", "none.jsonl", "none.jsonl"},
        {"a.jsonl:half", "b.jsonl", "a.jsonl:half"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        job j = job_of(*state, 2, bad[i].a, bad[i].b, NULL);
        osh_status rc = job_try(j.f->cx, &j);
        if (!rc || !strstr(osh_error_text(j.f->cx), bad[i].says))
            fail_msg("%s %s: %d %s", bad[i].a, bad[i].b, rc, osh_error_text(j.f->cx));
        osh_error_clear(j.f->cx);
    }
    job j = job_of(*state, 3, "a.jsonl", "b.jsonl:0.25", "c.jsonl");
    j.opt.num_samples = 6;
    torture(job_try, &j);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup_dir, teardown_dir)
    const struct CMUnitTest tests[] = {T(test_order),    T(test_limits), T(test_collator),
                                       T(test_lists),    T(test_names),  T(test_bad)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
