/* test_tokenizer_parts.c - tests the encoding of a text in parts. The ids must not depend on the
 * lengths of the parts, or on reads of the ids between two parts. Memory use must be limited. */
#include "tokenizer/tok_impl.h"
#include "tokenizer/tok_unicode.h"
#include "text_helpers.h"

#include <stdio.h>
#include <utf8proc.h>

#define GOLDEN OSH_SOURCE_DIR "/tests/golden/tokenizer/"
#define MODEL OSH_SOURCE_DIR "/examples/docs-llama-3m"

static const cJSON *member(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    assert_non_null(v);
    return v;
}

/* Encodes a text in parts. After each part, reads the ids of the text so far. These ids must equal
 * the ids of a text that ends there. Reading them must not change the ids of the whole text. */
static void peeks_check(osh_ctx *cx, osh_tokenizer *t, const char *name, const char *s, size_t n)
{
    enum { PEEKS = 6 };
    osh_ids got = {0}, want = {0}, peeked[PEEKS] = {{0}}; // own
    int64_t kept[PEEKS];

    osh_tokenizer_part_bytes(t, 16);
    osh_tokenizer_begin(t);
    for (size_t k = 0, at = 0; k < PEEKS; k++) {
        size_t end = n * k / (PEEKS - 1);
        assert_ok(cx, osh_tokenizer_feed(cx, t, &got, s + at, end - at));
        assert_ok(cx, osh_tokenizer_peek(cx, t, &got, &peeked[k]));
        kept[k] = got.n, at = end;
    }
    assert_ok(cx, osh_tokenizer_end(cx, t, &got));
    for (size_t k = 0; k < PEEKS; k++) {
        want.n = 0;
        assert_ok(cx, osh_tokenizer_encode(cx, t, &want, s, n * k / (PEEKS - 1), false));
        if (want.n != kept[k] + peeked[k].n ||
            (kept[k] && memcmp(want.ids, got.ids, (size_t)kept[k] * sizeof *got.ids)) ||
            (peeked[k].n &&
             memcmp(want.ids + kept[k], peeked[k].ids, (size_t)peeked[k].n * sizeof *got.ids)))
            fail_msg("%s: look %zu has %d + %d ids, wanted %d equal ones", name, k, (int)kept[k],
                     (int)peeked[k].n, (int)want.n);
        osh_ids_deinit(cx, &peeked[k]);
    }
    assert_int_equal(got.n, want.n); // after the last part, the ids must be those of the whole text
    if (want.n) assert_memory_equal(got.ids, want.ids, (size_t)want.n * sizeof *want.ids);
    osh_ids_deinit(cx, &got);
    osh_ids_deinit(cx, &want);
}

/* Encodes a text whole and in parts of several sizes, and compares the ids after each part. */
static void parts_check(osh_ctx *cx, osh_tokenizer *t, const char *name, const char *s, size_t n)
{
    static const size_t sizes[] = {1, 2, 3, 7, 16, 50};
    osh_ids want = {0}, got = {0}; // own

    osh_tokenizer_part_bytes(t, n + 1);
    assert_ok(cx, osh_tokenizer_encode(cx, t, &want, s, n, false));
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        got.n = 0;
        osh_tokenizer_part_bytes(t, sizes[k]);
        osh_tokenizer_begin(t);
        for (size_t at = 0; at < n; at += sizes[k]) {
            size_t some = n - at < sizes[k] ? n - at : sizes[k];
            assert_ok(cx, osh_tokenizer_feed(cx, t, &got, s + at, some));
        }
        assert_ok(cx, osh_tokenizer_end(cx, t, &got));
        for (int64_t i = 0; i < got.n && i < want.n; i++)
            if (got.ids[i] != want.ids[i])
                fail_msg("%s: in parts of %zu bytes id %d is %d, wanted %d", name, sizes[k], (int)i,
                         got.ids[i], want.ids[i]);
        if (got.n != want.n)
            fail_msg("%s: in parts of %zu bytes %d ids, wanted %d", name, sizes[k], (int)got.n,
                     (int)want.n);
    }
    osh_ids_deinit(cx, &want);
    osh_ids_deinit(cx, &got);
    peeks_check(cx, t, name, s, n);
}

static osh_tokenizer *parse(osh_ctx *cx, const char *spec)
{
    osh_tokenizer *t = NULL;

    assert_ok(cx, osh_tokenizer_parse(cx, &t, spec, strlen(spec), "spec"));
    return t;
}

/* Runs each small tokenizer of the golden files on one text. The text is the concatenation of all
 * texts of the golden files. */
