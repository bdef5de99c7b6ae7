/* fuzz_hub.c - reads any bytes as the Hub's list of the files of a repository, and as a page of
 * rows.
 *
 * If the list or the page is refused, there must be a message. In an accepted list, each path must
 * be inside the directory, each hash must be valid, and no size may exceed the size of a disk. Each
 * row of an accepted page must become a line. */
#include "fuzz/fuzz.h"
#include "hub/pull.h"
#include "hub/rows.h"

/* Returns nonzero if a part of the path is "..". The name "a../b" has no such part. */
static int path_leaves(const char *path)
{
    size_t n = strlen(path);
    return !strcmp(path, "..") || !strncmp(path, "../", 3) || strstr(path, "/../") ||
           (n > 2 && !strcmp(path + n - 3, "/.."));
}

static osh_status put_to(osh_ctx *cx, void *user, const char *s, size_t n)
{
    return osh_buf_append(cx, user, s, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_ctx *cx = fuzz_ctx();
    osh_hub_tree t = {0};
    osh_json_walk w;
    osh_json_walk_text(cx, &w, (const char *)data, n, "list");
    if (osh_hub_tree_read(cx, &t, &w)) CHECK(*osh_error_text(cx));
    osh_json_walk_deinit(cx, &w);
    for (size_t i = 0; i < t.n; i++) {
        const osh_hub_file *f = &t.files[i];
        size_t k = strlen(f->etag);
        CHECK(f->path[0] != '/' && !strchr(f->path, '\\') && !path_leaves(f->path));
        CHECK((k == 40 || k == 64) && strspn(f->etag, "0123456789abcdef") == k);
        CHECK(f->n_bytes >= 0 && f->n_bytes <= (int64_t)1 << 50);
        osh_hub_is_side_file(f->path);
    }
    osh_hub_tree_deinit(cx, &t);
    osh_error_clear(cx);
    osh_hub_rows rows = {.id = "a/b", .splits = "train", .text = n % 3 == 1 ? "<{text}>" : NULL,
                         .chat = n % 3 == 2 ? "messages" : NULL, .system_first = true};
    osh_buf lines;
    osh_hub_page page = {0};
    int64_t n_lines = 0;
    osh_buf_init(&lines, 0);
    osh_json_walk_text(cx, &w, (const char *)data, n, "rows");
    osh_status rc = osh_hub_page_read(cx, &page, &w, &rows, put_to, &lines);
    osh_json_walk_deinit(cx, &w);
    if (rc) {
        CHECK(*osh_error_text(cx));
    } else {
        for (size_t i = 0; i < lines.len; i++) n_lines += lines.data[i] == '\n';
        CHECK(n_lines == page.n);
    }
    osh_buf_deinit(cx, &lines);
    fuzz_ctx_free(cx);
    return 0;
}
