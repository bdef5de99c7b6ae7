/* fuzz_yaml.c - any bytes: a parse that ends in a tree of sound nodes or in a message, and gives all memory back. */
#include "text/yaml.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok) abort();
}

static void walk(const osh_yaml *y)
{
    require(y->line >= 1 && y->column >= 1);
    if (y->kind != OSH_Y_SEQ && y->kind != OSH_Y_MAP) {
        require(y->text && !y->n);
        return;
    }
    for (size_t i = 0; i < y->n; i++) {
        walk(y->items[i]);
        if (y->kind == OSH_Y_MAP) require(osh_yaml_get(y, y->keys[i]->text) == y->items[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_ctx *cx = NULL;
    osh_yaml *y = NULL;

    require(!osh_ctx_new(&cx, 1));
    if (!osh_yaml_parse(cx, &y, (const char *)data, n, "fuzz")) walk(y);
    else require(!y && osh_error_text(cx)[0]);
    osh_yaml_free(cx, y);
    require(osh_mem_live(cx) == 0);
    osh_ctx_free(cx);
    return 0;
}
