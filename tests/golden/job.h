/* job.h - runs a job over a checkpoint of tests/golden/models in F32: GPTQ with 4-bit codes in
 * groups of 8. Every failure ends the test. */
#ifndef OSH_GOLDEN_JOB_H
#define OSH_GOLDEN_JOB_H
#include "golden/models/tiny.h"
#include "api/api.h"
#include "torture.h"

static inline void job_text(osh_ctx *cx, const char *dir, const char *name, const char *text)
{
    char *path = osh_path_join(cx, dir, name);
    assert_ok(cx, osh_file_write_all(cx, path, text, strlen(text)));
    osh_free(cx, path);
}

/* Writes the model, the samples and the recipe of a case, and sets the options of a job whose
 * output is dir/out. */
static inline void job_write(osh_ctx *cx, osh_options *opt, const char *dir, const char *model)
{
    static const char recipe[] = "s_stage:\n  q_modifiers:\n    GPTQModifier:\n      ignore: "
                                 "['re:.*lm_head']\n      config_groups:\n"
                                 "        g:\n          targets: [Linear]\n"
                                 "          weights: {num_bits: 4, type: int, symmetric: true, "
                                 "strategy: group, group_size: 8}\n";
    tiny_case t;
    static char rows[16384], paths[4][64];
    size_t n = 0;
    tiny_open(cx, &t, model);
    tiny_write(cx, &t, dir, OSH_F32);
    for (int s = 0; s < t.n_samples; s++)
        for (int64_t i = t.offsets[s]; i < t.offsets[s + 1]; i++)
            n += (size_t)snprintf(rows + n, sizeof rows - n, "%s%d%s",
                                  i == t.offsets[s] ? "{\"input_ids\": [" : ", ", t.ids[i],
                                  i + 1 == t.offsets[s + 1] ? "]}\n" : "");
    assert_int_equal(t.offsets[t.n_samples], 292);
    tiny_close(&t);
    job_text(cx, dir, "rows.jsonl", rows);
    job_text(cx, dir, "recipe.yaml", recipe);
    const char *const set[][2] = {
        {"model", ""}, {"dataset", "rows.jsonl"}, {"recipe", "recipe.yaml"}, {"output", "out"}};
    assert_ok(cx, osh_fields_default(cx, osh_option_fields, opt));
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", dir, set[i][1]);
        assert_ok(cx, osh_option_set(cx, opt, set[i][0], paths[i]));
    }
    assert_ok(cx, osh_option_set(cx, opt, "device", "cpu"));
    if (getenv("OSH_TEST_ISA"))
        assert_ok(cx, osh_option_set(cx, opt, "isa", getenv("OSH_TEST_ISA")));
    assert_ok(cx, osh_option_set(cx, opt, "max-seq-length", "128"));
    assert_ok(cx, osh_option_set(cx, opt, "num-calibration-samples", "4"));
    assert_ok(cx, osh_option_set(cx, opt, "threads", "2"));
}

static inline void job_ignore(void *user, const char *text, size_t n)
{
    (void)user, (void)text, (void)n;
}

/* Returns the tensor with this name (own: osh_tensor_free), or NULL if the file has no such
 * tensor. */
static inline osh_tensor *job_tensor(osh_ctx *cx, const osh_container *st, const char *name)
{
    osh_tensor *t = NULL;
    for (int64_t i = 0; i < osh_container_count(st); i++) {
        const osh_entry *e = osh_container_at(st, i);
        if (strcmp(e->name, name)) continue;
        assert_ok(cx, osh_tensor_new(cx, &t, e->dtype, e->ndim, e->shape));
        assert_ok(cx, osh_container_read(cx, t->data, st, e));
    }
    return t;
}

/* Returns the number of codes that differ between `a` and `b`. Both have n bytes, with two codes in
 * each byte. */
static inline int64_t job_codes_differ(const uint8_t *a, const uint8_t *b, size_t n)
{
    int64_t differ = 0;
    for (size_t i = 0; i < n; i++) {
        int x = a[i] ^ b[i];
        differ += ((x & 15) != 0) + ((x & 240) != 0);
    }
    return differ;
}
#endif
