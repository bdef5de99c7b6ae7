/* test_chat_golden.c - renders conversations with chat templates. The texts must equal those of
 * transformers (gen.py), byte for byte. Conversations and templates that transformers refuses must
 * be refused, too. */
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "chat/chat.h"
#include "text/json.h"
#include "unit/text_helpers.h"

#define HERE OSH_SOURCE_DIR "/tests/golden/chat/"

static char *read_text(osh_ctx *cx, const char *path, size_t *n)
{
    char *text = NULL;
    assert_ok(cx, osh_file_read_all(cx, &text, n, path, 1 << 20));
    return text;
}

static void compare(osh_ctx *cx, const char *name, osh_status rc, const osh_buf *got,
                    const cJSON *wanted)
{
    const char *text = got->len ? got->data : "";
    if (cJSON_IsNull(wanted)) {
        if (!rc) fail_msg("%s: gave '%s', and transformers refuses it", name, text);
        osh_error_clear(cx);
        return;
    }
    if (rc) fail_msg("%s: %s", name, osh_error_text(cx));
    if (strcmp(text, wanted->valuestring))
        fail_msg("%s: gave\n%s\nwanted\n%s", name, text, wanted->valuestring);
}

static void test_language(void **state)
{
    osh_ctx *cx = *state;
    cJSON *cases = NULL;
    size_t n = 0, i = 0;
    char *json = read_text(cx, HERE "variables.json", &n), name[32];
    osh_jinja_vars vars = {.json = json, .n_json = n};

    assert_ok(cx, osh_json_read(cx, &cases, HERE "language.json", 1 << 20, OSH_JSON_NUL));
    for (const cJSON *c = cases->child; c; c = c->next) {
        osh_jinja *t = NULL;
        osh_buf out;
        const char *text = c->child->valuestring;
        osh_buf_init(&out, 0);
        snprintf(name, sizeof name, "case %zu", i++);
        osh_status rc = osh_jinja_new(cx, &t, text, strlen(text), "template");
        if (!rc) rc = osh_jinja_render(cx, t, &out, &vars);
        compare(cx, name, rc, &out, c->child->next);
        osh_buf_deinit(cx, &out);
        osh_jinja_free(cx, t);
    }
    assert_true(i > 60);
    cJSON_Delete(cases);
    osh_free(cx, json);
}

/* Makes a model directory with the template of a family and the tokens of gen.py. */
static void make_model(const char *dir, const char *family)
{
    static const char config[] =
        "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", \"unk_token\": null,"
        " \"pad_token\": \"<pad>\", \"chat_template\": \"not this\"}";
    char text[16384], path[512];
    snprintf(path, sizeof path, HERE "templates/%s.jinja", family);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    f = fopen(path, "wb");
    assert_true(f && fwrite(text, 1, n, f) == n && !fclose(f));
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    f = fopen(path, "wb");
    assert_true(f && fwrite(config, 1, sizeof config - 1, f) == sizeof config - 1 && !fclose(f));
}

static void render_rows(osh_ctx *cx, const osh_chat *chat, const cJSON *family, char *rows)
{
    char name[64];
    int i = 0;
    const cJSON *wanted = family->child;
    for (char *row = rows, *end; *row; row = end + 1, wanted = wanted->next) {
        osh_buf out;
        end = strchr(row, '\n');
        osh_buf_init(&out, 0);
        snprintf(name, sizeof name, "%s, conversation %d", family->string, ++i);
        compare(cx, name, osh_chat_render(cx, chat, &out, row, (size_t)(end - row), NULL), &out,
                wanted);
        osh_buf_deinit(cx, &out);
    }
    assert_null(wanted);
}

static void test_families(void **state)
{
    osh_ctx *cx = *state;
    cJSON *families = NULL;
    size_t n = 0;
    int n_families = 0;
    char *rows = read_text(cx, HERE "conversations.jsonl", &n), dir[] = "chat_golden_XXXXXX",
         path[64];

    assert_non_null(mkdtemp(dir));
    assert_ok(cx, osh_json_read(cx, &families, HERE "families.json", 1 << 20, 0));
    for (const cJSON *f = families->child; f; f = f->next, n_families++) {
        osh_chat *chat = NULL;
        make_model(dir, f->string);
        assert_ok(cx, osh_chat_open(cx, &chat, dir, NULL));
        render_rows(cx, chat, f, rows);
        osh_chat_free(cx, chat);
    }
    assert_true(n_families >= 15);
    cJSON_Delete(families);
    osh_free(cx, rows);
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir), unlink(path);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir), unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_language, make_context, drop_context),
        cmocka_unit_test_setup_teardown(test_families, make_context, drop_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
