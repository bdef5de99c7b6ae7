/* test_tokenizer.c - compares ids with stored ids of the tokenizers library, and tests bad files
 * and failing allocations. */
#include "text_helpers.h"
#include "tokenizer/tok_impl.h"

#include <stdio.h>
#include <time.h>
#include <zlib.h>

#define GOLDEN OSH_SOURCE_DIR "/tests/golden/tokenizer/"
#define MODEL OSH_SOURCE_DIR "/examples/docs-llama-3m"

static cJSON *member(const cJSON *o, const char *key)
{
    cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    assert_non_null(v);
    return v;
}

/* Returns the text of the tokenizer.json of a case (own; free() frees it). The text has the model
 * of `root` that `c` names, and the members of c's object "parts". */
static char *spec_of(const cJSON *root, const cJSON *c)
{
    cJSON *o = cJSON_CreateObject();
    const cJSON *part = NULL,
                *model = member(member(root, "models"), member(c, "model")->valuestring);

    cJSON_AddItemReferenceToObject(o, "model", (cJSON *)model);
    cJSON_ArrayForEach(part, member(c, "parts"))
        cJSON_AddItemReferenceToObject(o, part->string, (cJSON *)part);
    char *text = cJSON_PrintUnformatted(o);
    assert_non_null(text);
    cJSON_Delete(o);
    return text;
}

static void ids_check(osh_ctx *cx, osh_tokenizer *t, const char *name, const char *s, size_t n,
                      bool special, const char *want)
{
    osh_ids ids = {0};
    char *end = NULL;
    int64_t k = 0;

    assert_ok(cx, osh_tokenizer_encode(cx, t, &ids, s, n, special));
    for (const char *p = want; *p && *p != '\n'; p = end + (*end == ' '), k++) {
        long id = strtol(p, &end, 10);
        assert_ptr_not_equal(p, end);
        if (k >= ids.n || ids.ids[k] != id)
            fail_msg("%s: '%s' (special %d), id %d is %d, wanted %ld", name, s, special, (int)k,
                     k < ids.n ? ids.ids[k] : -1, id);
    }
    if (k != ids.n) fail_msg("%s: '%s' gives %d ids, wanted %d", name, s, (int)ids.n, (int)k);
    osh_ids_deinit(cx, &ids);
}

static void components_give_the_library_ids(void **state)
{
    osh_ctx *cx = *state;
    cJSON *root = NULL;
    const cJSON *c = NULL, *row = NULL;
    int n_rows = 0;

    assert_ok(cx, osh_json_read(cx, &root, GOLDEN "components.json", 1 << 20, OSH_JSON_NUL));
    cJSON_ArrayForEach(c, member(root, "cases")) {
        const char *name = member(c, "name")->valuestring;
        char *spec = spec_of(root, c);
        osh_tokenizer *t = NULL;
        assert_ok(cx, osh_tokenizer_parse(cx, &t, spec, strlen(spec), name));
        cJSON_ArrayForEach(row, member(c, "rows")) {
            const cJSON *text = member(row, "text"), *plain = cJSON_GetObjectItem(row, "plain");
            const char *ids = member(row, "ids")->valuestring;
            if (cJSON_IsNumber(text))
                text = cJSON_GetArrayItem(member(root, "texts"), text->valueint);
            char *s = NULL;
            size_t n = 0;
            assert_ok(cx, osh_tok_string(cx, &s, &n, text->valuestring));
            ids_check(cx, t, name, s, n, true, ids);
            ids_check(cx, t, name, s, n, false, plain ? plain->valuestring : ids);
            ids_check(cx, t, name, s, n, true, ids); // the cache now has the ids of all words
            osh_free(cx, s);
            n_rows++;
        }
        osh_tokenizer_close(cx, t);
        free(spec);
    }
    cJSON *manifest = NULL;
    assert_ok(cx, osh_json_read(cx, &manifest, GOLDEN "MANIFEST.json", 1 << 16, 0));
    assert_int_equal(n_rows, member(manifest, "checks")->valueint);
    cJSON_Delete(manifest);
    cJSON_Delete(root);
}

