/* fuzz_json.c - parses any bytes as JSON.
 *
 * The parse must end. If the text is accepted, its printed tree must parse to the same tree. An
 * edited text must parse. Reading item by item must give the same tree. */
#include "fuzz/fuzz.h"
#include "text/json.h"
#include "text/json_walk.h"
#include <sys/mman.h>
#include <unistd.h>

static void text_edit(osh_ctx *cx, const char *text, size_t n, const char *key, const char *value)
{
    char *out = NULL;
    cJSON *tree = NULL;

    if (osh_json_edit(cx, &out, text, n, (osh_json_member){key, value}, "fuzz")) return;
    CHECK(!osh_json_parse(cx, &tree, out, strlen(out), "edited", 0));
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(tree, key);
    CHECK(value ? v != NULL : v == NULL);
    cJSON_Delete(tree);
    osh_free(cx, out);
}

static osh_status count_down(osh_ctx *cx, void *next, const cJSON *o)
{
    const cJSON **at = next;
    (void)cx;
    CHECK(*at && cJSON_Compare(*at, o, true));
    *at = (*at)->next;
    return OSH_OK;
}

static void by_lists(osh_ctx *cx, const char *text, size_t n, cJSON *tree)
{
    static const osh_json_taken lists[] = {{"a", count_down}, {"b", NULL}, {NULL, NULL}};
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(tree, "a"),
                *next = cJSON_IsArray(a) ? a->child : NULL;
    cJSON *rest = NULL;
    char path[64];
    int fd = memfd_create("fuzz", 0);

    CHECK(fd >= 0 && write(fd, text, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(!osh_json_read_lists(cx, &rest, path, lists, &next) && !next);
    for (int k = 0; k < 2; k++)
        if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(tree, lists[k].key)))
            CHECK(cJSON_ReplaceItemInObjectCaseSensitive(tree, lists[k].key, cJSON_CreateNull()));
    CHECK(cJSON_Compare(rest, tree, true));
    cJSON_Delete(rest);
    close(fd);
}

static osh_status put_to(osh_ctx *cx, void *user, const char *s, size_t n)
{
    return osh_buf_append(cx, user, s, n);
}

/* Copies the text value by value. The copy must parse to `tree`, the tree of the text. `tree` is
 * NULL if a parse refuses the text. */
static void by_values(osh_ctx *cx, const char *text, size_t n, const cJSON *tree, bool twice)
{
    osh_json_walk w;
    osh_buf copy;
    cJSON *again = NULL;
    osh_buf_init(&copy, 0);
    osh_json_walk_text(cx, &w, text, n, "fuzz");
    osh_status rc = osh_json_walk_copy(&w, put_to, &copy);
    if (!rc) rc = osh_json_walk_end(&w);
    CHECK(tree ? !rc : rc || twice); // if a key occurs twice, a parse fails, but a copy does not
    if (tree) {
        CHECK(!memchr(copy.data, '\n', copy.len));
        CHECK(!osh_json_parse(cx, &again, copy.data, copy.len, "copy", 0));
        CHECK(cJSON_Compare(tree, again, true));
    }
    osh_error_clear(cx);
    cJSON_Delete(again);
    osh_buf_deinit(cx, &copy);
    osh_json_walk_deinit(cx, &w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_ctx *cx = fuzz_ctx();
    cJSON *tree = NULL, *again = NULL;
    char *printed = NULL, *twice = NULL;
    const char *text = (const char *)data;

    if (!osh_json_parse(cx, &tree, text, n, "fuzz", OSH_JSON_NUL)) cJSON_Delete(tree);
    osh_error_clear(cx);
    tree = NULL;
    if (!osh_json_parse(cx, &tree, text, n, "fuzz", 0)) {
        CHECK(!osh_json_print(cx, &printed, tree, 1));
        /* Printing changes 1e999 and invalid UTF-8, so such texts are not compared. */
        if (!strstr(printed, "Infinity") && !strstr(printed, "fffd") && !strstr(printed, "u0000")) {
            CHECK(!osh_json_parse(cx, &again, printed, strlen(printed), "printed", 0));
            CHECK(cJSON_Compare(tree, again, true));
            CHECK(!osh_json_print(cx, &twice, again, 1));
            CHECK(!strcmp(printed, twice));
            by_values(cx, text, n, tree, false);
            by_lists(cx, text, n, tree); // by_lists changes the tree, so it is called last
        }
        text_edit(cx, text, n, "a", "[1, {}]");
        text_edit(cx, text, n, "added \"here\"", "null");
        text_edit(cx, text, n, "b", NULL);
    } else {
        bool same_key = strstr(osh_error_text(cx), "occurs twice");
        osh_error_clear(cx);
        by_values(cx, text, n, NULL, same_key);
    }
    osh_free(cx, printed);
    osh_free(cx, twice);
    cJSON_Delete(tree);
    cJSON_Delete(again);
    fuzz_ctx_free(cx);
    return 0;
}
