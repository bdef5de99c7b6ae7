/* test_parquet_golden.c - compares the rows of Parquet files with the rows that pyarrow reads
 * (gen.py). Files with a fault must be refused with a message that names the fault. */
#include <stdio.h>

#include "data/lines.h"
#include "data/shape.h"
#include "text/json.h"
#include "unit/dir_fixture.h"
#include "torture.h"

#define HERE OSH_SOURCE_DIR "/tests/golden/parquet/"

/* Reads all rows of a file. Compares each row with its row in `wanted`. If `wanted` is NULL,
 * compares nothing. */
static osh_status rows_read(osh_ctx *cx, const char *path, const char *column, const cJSON *wanted)
{
    osh_status rc = OSH_OK;
    osh_lines *l = NULL; // own
    const char *text;
    size_t n = 0;
    bool any = true, end = false;
    const cJSON after = {0}; // stands for the end of the list `wanted`
    OSH_TRY(osh_lines_open_rows(cx, &l, path, column, NULL));
    for (;;) {
        OSH_TRY(osh_lines_begin(cx, l, &any));
        if (!any) break;
        do OSH_TRY(osh_lines_more(cx, l, 0, &text, &n, &end));
        while (!end);
        if (!wanted) continue;
        assert_true(wanted != &after); // `wanted` must have another row
        cJSON *row = cJSON_ParseWithLength(text, n);
        if (!row || !cJSON_Compare(row, wanted, true)) {
            char *want = cJSON_PrintUnformatted(wanted);
            fail_msg("%s: gave\n%.*s\nwanted\n%s", path, (int)n, text, want);
        }
        cJSON_Delete(row);
        wanted = wanted->next ? wanted->next : &after;
    }
    assert_true(!wanted || wanted == &after); // every row that pyarrow reads was compared
done:
    osh_lines_close(cx, l);
    return rc;
}

static void test_rows(void **state)
{
    fixture *f = *state;
    char *text = NULL, path[512], *save = NULL;
    size_t n = 0;
    int n_files = 0, n_rows = 0;
    assert_ok(f->cx, osh_file_read_all(f->cx, &text, &n, HERE "rows.jsonl", 1 << 20));
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        cJSON *o = cJSON_Parse(line), *rows = cJSON_GetObjectItem(o, "rows");
        assert_non_null(rows);
        snprintf(path, sizeof path, HERE "%s.parquet",
                 cJSON_GetObjectItem(o, "file")->valuestring);
        assert_ok(f->cx, rows_read(f->cx, path, osh_all_columns, rows->child));
        n_files++, n_rows += cJSON_GetArraySize(rows);
        cJSON_Delete(o);
    }
    assert_true(n_files >= 7 && n_rows > 100);
    osh_free(f->cx, text);
}

static osh_status read_talks(osh_ctx *cx, void *user)
{
    return rows_read(cx, HERE "talks_snappy.parquet", user, NULL);
}

static osh_status read_prefixes(osh_ctx *cx, void *user)
{
    return rows_read(cx, HERE "texts_delta.parquet", user, NULL);
}

static void test_torture(void **state)
{
    (void)state;
    assert_true(torture(read_talks, NULL) > 20);
    assert_true(torture(read_prefixes, (void *)(uintptr_t)osh_all_columns) > 20);
}

/* A fault in a copy of a file. First, n bytes at offset `at` are replaced; a negative `at` counts
 * from the end of the file. Then the copy is cut to `size` bytes; if `size` is 0, it is not cut.
 * The error must contain `says`. */
typedef struct fault {
    const char *file;
    long at;
    const char *bytes;
    size_t n, size;
    const char *says;
} fault;