/* Returns a text with all characters of some ranges. After each character comes the text of the
 * second argument. gen.py makes the same text. The result is own; free() frees it. */
static char *sweep_text(size_t *n, const char *after)
{
    static const uint32_t parts[][2] = {
        {1, 0xD800},        {0xE000, 0x20000},   {0x2A6D0, 0x2A710},
        {0x2B730, 0x2B930}, {0x2CE90, 0x2CEC0},  {0x2F7F0, 0x2FA30},
        {0xE0000, 0xE0200}, {0xFFFF0, 0x100010}, {0x10FFF0, 0x110000}};
    char *s = malloc(1 << 21);

    assert_non_null(s);
    *n = 0;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        for (uint32_t c = parts[k][0]; c < parts[k][1]; c++) {
            *n += osh_utf8_encode(s + *n, c);
            memcpy(s + *n, after, strlen(after));
            *n += strlen(after);
        }
    assert_true(*n < 1 << 21);
    return s;
}

/* Encodes a text with all characters, and compares the number of ids and their checksum. */
static void every_character_is_treated_as_the_library_does(void **state)
{
    osh_ctx *cx = *state;
    cJSON *root = NULL, *sweeps = NULL;
    const cJSON *c = NULL;
    size_t n = 0;

    assert_ok(cx, osh_json_read(cx, &root, GOLDEN "components.json", 1 << 20, OSH_JSON_NUL));
    assert_ok(cx, osh_json_read(cx, &sweeps, GOLDEN "sweeps.json", 1 << 20, 0));
    cJSON_ArrayForEach(c, sweeps) {
        char *spec = spec_of(root, c);
        const char *name = member(c, "name")->valuestring;
        osh_tokenizer *t = NULL;
        osh_ids ids = {0};
        char *text = sweep_text(&n, member(c, "after")->valuestring);
        assert_ok(cx, osh_tokenizer_parse(cx, &t, spec, strlen(spec), name));
        assert_ok(cx, osh_tokenizer_encode(cx, t, &ids, text, n, true));
        uLong crc = crc32(0, (const Bytef *)ids.ids, (uInt)((size_t)ids.n * sizeof *ids.ids));
        if (ids.n != member(c, "n")->valueint || (double)crc != member(c, "crc32")->valuedouble)
            fail_msg("%s: %d ids with checksum %lu, wanted %d with %.0f", name, (int)ids.n, crc,
                     member(c, "n")->valueint, member(c, "crc32")->valuedouble);
        osh_ids_deinit(cx, &ids);
        osh_tokenizer_close(cx, t);
        free(spec);
        free(text);
    }
    cJSON_Delete(sweeps);
    cJSON_Delete(root);
}

/* Encodes each line of the text file, and compares the ids with those of the ids file. */
static void check_lines(osh_ctx *cx, osh_tokenizer *t, const char *text_path, const char *ids_path)
{
    char *text = NULL, *ids = NULL;
    size_t n = 0, n_ids = 0, at = 0;

    assert_ok(cx, osh_file_read_all(cx, &text, &n, text_path, 1 << 20));
    assert_ok(cx, osh_file_read_all(cx, &ids, &n_ids, ids_path, 1 << 20));
    for (const char *want = ids; *want; want = strchr(want, '\n') + 1) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - text) - at : n - at;
        ids_check(cx, t, text_path, text + at, len, true, want);
        ids_check(cx, t, text_path, text + at, len, false, want);
        at += len + 1;
    }
    assert_int_equal(at, n + 1); // the ids file has no more lines
    osh_free(cx, text);
    osh_free(cx, ids);
}

static void a_real_tokenizer_gives_the_library_ids(void **state)
{
    osh_ctx *cx = *state;
    osh_tokenizer *t = NULL;

    if (!osh_file_exists(MODEL "/tokenizer.json")) fail_msg("no %s/tokenizer.json", MODEL);
    assert_ok(cx, osh_tokenizer_open(cx, &t, MODEL));
    assert_int_equal(osh_tokenizer_n_vocab(t), 4096);
    assert_int_equal(osh_tokenizer_model_max_length(t), 1024);
    check_lines(cx, t, GOLDEN "mixed.txt", GOLDEN "mixed.ids");
    check_lines(cx, t, GOLDEN "invalid.txt", GOLDEN "invalid.ids");
    osh_tokenizer_close(cx, t);
}

