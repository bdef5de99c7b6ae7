/* fuzz_template.c - reads any bytes as a graph template for a small real checkpoint, or as the
 * changes of an embedded template.
 *
 * The result must be a graph that can be cut and printed, or an error with a message. All memory
 * must be freed. */
#include "fuzz/fuzz.h"
#include "golden/models/tiny.h"
#include "graph/template.h"

#include <unistd.h>

static osh_ctx *cx;        // own, like `ck`; freed by the end of the process
static osh_checkpoint *ck; // the model llama_tied

static void open_once(void)
{
    char dir[] = "template-XXXXXX";
    tiny_case t;
    if (cx) return;
    if (osh_ctx_new(&cx, 1) || !mkdtemp(dir)) abort();
    tiny_open(cx, &t, "llama_tied");
    tiny_write(cx, &t, dir, OSH_F32);
    tiny_check(cx, osh_checkpoint_open(cx, &ck, dir));
    tiny_check(cx, osh_dir_remove(cx, dir)); // the shard is open, so it can still be read without
                                             // the directory
    tiny_close(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_template *t = NULL;
    osh_graph *g = NULL;
    osh_partition *p = NULL;
    char *dot = NULL;
    open_once();
    size_t before = osh_mem_live(cx);
    osh_status rc = osh_template_parse(cx, &t, "fuzz.json", (const char *)data, n);
    if (!rc) rc = osh_template_complete(cx, t, NULL);
    if (!rc) rc = osh_graph_from_template(cx, &g, ck, t, NULL);
    if (!rc) rc = osh_partition_new(cx, &p, g, NULL, 0, 1);
    if (!rc) rc = osh_graph_dot(cx, &dot, g, p);
    if (rc && !*osh_error_text(cx)) abort(); // an error must have a message
    osh_free(cx, dot);
    osh_partition_free(cx, p);
    osh_graph_free(cx, g);
    osh_template_free(cx, t);
    osh_error_clear(cx);
    if (osh_mem_live(cx) != before) abort();
    return 0;
}
