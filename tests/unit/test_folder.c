/* test_folder.c - a directory of data files is read as one file, in the order of their names. */
#include "dir_fixture.h"
#include "data/dataset.h"
#include "data/folder.h"
#include "torture.h"

#include <stdio.h>
#include <zlib.h>

static void put_gz(fixture *f, const char *name, const char *text)
{
    unsigned char packed[500];
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)text, .avail_in = (unsigned)strlen(text), .next_out = packed,
                  .avail_out = sizeof packed};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    put(f, name, packed, z.total_out);
    deflateEnd(&z);
}

static osh_status load(osh_ctx *cx, void *user)
{
    osh_dataset d;
    const osh_dataset_options opt = {.path = user, .max_seq_length = 5, .batch_size = 1, .n_vocab = 99};
    osh_status rc = osh_dataset_load(cx, &d, NULL, &opt);
    osh_dataset_deinit(cx, &d);
    return rc;
}

static void gives(fixture *f, const char *path, const char *wanted)
{
    osh_dataset d;
    char found[200] = "";
    const osh_dataset_options opt = {.path = path, .max_seq_length = 5, .batch_size = 1, .n_vocab = 99};
    assert_ok(f->cx, osh_dataset_load(f->cx, &d, NULL, &opt));
    for (int64_t i = 0; i < d.offsets[d.n]; i++) snprintf(found + strlen(found), 9, "%s%d", i ? " " : "", d.ids[i]);
    assert_string_equal(found, wanted);
    osh_dataset_deinit(f->cx, &d);
}

static void test_files(void **state)
{
    fixture *f = *state;
    put_text(f, "b.jsonl", "{\"input_ids\": [3]}"); // no newline at its end
    put_text(f, "c.jsonl", "{\"input_ids\": [4]}\n\n");
    put_text(f, "e.jsonl", "");
    put_gz(f, "a.jsonl.gz", "{\"input_ids\": [1]}\n{\"input_ids\": [2]}");
    put_text(f, "README.md", "no data");
    put_text(f, ".hidden.json", "no data");
    gives(f, f->dir, "1 2 3 4");
    assert_true(torture(load, f->dir) > 10);
    put_text(f, "d.jsonl", "{\"input_ids\": [5]\n");
    assert_fails(f->cx, OSH_E_FORMAT, load(f->cx, f->dir), "found no ',' or '}' in an object");
    drop(f, "d.jsonl");
    put_text(f, "d.json", "[{\"input_ids\": [5]}]");
    assert_fails(f->cx, OSH_E_USAGE, load(f->cx, f->dir), "has both .jsonl and .json files, wanted one kind");
}

static void test_json(void **state)
{
    fixture *f = *state;
    put_text(f, "2.json", "[{\"input_ids\": [2]}]");
    put_gz(f, "1.json.gz", "[{\"input_ids\": [1]}, {\"input_ids\": [7]}]");
    gives(f, f->dir, "1 7 2");
    put_text(f, "3.json", "[{\"input_ids\": [3]}");
    assert_fails(f->cx, OSH_E_FORMAT, load(f->cx, f->dir), "3.json");
}

static void test_refused(void **state)
{
    fixture *f = *state;
    assert_fails(f->cx, OSH_E_USAGE, load(f->cx, f->dir), "has no .jsonl, .json, .csv or .txt file");
    put_text(f, "x.md", "");
    assert_fails(f->cx, OSH_E_USAGE, load(f->cx, f->dir), "has no .jsonl, .json, .csv or .txt file");
    put_text(f, "data-0.arrow", ""), put_text(f, "state.json", "{}");
    assert_fails(f->cx, OSH_E_UNSUPPORTED, load(f->cx, f->dir), "data-0.arrow: rows in columns are not read");
    assert_fails(f->cx, OSH_E_UNSUPPORTED, load(f->cx, (void *)(uintptr_t)"x.parquet"), "load_dataset('parquet'");
    assert_fails(f->cx, OSH_E_USAGE, load(f->cx, (void *)(uintptr_t)"x.xml"), "x.xml: unknown kind of dataset");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_json, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_refused, setup_dir, teardown_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