/* Encodes a word by the definition of byte-pair merging: merges the leftmost pair of lowest rank
 * until no pair can be merged. */
static void naive(const cJSON *model, const char *s, size_t n, int32_t *ids, size_t *n_ids)
{
    const cJSON *vocab = member(model, "vocab"), *merges = member(model, "merges"), *m = NULL;
    char **parts = malloc((n + 1) * sizeof *parts);
    size_t k = 0;

    for (size_t i = 0; i < n; i++) parts[k++] = strndup(s + i, 1);
    for (;;) {
        size_t best = k;
        cJSON_ArrayForEach(m, merges) {
            const char *a = m->child->valuestring, *b = m->child->next->valuestring;
            for (size_t i = 0; i + 1 < k && best == k; i++)
                if (!strcmp(parts[i], a) && !strcmp(parts[i + 1], b)) best = i;
            if (best < k) break;
        }
        if (best == k) break;
        char *joined = malloc(strlen(parts[best]) + strlen(parts[best + 1]) + 1);
        sprintf(joined, "%s%s", parts[best], parts[best + 1]);
        free(parts[best]);
        free(parts[best + 1]);
        parts[best] = joined;
        memmove(&parts[best + 1], &parts[best + 2], (k - best - 2) * sizeof *parts);
        k--;
    }
    for (size_t i = 0; i < k; i++) {
        ids[i] = member(vocab, parts[i])->valueint;
        free(parts[i]);
    }
    *n_ids = k;
    free(parts);
}

/* Encodes random words of all lengths around the length at which tok_bpe.c uses a heap. */
static void merging_follows_its_definition(void **state)
{
    osh_ctx *cx = *state;
    cJSON *root = NULL;
    osh_tokenizer *t = NULL;
    char word[160];
    int32_t want[160];
    uint64_t r = 42;

    assert_ok(cx, osh_json_read(cx, &root, GOLDEN "components.json", 1 << 20, OSH_JSON_NUL));
    cJSON *model = member(member(root, "models"), "plain"), *o = cJSON_CreateObject();
    cJSON_AddItemReferenceToObject(o, "model", model);
    char *spec = cJSON_PrintUnformatted(o);
    assert_ok(cx, osh_tokenizer_parse(cx, &t, spec, strlen(spec), "plain"));
    for (size_t n = 1; n < sizeof word; n++)
        for (int rep = 0; rep < 4; rep++) {
            osh_ids ids = {0};
            size_t k = 0;
            for (size_t i = 0; i < n; i++) {
                r = r * 6364136223846793005ull + 1442695040888963407ull;
                word[i] = "abchelowrd"[(r >> 33) % (rep < 2 ? 3 : 10)];
            }
            naive(model, word, n, want, &k);
            assert_ok(cx, osh_tokenizer_encode(cx, t, &ids, word, n, true));
            assert_int_equal(ids.n, k);
            assert_memory_equal(ids.ids, want, k * sizeof *want);
            osh_ids_deinit(cx, &ids);
        }
    osh_tokenizer_close(cx, t);
    cJSON_Delete(o);
    free(spec);
    cJSON_Delete(root);
}

/* Encodes a megabyte that pre-tokenizers do not cut. Merging in quadratic time would take seconds.
 * A quadratic search of a regex would take minutes. */
