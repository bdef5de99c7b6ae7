/* test_registered.c - tests rows of the data sets that LLM Compressor registers. The test takes a
 * row from a reply of the Hub's server, and converts it to a line of a .jsonl file. The model's
 * chat template renders the line as a text. The text must equal LLM Compressor's text (gen.py),
 * byte for byte. */
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "hub/rows.h"
#include "chat/chat.h"
#include "text/json.h"
#include "unit/text_helpers.h"

#define GOLDEN OSH_SOURCE_DIR "/tests/golden/"

/* Makes a model directory with the tokens of gen.py and a chat template. If `template` is NULL, the
 * directory has no chat template. */
static void make_model(osh_ctx *cx, const char *dir, const char *template)
{
    static const char config[] =
        "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"pad_token\": \"<pad>\"}";
    char to[64], from[512];
    snprintf(to, sizeof to, "%s/tokenizer_config.json", dir);
    assert_ok(cx, osh_file_write_all(cx, to, config, sizeof config - 1));
    snprintf(to, sizeof to, "%s/chat_template.jinja", dir);
    unlink(to);
    snprintf(from, sizeof from, GOLDEN "chat/templates/%s.jinja", template ? template : "");
    if (template) assert_ok(cx, osh_file_copy(cx, to, from));
}

/* Converts a row to a line of a .jsonl file, and the line to a text, as the program does. */
static osh_status text_of(osh_ctx *cx, osh_buf *out, const osh_hub_rows *rows, const osh_buf *line,
                          const char *dir)
{
    osh_status rc = OSH_OK;
    osh_chat *chat = NULL; // own
    cJSON *row = NULL;     // own
    OSH_TRY(osh_chat_open(cx, &chat, dir, NULL));
    if (rows->chat) {
        OSH_TRY(osh_chat_render(cx, chat, out, line->data, line->len - 1, NULL));
        goto done;
    }
    OSH_TRY(osh_json_parse(cx, &row, line->data, line->len, "row", 0));
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "text"));
    OSH_TRY(osh_buf_append(cx, out, text, strlen(text)));
done:
    cJSON_Delete(row);
    osh_chat_free(cx, chat);
    return rc;
}

static osh_status put_to(osh_ctx *cx, void *user, const char *s, size_t n)
{
    return osh_buf_append(cx, user, s, n);
}

static void compare(osh_ctx *cx, const cJSON *c, const char *dir)
{
    const char *name = cJSON_GetObjectItem(c, "name")->valuestring;
    const char *template = cJSON_GetStringValue(cJSON_GetObjectItem(c, "template"));
    const char *wanted = cJSON_GetStringValue(cJSON_GetObjectItem(c, "text"));
    char *row = cJSON_PrintUnformatted(cJSON_GetObjectItem(c, "row")); // own
    osh_buf page, line, got;                                           // own
    osh_hub_rows rows;
    osh_json_walk w;
    osh_buf_init(&page, 0), osh_buf_init(&line, 0), osh_buf_init(&got, 0);
    assert_true(osh_hub_rows_registered(&rows, name));
    assert_ok(cx, osh_buf_printf(cx, &page, "{\"rows\": [{\"row_idx\": 0, \"row\": %s}]}", row));
    assert_ok(cx, osh_json_walk_text(cx, &w, page.data, page.len, "rows"));
    assert_ok(cx, osh_hub_page_read(cx, &(osh_hub_page){0}, &w, &rows, put_to, &line));
    osh_json_walk_deinit(cx, &w);
    make_model(cx, dir, template);
    osh_status rc = text_of(cx, &got, &rows, &line, dir);
    const char *text = got.len ? got.data : "";
    if (rc && wanted) fail_msg("%s, %s: %s", name, template, osh_error_text(cx));
    if (!rc && !wanted)
        fail_msg("%s, %s: gave '%s', and LLM Compressor refuses it", name, template, text);
    if (wanted && strcmp(text, wanted))
        fail_msg("%s, %s, %s: gave\n%s\nwanted\n%s", name, template, row, text, wanted);
    osh_error_clear(cx);
    osh_buf_deinit(cx, &page), osh_buf_deinit(cx, &line), osh_buf_deinit(cx, &got);
    cJSON_free(row);
}

static void test_registered(void **state)
{
    osh_ctx *cx = *state;
    cJSON *cases = NULL;
    char dir[] = "registered_XXXXXX", path[64];
    int n = 0;
    assert_non_null(mkdtemp(dir));
    assert_ok(cx, osh_json_read(cx, &cases, GOLDEN "registered/registered.json", 1 << 20, 0));
    for (const cJSON *c = cases->child; c; c = c->next, n++) compare(cx, c, dir);
    assert_true(n > 60);
    // prompts of open_platypus are not supported
    assert_false(osh_hub_rows_registered(&(osh_hub_rows){0}, "open_platypus"));
    cJSON_Delete(cases);
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir), unlink(path);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir), unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_registered,
                                                                       make_context, drop_context)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