static void fault_check(fixture *f, const fault *w)
{
    char *text = NULL, path[512], *copy;
    size_t n = 0;
    snprintf(path, sizeof path, HERE "%s.parquet", w->file);
    assert_ok(f->cx, osh_file_read_all(f->cx, &text, &n, path, 1 << 20));
    memcpy(text + (w->at < 0 ? (long)n + w->at : w->at), w->bytes, w->n);
    put(f, "x.parquet", text, w->size ? w->size : n);
    copy = osh_path_join(f->cx, f->dir, "x.parquet");
    osh_status rc = rows_read(f->cx, copy, osh_all_columns, NULL);
    if (!rc || !strstr(osh_error_text(f->cx), w->says) || !strstr(osh_error_text(f->cx), copy))
        fail_msg("%s at %ld: %d '%s', wanted '%s'", w->file, w->at, rc, osh_error_text(f->cx),
                 w->says);
    osh_error_clear(f->cx);
    osh_free(f->cx, copy);
    osh_free(f->cx, text);
}

static void test_faults(void **state)
{
    fixture *f = *state;
    static const fault faults[] = {
        {"texts_delta", 0, "PAR2", 4, 0, "want PAR1 at the beginning and at the end"},
        {"texts_delta", 0, "", 0, 700, "want PAR1 at the beginning and at the end"},
        {"texts_delta", 0, "", 0, 9, "9 bytes are not a Parquet file"},
        {"texts_delta", -4, "PARE", 4, 0, "the footer is encrypted"},
        {"texts_delta", -8, "\xff\xff\xff\x7f", 4, 0, "a footer of 2147483647 bytes, want at most"},
        {"texts_delta", -8, "\x10\0\0", 4, 0, "x.parquet"}, // the changed length says that the
                                                            // footer begins in the middle of the
                                                            // real footer
        {"texts_delta", 60, "\xff", 1, 0, "column 'text': the checksum of a page differs"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) fault_check(f, &faults[i]);
}

/* Replaces a byte of the footer. The byte is a codec or a number of rows. */
static void test_footer(void **state)
{
    fixture *f = *state;
    char *text = NULL;
    size_t n = 0, found = 0;
    static const char text_meta[] = "\x19\x18\x04text\x15"; // bytes of the footer: path_in_schema
                                                            // and the key of the codec
    assert_ok(f->cx, osh_file_read_all(f->cx, &text, &n, HERE "texts_gzip.parquet", 1 << 20));
    for (size_t i = 0; i + sizeof text_meta < n && !found; i++)
        if (!memcmp(text + i, text_meta, sizeof text_meta - 1)) found = i + sizeof text_meta - 1;
    assert_true(found && text[found] == 4); // 4 is the zigzag encoding of 2, the number of gzip
    fault_check(f, &(fault){"texts_gzip", (long)found, "\x0a", 1, 0,
                            "is compressed with LZ4, want Snappy"});
    fault_check(f, &(fault){"texts_gzip", (long)found, "\x02", 1, 0, "not valid Snappy"});
    fault_check(f, &(fault){"texts_gzip", (long)found, "\x0c", 1, 0, "not valid zstd"});
    fault_check(
        f, &(fault){"texts_gzip", (long)found, "\x00", 1, 0, "its size differs from the page"});
    osh_free(f->cx, text);
}

/* Only the columns that a sample needs are decoded; other columns are null. */
static void test_columns(void **state)
{
    fixture *f = *state;
    osh_lines *l = NULL;
    const char *text;
    size_t n;
    bool any, end;
    assert_ok(f->cx, osh_lines_open_rows(f->cx, &l, HERE "texts_gzip.parquet", NULL, NULL));
    assert_ok(f->cx, osh_lines_begin(f->cx, l, &any));
    assert_ok(f->cx, osh_lines_more(f->cx, l, 0, &text, &n, &end));
    assert_true(end && n == 22 && !memcmp(text, "{\"text\":null,\"n\":null}", n));
    assert_string_equal(osh_lines_place(l).what, "row");
    osh_lines_close(f->cx, l);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup_dir, teardown_dir)
    const struct CMUnitTest tests[] = {T(test_rows), T(test_torture), T(test_faults),
                                       T(test_footer), T(test_columns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
