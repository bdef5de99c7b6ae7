/* test_dataset_golden.c - compares the samples of the small model's calibration text with the
 * samples that LLM Compressor makes (gen.py). */
#include "data/dataset.h"
#include "text/json.h"
#include "unit/text_helpers.h"

#define HERE OSH_SOURCE_DIR "/tests/golden/dataset/"

static void compare(osh_ctx *cx, const char *name, osh_dataset_options opt)
{
    osh_tokenizer *tok = NULL;
    osh_dataset d = {0};
    cJSON *wanted = NULL;
    int64_t i = 0;
    char *path = osh_sprintf(cx, HERE "wanted_%s.json", name);

    opt.path = HERE "rows.jsonl";
    opt.n_vocab = 4096;
    assert_ok(cx, osh_json_read(cx, &wanted, path, 1 << 20, 0));
    assert_ok(cx, osh_tokenizer_open(cx, &tok, OSH_SOURCE_DIR "/examples/docs-llama-3m"));
    assert_ok(cx, osh_dataset_load(cx, &d, tok, &opt));
    assert_int_equal(d.n, cJSON_GetArraySize(wanted));
    for (const cJSON *s = wanted->child; s; s = s->next, i++) {
        int64_t at = d.offsets[i];
        if (d.offsets[i + 1] - at != cJSON_GetArraySize(s))
            fail_msg("%s: sample %d has %d tokens, wanted %d", name, (int)i,
                     (int)(d.offsets[i + 1] - at), cJSON_GetArraySize(s));
        for (const cJSON *id = s->child; id; id = id->next)
            assert_int_equal(d.ids[at++], id->valueint);
    }
    osh_dataset_deinit(cx, &d);
    osh_tokenizer_close(cx, tok);
    cJSON_Delete(wanted);
    osh_free(cx, path);
}

static void test_truncation(void **state)
{
    compare(*state, "truncation",
            (osh_dataset_options){.collator = "truncation", .batch_size = 5, .max_seq_length = 48});
    compare(*state, "truncation_1",
            (osh_dataset_options){.collator = "truncation", .batch_size = 1, .max_seq_length = 48});
}

static void test_truncation_of_padded_rows(void **state)
{
    compare(*state, "truncation_padded",
            (osh_dataset_options){.collator = "truncation", .batch_size = 5, .max_seq_length = 48,
                                  .pad_to_max_length = true});
}

static void test_padding(void **state)
{
    compare(*state, "padding", (osh_dataset_options){.collator = "padding", .batch_size = 4,
                                                     .max_seq_length = 48});
}

static void test_concatenate(void **state)
{
    compare(*state, "concatenate",
            (osh_dataset_options){.collator = "truncation", .batch_size = 3, .max_seq_length = 48,
                                  .concatenate = true});
}

/* Without a collator, the batch size has no effect. */
static void test_no_collator(void **state)
{
    compare(*state, "truncation_1", (osh_dataset_options){.batch_size = 7, .max_seq_length = 48});
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_context, drop_context)
    const struct CMUnitTest tests[] = {
        T(test_truncation), T(test_truncation_of_padded_rows), T(test_padding), T(test_concatenate),
        T(test_no_collator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
