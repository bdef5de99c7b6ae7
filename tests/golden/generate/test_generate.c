/* test_generate.c - compares greedy continuations of tiny random checkpoints of every family (F32)
 * with transformers' generate (gen.py). The new ids must be equal, on one thread and on three.
 * Compares decoded texts with the tokenizers library (decoders.py). Runs under each instruction set
 * (cmake/tests.cmake). */
#include "golden/models/tiny.h"
#include "eval/generate.h"
#include "base/utf8.h"
#include "kernels/kernel_test.h"
#include "tokenizer/detokenizer.h"
#include "torture.h"
#include "unit/dir_fixture.h"

typedef struct answer {
    osh_ctx *cx;  // view
    osh_buf text; // own
} answer;

static void answer_add(void *user, const char *text, size_t n)
{
    answer *a = user;
    assert_ok(a->cx, osh_buf_append(a->cx, &a->text, text, n));
}

/* Returns the list of ids as JSON text (own; osh_buf_deinit frees it). */
static osh_buf ids_text(osh_ctx *cx, const cJSON *ids)
{
    osh_buf b;
    osh_buf_init(&b, 0);
    for (const cJSON *e = ids->child; e; e = e->next)
        assert_ok(cx, osh_buf_printf(cx, &b, "%s%d", e == ids->child ? "" : ", ", e->valueint));
    return b;
}

static osh_status set_isa(osh_ctx *cx, osh_generate_options *o)
{
    osh_free(cx, o->isa);
    o->isa = osh_strdup(cx, getenv("OSH_TEST_ISA") ? getenv("OSH_TEST_ISA") : "auto");
    return o->isa ? OSH_OK : OSH_E_NOMEM;
}

static void check_prompt(osh_ctx *cx, const char *name, const char *dir, const cJSON *pair)
{
    osh_generate_options o = {0}; // own
    osh_buf prompt = ids_text(cx, cJSON_GetObjectItemCaseSensitive(pair, "prompt"));
    osh_buf want = ids_text(cx, cJSON_GetObjectItemCaseSensitive(pair, "new"));
    answer got = {.cx = cx};
    char n_new[16];
    osh_buf_init(&got.text, 0);
    snprintf(n_new, sizeof n_new, "%d",
             cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(pair, "new")));
    assert_ok(cx, osh_fields_default(cx, osh_generate_fields, &o));
    o.input_ids = osh_strdup(cx, prompt.data);
    o.max_new_tokens = atoi(n_new);
    o.json = true;
    assert_ok(cx, set_isa(cx, &o));
    assert_ok(cx, osh_generate(cx, dir, &(osh_generate_prompt){NULL, 0}, &o, answer_add, &got));
    const char *ids = strstr(got.text.data, "\"new_ids\": [");
    assert_non_null(ids);
    ids += strlen("\"new_ids\": [");
    if (strlen(ids) <= want.len || memcmp(ids, want.data, want.len) || ids[want.len] != ']')
        fail_msg("%s after [%s]:\n  got  %.*s\n  want %s", name, prompt.data,
                 (int)strcspn(ids, "]"), ids, want.data);
    osh_fields_deinit(cx, osh_generate_fields, &o);
    osh_buf_deinit(cx, &prompt);
    osh_buf_deinit(cx, &want);
    osh_buf_deinit(cx, &got.text);
}

static void check_case(fixture *x, osh_ctx *three, const cJSON *pairs)
{
    tiny_case t;
    tiny_open(x->cx, &t, pairs->string);
    tiny_write(x->cx, &t, x->dir, OSH_F32);
    tiny_close(&t);
    for (const cJSON *pair = pairs->child; pair; pair = pair->next) {
        check_prompt(x->cx, pairs->string, x->dir, pair);
        check_prompt(three, pairs->string, x->dir, pair);
    }
}

static void test_ids_are_those_of_transformers(void **state)
{
    fixture *x = *state;
    osh_ctx *three = NULL; // own
    cJSON *all = NULL;     // own
    int n = 0;
    assert_int_equal(osh_ctx_new(&three, 3), OSH_OK);
    assert_ok(x->cx,
              osh_json_read(x->cx, &all, OSH_SOURCE_DIR "/tests/golden/generate/generate.json",
                            1 << 20, 0));
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(all, "cases");
    for (const cJSON *c = cases->child; c; c = c->next, n++) check_case(x, three, c);
    printf("%d families\n", n);
    cJSON_Delete(all);
    assert_int_equal(osh_mem_live(three), 0);
    osh_ctx_free(three);
}

/* Decodes the ids one after the other, and compares the whole text. The text of each call must
 * consist of whole characters. */