static void components_in_parts(void **state)
{
    osh_ctx *cx = *state;
    cJSON *root = NULL;
    const cJSON *c = NULL, *part = NULL;
    osh_buf all;
    osh_buf_init(&all, 0);

    assert_ok(cx, osh_json_read(cx, &root, GOLDEN "components.json", 1 << 20, OSH_JSON_NUL));
    cJSON_ArrayForEach(c, member(root, "texts")) {
        assert_ok(cx, osh_buf_printf(cx, &all, "%s", c->valuestring));
        assert_ok(cx, osh_buf_append(cx, &all, all.len % 3 ? "" : " ", all.len % 3 ? 0 : 1));
    }
    assert_ok(cx, osh_buf_append(cx, &all, "\xff\xe2\x82 \xf0\x9f", 7));
    cJSON_ArrayForEach(c, member(root, "cases")) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemReferenceToObject(
            o, "model",
            (cJSON *)(uintptr_t)member(member(root, "models"), member(c, "model")->valuestring));
        cJSON_ArrayForEach(part, member(c, "parts"))
            cJSON_AddItemReferenceToObject(o, part->string, (cJSON *)(uintptr_t)part);
        char *spec = cJSON_PrintUnformatted(o);
        osh_tokenizer *t = parse(cx, spec);
        parts_check(cx, t, member(c, "name")->valuestring, all.data, all.len);
        cJSON_ArrayForEach(part, member(c, "rows")) {
            const cJSON *text = member(part, "text");
            const char *s = cJSON_IsString(text) ? text->valuestring : "";
            parts_check(cx, t, member(c, "name")->valuestring, s, strlen(s));
        }
        osh_tokenizer_close(cx, t);
        free(spec);
        cJSON_Delete(o);
    }
    osh_buf_deinit(cx, &all);
    cJSON_Delete(root);
}

#define LETTERS                                                                                    \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\" "                           \
    "\":3,\"ab\":4,\"x\":5,\"1\":6,\"abc\":7,"                                                     \
    "\"_\":8,\"_a\":9,\"<\":10,\">\":11,\"cc\":12},\"merges\":[\"a b\",\"ab c\",\"_ a\",\"c "      \
    "c\"],\"unk_token\":\"x\"}"
#define SPLIT(re, behavior)                                                                        \
    ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" re                          \
    "\"},\"behavior\":\"" behavior "\",\"invert\":false}}"
#define ADDED(how)                                                                                 \
    ",\"added_tokens\":[{\"content\":\"<a>\",\"normalized\":" how                                  \
    "},{\"content\":\"<a>b c\",\"normalized\":" how "}]"

#define NORMALIZERS(s) ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" s "]}"
#define BERT "{\"type\":\"BertNormalizer\"}"
#define STRIP "{\"type\":\"Strip\"}"
#define SPACES "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}"
#define REPLACE(s) "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" s "\"},\"content\":\"c\"}"

/* Tests cases that are hard to cut. Patterns depend on text before or after a match, or on lines.
 * Added tokens remove white space. Steps prepend a text. */
