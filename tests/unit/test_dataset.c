/* test_dataset.c - tests the loading of samples: file formats, selection, cuts, collators, windows,
 * and errors. */
#include "base/rng.h"
#include "data/dataset.h"
#include "unit/text_helpers.h"
#include <stdio.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

static char dir[64];
static char path[128];

static const char *place(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static const char *file_n(osh_ctx *cx, const char *name, const void *text, size_t n)
{
    assert_ok(cx, osh_file_write_all(cx, place(name), text, n));
    return path;
}

static const char *file(osh_ctx *cx, const char *name, const char *text)
{
    return file_n(cx, name, text, strlen(text));
}

/* Returns a tokenizer with one token per character (own). The ids of the letters `a` to `e` are 2
 * to 6. The ids of a space, \n and \r are 7, 8 and 9. The tokens <s> (id 0) and </s> (id 1)
 * surround a text. */
static osh_tokenizer *letters(osh_ctx *cx)
{
    osh_tokenizer *tok = NULL;
    assert_ok(cx, osh_tokenizer_open(cx, &tok, OSH_SOURCE_DIR "/tests/golden/dataset/letters"));
    return tok;
}

/* Returns the ids of all samples as text, such as "1 2 3|4 5". */
static const char *show(const osh_dataset *d)
{
    static char s[4096];
    size_t k = 0;

    s[0] = 0;
    for (int64_t i = 0; i < d->n; i++)
        for (int64_t t = d->offsets[i]; t < d->offsets[i + 1] && k < sizeof s - 20; t++)
            k += (size_t)sprintf(s + k, "%s%d", t > d->offsets[i] ? " " : i ? "|" : "", d->ids[t]);
    return s;
}

static osh_dataset_options options(void)
{
    return (osh_dataset_options){
        .path = path, .max_seq_length = 5, .batch_size = 2, .seed = 42, .n_vocab = 9};
}

static void gives(osh_ctx *cx, osh_tokenizer *tok, const osh_dataset_options *opt,
                  const char *wanted)
{
    osh_dataset d;
    assert_ok(cx, osh_dataset_load(cx, &d, tok, opt));
    assert_string_equal(show(&d), wanted);
    osh_dataset_deinit(cx, &d);
}

static void refuses(osh_ctx *cx, osh_tokenizer *tok, const osh_dataset_options *opt,
                    osh_status code, const char *holds)
{
    osh_dataset d;
    assert_fails(cx, code, holds, osh_dataset_load(cx, &d, tok, opt));
    assert_null(d.ids);
    assert_null(d.offsets);
}

#define ROWS                                                                                       \
    "{\"input_ids\": [1, 2, 3]}\n\n{\"input_ids\": [4, 5, 6, 7, 8, 1, 2]}\n  \t\r\n"               \
    "{\"input_ids\": [3, 3], \"text\": \"a\"}\r\n{\"input_ids\": [8]}"

static void test_ids(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();

    file(cx, "x.jsonl", ROWS); // ROWS has blank lines, a \r\n, and no \n at the end
    gives(cx, NULL, &opt, "1 2 3|4 5 6 7 8|3 3|8");
    opt.max_seq_length = 100;
    gives(cx, NULL, &opt, "1 2 3|4 5 6 7 8 1 2|3 3|8");
    opt.collator = "none";
    opt.max_seq_length = 1;
    gives(cx, NULL, &opt, "1|4|3|8");
}

static void test_num_samples(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();

    file(cx, "x.jsonl", ROWS "\nnot JSON");
    opt.num_samples = 2;
    gives(cx, NULL, &opt, "1 2 3|4 5 6 7 8");
    opt.num_samples = 4;
    gives(cx, NULL, &opt, "1 2 3|4 5 6 7 8|3 3|8"); // the line that is not JSON comes after the
                                                    // selected rows, so it is not read
    file(cx, "x.jsonl", ROWS);
    opt.num_samples = 512; // the file has fewer than 512 rows, so all rows are used
    gives(cx, NULL, &opt, "1 2 3|4 5 6 7 8|3 3|8");
}

static void test_attention_mask(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();

    file(cx, "x.jsonl",
         "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7], \"attention_mask\": [0, 0, 1, 1, 1, 1, 0]}\n");
    gives(cx, NULL, &opt, "3 4 5 6");
    file(cx, "x.jsonl", "{\"input_ids\": [1, 2], \"attention_mask\": [1]}\n");
    refuses(cx, NULL, &opt, OSH_E_FORMAT, "'attention_mask' is not a list of 2 numbers");
    file(cx, "x.jsonl", "{\"input_ids\": [1, 2], \"attention_mask\": [1, 2]}\n");
    refuses(cx, NULL, &opt, OSH_E_FORMAT, "'attention_mask': item 2 is not 0 or 1");
}

static void test_collators(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();

    file(cx, "x.jsonl", ROWS);
    opt.collator = "truncation";
    gives(cx, NULL, &opt, "1 2 3|4 5 6|3|8");
    opt.batch_size = 3;
    gives(cx, NULL, &opt, "1 2|4 5|3 3|8");
    opt.batch_size = 100;
    gives(cx, NULL, &opt, "1|4|3|8");
    opt.batch_size = 1;
    gives(cx, NULL, &opt, "1 2 3|4 5 6 7 8|3 3|8");
    opt.pad_to_max_length = true; // ids are not padded, as in LLM Compressor
    opt.batch_size = 3;
    gives(cx, NULL, &opt, "1 2|4 5|3 3|8");
    opt.collator = "padding"; // the padding collator neither cuts nor pads ids
    gives(cx, NULL, &opt, "1 2 3|4 5 6 7 8 1 2|3 3|8");
}

static void test_concatenate(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();

    file(cx, "x.jsonl", ROWS); // all rows together have 13 tokens
    opt.concatenate = true;
    gives(cx, NULL, &opt, "1 2 3 4 5|6 7 8 1 2");
    opt.num_samples = 1; // with concatenation, num_samples is the number of blocks
    gives(cx, NULL, &opt, "1 2 3 4 5");
    opt.num_samples = 512;
    opt.max_seq_length = 13;
    gives(cx, NULL, &opt, "1 2 3 4 5 6 7 8 1 2 3 3 8");
    opt.max_seq_length = 14;
    refuses(cx, NULL, &opt, OSH_E_FORMAT, "13 tokens, fewer than one block of 14");
    opt.collator = "truncation";
    opt.max_seq_length = 2;
    gives(cx, NULL, &opt, "1 2|3 4|5 6|7 8|1 2|3 3");
}

static void test_text(void **state)
{
    osh_ctx *cx = *state;
    osh_tokenizer *tok = letters(cx);
    osh_dataset_options opt = options();

    file(cx, "x.jsonl",
         "{\"text\": \"abc\"}\n{\"text\": \"abcdeabcde\"}\n{\"text\": \"\"}\n{\"text\": "
         "\"a\\nb\"}\n");
    gives(cx, tok, &opt, "0 2 3 4 1|0 2 3 4 1|0 1|0 2 8 3 1"); // </s> is kept when a sample is cut
    opt.max_seq_length = 1;
    gives(cx, tok, &opt, "0|0|0|0"); // with a limit of one token there is no room for </s>
    opt.max_seq_length = 50;
    gives(cx, tok, &opt, "0 2 3 4 1|0 2 3 4 5 6 2 3 4 5 6 1|0 1|0 2 8 3 1");
    opt.collator = "padding";
    opt.max_seq_length = 5;
    gives(cx, tok, &opt, "0 2 3 4 1|0 2 3 4 1|0 1|0 2 8 3 1"); // the text is cut when it is
                                                               // tokenized, so the collator has no
                                                               // effect
    opt.collator = "truncation";
    opt.batch_size = 4;
    gives(cx, tok, &opt, "0 2|0 2|0 1|0 2");
    opt.pad_to_max_length = true; // padded samples have equal lengths
    gives(cx, tok, &opt, "0 2 3 4 1|0 2 3 4 1|0 1|0 2 8 3 1");
    opt.concatenate = true; // rows are cut before they are concatenated, as in LLM Compressor
    opt.max_seq_length = 3;
    gives(cx, tok, &opt, "0 2 1|0 2 1|0 1 0");
    osh_tokenizer_close(cx, tok);
}

static void test_txt(void **state)
{
    osh_ctx *cx = *state;
    osh_tokenizer *tok = letters(cx);
    osh_dataset_options opt = options();

    file(cx, "x.txt", "ab\n\n  \n{\"c\"\r\nd e");
    opt.max_seq_length = 10;
    gives(cx, tok, &opt, "0 2 3 1|0 4 1|0 5 7 6 1"); // \r before \n belongs to the end of the line,
                                                     // so it gives no token (9)
    osh_tokenizer_close(cx, tok);
}

static void test_columns(void **state)
{
    osh_ctx *cx = *state;
    osh_tokenizer *tok = letters(cx);
    osh_dataset_options opt = options();

    file(cx, "x.jsonl", "{\"text\": \"a\", \"prompt\": \"b\", \"input_ids\": [8]}\n");
    gives(cx, tok, &opt, "8");
    opt.text_column = "text";
    gives(cx, tok, &opt, "0 2 1");
    opt.text_column = "prompt";
    gives(cx, tok, &opt, "0 3 1");
    opt.text_column = "input_ids";
    gives(cx, tok, &opt, "8");
    opt.text_column = NULL;
    file(cx, "x.jsonl", "{\"text\": \"a\"}\n\n{\"id\": 7, \"prompt\": \"b\"}\n");
    refuses(cx, tok, &opt, OSH_E_FORMAT, "no column 'text', found 'id', 'prompt'");
    refuses(cx, tok, &opt, OSH_E_FORMAT, "x.jsonl line 3");
    file(cx, "x.jsonl", "{\"input_ids\": [1]}\n{\"text\": \"a\"}\n");
    refuses(cx, tok, &opt, OSH_E_FORMAT, "no column 'input_ids', found 'text'");
    file(cx, "x.jsonl", "{}\n");
    refuses(cx, tok, &opt, OSH_E_FORMAT, "no column 'text', found none");
    file(cx, "x.jsonl", "{\"text\": 5}\n");
    refuses(cx, tok, &opt, OSH_E_FORMAT, "the column 'text' holds no string");
    file(cx, "x.jsonl", "{\"text\": \"a\"}\n");
    refuses(cx, NULL, &opt, OSH_E_USAGE, "there is no tokenizer");
    osh_tokenizer_close(cx, tok);
}

static void test_bad_rows(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();
    static const struct {
        const char *text, *holds;
    } rows[] = {
        {"{\"input_ids\": [1]}\n{\"input_ids\": [1, 9]}",
         "its token 2 is 9, wanted one of the model's 9;"},
        {"{\"input_ids\": [1]}\n{\"input_ids\": [-1]}", "is -1, wanted"},
        {"{\"input_ids\": [1]}\n{\"input_ids\": [0.5]}", "'input_ids': item 1 is not a token"},
        {"{\"input_ids\": [1]}\n{\"input_ids\": [1, \"2\"]}", "'input_ids': item 2 is not a token"},
        {"{\"input_ids\": [1]}\n{\"input_ids\": [99999999999]}",
         "'input_ids': item 1 is not a token"},
        {"{\"input_ids\": [1]}\n{\"input_ids\": 5}", "'input_ids' is not a list"},
        {"{\"input_ids\": [1]}\n{\"input_ids\": [1}", "line 1 column 17: found no ','"},
        {"{\"input_ids\": [1]}\n[1]", "not a JSON object"},
        {"{\"input_ids\": [1]}\n{\"input_ids\": [1], \"input_ids\": [1]}", "occurs twice"},
        {"{\"input_ids\": [1]}\n{\"a\": \"\\u0000\", \"input_ids\": [1]}",
         "a NUL character in a string"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        file(cx, "x.jsonl", rows[i].text);
        refuses(cx, NULL, &opt, OSH_E_FORMAT, rows[i].holds);
        refuses(cx, NULL, &opt, OSH_E_FORMAT, "x.jsonl line 2");
    }
    file(cx, "x.jsonl", "{\"input_ids\": [2147483647]}");
    opt.n_vocab = 0; // n_vocab 0: the size of the vocabulary is not known
    gives(cx, NULL, &opt, "2147483647");
}

static void test_empty(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();

    file(cx, "x.jsonl", "");
    refuses(cx, NULL, &opt, OSH_E_FORMAT, "x.jsonl: the dataset is empty");
    opt.shuffle = true;
    refuses(cx, NULL, &opt, OSH_E_FORMAT, "x.jsonl: the dataset is empty");
    opt.concatenate = true;
    refuses(cx, NULL, &opt, OSH_E_FORMAT, "x.jsonl: the dataset is empty");
    opt = options();
    file(cx, "x.jsonl", " \n\r\n\t");
    refuses(cx, NULL, &opt, OSH_E_FORMAT, "x.jsonl: the dataset is empty");
    file(cx, "x.jsonl", "{\"input_ids\": []}\n");
    refuses(cx, NULL, &opt, OSH_E_FORMAT, "no row holds a token (1 read)");
    file(cx, "x.jsonl", "{\"input_ids\": []}\n{\"input_ids\": [5]}\n{\"input_ids\": []}\n");
    gives(cx, NULL, &opt, "5"); // the empty row is skipped with a warning
    unlink(place("x.jsonl"));
    refuses(cx, NULL, &opt, OSH_E_IO, "x.jsonl");
}

static void test_bad_options(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();

    file(cx, "x.jsonl", ROWS);
    opt.max_seq_length = 0;
    refuses(cx, NULL, &opt, OSH_E_USAGE, "max_seq_length is 0");
    opt = options();
    opt.collator = "mean";
    refuses(cx, NULL, &opt, OSH_E_USAGE,
            "data_collator is 'mean', wanted none, truncation or padding");
    opt.collator = "truncation";
    opt.batch_size = 0;
    refuses(cx, NULL, &opt, OSH_E_USAGE, "batch_size is 0");
    opt = options();
    opt.num_samples = -1;
    refuses(cx, NULL, &opt, OSH_E_USAGE, "num_calibration_samples is -1");
    opt = options();
    file(cx, "x.tsv", "a\tb");
    refuses(cx, NULL, &opt, OSH_E_USAGE,
            "x.tsv: unknown kind of dataset, wanted .jsonl, .json, .csv or .txt");
    file(cx, "x.zst", "");
    refuses(cx, NULL, &opt, OSH_E_USAGE, "unknown kind of dataset");
}

static void test_json(void **state)
{
    osh_ctx *cx = *state;
    osh_tokenizer *tok = letters(cx);
    osh_dataset_options opt = options();
    static const struct { const char *text, *wanted; } good[] = {
        {"[{\"text\": \"ab\"}, {\"text\": \"c\"}]", "0 2 3 1|0 4 1"},
        {"\n[\n  {\n    \"text\":\r\n\"a\"\n  },\n {\"x\": "
         "[1, {\"y\": \"],[\\\"\"}], \"text\": \"b\"}\n]\n", "0 2 1|0 3 1"},
        {"{\"text\": \"a\"}\n\n{\"text\":\n\"b\"}\n", "0 2 1|0 3 1"},
        {"[{\"input_ids\": [1, 2]}, {\"input_ids\": [3]}]", "1 2|3"},
        {"{\"text\": \"a\"}", "0 2 1"},
    };
    static const struct { const char *text, *holds; } bad[] = {
        {"[{\"text\": \"a\"}", "ends inside the brackets"},
        {"[{\"text\": \"a\"},]", "a comma after the last row, at row 2"},
        {"[,{\"text\": \"a\"}]", "a comma without a row"},
        {"[{\"text\": \"a\"}] x", "text after the list"},
        {"[]", "the dataset is empty"},
        {"", "the dataset is empty"},
        {"\"text\"", "text that is not an object"},
        {"[1, 2]", "row 1"},
        {"[{\"text\": \"a\"}}", "'}' in place of ']' at the end of the list"},
        {"{\"text\": \"a\"}\n[1]", "a list in place of an object"},
        {"{\"text\": \"a\"}]", "a closing bracket without an opening one"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        file(cx, "x.json", good[i].text);
        gives(cx, tok, &opt, good[i].wanted);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        file(cx, "x.json", bad[i].text);
        refuses(cx, tok, &opt, OSH_E_FORMAT, bad[i].holds);
    }
    osh_tokenizer_close(cx, tok);
}

static void test_csv(void **state)
{
    osh_ctx *cx = *state;
    osh_tokenizer *tok = letters(cx);
    osh_dataset_options opt = options();
    static const struct { const char *text, *column, *wanted; } good[] = {
        {"text\na\nb\n", NULL, "0 2 1|0 3 1"},
        {"\xef\xbb\xbftext,n\r\na,1\r\n\r\nb,2", NULL, "0 2 1|0 3 1"},
        {"n,\"a \"\"b\"\"\"\n1,c\n\"2,\n3\",\"d\"\n", "a \"b\"", "0 4 1|0 5 1"},
        {"text,n\n\"a\nb\",1\n", NULL, "0 2 8 3 1"},       // token 8 is \n
        {"text,n\n\"a\r\",1\n", NULL, "0 2 9 1"},          // token 9 is \r, which is kept in a
                                                           // quoted field
        {"n,text\n1,\n2,a\n", NULL, "0 1|0 2 1"},          // an empty field is an empty text
    };
    static const struct { const char *text, *holds; } bad[] = {
        {"txt,n\na,1\n",
         "no column 'text' among txt, n; did you mean txt?: want its name as --text-column"},
        {"text,n\na\n", "record 1 has 1 fields, want the 2"},
        {"text,n\na,1\nb,2,3\n", "record 2 has 3 fields"},
        {"text\n\"a\n", "record 1 ends inside quotes"},
        {"", "no line that names the columns"},
        {"text\n", "the dataset is empty"},
        {"text,n,text\na,1,b\n", "columns 1 and 3 are both named 'text'"},
    };
    opt.n_vocab = 10;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        file(cx, "x.csv", good[i].text);
        opt.text_column = good[i].column;
        gives(cx, tok, &opt, good[i].wanted);
    }
    opt.text_column = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        file(cx, "x.csv", bad[i].text);
        refuses(cx, tok, &opt, OSH_E_FORMAT, bad[i].holds);
    }
    osh_tokenizer_close(cx, tok);
}

static size_t gzip(void *to, size_t room, const char *text)
{
    z_stream z = {.next_out = to, .avail_out = (unsigned)room,
                  .next_in = (unsigned char *)(uintptr_t)text,
                  .avail_in = (unsigned)strlen(text)};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

static void test_gzip(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();
    char packed[400];
    size_t n = gzip(packed, 200, "{\"input_ids\": [1, 2]}\n{\"input");
    size_t m = gzip(packed + n, 200, "_ids\": [3]}\n"); // appends a second gzip member
    file_n(cx, "x.jsonl.gz", packed, n + m);
    gives(cx, NULL, &opt, "1 2|3");
    opt.shuffle = true; // a shuffle reads the file several times
    gives(cx, NULL, &opt, "3|1 2");
    opt.shuffle = false;
    for (size_t cut = 0; cut < n + m; cut += 7) {
        if (cut == n) continue;
        file_n(cx, "x.jsonl.gz", packed, cut);
        refuses(cx, NULL, &opt, OSH_E_FORMAT,
                cut ? "gz: ends inside a gzip member" : "the dataset is empty");
    }
    packed[n / 2] ^= 0x55;
    file_n(cx, "x.jsonl.gz", packed, n + m);
    refuses(cx, NULL, &opt, OSH_E_FORMAT, "x.jsonl.gz");
    file(cx, "x.json.gz", "[{}]");
    refuses(cx, NULL, &opt, OSH_E_FORMAT, "not valid gzip: incorrect header check");
}

/* The shuffle is a Fisher-Yates shuffle from the last row to the first with the counter RNG. */
static void test_shuffle(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();
    char text[2000] = "", wanted[400] = "", first[400] = "";
    int order[20];
    osh_dataset d;

    for (int i = 0; i < 20; i++) {
        sprintf(text + strlen(text), "{\"input_ids\": [%d]}\n%s", i, i % 3 ? "" : "\n");
        order[i] = i;
    }
    for (uint64_t i = 19; i > 0; i--) {
        uint64_t k = osh_rng_u64(7, 1, i) % (i + 1);
        int t = order[i];
        order[i] = order[k], order[k] = t;
    }
    for (int i = 0; i < 20; i++) {
        sprintf(wanted + strlen(wanted), "%s%d", i ? "|" : "", order[i]);
        if (i == 4) strcpy(first, wanted);
    }
    file(cx, "x.jsonl", text);
    opt.n_vocab = 20, opt.shuffle = true, opt.seed = 7;
    gives(cx, NULL, &opt, wanted);
    gives(cx, NULL, &opt, wanted); // a second load gives equal samples
    opt.num_samples = 5;
    gives(cx, NULL, &opt, first);
    opt.seed = 8;
    assert_ok(cx, osh_dataset_load(cx, &d, NULL, &opt));
    assert_true(strcmp(show(&d), first) != 0);
    assert_int_equal(d.n, 5);
    osh_dataset_deinit(cx, &d);
    opt.seed = 7, opt.concatenate = true, opt.num_samples = 1;
    assert_ok(cx, osh_dataset_load(cx, &d, NULL, &opt));
    assert_int_equal(d.n, 1);
    for (int i = 0; i < 5; i++) assert_int_equal(d.ids[i], order[i]);
    osh_dataset_deinit(cx, &d);
}

/* A shuffle parses only the rows that it chooses. If a chosen row is invalid, the message has the
 * number of its line. */
static void test_shuffle_reads_what_it_chose(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();
    osh_dataset d;
    int n_bad = 0;

    file(cx, "x.jsonl", "{\"input_ids\": [1]}\n{\"input_ids\": [1]}\nbad\n{\"input_ids\": [1]}\n");
    opt.shuffle = true, opt.num_samples = 1;
    for (opt.seed = 0; opt.seed < 40; opt.seed++) {
        osh_status rc = osh_dataset_load(cx, &d, NULL, &opt);
        osh_dataset_deinit(cx, &d);
        if (!rc) continue;
        n_bad++;
        assert_non_null(strstr(osh_error_text(cx), "x.jsonl line 3"));
        osh_error_clear(cx);
    }
    assert_in_range(n_bad, 1, 25);
}

static const char *packed(osh_ctx *cx, const char *name, const char *text, size_t n_text,
                          int n_frames)
{
    size_t bound = ZSTD_compressBound(n_text) * (size_t)n_frames, n = 0;
    char *to = malloc(bound);

    for (int i = 0; i < n_frames; i++) {
        size_t from = n_text * (size_t)i / (size_t)n_frames,
               end = n_text * (size_t)(i + 1) / (size_t)n_frames;
        n += ZSTD_compress(to + n, bound - n, text + from, end - from, 3);
    }
    file_n(cx, name, to, n);
    free(to);
    return path;
}

static void test_zst(void **state)
{
    osh_ctx *cx = *state;
    osh_tokenizer *tok = letters(cx);
    osh_dataset_options opt = options();
    size_t n = 3000000;
    char *large = malloc(n + 1), *bytes = NULL;
    size_t n_bytes = 0;
    osh_dataset d;

    packed(cx, "x.jsonl.zst", ROWS, strlen(ROWS), 1);
    gives(cx, NULL, &opt, "1 2 3|4 5 6 7 8|3 3|8");
    packed(cx, "x.jsonl.zst", ROWS, strlen(ROWS), 3); // the file has three zstd frames
    gives(cx, NULL, &opt, "1 2 3|4 5 6 7 8|3 3|8");
    packed(cx, "x.txt.zst", "ab\nc\n", 5, 1);
    gives(cx, tok, &opt, "0 2 3 1|0 4 1");
    /* the lines are longer than any buffer of the reader, and the text fills many buffers */
    memset(large, 'a', n), large[n] = 0;
    large[700000] = large[700001] = large[1000000] = '\n';
    packed(cx, "x.txt.zst", large, n, 2);
    assert_ok(cx, osh_dataset_load(cx, &d, tok, &opt));
    assert_int_equal(d.n, 3);
    osh_dataset_deinit(cx, &d);
    assert_ok(cx, osh_file_read_all(cx, &bytes, &n_bytes, path, 1 << 20));
    file_n(cx, "x.txt.zst", bytes, n_bytes - 3);
    refuses(cx, tok, &opt, OSH_E_FORMAT, "ends inside a zstd frame");
    osh_free(cx, bytes);
    file(cx, "x.txt.zst", "ab\n");
    refuses(cx, tok, &opt, OSH_E_FORMAT, "x.txt.zst: ");
    file(cx, "x.txt.zst", "this is no zstd frame");
    refuses(cx, tok, &opt, OSH_E_FORMAT, "not valid zstd");
    file(cx, "x.txt.zst", "");
    refuses(cx, tok, &opt, OSH_E_FORMAT, "the dataset is empty");
    free(large);
    osh_tokenizer_close(cx, tok);
}

/* A few kilobytes of zstd can decompress to one endless line. */
static void test_line_cap(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();
    size_t n = (size_t)66 << 20;
    char *spaces = malloc(n);

    assert_non_null(spaces);
    memset(spaces, ' ', n);
    packed(cx, "x.jsonl.zst", spaces, n, 1);
    free(spaces);
    refuses(cx, NULL, &opt, OSH_E_FORMAT, "line 1 is longer than 64 MiB");
}

static void windows(osh_ctx *cx, osh_tokenizer *tok, const osh_dataset_options *opt, int64_t stride,
                    int64_t first, int64_t count, const char *wanted)
{
    osh_dataset d;
    assert_ok(
        cx, osh_dataset_load_eval(cx, &d, tok, opt, &(osh_dataset_windows){first, count, stride}));
    assert_string_equal(show(&d), wanted);
    osh_dataset_deinit(cx, &d);
}

static void test_eval_text(void **state)
{
    osh_ctx *cx = *state;
    osh_tokenizer *tok = letters(cx);
    osh_dataset_options opt = options();
    osh_dataset d;

    // the ids are 2 3 8 8 4 5 7 6 2 3 4 5, without special tokens
    file(cx, "x.txt", "ab\n\ncd eabcd");
    opt.max_seq_length = 4;
    // an evaluation ignores these options
    opt.num_samples = 1, opt.shuffle = opt.concatenate = true, opt.collator = "padding";
    windows(cx, tok, &opt, 0, 0, 0, "2 3 8 8|4 5 7 6|2 3 4 5");
    windows(cx, tok, &opt, 4, 1, 0, "4 5 7 6|2 3 4 5");
    windows(cx, tok, &opt, 4, 1, 1, "4 5 7 6");
    windows(cx, tok, &opt, 4, 2, 5, "2 3 4 5");
    // the window that begins at token 9 is incomplete and dropped
    windows(cx, tok, &opt, 3, 0, 0, "2 3 8 8|8 4 5 7|7 6 2 3");
    windows(cx, tok, &opt, 3, 1, 1, "8 4 5 7");
    windows(cx, tok, &opt, 7, 0, 0, "2 3 8 8|6 2 3 4");
    opt.max_seq_length = 5;
    windows(cx, tok, &opt, 0, 0, 0, "2 3 8 8 4|5 7 6 2 3");
    opt.max_seq_length = 12;
    windows(cx, tok, &opt, 0, 0, 0, "2 3 8 8 4 5 7 6 2 3 4 5");
#define EVAL(s, f, c) osh_dataset_load_eval(cx, &d, tok, &opt, &(osh_dataset_windows){f, c, s})
    opt.max_seq_length = 13;
    assert_fails(cx, OSH_E_FORMAT, "12 tokens, fewer than one window of 13", EVAL(0, 0, 0));
    opt.max_seq_length = 4;
    assert_fails(cx, OSH_E_USAGE, "first_window is 3, but there are 3 windows", EVAL(0, 3, 0));
    assert_fails(cx, OSH_E_USAGE, "first_window is -1", EVAL(0, -1, 0));
    assert_fails(cx, OSH_E_USAGE, "max_windows -2", EVAL(0, 0, -2));
    assert_fails(cx, OSH_E_USAGE, "stride is -1", EVAL(-1, 0, 0));
    opt.n_vocab = 8;
    assert_fails(cx, OSH_E_FORMAT, "x.txt: its token 3 is 8", EVAL(0, 0, 0));
    opt.n_vocab = 9;
    file(cx, "x.txt", "");
    assert_fails(cx, OSH_E_FORMAT, "x.txt: the dataset is empty", EVAL(0, 0, 0));
    packed(cx, "x.txt.zst", "abcde", 5, 1);
    windows(cx, tok, &opt, 0, 0, 0, "2 3 4 5");
    tok = (osh_tokenizer_close(cx, tok), NULL);
    assert_fails(cx, OSH_E_USAGE, "needs a tokenizer", EVAL(0, 0, 0));
}

static void test_eval_rows(void **state)
{
    osh_ctx *cx = *state;
    osh_tokenizer *tok = letters(cx);
    osh_dataset_options opt = options();
    osh_dataset d;

    file(cx, "x.jsonl", ROWS);
    // an evaluation ignores these options
    opt.num_samples = 1, opt.shuffle = opt.concatenate = true, opt.collator = "padding";
    windows(cx, NULL, &opt, 0, 0, 0, "1 2 3|4 5 6 7 8|3 3|8");
    windows(cx, NULL, &opt, 5, 1, 2, "4 5 6 7 8|3 3");
    windows(cx, NULL, &opt, 0, 3, 0, "8");
    windows(cx, NULL, &opt, 0, 2, INT64_MAX, "3 3|8");
    assert_fails(cx, OSH_E_USAGE, "first_window is 4, but there are 4", EVAL(0, 4, 0));
    assert_fails(cx, OSH_E_USAGE, "a stride needs one text", EVAL(2, 0, 0));
    file(cx, "x.jsonl", "{\"text\": \"ab\"}\n");
    windows(cx, tok, &opt, 0, 0, 0, "0 2 3 1");
    osh_tokenizer_close(cx, tok);
}

static void test_interrupt(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();

    file(cx, "x.jsonl", ROWS);
    osh_interrupt(cx);
    refuses(cx, NULL, &opt, OSH_E_INTERRUPTED, "interrupted");
}

static osh_status load(osh_ctx *cx, void *user)
{
    osh_dataset d;
    osh_status rc = osh_dataset_load(cx, &d, NULL, user);
    osh_dataset_deinit(cx, &d);
    return rc;
}

static osh_status load_eval(osh_ctx *cx, void *user)
{
    osh_dataset d;
    osh_dataset_options opt = options();
    opt.max_seq_length = 2;
    osh_status rc = osh_dataset_load_eval(cx, &d, user, &opt, &(osh_dataset_windows){0, 0, 1});
    osh_dataset_deinit(cx, &d);
    return rc;
}

static void test_split(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset_options opt = options();
    static const struct { const char *split, *wanted; } good[] = {
        {"train", "1|2|3|4|5|6|7"},
        {"train[:]", "1|2|3|4|5|6|7"},
        {"train[:3]", "1|2|3"},
        {"my.set_1[2:4]", "3|4"},
        {"train[5:]", "6|7"},
        {"train[-2:]", "6|7"},
        {"train[:-5]", "1|2"},
        {"train[3:100]", "4|5|6|7"},
        /* 50 % of 7 is 3.5, which is rounded to the even number 4. */
        {"train[:50%]", "1|2|3|4"},
        {"train[50%:]", "5|6|7"},
        {"train[10%:36]", "2|3"},
        {"train[-30%:]", "6|7"},
        {"train[:1_0]", "1|2|3|4|5|6|7"},
        {"train[-100:1]", "1"},
        {"train[:2]+train[5:]", "1|2|6|7"},
        {"a[-1:] + a[:1] + a[4:2]", "7|1"},
        {"a[:2]+a[1:50%]", "1|2|1|2|3|4"},
    };
    static const char *const bad[] = {"", "train[", "train[]", "train[3]", "train[:3", "train[:3]x",
                                      "train[1:2:3]", "a+", "+a", "a++b", "train[:3](closest)",
                                      "tr ain", ".a", "a.", "train[x:]", "train[--1:]",
                                      "train[1.5%:]", "train[:99999999999999999999]"};
    file(cx, "x.jsonl",
         "{\"input_ids\": [1]}\n\n{\"input_ids\": [2]}\n{\"input_ids\": [3]}\n \n{\"input_ids\": "
         "[4]}\n"
         "{\"input_ids\": [5]}\n{\"input_ids\": [6]}\n{\"input_ids\": [7]}");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        opt.split = good[i].split;
        gives(cx, NULL, &opt, good[i].wanted);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        opt.split = bad[i];
        refuses(cx, NULL, &opt, OSH_E_USAGE, "want a split, such as train");
    }
    opt.split = "train[:101%]";
    refuses(cx, NULL, &opt, OSH_E_USAGE, "want percents up to 100");
    opt.split = "train[4:2]";
    refuses(cx, NULL, &opt, OSH_E_USAGE, "splits 'train[4:2]' has no row");
    opt.split = "train[4:2]+train[3:3]";
    refuses(cx, NULL, &opt, OSH_E_USAGE, "splits 'train[4:2]+train[3:3]' has no row");
    opt.split = "train[9:]"; // the error occurs at the end of the file
    refuses(cx, NULL, &opt, OSH_E_FORMAT, "the dataset is empty");
    opt.split = "train[2:5]", opt.num_samples = 2;
    gives(cx, NULL, &opt, "3|4");
    opt.shuffle = true, opt.num_samples = 0;
    osh_dataset d;
    assert_ok(cx, osh_dataset_load(cx, &d, NULL, &opt));
    int sum = 0;
    for (int64_t i = 0; i < d.n; i++) sum += 1 << d.ids[i];
    assert_true(d.n == 3 && sum == (1 << 3) + (1 << 4) + (1 << 5));
    osh_dataset_deinit(cx, &d);
}

static osh_status load_text(osh_ctx *cx, void *user)
{
    osh_dataset d;
    osh_dataset_options opt = options();
    osh_status rc = osh_dataset_load(cx, &d, user, &opt);
    osh_dataset_deinit(cx, &d);
    return rc;
}

static void test_torture(void **state)
{
    osh_ctx *cx = *state;
    osh_tokenizer *tok = letters(cx);
    char gz[200];
    osh_dataset_options opt = options();

    packed(cx, "x.jsonl.zst", ROWS, strlen(ROWS), 1);
    torture(cx, load, &opt);
    opt.shuffle = true;
    torture(cx, load, &opt);
    opt.concatenate = true;
    torture(cx, load, &opt);
    file(cx, "x.txt", "abcd\nabcd\n");
    assert_ok(cx, load_eval(cx, tok)); // fills the tokenizer's cache of words, so that every call
                                       // of the torture makes the same allocations
    torture(cx, load_eval, tok);
    file(cx, "x.csv", "n,text\n1,\"ab\"\n2,cd\n");
    assert_ok(cx, load_text(cx, tok));
    torture(cx, load_text, tok);
    opt.concatenate = false, opt.split = "a[-1:]";
    file_n(cx, "x.json.gz", gz,
           gzip(gz, sizeof gz, "[{\"input_ids\": [1]}, {\"input_ids\": [2]}]"));
    torture(cx, load, &opt);
    osh_tokenizer_close(cx, tok);
}

static int make_dir(void **state)
{
    strcpy(dir, "test_dataset_XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    osh_ctx *cx = NULL;
    int rc = osh_ctx_new(&cx, 1) || osh_dir_remove(cx, dir);
    osh_ctx_free(cx);
    return rc;
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_context, drop_context)
    const struct CMUnitTest tests[] = {
        T(test_ids),
        T(test_num_samples),
        T(test_attention_mask),
        T(test_collators),
        T(test_concatenate),
        T(test_text),
        T(test_txt),
        T(test_columns),
        T(test_bad_rows),
        T(test_empty),
        T(test_bad_options),
        T(test_shuffle),
        T(test_shuffle_reads_what_it_chose),
        T(test_zst),
        T(test_line_cap),
        T(test_eval_text),
        T(test_eval_rows),
        T(test_interrupt),
        T(test_torture),
        T(test_json),
        T(test_csv),
        T(test_gzip),
        T(test_split),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
