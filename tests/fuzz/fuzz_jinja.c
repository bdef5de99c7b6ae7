/* fuzz_jinja.c - reads any bytes as a template, and renders it if it is accepted.
 *
 * Reading and rendering must succeed, or fail with a message. A second time they must give the same
 * result. They must respect their limits and free all memory. */
#include "fuzz/fuzz.h"
#include "chat/jinja.h"

static const char row[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \" h\\u00e9 \\\"q\\\"\\n\"}, {\"role\": "
    "\"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", "
    "\"arguments\": {\"a\": [1, 2.5, true]}}}]}], \"tools\": null, \"bos_token\": \"<s>\"}";

static osh_status template_render(osh_ctx *cx, const osh_jinja *t, osh_buf *out)
{
    osh_jinja_vars vars = {.json = row, .n_json = sizeof row - 1, .max_steps = 20000};
    osh_buf_init(out, 0);
    osh_status rc = osh_jinja_render(cx, t, out, &vars);
    CHECK(rc == OSH_OK || rc == OSH_E_FORMAT || rc == OSH_E_UNSUPPORTED);
    CHECK(rc == OSH_OK || strstr(osh_error_text(cx), "template"));
    osh_error_clear(cx);
    CHECK(out->len < 8u << 20);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_ctx *cx = fuzz_ctx();
    osh_jinja *t = NULL;
    osh_buf one, two;

    if (!osh_jinja_new(cx, &t, (const char *)data, n, "template")) {
        osh_status rc = template_render(cx, t, &one);
        CHECK(template_render(cx, t, &two) == rc);
        CHECK(one.len == two.len && (!one.len || !memcmp(one.data, two.data, one.len)));
        osh_buf_deinit(cx, &one);
        osh_buf_deinit(cx, &two);
    } else {
        CHECK(strstr(osh_error_text(cx), "template"));
    }
    osh_jinja_free(cx, t);
    fuzz_ctx_free(cx);
    return 0;
}
