/* fuzz_json.c - any bytes: a parse that ends; what it accepts survives printing, an edit of it parses again, and read
 * list by list it is the same. */
#include "fuzz/fuzz.h"
#include "text/json.h"
#include <sys/mman.h>
#include <unistd.h>

static void edit(osh_ctx *cx, const char *text, size_t n, const char *key, const char *value)
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
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(tree, "a"), *next = cJSON_IsArray(a) ? a->child : NULL;
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
        if (!strstr(printed, "Infinity") && !strstr(printed, "fffd") && !strstr(printed, "u0000")) { // 1e999, bad UTF-8
            CHECK(!osh_json_parse(cx, &again, printed, strlen(printed), "printed", 0));
            CHECK(cJSON_Compare(tree, again, true));
            CHECK(!osh_json_print(cx, &twice, again, 1));
            CHECK(!strcmp(printed, twice));
            by_lists(cx, text, n, tree);
        }
        edit(cx, text, n, "a", "[1, {}]");
        edit(cx, text, n, "added \"here\"", "null");
        edit(cx, text, n, "b", NULL);
    }
    osh_free(cx, printed);
    osh_free(cx, twice);
    cJSON_Delete(tree);
    cJSON_Delete(again);
    fuzz_ctx_free(cx);
    return 0;
}