static void long_words_are_not_quadratic(void **state)
{
    osh_ctx *cx = *state;
    static const char spec[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1,\"b\":2,\"aaaa\":3,\"ab\":4},"
        "\"merges\":[\"a a\",\"aa aa\",\"a b\"]},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":"
        "{\"Regex\":\"\\\\p{N}\"},\"behavior\":\"Isolated\",\"invert\":false}}";
    osh_tokenizer *t = NULL;
    osh_ids ids = {0};
    size_t n = 1000001;
    char *s = osh_alloc(cx, n);

    assert_non_null(s);
    memset(s, 'a', n);
    s[n - 1] = 'b';
    assert_ok(cx, osh_tokenizer_parse(cx, &t, spec, strlen(spec), "long"));
    clock_t start = clock(); // processor time, which does not depend on other work on the machine
    assert_ok(cx, osh_tokenizer_encode(cx, t, &ids, s, n, true));
    assert_true(clock() - start < 20 * CLOCKS_PER_SEC);
    assert_int_equal(ids.n, 250001);
    assert_int_equal(ids.ids[0], 3);
    assert_int_equal(ids.ids[250000], 2);
    osh_ids_deinit(cx, &ids);
    osh_tokenizer_close(cx, t);
    osh_free(cx, s);
}

typedef struct bad_file {
    const char *text, *holds;
    osh_status code;
} bad_file;

#define BPE "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[]}"

#define CHARSMAP(s) ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" s "\"}}"

static void refused(osh_ctx *cx, const bad_file *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        osh_tokenizer *t = NULL;
        assert_fails(cx, rows[i].code, rows[i].holds,
                     osh_tokenizer_parse(cx, &t, rows[i].text, strlen(rows[i].text), "bad.json"));
        assert_null(t);
    }
}

static void bad_models_are_named(void **state)
{
    static const bad_file rows[] = {
        {"{\"model\":{\"type\":\"Odd\",\"vocab\":[]}}", "model \"Odd\"", OSH_E_UNSUPPORTED},
        {"{\"model\":{\"vocab\":{}}}", "without a type", OSH_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":{}}}", "\"vocab\" list", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1],[\"b\"]]}}", "entry 1",
         OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1,2]]}}", "entry 0", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",1e999]]}}", "entry 0", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",-1]]}}", "unk_id",
         OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", "unk_token", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"vocab\":{\"a\":0}}}",
         "subword_prefix", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"vocab\":{\"a\":0},"
         "\"continuing_subword_prefix\":\"\","
         "\"max_input_chars_per_word\":-1}}",
         "is -1", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"a\":2}}}",
         "'a' occurs twice", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":1.5}}}", "'a'",
         OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":[\"a\"]}}",
         "\"vocab\" object", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}",
         "dropout", OSH_E_UNSUPPORTED},
    };

    refused(*state, rows, sizeof rows / sizeof *rows);
}