static void check_text(osh_ctx *cx, const char *name, const osh_tokenizer *t, const char *dir,
                       const cJSON *row)
{
    osh_detokenizer *d = NULL; // own
    osh_buf got;               // own
    const char *want = cJSON_GetArrayItem(row, 1)->valuestring;
    osh_buf_init(&got, 0);
    assert_ok(cx, osh_detokenizer_open(cx, &d, t, dir));
    for (const cJSON *id = row->child->child; id; id = id->next) {
        size_t from = got.len;
        osh_utf8 u = {0};
        assert_ok(cx, osh_detokenizer_feed(cx, d, &got, id->valueint));
        if (got.len > from)
            assert_true(osh_utf8_read(&u, got.data + from, got.len - from) && osh_utf8_ends(&u));
    }
    assert_ok(cx, osh_detokenizer_end(cx, d, &got));
    if (strcmp(got.len ? got.data : "", want)) {
        char *ids = cJSON_PrintUnformatted(row->child);
        fail_msg("%s, ids %s: got '%s', want '%s'", name, ids, got.len ? got.data : "", want);
    }
    osh_detokenizer_close(cx, d);
    osh_buf_deinit(cx, &got);
}

static void test_texts_are_those_of_tokenizers(void **state)
{
    fixture *x = *state;
    cJSON *all = NULL; // own
    assert_ok(x->cx,
              osh_json_read(x->cx, &all, OSH_SOURCE_DIR "/tests/golden/generate/decoders.json",
                            1 << 20, 0));
    for (const cJSON *c = all->child; c; c = c->next) {
        osh_tokenizer *t = NULL; // own
        char *file = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(c, "tokenizer"));
        put_text(x, "tokenizer.json", file);
        free(file);
        assert_ok(x->cx, osh_tokenizer_open(x->cx, &t, x->dir));
        const cJSON *rows = cJSON_GetObjectItemCaseSensitive(c, "rows");
        for (const cJSON *row = rows->child; row; row = row->next)
            check_text(x->cx, cJSON_GetObjectItemCaseSensitive(c, "name")->valuestring, t, x->dir,
                       row);
        osh_tokenizer_close(x->cx, t);
    }
    cJSON_Delete(all);
}

static void test_unknown_decoder_is_refused(void **state)
{
    fixture *x = *state;
    osh_tokenizer *t = NULL;   // own
    osh_detokenizer *d = NULL; // own
    put_text(x, "tokenizer.json",
             "{\"added_tokens\": [], \"decoder\": {\"type\": \"CTC\"}, \"model\": {\"type\": "
             "\"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": \"a\"}}");
    assert_ok(x->cx, osh_tokenizer_open(x->cx, &t, x->dir));
    assert_fails(x->cx, OSH_E_UNSUPPORTED, osh_detokenizer_open(x->cx, &d, t, x->dir),
                 "decoder \"CTC\" is not supported");
    osh_tokenizer_close(x->cx, t);
}

static const char *torture_dir; // view

static void answer_drop(void *user, const char *text, size_t n) { (void)user, (void)text, (void)n; }

static osh_status generate_again(osh_ctx *cx, void *user)
{
    osh_generate_options o = {0}; // own
    osh_status rc = osh_fields_default(cx, osh_generate_fields, &o);
    (void)user;
    if (!rc) rc = set_isa(cx, &o);
    o.input_ids = rc ? NULL : osh_strdup(cx, "1,2,3");
    if (!rc && !o.input_ids) rc = OSH_E_NOMEM;
    o.max_new_tokens = 2, o.json = true;
    if (!rc)
        rc = osh_generate(cx, torture_dir, &(osh_generate_prompt){NULL, 0}, &o, answer_drop, NULL);
    osh_fields_deinit(cx, osh_generate_fields, &o);
    return rc;
}

static void test_torture(void **state)
{
    fixture *x = *state;
    tiny_case t;
    if (isa_repeats()) return;
    tiny_open(x->cx, &t, "llama_tied");
    tiny_write(x->cx, &t, x->dir, OSH_F32);
    tiny_close(&t);
    torture_dir = x->dir;
    printf("%lld allocations\n", (long long)torture(generate_again, NULL));
}

int main(void)
{
    int rc = pin_isa();
    if (rc) return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ids_are_those_of_transformers, setup_dir,
                                        teardown_dir),
        cmocka_unit_test_setup_teardown(test_texts_are_those_of_tokenizers, setup_dir,
                                        teardown_dir),
        cmocka_unit_test_setup_teardown(test_unknown_decoder_is_refused, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_torture, setup_dir, teardown_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
