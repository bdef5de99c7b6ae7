/* test_folder.c - tests a directory of data files. The program reads the files in the order of
 * their names, as one file. */
#include "dir_fixture.h"
#include "data/dataset.h"
#include "data/folder.h"
#include "torture.h"

#include <stdio.h>
#include <zlib.h>

static void put_gz(fixture *f, const char *name, const char *text)
{
    unsigned char packed[500];
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)text, .avail_in = (unsigned)strlen(text),
                  .next_out = packed,
                  .avail_out = sizeof packed};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    put(f, name, packed, z.total_out);
    deflateEnd(&z);
}

static osh_status load(osh_ctx *cx, void *user)
{
    osh_dataset d;
    const osh_dataset_options opt = {
        .path = user, .max_seq_length = 5, .batch_size = 1, .n_vocab = 99};
    osh_status rc = osh_dataset_load(cx, &d, NULL, &opt);
    osh_dataset_deinit(cx, &d);
    return rc;
}

static osh_status load_text(osh_ctx *cx, void *user)
{
    osh_dataset d;
    osh_tokenizer *tok = NULL; // own
    const osh_dataset_options opt = {
        .path = user, .max_seq_length = 5, .batch_size = 1, .n_vocab = 99};
    osh_status rc = osh_tokenizer_open(cx, &tok, OSH_SOURCE_DIR "/tests/golden/dataset/letters");
    if (!rc) rc = osh_dataset_load(cx, &d, tok, &opt);
    if (!rc) osh_dataset_deinit(cx, &d);
    osh_tokenizer_close(cx, tok);
    return rc;
}

static void gives(fixture *f, const char *path, const char *wanted)
{
    osh_dataset d;
    char found[200] = "";
    const osh_dataset_options opt = {
        .path = path, .max_seq_length = 5, .batch_size = 1, .n_vocab = 99};
    assert_ok(f->cx, osh_dataset_load(f->cx, &d, NULL, &opt));
    for (int64_t i = 0; i < d.offsets[d.n]; i++)
        snprintf(found + strlen(found), 9, "%s%d", i ? " " : "", d.ids[i]);
    assert_string_equal(found, wanted);
    osh_dataset_deinit(f->cx, &d);
}

static void test_files(void **state)
{
    fixture *f = *state;
    put_text(f, "b.jsonl", "{\"input_ids\": [3]}"); // the file has no newline at its end
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
    assert_fails(f->cx, OSH_E_USAGE, load(f->cx, f->dir),
                 "has both .jsonl and .json files, wanted one kind");
}

static osh_status load_split(osh_ctx *cx, osh_dataset *d, const char *path, const char *split)
{
    const osh_dataset_options opt = {
        .path = path, .max_seq_length = 5, .batch_size = 1, .n_vocab = 99, .split = split};
    return osh_dataset_load(cx, d, NULL, &opt);
}

static osh_status load_train(osh_ctx *cx, void *user)
{
    osh_dataset d;
    osh_status rc = load_split(cx, &d, user, "train");
    osh_dataset_deinit(cx, &d);
    return rc;
}

/* Tests a directory with files of several splits, such as a data set of the Hub. */
static void test_splits(void **state)
{
    fixture *f = *state;
    static const struct { const char *split; int first, n; } good[] = {
        {NULL, 1, 2}, {"train", 1, 2}, {"train[1:]", 2, 1}, {"test", 3, 1},
        {"test[:50%]+test", 3, 1},
    };
    osh_dataset d;
    put_text(f, "train-00000-of-00002.jsonl", "{\"input_ids\": [1]}");
    put_text(f, "train-00001-of-00002.jsonl", "{\"input_ids\": [2]}");
    gives(f, f->dir, "1 2");
    assert_ok(f->cx, load_split(f->cx, &d, f->dir, "any[1:]")); // the directory has only one split,
                                                                // so the name "any" is ignored
    assert_int_equal(d.ids[0], 2);
    osh_dataset_deinit(f->cx, &d);
    put_text(f, "test-00000-of-00001.jsonl", "{\"input_ids\": [3]}");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_ok(f->cx, load_split(f->cx, &d, f->dir, good[i].split));
        assert_true(d.n == good[i].n && d.ids[0] == good[i].first);
        osh_dataset_deinit(f->cx, &d);
    }
    assert_fails(f->cx, OSH_E_USAGE, load_split(f->cx, &d, f->dir, "val"),
                 "has files of the splits test, train, none of 'val': want --splits with one");
    assert_fails(f->cx, OSH_E_UNSUPPORTED, load_split(f->cx, &d, f->dir, "train+test[:1]"),
                 "names two splits, but only the files of one split can be read: want "
                 "--dataset twice");
    assert_true(torture(load_train, f->dir) > 10);
    put_text(f, "other.jsonl", "{\"input_ids\": [4]}"); // this file name contains no name of a
                                                        // split, so all files are read
    gives(f, f->dir, "4 3 1 2");
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