static void bad_files_are_named(void **state)
{
    static const bad_file rows[] = {
        {"[]", "model", OSH_E_FORMAT},
        {"{", "", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", "vocab", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "merges", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "'a'", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0.5},\"merges\":[]}}", "'a'", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", "merge 0",
         OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", "merge 0",
         OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}",
         "not in the voc", OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "merge 0",
         OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[7]}}", "merge 0",
         OSH_E_FORMAT},
        {"{" BPE ",\"normalizer\":{\"type\":\"Odd\"}}", "normalizer \"Odd\"", OSH_E_UNSUPPORTED},
        {"{" BPE ",\"normalizer\":{\"type\":\"Precompiled\"}}", "precompiled_charsmap",
         OSH_E_FORMAT},
        {"{" BPE CHARSMAP("AAA"), "not base64", OSH_E_FORMAT},
        {"{" BPE CHARSMAP("AA?A"), "not base64", OSH_E_FORMAT},
        {"{" BPE CHARSMAP(""), "0 bytes", OSH_E_FORMAT},
        {"{" BPE CHARSMAP("CAAAAAAAAAA="), "8 bytes cannot hold", OSH_E_FORMAT}, // a map whose trie
                                                                                 // has 8 bytes
        {"{" BPE CHARSMAP("BAAAAAEAAAD/"), "not UTF-8", OSH_E_FORMAT},
        {"{" BPE ",\"normalizer\":{}}", "type", OSH_E_FORMAT},
        {"{" BPE ",\"normalizer\":{\"type\":\"Sequence\"}}", "normalizers", OSH_E_FORMAT},
        {"{" BPE ",\"normalizer\":{\"type\":\"Prepend\"}}", "prepend", OSH_E_FORMAT},
        {"{" BPE
         ",\"normalizer\":{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"String\":\"\"}}}",
         "pattern", OSH_E_FORMAT},
        {"{" BPE ",\"pre_tokenizer\":{\"type\":\"Odd\"}}", "pre_tokenizer \"Odd\"",
         OSH_E_UNSUPPORTED},
        {"{" BPE ",\"pre_tokenizer\":{\"type\":\"FixedLength\",\"length\":0}}", "length",
         OSH_E_FORMAT},
        {"{" BPE ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Cut\",\"pattern\":{"
         "\"String\":\"a\"}}}",
         "Cut", OSH_E_UNSUPPORTED},
        {"{" BPE ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{"
         "\"Regex\":\"(a\"}}}",
         "(a", OSH_E_FORMAT},
        {"{" BPE ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{"
         "\"Regex\":\"[a&&b]\"}}}",
         "&&", OSH_E_UNSUPPORTED},
        {"{" BPE ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{"
         "\"Regex\":\"[a[b]]\"}}}",
         "class inside", OSH_E_UNSUPPORTED},
        {"{" BPE ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{"
         "\"Regex\":\"[\\\\W]\"}}}",
         "negated", OSH_E_UNSUPPORTED},
        {"{" BPE ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"}}",
         "replacement", OSH_E_FORMAT},
        {"{" BPE ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_"
         "scheme\":\"x\"}}",
         "\"x\"", OSH_E_UNSUPPORTED},
        {"{" BPE ",\"post_processor\":{\"type\":\"Odd\"}}", "post_processor \"Odd\"",
         OSH_E_UNSUPPORTED},
        {"{" BPE ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
         "\"SpecialToken\":{\"id\":\"q\"}}]}}",
         "'q'", OSH_E_FORMAT},
        {"{" BPE ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}}",
         "0 sequences", OSH_E_UNSUPPORTED},
        {"{" BPE ",\"post_processor\":{\"type\":\"BertProcessing\"}}", "without an id",
         OSH_E_FORMAT},
        {"{" BPE ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":["
         "{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"b\",1]},"
         "{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"b\",1]}]}}",
         "more than one", OSH_E_UNSUPPORTED},
        {"{" BPE ",\"added_tokens\":{}}", "added_tokens", OSH_E_FORMAT},
        {"{" BPE ",\"added_tokens\":[{}]}", "content", OSH_E_FORMAT},
    };
    osh_ctx *cx = *state;

    refused(cx, rows, sizeof rows / sizeof *rows);
    osh_tokenizer *t = NULL;
    assert_fails(cx, OSH_E_IO, "tokenizer.json",
                 osh_tokenizer_open(cx, &t, OSH_SOURCE_DIR "/tests"));
}

/* A tokenizer.json must be refused if a text in it ends inside a character, or if a pattern has \C,
 * which matches a part of a character. Such a file could cause a write outside of a block or an
 * endless loop. */
static void what_cuts_characters_is_refused(void **state)
{
    static const bad_file rows[] = {
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\C\"},\"behavior\":"
         "\"Isolated\"}," BPE "}",
         "'\\C': \\C is not supported", OSH_E_UNSUPPORTED},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a|\\\\C+\"},\"content\":"
         "\"x\"}," BPE "}",
         "\\C is not supported", OSH_E_UNSUPPORTED},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[\\\\C]\"},\"behavior\":"
         "\"Isolated\"}," BPE "}",
         "\\C is not supported", OSH_E_UNSUPPORTED},
        {"{\"added_tokens\":[{\"content\":\"\xc3\"}]," BPE "}", "bad.json: byte 29 is not UTF-8",
         OSH_E_FORMAT},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"\xe2\x96\",-1]]}}", "byte 38 is not UTF-8",
         OSH_E_FORMAT},
    };
    osh_ctx *cx = *state;

    refused(cx, rows, sizeof rows / sizeof *rows);
}

