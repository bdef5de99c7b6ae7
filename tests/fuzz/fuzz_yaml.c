/* fuzz_yaml.c - parses any bytes as YAML. The result must be a tree of valid nodes or a message,
 * and all memory must be freed. */
#include "fuzz/fuzz.h"
#include "text/yaml.h"

static void yaml_walk(const osh_yaml *y)
{
    CHECK(y->line >= 1 && y->column >= 1);
    if (y->kind != OSH_Y_SEQ && y->kind != OSH_Y_MAP) {
        CHECK(y->text && !y->n);
        return;
    }
    for (size_t i = 0; i < y->n; i++) {
        yaml_walk(y->items[i]);
        if (y->kind == OSH_Y_MAP) CHECK(osh_yaml_get(y, y->keys[i]->text) == y->items[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_ctx *cx = fuzz_ctx();
    osh_yaml *y = NULL;

    if (!osh_yaml_parse(cx, &y, (const char *)data, n, "fuzz")) yaml_walk(y);
    else CHECK(!y && osh_error_text(cx)[0]);
    osh_yaml_free(cx, y);
    fuzz_ctx_free(cx);
    return 0;
}