static void hard_cases_in_parts(void **state)
{
    osh_ctx *cx = *state;
    static const char *const specs[] = {
        "{" LETTERS "}",
        "{" LETTERS SPLIT("(?<=a)b", "Isolated"),
        "{" LETTERS SPLIT("(?<!a )b", "MergedWithNext"),
        "{" LETTERS SPLIT("\\\\bab", "MergedWithPrevious"),
        "{" LETTERS SPLIT("^a|c$", "Isolated"),
        "{" LETTERS SPLIT("a*", "Isolated"),
        "{" LETTERS SPLIT("\\\\s+(?!\\\\S)|\\\\s+", "Contiguous"),
        "{" LETTERS SPLIT("a(?= *b)", "Removed"),
        "{" LETTERS SPLIT("(?:ab ?)+", "Isolated"),
        "{" LETTERS SPLIT("a|ab c", "Isolated"),
        "{" LETTERS SPLIT("a.*?c", "MergedWithNext"),
        "{" LETTERS ADDED("false") "}",
        "{" LETTERS ADDED("true") "}",
        "{" LETTERS ADDED("true,\"lstrip\":true") SPLIT(" ", "MergedWithNext"),
        "{" LETTERS ADDED("true,\"rstrip\":true") SPLIT(" ", "Isolated"),
        "{" LETTERS ADDED("false,\"lstrip\":true,\"rstrip\":true") "}",
        "{" LETTERS ADDED("false,\"single_word\":true") "}",
        "{" LETTERS ADDED("true,\"single_word\":true") "}",
        "{" LETTERS ADDED(
            "false,\"rstrip\":true") ",\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"_\"}}",
        "{" LETTERS ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
                    "\"prepend\":\"_\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]}}",
        "{" LETTERS
        ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"b \"},\"content\":\"c\"}}",
        "{" LETTERS
        ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" +\"},\"content\":\"_\"}}",
        "{" LETTERS ",\"normalizer\":{\"type\":\"Strip\"}}",
        "{" LETTERS NORMALIZERS(SPACES "," STRIP) "}",
        "{" LETTERS NORMALIZERS(REPLACE("ab") "," STRIP) "}",
        "{" LETTERS NORMALIZERS(
            "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"c{5,}\"},\"content\":\"a\"}") "}",
        "{" LETTERS NORMALIZERS(REPLACE("__") ",{\"type\":\"NFC\"}," SPACES
                                              ",{\"type\":\"NFD\"}") "}",
        "{" LETTERS NORMALIZERS(REPLACE("b ") "," BERT "," SPACES) "}",
        "{" LETTERS NORMALIZERS(
            "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a{2}\"},\"content\":\"c\"}") "}",
        "{" LETTERS NORMALIZERS(
            "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[bc]{3,}\"},\"content\":\"b\"}") "}",
        "{" LETTERS NORMALIZERS(
            "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"ab*c\"},\"content\":\"_\"}") "}",
        "{" LETTERS ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_"
                    "scheme\":\"always\"}}",
        "{" LETTERS ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_"
                    "scheme\":\"first\","
        "\"split\":false}}",
        "{" LETTERS
        ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},"
        "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\",\"split\":"
        "false}]}}",
        "{" LETTERS
        ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Whitespace\"},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}]}}",
        "{" LETTERS ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_"
                    "regex\":false}}",
        "{" LETTERS
        ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}}",
    };
    static const char *const words[] = {"a",   "b",  "c",        " ",   "  ",       "ab",
                                        "abc", "x",  "1",        "_",   "<a>",      "<",
                                        "cc",  "\n", "\xcc\x81", "ccc", "e\xcc\x81"};
    uint64_t r = 7;

    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
        osh_tokenizer *t = parse(cx, specs[k]);
        for (int rep = 0; rep < 30; rep++) {
            char s[512];
            size_t n = 0;
            while (n < 300) {
                r = r * 6364136223846793005ull + 1442695040888963407ull;
                const char *w = words[(r >> 33) % (rep % 2 ? 7 : sizeof words / sizeof *words)];
                n += (size_t)snprintf(s + n, sizeof s - n, "%s", w);
            }
            parts_check(cx, t, specs[k] + strlen("{" LETTERS), s, n);
        }
        osh_tokenizer_close(cx, t);
    }
}

static void real_texts_in_parts(void **state)
{
    osh_ctx *cx = *state;
    static const char *const files[] = {GOLDEN "mixed.txt", GOLDEN "invalid.txt"};
    osh_tokenizer *t = NULL;

    assert_ok(cx, osh_tokenizer_open(cx, &t, MODEL));
    for (int i = 0; i < 2; i++) {
        char *text = NULL; // own
        size_t n = 0;
        assert_ok(cx, osh_file_read_all(cx, &text, &n, files[i], 1 << 20));
        parts_check(cx, t, files[i], text, n);
        osh_free(cx, text);
    }
    osh_tokenizer_close(cx, t);
}

/* Memory use must not grow with the length of the text. Tests tokenizers with a pre-tokenizer, with
 * only merges, and with Digits before a regex. */