/* Refuses patterns that PCRE2 compiles, but that Oniguruma refuses or reads in another way. */
static void patterns_of_pcre2_are_refused(void **state)
{
    static const char *const patterns[] = {"\\\\Qa.b\\\\E", "[\\\\Q.]", "\\\\V", "\\\\N{U+61}",
                                           "(a)\\\\g{1}", "(a)\\\\g1", "\\\\xE4\\\\xB8\\\\xAD",
                                           "[\\\\xe9]", "\\\\303\\\\251", "(?s).", "(?U)a+",
                                           "(?^i)a", "(?|(a)|(b))", "(?1)(a)", "(?P<n>a)",
                                           "a(?i)b|c", "\\\\|(?i)a|b", "(?i)ss", "(?i:First)",
                                           "(?i)stra\u00dfe", "(?i)[\ufb01]",
        "(*UCP)a",       "(*SKIP)a",     "\\\\p{Xan}",  "\\\\p{Xsp}",  "\\\\p{L&}",  "\\\\P{lu}",
        "[\\\\p{sc:Han}]", "\\\\p{bc=AL}", "\\\\b+",      "a\\\\B*?",    "\\\\b{2}",   "^*a",
        "(?=a)?",        "(?<!a){2}+",   "(?:\\\\b)+",  "(?:\\\\b|a)*", "\\\\cA",    "\\\\x",
        "[\\\\w-z]",     "(?(1)a|b)",    "(?&n)",       "(a)\\\\2",    "(a\\\\1)",   "\\\\1(a)",
        "(?<n>a)\\\\1",  "(?<!(a))b",    "(?<=(?=a))a", "(?<=a\\\\z)", "(?x)a b",    "(?xx)[a b]",
        "(?i)s(?:s)",    "(?i)\\\\x73s", "a\\\\K",      "(?!\\\\G)",   "\\\\x{ 41}", "\\\\u004",
        "(?i)[\\\\p{Lu}]", "(?i)i\u0307",  "(?i)[\u0370-\u03ff]", "(?i)\\\\u0073\\\\u0073"};
    osh_ctx *cx = *state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char text[400];
        const bad_file row = {text, "regular expression '", OSH_E_UNSUPPORTED};
        snprintf(text, sizeof text,
                 "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
                 "\"behavior\":\"Isolated\"}," BPE "}",
                 patterns[i]);
        refused(cx, &row, 1);
    }
}

/* Tests patterns that must be rewritten: PCRE2 would find other matches for the original pattern
 * than the tokenizers library. */
static void patterns_match_as_in_the_library(void **state)
{
    static const struct row {
        const char *pattern, *text;
        size_t start, end; // start and end of the expected first match, in bytes
    } rows[] = {
        {"s.+?\\R", "s1\v2\n", 0, 3},
        {"\\x41{2}?b", "AAb", 0, 3},
        {"^\\u0041{2}?b", "b", 0, 1},
        {"\\p{Mc}", "x\u1cf3\U00011f03", 4, 8}, // U+11F03, a Kawi letter, was added in Unicode 15
        {"\\p{Mn}", "\U0001171e\u0300", 4, 6},   // U+1171E has the category Mc since Unicode 16
        {"\\P{Mn}", "\u0300\U0001171e", 2, 6},
        {"\\p{So}", "a\U0001fae8", 1, 5},
        {"\\p{Latin}", "\u0363\ua7cb", 2, 5}, // U+0363 has the script Inherited
        {"\\p{Bengali}", "\u0964\u0995", 3, 6},
    };
    osh_ctx *cx = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        osh_tok_pattern p = {0};
        osh_hit at;
        const struct row *r = &rows[i];
        assert_ok(cx, osh_tok_pattern_regex(cx, &p, r->pattern, "a test"));
        assert_ok(cx, osh_tok_pattern_find(cx, &p, r->text, strlen(r->text), 0, &at));
        if (at.start != r->start || at.end != r->end) print_error("%s\n", r->pattern);
        assert_int_equal(at.start, r->start);
        assert_int_equal(at.end, r->end);
        osh_tok_pattern_deinit(cx, &p);
    }
}