/* An error in one of several files has the name of that file, and the number of the line or row in
 * that file. */
static void test_errors_name_the_file_and_its_line(void **state)
{
    fixture *f = *state;
    // a.jsonl has no newline at its end
    put_text(f, "a.jsonl", "{\"input_ids\": [1]}\n{\"input_ids\": [2]}");
    put_text(f, "b.jsonl", "\n\n");
    put_text(f, "c.jsonl", "\n{\"input_ids\": [3]}\n{\"input_ids\": [500]}\n");
    assert_fails(f->cx, OSH_E_FORMAT, load(f->cx, f->dir), "/c.jsonl line 3");
    put_text(f, "b.jsonl", "\n{\"input_ids\": 7}\n");
    assert_fails(f->cx, OSH_E_FORMAT, load(f->cx, f->dir), "/b.jsonl line 2");
    put_text(f, "a.jsonl", "{\"input_ids\": [1]}\n{\"input_ids\": [2]]\n");
    assert_fails(f->cx, OSH_E_FORMAT, load(f->cx, f->dir), "/a.jsonl line 2");
    drop(f, "a.jsonl"), drop(f, "b.jsonl"), drop(f, "c.jsonl");
    put_text(f, "a.json", "[{\"input_ids\": [1]},\n\n\n{\"input_ids\": [2]}]");
    put_text(f, "b.json", "[{\"input_ids\": [1]}, {\"input_ids\": \"x\"}]");
    assert_fails(f->cx, OSH_E_FORMAT, load(f->cx, f->dir), "/b.json row 2");
}

/* Refuses sequences of bytes that are not UTF-8, in every format. */
static void test_sequences_that_are_no_utf8(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *name, *bytes;
        const char *holds;
    } bad[] = {
        {"x.txt", "{}\n\ncaf\xe9 b\n",
         "/x.txt: byte 0xE9 in line 3, at byte 7 of the text, is not UTF-8"},
        {"x.txt", "caf\xe9", ": byte 0xE9 in line 1, at byte 3"}, // the file ends within a
                                                                  // character
        {"x.txt", "\xef\xbb\xbf\n\x80", ": byte 0x80 in line 2, at byte 4"},
        {"x.txt", "\xed\xa0\x80", ": byte 0xED in line 1, at byte 0"}, // half of a surrogate pair
                                                                       // is not UTF-8
        {"x.txt", "12345678\xc0\xaf", ": byte 0xC0 in line 1, at byte 8"}, // an overlong sequence
                                                                           // is not UTF-8
        {"x.txt", "\xf4\x90\x80\x80", ": byte 0xF4 in line 1, at byte 0"}, // a code point above
                                                                           // U+10FFFF is not UTF-8
        {"x.jsonl", "{\"text\": \"caf\xe9\"}\n", "/x.jsonl: byte 0xE9 in line 1, at byte 13"},
        {"x.json", "[{\"text\":\n\"caf\xe9\"}]", "/x.json: byte 0xE9 in line 2, at byte 14"},
        {"x.csv", "text,b\na,\xfc\n", "/x.csv: byte 0xFC in line 2, at byte 9"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text(f, bad[i].name, bad[i].bytes);
        assert_fails(f->cx, OSH_E_FORMAT, load_text(f->cx, f->dir), bad[i].holds);
        drop(f, bad[i].name);
    }
}