static void a_part_is_held(void **state)
{
    osh_ctx *cx = *state;
    static const char *const specs[] = {
        "{" LETTERS SPLIT(" ?\\\\p{L}+|\\\\s+(?!\\\\S)|\\\\s+", "Isolated"),
        "{" LETTERS ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{"
                    "\"type\":\"Prepend\","
        "\"prepend\":\"_\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" "
        "\"},\"content\":\"_\"}]}}",
        "{" LETTERS
        ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}}",
        "{" LETTERS ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_"
                    "scheme\":\"first\"}}",
        "{" LETTERS NORMALIZERS(STRIP "," REPLACE(
            "``") ",{\"type\":\"NFKD\"},{\"type\":\"StripAccents\"}," SPACES) SPLIT(" ", "Removed"),
        "{" LETTERS NORMALIZERS(BERT) ",\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}}",
    };
    static const char text[] = "ab abc c  abx 1abca ";
    size_t n = sizeof text - 1;

    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
        osh_tokenizer *t = parse(cx, specs[k]);
        osh_ids ids = {0};
        size_t peak = 0, before = osh_mem_used(cx, OSH_MEM_HOST);
        osh_tokenizer_begin(t);
        for (size_t i = 0; i < 200000; i++) { // the text has 3.6 MB
            ids.n = 0;
            assert_ok(cx, osh_tokenizer_feed(cx, t, &ids, text, n));
            size_t now = osh_mem_used(cx, OSH_MEM_HOST) - before;
            if (now > peak) peak = now;
        }
        assert_ok(cx, osh_tokenizer_end(cx, t, &ids));
        if (peak > (size_t)3 << 20)
            fail_msg("%s: %zu bytes were held", specs[k] + strlen("{" LETTERS), peak);
        osh_ids_deinit(cx, &ids);
        osh_tokenizer_close(cx, t);
    }
}

static void what_normalizers_make_is_bounded(void **state)
{
    osh_ctx *cx = *state;
    static const char grows[] =
        "{" LETTERS ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
#define TEN_TIMES "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"aaaaaaaaaa\"}"
        TEN_TIMES "," TEN_TIMES "," TEN_TIMES "," TEN_TIMES "," TEN_TIMES "," TEN_TIMES
        "," TEN_TIMES "]}}";
    osh_tokenizer *t = parse(cx, grows);
    osh_ids ids = {0};

    assert_ok(cx, osh_tokenizer_encode(cx, t, &ids, "bbb", 3, true));
    assert_fails(cx, OSH_E_UNSUPPORTED, "normalizers make more than 65632 bytes of 3",
                 osh_tokenizer_encode(cx, t, &ids, "aab", 3, true));
    assert_true(osh_mem_used_peak(cx, OSH_MEM_HOST) < (size_t)8 << 20);
    osh_ids_deinit(cx, &ids);
    osh_tokenizer_close(cx, t);
}

static size_t form_of(char *to, const char *s, size_t n, bool compat)
{
    utf8proc_uint8_t *made = NULL;
    utf8proc_ssize_t len =
        utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &made,
                     UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0));
    assert_in_range(len, 1, 100);
    memcpy(to, made, (size_t)len);
    free(made);
    return (size_t)len;
}

/* Tests characters for which osh_cp_starts_form is true. The first character of the decomposition
 * must not be a mark, and must not be the last character of any composition. */
static void starters_join_nothing_before_them(void **state)
{
    // [c]: true if c is the last character of a composition
    bool *second = calloc(0x110000, sizeof *second);
    char s[8], made[100];
    uint32_t cp = 0;
    int n = 0;

    (void)state;
    assert_non_null(second);
    for (uint32_t c = 0x80; c < 0x110000; c++) {
        if ((c >= 0xD800 && c < 0xE000) || !utf8proc_codepoint_valid((utf8proc_int32_t)c)) continue;
        size_t len = form_of(made, s, osh_utf8_encode(s, c), false), at = 0, first = 0;
        for (size_t i = 0; i < len; i += first)
            at = i, first = osh_utf8_decode(made + i, len - i, &cp);
        if (at) second[cp] = true;
    }
    for (int compat = 0; compat < 2; compat++)
        for (uint32_t c = 0x80; c < 0x110000; c++) {
            if ((c >= 0xD800 && c < 0xE000) || !osh_cp_starts_form(c, compat)) continue;
            size_t len = form_of(made, s, osh_utf8_encode(s, c), compat);
            osh_utf8_decode(made, len, &cp);
            if (utf8proc_get_property((utf8proc_int32_t)cp)->combining_class || second[cp])
                fail_msg("U+%04X begins with U+%04X in form %d", c, cp, compat);
            n++;
        }
    // letters, ideographs and syllables start a form, so a text has many such characters
    assert_true(n > 200000);
    free(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(components_in_parts, make_context, drop_context),
        cmocka_unit_test_setup_teardown(hard_cases_in_parts, make_context, drop_context),
        cmocka_unit_test_setup_teardown(real_texts_in_parts, make_context, drop_context),
        cmocka_unit_test_setup_teardown(a_part_is_held, make_context, drop_context),
        cmocka_unit_test_setup_teardown(what_normalizers_make_is_bounded, make_context,
                                        drop_context),
        cmocka_unit_test_setup_teardown(starters_join_nothing_before_them, make_context,
                                        drop_context),
    };
    return cmocka_run_group_tests_name("tokenizer_parts", tests, NULL, NULL);
}