/* Encodes one character of four bytes with the longest allowed prefix and suffix. */
static void affixes_of_100_bytes_have_room(void **state)
{
    osh_ctx *cx = *state;
    osh_tokenizer *t = NULL;
    osh_ids ids = {0};
    char affix[101], spec[1024];

    memset(affix, 'p', 100), affix[100] = 0;
    snprintf(spec, sizeof spec,
             "{\"model\":{\"type\":\"BPE\",\"continuing_subword_prefix\":\"%s\",\"end_of_word_"
             "suffix\":\"%s\",\"merges\":[],"
             "\"vocab\":{\"a\":0,\"%s\xf0\x9f\x91\xa8%s\":1}}}",
             affix, affix, affix, affix);
    assert_ok(cx, osh_tokenizer_parse(cx, &t, spec, strlen(spec), "affixes"));
    assert_ok(cx, osh_tokenizer_encode(cx, t, &ids, "a\xf0\x9f\x91\xa8", 5, true));
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.ids[1], 1);
    osh_ids_deinit(cx, &ids);
    osh_tokenizer_close(cx, t);
}

/* For any n bytes, the decoding of a character must return a length from 1 to n. So every loop over
 * a text ends inside the text. */
static void decoding_goes_on_and_stays_inside(void **state)
{
    static const unsigned char nasty[] = {0x00, 0x41, 0x80, 0xBF, 0xC0, 0xC3, 0xE0,
                                          0xE2, 0xED, 0xF0, 0xF4, 0xF5, 0xFF, 0xA0};
    enum { N = sizeof nasty };

    (void)state;
    for (size_t k = 0; k < N * N * N * N; k++) {
        unsigned char s[4] = {nasty[k % N], nasty[k / N % N], nasty[k / N / N % N],
                              nasty[k / N / N / N]};
        for (size_t n = 1; n <= 4; n++) {
            uint32_t cp = 0, next = 0;
            size_t len = osh_utf8_decode((char *)s, n, &cp),
                   go = osh_utf8_next((char *)s, n, &next);
            assert_true(go >= 1 && go <= n && next == cp && (!len || go == len) &&
                        (len || next == 0xFFFD));
        }
    }
}

static void an_unknown_token_outside_the_vocabulary_is_an_error(void **state)
{
    static const char spec[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"<u>\"}}";
    osh_ctx *cx = *state;
    osh_tokenizer *t = NULL;
    osh_ids ids = {0};

    assert_ok(cx, osh_tokenizer_parse(cx, &t, spec, strlen(spec), "unk"));
    assert_ok(cx, osh_tokenizer_encode(cx, t, &ids, "aa", 2, true));
    assert_int_equal(ids.n, 2);
    assert_fails(cx, OSH_E_FORMAT, "<u>", osh_tokenizer_encode(cx, t, &ids, "b", 1, true));
    osh_ids_deinit(cx, &ids);
    osh_tokenizer_close(cx, t);
    static const char *const others[] = {
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]]}}",
        "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"<u>\",\"vocab\":{\"a\":0}}}",
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"<u>\",\"continuing_subword_prefix\":"
        "\"\","
        "\"max_input_chars_per_word\":9,\"vocab\":{\"a\":0}}}"};
    for (size_t i = 0; i < 3; i++) {
        assert_ok(cx, osh_tokenizer_parse(cx, &t, others[i], strlen(others[i]), "unk"));
        assert_ok(cx, osh_tokenizer_encode(cx, t, &ids, "a", 1, true));
        assert_fails(cx, OSH_E_FORMAT, i ? "<u>" : "unk_id",
                     osh_tokenizer_encode(cx, t, &ids, "b", 1, true));
        osh_ids_deinit(cx, &ids);
        osh_tokenizer_close(cx, t);
    }
}

/* Two scores are different decimals with the same nearest double. The tokenizers library reads the
 * shorter decimal as the next larger double. So it chooses the tokens `a` and `b` (tokenizers
 * 0.23.3: [1, 2]). */
