/* test_hub_pull.c - tests the steps of a download: hashes, addresses, headers, the list of
 * files. */
#include "dir_fixture.h"
#include "hub/pull.h"
#include "hub/ranges.h"
#include "hub/rows.h"
#include "hub/sha.h"
#include "torture.h"

#include <stdio.h>

static osh_status sha_once(osh_ctx *cx, void *user)
{
    osh_sha *s = NULL;
    char hex[65];
    (void)user;
    osh_status rc = osh_sha_new(cx, &s, 256);
    if (!rc) osh_sha_feed(s, "abc", 3), rc = osh_sha_end(cx, s, hex);
    osh_sha_free(cx, s);
    return rc;
}

static void test_sha(void **state)
{
    fixture *f = *state;
    static const struct { int n; const char *text, *sha1, *sha256; } rows[] = {
        // each row: number of repetitions of a text, the text, the two hashes of the repeated text
        {1, "", "da39a3ee5e6b4b0d3255bfef95601890afd80709",
         "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d",
         "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {1, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {10000,
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaa",
         "34aa973cd4c4daa4f61eeb2bdbad27316534016f",
         "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int cut = 0; cut < 3; cut++) {
            osh_sha *a = NULL, *b = NULL;
            char hex[65];
            assert_ok(f->cx, osh_sha_new(f->cx, &a, 160));
            assert_ok(f->cx, osh_sha_new(f->cx, &b, 256));
            for (int k = 0; k < rows[i].n; k++) {
                size_t n = strlen(rows[i].text), at = n * (size_t)cut / 2;
                osh_sha_feed(a, rows[i].text, at), osh_sha_feed(a, rows[i].text + at, n - at);
                osh_sha_feed(b, rows[i].text, at), osh_sha_feed(b, rows[i].text + at, n - at);
            }
            assert_ok(f->cx, osh_sha_end(f->cx, a, hex));
            assert_string_equal(hex, rows[i].sha1);
            assert_ok(f->cx, osh_sha_end(f->cx, b, hex));
            assert_string_equal(hex, rows[i].sha256);
            osh_sha_free(f->cx, a);
            osh_sha_free(f->cx, b);
        }
    assert_true(torture(sha_once, NULL) >= 1);
}

/* Threads take and fill ranges of a file in any order, and the process is killed at any point. Each
 * byte must be requested exactly once. */
static void test_ranges(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 2 * OSH_LEAST_PART - 1, 2 * OSH_LEAST_PART, 5 * OSH_LEAST_PART + 7,
                             (int64_t)1 << 40};
    char text[OSH_RANGES_BYTES];
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        osh_ranges r;
        int64_t came = sizes[i] / 3, n = sizes[i];
        int at_work = 0, most = 0, busy[OSH_MOST_PARTS];
        osh_ranges_init(&r, n, came);
        while (osh_ranges_done(&r) < n) {
            int part = at_work < 8 ? osh_ranges_take(&r) : -1;
            if (part >= 0) busy[at_work++] = part;
            if (at_work > most) most = at_work;
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            int who = (int)(seed >> 33) % at_work;
            osh_part *p = &r.parts[busy[who]];
            int64_t left = p->end - p->at, step = (seed >> 20) % 4 ? left / 7 + 1 : left;
            p->at += step, came += step;
            if (p->at == p->end) p->busy = false, busy[who] = busy[--at_work];
            assert_int_equal(osh_ranges_done(&r), came);
            if ((seed >> 40) % 32) continue;
            /* The process is killed and started again. */
            assert_int_equal(osh_ranges_write(text, &r), OSH_RANGES_BYTES);
            assert_true(osh_ranges_read(&r, text, sizeof text, n));
            assert_int_equal(osh_ranges_done(&r), came);
            at_work = 0;
        }
        assert_int_equal(came, n);
        assert_true(n < 2 * OSH_LEAST_PART ? most == 1 : n < (int64_t)1 << 40 || most > 3);
        assert_true(r.n <= OSH_MOST_PARTS);
    }
    const int64_t whole = 100;
    const int64_t bad[][6] = {{99, 1, 0, 99},
                              {100, 0},
                              {100, 65},
                              {100, 1, -1, 100},
                              {100, 1, 0, 99},
                              {100, 1, 101, 100},
                              {100, 2, 0, 50, 49, 100},
                              {100, 2, 0, 50, 60, 90},
                              {100, -1, 0, 100}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        osh_ranges r;
        memset(text, 0, sizeof text);
        memcpy(text, bad[i], sizeof bad[i]);
        assert_false(osh_ranges_read(&r, text, sizeof text, whole));
    }
    assert_false(osh_ranges_read(&(osh_ranges){0}, text, 5, whole));
}