/* Text must be UTF-8, with or without a byte order mark, in every format, compressed or not. */
static void test_bytes_that_are_no_utf8(void **state)
{
    fixture *f = *state;
    static const struct { const char *bytes; size_t n; const char *holds; } bad[] = {
        {"\n\n\n\n\0d", 6, ": a NUL in line 5, at byte 4 of the text: want text in UTF-8"},
        {"\0", 1, ": a NUL in line 1, at byte 0"},
        {"a\0\n\0", 4, ": a NUL in line 1, at byte 1"}, // UTF-16 without a byte order mark
        {"\xff\xfe" "a\0", 4, ": begins with the byte order mark of UTF-16"},
        {"\xfe\xff\0a", 4, ": begins with the byte order mark of UTF-16"},
        {"\xff\xfe", 2, ": begins with the byte order mark of UTF-16"},
        {"\xff\xfe\0\0a\0\0\0", 8, ": begins with the byte order mark of UTF-32"},
        {"\0\0\xfe\xff\0\0\0a", 8, ": begins with the byte order mark of UTF-32"},
    };
    static const char *const names[] = {"x.txt", "x.jsonl", "x.json", "x.csv"};
    static const char *const good[] = {NULL, "\xef\xbb\xbf{\"input_ids\": [1, 2]}\n",
                                       "\xef\xbb\xbf[{\"input_ids\": [1, 2]}]"};
    char wanted[200];
    for (size_t k = 0; k < 4; k++) {
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            put(f, names[k], bad[i].bytes, bad[i].n);
            snprintf(wanted, sizeof wanted, "/%s%s", names[k], bad[i].holds);
            assert_fails(f->cx, OSH_E_FORMAT, load_text(f->cx, f->dir), wanted);
        }
        drop(f, names[k]);
    }
    for (size_t k = 1; k < 3; k++) {
        put_text(f, names[k], good[k]);
        gives(f, f->dir, "1 2");
        drop(f, names[k]);
    }
    put_text(f, "a.jsonl", good[1]),
        put_text(f, "b.jsonl", good[1]); // both files begin with a byte order mark
    gives(f, f->dir, "1 2 1 2");
    put_text(f, "b.jsonl", "{\"input_ids\": [1]}\n\xef\xbb\xbf{\"input_ids\": [1]}\n");
    assert_fails(f->cx, OSH_E_FORMAT, load(f->cx, f->dir), "/b.jsonl line 2");
}

static void test_refused(void **state)
{
    fixture *f = *state;
    assert_fails(f->cx, OSH_E_USAGE, load(f->cx, f->dir),
                 "has no .parquet, .jsonl, .json, .csv or .txt file");
    put_text(f, "x.md", "");
    assert_fails(f->cx, OSH_E_USAGE, load(f->cx, f->dir),
                 "has no .parquet, .jsonl, .json, .csv or .txt file");
    put_text(f, "data-0.arrow", ""), put_text(f, "state.json", "{}");
    assert_fails(f->cx, OSH_E_UNSUPPORTED, load(f->cx, f->dir),
                 "data-0.arrow: Arrow files are not supported: python3 -c");
    assert_fails(f->cx, OSH_E_IO, load(f->cx, (void *)(uintptr_t) "x.parquet"), "x.parquet");
    assert_fails(f->cx, OSH_E_USAGE, load(f->cx, (void *)(uintptr_t) "x.parquet.gz"),
                 "x.parquet.gz: unknown kind of dataset, wanted .jsonl");
    assert_fails(f->cx, OSH_E_USAGE, load(f->cx, (void *)(uintptr_t) "x.xml"),
                 "x.xml: unknown kind of dataset");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_splits, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_json, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_errors_name_the_file_and_its_line, setup_dir,
                                        teardown_dir),
        cmocka_unit_test_setup_teardown(test_bytes_that_are_no_utf8, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_sequences_that_are_no_utf8, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_refused, setup_dir, teardown_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