static void scores_are_read_as_the_library_reads_them(void **state)
{
    static const char spec[] = "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":["
                               "[\"ab\",-1.506164240235239316],"
                               "[\"a\",-1.5061642402352393],[\"b\",0]]}}";
    osh_ctx *cx = *state;
    osh_tokenizer *t = NULL;

    assert_ok(cx, osh_tokenizer_parse(cx, &t, spec, strlen(spec), "scores"));
    ids_check(cx, t, "scores", "ab", 2, true, "1 2");
    osh_tokenizer_close(cx, t);
}

static osh_status everything(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    const char *spec = user;
    osh_tokenizer *t = NULL;
    osh_ids ids = {0};

    OSH_TRY(osh_tokenizer_parse(cx, &t, spec, strlen(spec), "torture"));
    OSH_TRY(osh_tokenizer_encode(cx, t, &ids, "Hello\xff <s> caf\xc3\xa9 12 ab", 20, true));
done:
    osh_ids_deinit(cx, &ids);
    osh_tokenizer_close(cx, t);
    return rc;
}

static void allocation_failures_are_reported_and_leak_nothing(void **state)
{
    static char spec[] = "{" BPE ",\"added_tokens\":[{\"content\":\"<s>\",\"normalized\":true},{"
                                 "\"content\":\"b\",\"lstrip\":true}],"
                         "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
                         "\"Lowercase\"},{\"type\":\"Prepend\","
                         "\"prepend\":\"x\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"e\"},"
                         "\"content\":\"a\"}]},"
                         "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                         "\"Metaspace\",\"replacement\":\"_\"},"
                         "{\"type\":\"Digits\"},{\"type\":\"ByteLevel\"}]},\"post_processor\":{"
                         "\"type\":\"RobertaProcessing\","
                         "\"cls\":[\"a\",0],\"sep\":[\"b\",1]}}";

    static char unigram[] =
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":"
        "[[\"<unk>\",0],[\"a\",-1.5],[\"el\",-2],[\"<0x20>\",-9]]}}";
    static char wordpiece[] =
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\","
        "\"continuing_subword_prefix\":\"##\","
        "\"max_input_chars_per_word\":20,\"vocab\":{\"u\":0,\"ab\":1,\"H\":2,\"##ello\":3}},"
        "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}}";

    torture(*state, everything, spec);
    torture(*state, everything, unigram);
    torture(*state, everything, wordpiece);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(components_give_the_library_ids, make_context,
                                        drop_context),
        cmocka_unit_test_setup_teardown(every_character_is_treated_as_the_library_does,
                                        make_context, drop_context),
        cmocka_unit_test_setup_teardown(a_real_tokenizer_gives_the_library_ids, make_context,
                                        drop_context),
        cmocka_unit_test_setup_teardown(merging_follows_its_definition, make_context, drop_context),
        cmocka_unit_test_setup_teardown(long_words_are_not_quadratic, make_context, drop_context),
        cmocka_unit_test_setup_teardown(bad_models_are_named, make_context, drop_context),
        cmocka_unit_test_setup_teardown(bad_files_are_named, make_context, drop_context),
        cmocka_unit_test_setup_teardown(patterns_of_pcre2_are_refused, make_context, drop_context),
        cmocka_unit_test_setup_teardown(patterns_match_as_in_the_library, make_context,
                                        drop_context),
        cmocka_unit_test_setup_teardown(what_cuts_characters_is_refused, make_context,
                                        drop_context),
        cmocka_unit_test_setup_teardown(affixes_of_100_bytes_have_room, make_context, drop_context),
        cmocka_unit_test(decoding_goes_on_and_stays_inside),
        cmocka_unit_test_setup_teardown(an_unknown_token_outside_the_vocabulary_is_an_error,
                                        make_context, drop_context),
        cmocka_unit_test_setup_teardown(scores_are_read_as_the_library_reads_them, make_context,
                                        drop_context),
        cmocka_unit_test_setup_teardown(allocation_failures_are_reported_and_leak_nothing,
                                        make_context, drop_context),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