static void test_addresses(void **state)
{
    fixture *f = *state;
    assert_true(osh_http_same_host("https://hf.co/a", "https://HF.co"));
    assert_true(osh_http_same_host("http://h:80/a?b", "https://h:80#c"));
    static const char *const others[] = {"https://cdn.hf.co/a",
                                         "https://hf.co.evil/a",
                                         "https://hf.co:444/",
                                         "https://evil/hf.co",
                                         "ftp://hf.co/",
                                         "",
                                         "https://"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(osh_http_same_host(others[i], "https://hf.co"));
    static const char *const no[] = {
        "https://a@b/", "file:///etc/passwd", "https:///a",   "http://:80/",
        "https://a b/", "https://a\\b",       "https://a/\n", "//a"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_false(osh_http_is_url(no[i]));
    assert_true(osh_http_is_url("HTTPS://a:1/b?c=d@e"));
    osh_buf b;
    osh_buf_init(&b, 0);
    assert_ok(f->cx, osh_http_encode(f->cx, &b, "refs/pr/1", ""));
    assert_ok(f->cx, osh_http_encode(f->cx, &b, "|a b/\303\251?#%.json", "/"));
    assert_string_equal(b.data, "refs%2Fpr%2F1%7Ca%20b/%C3%A9%3F%23%25.json");
    osh_buf_deinit(f->cx, &b);
}

static int64_t wait_of(osh_ctx *cx, const char *headers)
{
    osh_http_reply r = {.status = 429};
    assert_ok(cx, osh_buf_printf(cx, &r.headers, "HTTP/1.1 429 x\r\n%s\r\n", headers));
    int64_t s = osh_http_wait(&r);
    osh_http_reply_deinit(cx, &r);
    return s;
}

static void test_headers(void **state)
{
    fixture *f = *state;
    osh_http_reply r = {0};
    size_t n;
    assert_ok(f->cx,
              osh_buf_printf(
                  f->cx, &r.headers,
                  "HTTP/1.1 200 OK\r\nX-Error-Code:  GatedRepo \r\nx-error: 1\r\nLast:\r\n\r\n"));
    assert_true(osh_http_header_is(&r, "x-error-code", "GatedRepo"));
    assert_false(osh_http_header_is(&r, "X-Error", "GatedRepo"));
    assert_true(osh_http_header_is(&r, "last", ""));
    osh_http_header(&r, "Error", &n);
    assert_int_equal(n, 0);
    osh_http_reply_deinit(f->cx, &r);
    osh_http_header(&r, "Error", &n); // osh_http_reply_deinit has emptied the reply
    assert_int_equal(n, 0);
    assert_int_equal(wait_of(f->cx, "Retry-After: 7\r\n"), 8);
    assert_int_equal(wait_of(f->cx, "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\n"), -1);
    assert_int_equal(wait_of(f->cx, "RateLimit: \"resolvers\";r=0;t=55\r\n"), 56);
    assert_int_equal(wait_of(f->cx, "RateLimit: \"resolvers\";r=3;t=55\r\n"), -1);
    assert_int_equal(wait_of(f->cx, "Retry-After: 99999999999999999999\r\n"), -1);
    assert_int_equal(wait_of(f->cx, ""), -1);
}

#define SHA1 "0123456789012345678901234567890123456789"
#define SHA256 "0123456789012345678901234567890101234567890123456789012345678901"
#define LIST                                                                                       \
    "[{\"type\": \"directory\", \"path\": \"a\", \"oid\": \"x\"}, "                                \
    "{\"type\": \"file\", \"path\": \"additional_chat_templates/b.jinja\", \"oid\": \"" SHA1       \
    "\", \"size\": 7}, "                                                                           \
    "{\"type\": \"file\", \"path\": \"x/w.bin\", \"oid\": \"" SHA1 "\", \"size\": 1}, "            \
    "{\"type\": \"file\", \"path\": \"x/w.safetensors\", \"oid\": \"" SHA1 "\", \"size\": 130, "   \
    "\"lfs\": {\"oid\": \"" SHA256 "\", \"size\": 5000000000, \"pointerSize\": 130}}]"

static osh_status tree_read(osh_ctx *cx, osh_hub_tree *t, const char *text)
{
    osh_json_walk w;
    osh_status rc = osh_json_walk_text(cx, &w, text, strlen(text), "list");
    if (!rc) rc = osh_hub_tree_read(cx, t, &w);
    osh_json_walk_deinit(cx, &w);
    return rc;
}

static osh_status read_once(osh_ctx *cx, void *user)
{
    osh_hub_tree t = {0};
    osh_status rc = tree_read(cx, &t, user);
    if (!rc && t.n != 2) rc = OSH_E_INTERNAL;
    osh_hub_tree_deinit(cx, &t);
    return rc;
}

static void test_tree(void **state)
{
    fixture *f = *state;
    osh_hub_tree t = {0};
    assert_ok(f->cx, tree_read(f->cx, &t, LIST));
    assert_string_equal(osh_hub_tree_find(&t, "additional_chat_templates/b.jinja")->etag, SHA1);
    assert_string_equal(osh_hub_tree_find(&t, "x/w.safetensors")->etag,
                        SHA256); // the result is the hash of the file, not of the LFS pointer
    assert_int_equal(osh_hub_tree_find(&t, "x/w.safetensors")->n_bytes, 5000000000);
    assert_null(osh_hub_tree_find(&t, "a"));
    assert_null(osh_hub_tree_find(&t, "x/w.bin")); // a .bin file, which is not downloaded
    assert_true(t.has_pickles);
    osh_hub_tree_deinit(f->cx, &t);
    assert_true(torture(read_once, LIST) > 2);
    static const char *const bad[][2] = {
        {"{}", "wanted a list"},
        {"[1]", "wanted a list"},
        {"[", "list"},
        {"[{\"type\": \"file\", \"oid\": \"" SHA1 "\", \"size\": 7}]",
         "'' is not a valid file name"},
        {"[{\"type\": \"file\", \"path\": \"a/../b\", \"oid\": \"" SHA1 "\", \"size\": 7}]",
         "not a valid file name"},
        {"[{\"type\": \"file\", \"path\": \"a\", \"oid\": \"" SHA1 "\", \"size\": -1}]",
         "'size' is -1, wanted a whole number"},
        {"[{\"type\": \"file\", \"path\": \"a\", \"oid\": \"" SHA1 "\", \"size\": 4e15}]",
         "'size' is 4e15, wanted a whole number"},
        {"[{\"type\": \"file\", \"path\": \"a\", \"oid\": \"" SHA1 "\", \"size\": 1.5}]",
         "'size' is 1.5, wanted a whole number"},
        {"[{\"type\": \"file\", \"path\": \"a\", \"oid\": \"" SHA1
         "\", \"size\": 99999999999999999999}]",
         "wanted a whole number from 0 to 2^53"},
        {"[{\"type\": \"file\", \"path\": \"a\", \"oid\": \"" SHA1 "\", \"size\": \"7\"}]",
         "'size' is a string, wanted a whole number"},
        {"[{\"type\": \"file\", \"path\": \"a\", \"oid\": \"" SHA1
         "\", \"size\": 1125899906842625}]",
         "has 1125899906842625 bytes and the hash"},
        {"[{\"type\": \"file\", \"path\": \"a\", \"oid\": \"" SHA1 "\"}]", "a has no 'size'"},
        {"[{\"type\": \"file\", \"path\": \"a\", \"path\": \"b\"}]", "'path' occurs twice"},
        {"[{\"type\": \"file\", \"lfs\": {\"oid\": \"\", \"oid\": \"\"}}]", "'oid' occurs twice"},
        {"[{\"type\": \"file\", \"path\": \"a\", \"oid\": \"../../..\", \"size\": 1}]",
         "wanted one of 40"},
        {"[{\"type\": \"file\", \"path\": \"a\", \"oid\": \"" SHA1 "\", \"lfs\": {\"oid\": \"" SHA1
         "\", \"size\": 1}}]",
         "wanted one of 64"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_fails(f->cx, OSH_E_FORMAT, tree_read(f->cx, &t, bad[i][0]), bad[i][1]);
        osh_hub_tree_deinit(f->cx, &t);
    }
}

#define PAGE                                                                                       \
    "{\"rows\": [{\"row_idx\": 7, \"row\": {\"q\": \"a{q}\\n\", \"r\": \"\\u00e9\", \"n\": [1, "   \
    "2.5, null]}, "                                                                                \
    "\"truncated_cells\": []}, {\"row_idx\": 8, \"row\": {\"q\": \"\", \"r\": \"z\"}}], "          \
    "\"num_rows_total\": 9}"

static osh_status put_to(osh_ctx *cx, void *user, const char *s, size_t n)
{
    return osh_buf_append(cx, user, s, n);
}

/* Reads the rows of a reply of the Hub and appends each row to `to` as a line. Sets *n to the
 * number of rows. */
static osh_status rows_read(osh_ctx *cx, osh_buf *to, int64_t *n, osh_hub_page page,
                            const osh_hub_rows *rows, const char *text)
{
    osh_json_walk w;
    osh_status rc = osh_json_walk_text(cx, &w, text, strlen(text), "rows");
    if (!rc) rc = osh_hub_page_read(cx, &page, &w, rows, put_to, to);
    osh_json_walk_deinit(cx, &w);
    *n = page.n;
    return rc;
}

static osh_status page_once(osh_ctx *cx, void *user)
{
    osh_buf b;
    int64_t n = 0;
    osh_hub_rows rows = {.id = "a/b", .splits = "train", .text = user};
    osh_buf_init(&b, 0);
    osh_status rc = rows_read(cx, &b, &n, (osh_hub_page){.first = 7}, &rows, PAGE);
    if (!rc && n != 2) rc = OSH_E_INTERNAL;
    osh_buf_deinit(cx, &b);
    return rc;
}

static void test_rows(void **state)
{
    fixture *f = *state;
    static const struct { const char *text, *lines; } rows[] = {
        {NULL,
         "{\"q\":\"a{q}\\n\",\"r\":\"\303\251\",\"n\":[1,2.5,null]}\n{\"q\":\"\",\"r\":\"z\"}\n"},
        {"<{r}>{q}{r}", "{\"text\":\"<\303\251>a{q}\\n\303\251\"}\n{\"text\":\"<z>z\"}\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        osh_buf b;
        int64_t n = 0;
        osh_hub_rows ask = {.id = "a/b", .splits = "train", .text = rows[i].text};
        osh_buf_init(&b, 0);
        assert_ok(f->cx, rows_read(f->cx, &b, &n, (osh_hub_page){.first = 7}, &ask, PAGE));
        assert_int_equal(n, 2);
        assert_string_equal(b.data, rows[i].lines);
        osh_buf_deinit(f->cx, &b);
        assert_true(torture(page_once, (void *)(uintptr_t)rows[i].text) >= 1);
    }
    static const char *const bad[][2] = {
        {"[]", "wanted a list of rows"},
        {"{\"rows\": 1}", "wanted a list of rows"},
        {"{\"rows\": [1]}", "row 7 is not an object"},
        {"{\"rows\": [{\"row\": {}}]}", "has no 'row_idx'"},
        {"{\"rows\": [{\"row_idx\": 7, \"row\": [1]}]}", "row 7 is not an object"},
        {"{\"rows\": [{\"row_idx\": -7, \"row\": {}}]}", "'row_idx' is -7"},
        {"{\"rows\": [{\"row_idx\": 7, \"row\": {}, \"row\": {}}]}", "'row' occurs twice"},
        {"{\"rows\": [{\"row_idx\": 7, \"row\": {\"q\": \"\", \"q\": \"\"}}]}", "'q' occurs twice"},
        {"{\"rows\": [], \"rows\": []}", "'rows' occurs twice"},
        {"{\"rows\": [], \"num_rows_total\": 1.5}", "'num_rows_total' is 1.5"},
        {"{\"rows\": []} 1", "something follows"},
        {"{\"rows\": [{\"row_idx\": 8, \"row\": {}}]}", "asked for row 7, got row 8"},
        {"{\"rows\": [{\"row_idx\": 7, \"row\": {\"q\": 1}}]}",
         "row 7: the column 'q' holds no string"},
        {"{\"rows\": [{\"row_idx\": 7, \"row\": {\"q\": \"\"}, \"truncated_cells\": [\"q\"]}]}",
         "row 7 is cut off"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        osh_buf b;
        int64_t n = 0;
        osh_hub_rows ask = {.id = "a/b", .splits = "train", .text = "{q}"};
        osh_buf_init(&b, 0);
        assert_fails(f->cx, OSH_E_FORMAT,
                     rows_read(f->cx, &b, &n, (osh_hub_page){.first = 7}, &ask, bad[i][0]),
                     bad[i][1]);
        osh_buf_deinit(f->cx, &b);
    }
}

static osh_status chat_once(osh_ctx *cx, void *user)
{
    osh_buf b;
    int64_t n = 0;
    osh_hub_rows rows = {.id = "a/b", .splits = "train", .chat = "m", .system_first = true};
    osh_buf_init(&b, 0);
    osh_status rc = rows_read(cx, &b, &n, (osh_hub_page){0}, &rows, user);
    if (!rc &&
        strcmp(b.data, "{\"m\":[{\"role\":\"system\",\"content\":\"\"},{\"role\":\"user\"}]}\n"
                       "{\"m\":[{\"role\":\"system\",\"content\":\"s\"}]}\n"))
        rc = OSH_E_INTERNAL;
    osh_buf_deinit(cx, &b);
    return rc;
}

static void test_chat_rows(void **state)
{
    fixture *f = *state;
    static char page[] =
        "{\"rows\": [{\"row_idx\": 0, \"row\": {\"text\": \"x\", \"m\": [{\"role\": \"user\"}]}}, "
        "{\"row_idx\": 1, \"row\": {\"m\": [{\"role\": \"system\", \"content\": \"s\"}]}}]}";
    assert_true(torture(chat_once, page) >= 1);
    static const char *const bad[] = {"{\"text\": \"x\"}", "{\"m\": []}", "{\"m\": \"x\"}",
                                      "{\"m\": null}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"rows\": [{\"row_idx\": 0, \"row\": %s}]}", bad[i]);
        assert_fails(f->cx, OSH_E_FORMAT, chat_once(f->cx, text),
                     "row 0: the column 'm' holds no conversation");
    }
}

static void test_side_files(void **state)
{
    (void)state;
    static const char *const yes[] = {"config.json",     "chat_template.jinja",
                                      "tokenizer.model", "merges.txt",
                                      "LICENSE.md",      "additional_chat_templates/rag.jinja",
                                      "modeling_x.py",   "README.md"};
    static const char *const no[] = {"original/params.json",
                                     "consolidated.safetensors",
                                     "notes.txt",
                                     "model.bin",
                                     ".gitattributes",
                                     "additional_chat_templates/a/b.jinja",
                                     "additional_chat_templates/x.json",
                                     ".json"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) assert_true(osh_hub_is_side_file(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_false(osh_hub_is_side_file(no[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sha, setup_dir, teardown_dir),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test_setup_teardown(test_addresses, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_headers, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_tree, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_rows, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_chat_rows, setup_dir, teardown_dir),
        cmocka_unit_test(test_side_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
