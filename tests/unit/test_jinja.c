/* test_jinja.c - tests templates: errors and their lines; limits; the date; rows of a data set;
 * failing allocations. tests/golden/chat compares the output with transformers. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chat/chat.h"
#include "data/dataset.h"
#include "unit/text_helpers.h"

static osh_status template_render(osh_ctx *cx, osh_buf *out, const char *text, osh_jinja_vars vars)
{
    osh_jinja *t = NULL;
    if (!vars.json) vars.json = "{\"a\": \"A\", \"n\": 3}", vars.n_json = 18;
    osh_status rc = osh_jinja_new(cx, &t, text, strlen(text), "the template");
    osh_buf_init(out, 0);
    if (!rc) rc = osh_jinja_render(cx, t, out, &vars);
    osh_jinja_free(cx, t);
    return rc;
}

static void gives(osh_ctx *cx, const char *text, const char *wanted, osh_jinja_vars vars)
{
    osh_buf out;
    assert_ok(cx, template_render(cx, &out, text, vars));
    assert_string_equal(out.len ? out.data : "", wanted);
    osh_buf_deinit(cx, &out);
}

static void refuses(osh_ctx *cx, osh_status rc, const char *text, const char *holds)
{
    osh_buf out;
    assert_fails(cx, rc, holds, template_render(cx, &out, text, (osh_jinja_vars){0}));
    osh_buf_deinit(cx, &out);
}

static void test_messages_name_construct_and_line(void **state)
{
    osh_ctx *cx = *state;
    refuses(cx, OSH_E_UNSUPPORTED, "a\n\n{% include 'x' %}",
            "the template line 3: the tag 'include' is not supported");
    refuses(cx, OSH_E_UNSUPPORTED, "{{ a\n | xmlattr }}",
            "line 2: the filter 'xmlattr' is not supported");
    refuses(cx, OSH_E_UNSUPPORTED, "{{ a }}\n{{ a is escaped }}",
            "line 2: the test 'escaped' is not supported");
    refuses(cx, OSH_E_UNSUPPORTED, "\n{{ a.zfill(3) }}",
            "line 2: the method 'zfill' of a string is not supported");
    refuses(cx, OSH_E_UNSUPPORTED, "{% for i in [] recursive %}{% endfor %}",
            "line 1: a recursive loop");
    refuses(cx, OSH_E_UNSUPPORTED, "{{ '%d' % 3 }}", "formatting a string by '%'");
    refuses(cx, OSH_E_UNSUPPORTED, "{{ joiner() }}", "cycler, joiner and lipsum");
    refuses(cx, OSH_E_UNSUPPORTED, "{{ f(*a) }}", "arguments out of a list");
    refuses(cx, OSH_E_UNSUPPORTED, "{{ strftime_now('%Q') }}", "strftime_now: '%Q'");
    refuses(cx, OSH_E_UNSUPPORTED, "{{ 9223372036854775807 }}", "the number 9223372036854775807");
    refuses(cx, OSH_E_UNSUPPORTED, "{{ 999999999999999999 * 99 }}", "does not fit in 64 bits");
    refuses(cx, OSH_E_FORMAT, "{% if 1 %}\n{% for i in a %}\n",
            "line 2: the template ends without the 'endfor'");
    refuses(cx, OSH_E_FORMAT, "{{ raise_exception('no ' ~ a) }}",
            "the template refuses the row: no A");
    refuses(cx, OSH_E_FORMAT, "{{ zz.x }}", "'zz' is undefined, and so has no 'x'");
    refuses(cx, OSH_E_FORMAT, "{{ a b }}", "line 1: found 'b', want '}}'");
    refuses(cx, OSH_E_FORMAT, "\n{{ 'a }}", "line 2: a string without its closing '");
    refuses(cx, OSH_E_FORMAT, "{{ [1)] }}", "a ')' without its opening bracket");
    refuses(cx, OSH_E_FORMAT, "x\n{#", "line 2: a comment '{#' without '#}'");
}

/* Each expression reads 1 MB or 20000 items, and is rendered 100000 times. If bytes did not count
 * as steps, most expressions would take minutes. */
static void test_steps_count_bytes(void **state)
{
    osh_ctx *cx = *state;
    static const char *const expressions[] = {
        "s|length",
        "s|count",
        "s[999998:]|length",
        "s[0]",
        "s[-1]",
        "s[::-2]|length",
        "s == t",
        "s != t",
        "s < t",
        "s <= t",
        "s is eq(t)",
        "s is lt(t)",
        "s is lower",
        "'y' in s",
        "u in s",
        "s in [t, u]",
        "s is in([t])",
        "d[s]",
        "d.get(t)",
        "{s: 1}[t]",
        "dict(d)|length",
        "s|upper|length",
        "s|title|length",
        "s|trim(t)|length",
        "s|reverse|length",
        "s|replace('y', 'z')|length",
        "s|indent|length",
        "s|tojson|length",
        "s|string == t",
        "[s]|string|length",
        "s|list|length",
        "s|first",
        "s|last",
        "blank|int",
        "blank|trim",
        "(s ~ t)|length",
        "(s + t)|length",
        "[s, t]|join|length",
        "[s, t]|sort|length",
        "[s, t]|unique|list|length",
        "[s, t]|max|length",
        "[s]|map('length')|sum",
        "[s]|select('eq', t)|list|length",
        "[s].index(t)",
        "[s].count(t)",
        "s.find('y')",
        "s.rfind('y')",
        "s.rfind(half)",
        "s.count('y')",
        "s.count('')",
        "s.split('y')|length",
        "s.split()|length",
        "s.rsplit('y', 1)|length",
        "s.rsplit(half, 1)|length",
        "s.partition('y')|length",
        "s.rpartition('y')|length",
        "s.splitlines()|length",
        "s.startswith(t)",
        "s.endswith(t)",
        "s.endswith((t, u))",
        "s.removeprefix(t)|length",
        "s.removesuffix(t)|length",
        "blank.isspace()",
        "digits.isdigit()",
        "s.lower()|length",
        "s.strip(t)|length",
        "blank.strip()",
        "s.replace('y', '')|length",
        "s.replace(s, t)|length",
        "'-'.join([s, t])|length",
        "s.title()|length",
        "[s] == [t]",
        "[s] < [t]",
        "d == e",
        "d|tojson|length",
        "(d|dictsort)|length",
        "n in numbers",
        "numbers|sum",
        "numbers|max",
        "numbers|sort|length",
        "numbers|reverse|first",
        "numbers|map('string')|list|length",
        "numbers|list|length",
        "numbers == others",
        "numbers.count(n)",
        "numbers[1:]|length",
    };
    char text[1024];

    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
        snprintf(text, sizeof text,
                 "{%% set s = 'x' * 1000 * 1000 %%}{%% set t = 'x' * 1000 * 1000 %%}{%% set u = t "
                 "~ 'y' %%}"
                 "{%% set half = 'b' ~ 'x' * 500000 %%}{%% set d = {s: 1} %%}{%% set e = {t: 1} %%}"
                 "{%% set blank = ' ' * 1000 * 1000 %%}{%% set digits = '1' * 1000 * 1000 %%}{%% "
                 "set numbers = [7] * 20000 %%}"
                 "{%% set others = [7] * 20000 %%}{%% set n = 8 %%}{%% for i in range(100000) "
                 "%%}{{ %s }}{%% endfor %%}",
                 expressions[i]);
        osh_buf out;
        osh_status rc = template_render(cx, &out, text, (osh_jinja_vars){.max_steps = 400000});
        if (rc != OSH_E_UNSUPPORTED || !strstr(osh_error_text(cx), "more than 400000 steps"))
            fail_msg("%s: %d, %s", expressions[i], rc, osh_error_text(cx));
        osh_error_clear(cx);
        osh_buf_deinit(cx, &out);
    }
}

static void test_last_place_of_a_part(void **state)
{
    osh_ctx *cx = *state;
    gives(cx,
          "{{ 'abab'.rfind('ab') }} {{ 'abab'.rfind('ba') }} {{ 'ab'.rfind('abc') }} {{ "
          "''.rfind('') }}",
          "2 1 -1 0", (osh_jinja_vars){0});
    gives(cx,
          "{{ 'aaa'.rsplit('aa', 1) }} {{ 'h\xc3\xa9h\xc3\xa9'.rfind('\xc3\xa9') }} {{ "
          "'xba'.rfind('xa') }}",
          "['a', ''] 3 -1", (osh_jinja_vars){0});
}

/* The path ends with a number. Digits after the end of the path in memory do not belong to it. */
static void test_index_in_a_path_ends_with_it(void **state)
{
    osh_ctx *cx = *state;
    gives(cx, "{{ [['p', 'q', 'r']]|map(attribute='1234'[:1])|join }}", "q", (osh_jinja_vars){0});
}

static void test_bounds(void **state)
{
    osh_ctx *cx = *state;
    osh_buf out;
    assert_fails(cx, OSH_E_UNSUPPORTED, "more than 1000 steps: the template does not end",
                 template_render(cx, &out, "{% for i in range(999) %}{% endfor %}",
                                 (osh_jinja_vars){.max_steps = 1000}));
    osh_buf_deinit(cx, &out);
    refuses(cx, OSH_E_UNSUPPORTED,
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "more than 256 MiB of values");
    refuses(cx, OSH_E_UNSUPPORTED, "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "nested more than 400 deep");
    refuses(cx, OSH_E_UNSUPPORTED, "{{ 'x' * 999999999999 }}", "more than 256 MiB");
    refuses(cx, OSH_E_UNSUPPORTED,
            "{% set ns = namespace(l=[]) %}{% for i in range(900) %}{% set ns.l = [ns.l] %}{% "
            "endfor %}{{ ns.l }}",
            "nested more than 400 deep");
}

static void test_date_and_strict(void **state)
{
    osh_ctx *cx = *state;
    gives(cx, "{{ strftime_now('%d %b %Y') }}", "26 Jul 2024", (osh_jinja_vars){0});
    gives(cx, "{{ strftime_now('%A %d %B %Y, day %j') }}", "Thursday 29 February 2024, day 060",
          (osh_jinja_vars){.date = "2024-02-29"});
    assert_fails(cx, OSH_E_USAGE, "the date is '2023-02-29', want one such as 2024-07-26",
                 osh_jinja_check_date(cx, "2023-02-29"));
    assert_fails(cx, OSH_E_USAGE, "the date is '1-1-1'", osh_jinja_check_date(cx, "1-1-1"));
    gives(cx, "{{ zz }}{{ a }}", "A", (osh_jinja_vars){0});
    osh_buf out;
    assert_fails(cx, OSH_E_FORMAT, "line 1: 'zz' is undefined",
                 template_render(cx, &out, "{{ zz }}{{ a }}", (osh_jinja_vars){.strict = true}));
    osh_buf_deinit(cx, &out);
}

/* ---- a model directory and rows ---- */

typedef struct place {
    char dir[32], path[64];
} place;

static void file_put(const place *p, const char *name, const char *text)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(text, 1, strlen(text), f) == strlen(text) && !fclose(f));
}

static place place_new(void)
{
    place p = {.dir = "test_jinja_XXXXXX"};
    assert_non_null(mkdtemp(p.dir));
    return p;
}

static void place_drop(const place *p)
{
    static const char *const names[] = {"tokenizer_config.json", "chat_template.jinja",
                                        "special_tokens_map.json", "rows.jsonl", "rows.csv"};
    char path[96];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", p->dir, names[i]);
        unlink(path);
    }
    rmdir(p->dir);
}

static void chat_gives(osh_ctx *cx, const place *p, const char *row, const char *column,
                       const char *wanted)
{
    osh_chat *c = NULL;
    osh_buf out;
    osh_buf_init(&out, 0);
    assert_ok(cx, osh_chat_open(cx, &c, p->dir, NULL));
    assert_ok(cx, osh_chat_render(cx, c, &out, row, strlen(row), column));
    assert_string_equal(out.len ? out.data : "", wanted);
    osh_buf_deinit(cx, &out);
    osh_chat_free(cx, c);
}

static void test_where_the_template_is(void **state)
{
    osh_ctx *cx = *state;
    osh_chat *c = NULL;
    place p = place_new();
    static const char row[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}";

    // the text is that of LLM Compressor's default template, without eos_token
    chat_gives(cx, &p, row, NULL, "<|user|>\nq\n");
    file_put(&p, "tokenizer_config.json",
             "{\"eos_token\": \"</s>\", \"chat_template\": \"{{ eos_token ~ unk_token }}\"}");
    file_put(&p, "special_tokens_map.json",
             "{\"unk_token\": {\"content\": \"<unk>\"}, \"eos_token\": \"other\"}");
    chat_gives(cx, &p, row, NULL, "</s><unk>");
    file_put(&p, "tokenizer_config.json",
             "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"{% bad %}\"}, "
             "{\"name\": \"default\", \"template\": \"{{ tools }} {{ messages|length }}\"}]}");
    chat_gives(cx, &p, row, NULL, "None 1");
    file_put(&p, "tokenizer_config.json",
             "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}]}");
    assert_fails(cx, OSH_E_FORMAT, "no chat_template has the name 'default', found rag",
                 osh_chat_open(cx, &c, p.dir, NULL));
    file_put(&p, "tokenizer_config.json", "{\"chat_template\": 3}");
    assert_fails(cx, OSH_E_FORMAT, "want a string or a list",
                 osh_chat_open(cx, &c, p.dir, NULL));
    file_put(&p, "chat_template.jinja", "file{% nosuch %}");
    assert_fails(cx, OSH_E_UNSUPPORTED, "chat template line 1: the tag 'nosuch'",
                 osh_chat_open(cx, &c, p.dir, NULL));
    assert_fails(cx, OSH_E_USAGE, "the date is 'today'", osh_chat_open(cx, &c, p.dir, "today"));
    place_drop(&p);
}

static void chat_refuses(osh_ctx *cx, const place *p, const char *row, const char *holds)
{
    osh_chat *c = NULL;
    osh_buf out;
    osh_buf_init(&out, 0);
    assert_ok(cx, osh_chat_open(cx, &c, p->dir, NULL));
    assert_fails(cx, OSH_E_FORMAT, holds, osh_chat_render(cx, c, &out, row, strlen(row), NULL));
    osh_buf_deinit(cx, &out);
    osh_chat_free(cx, c);
}

static void test_columns_of_a_conversation(void **state)
{
    osh_ctx *cx = *state;
    place p = place_new();
    file_put(&p, "chat_template.jinja",
             "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}");
    chat_gives(cx, &p,
               "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
               "\"value\": "
               "\"b\"}, {\"from\": \"system\", \"value\": \"c\"}]}",
               NULL, "user=a;assistant=b;system=c;");
    chat_gives(cx, &p, "{\"response\": \"r\", \"prompt\": \"p\"}", NULL, "user=p;assistant=r;");
    chat_gives(
        cx, &p,
        "{\"messages\": [{\"role\": \"x\"}], \"conversations\": [{\"from\": \"y\", \"value\": 1}]}",
        "conversations", "y=1;");
    chat_refuses(cx, &p, "{\"messages\": []}",
                 "the column 'messages' is an empty list, want a list of messages");
    chat_refuses(cx, &p, "{\"messages\": \"hi\"}", "the column 'messages' is a string");
    chat_refuses(cx, &p, "{\"messages\": [\"hi\"]}", "message 1 is a string, want an object");
    chat_refuses(cx, &p, "{\"conversations\": [{\"from\": \"human\"}]}",
                 "item 1 of 'conversations' has no 'from' and");
    chat_refuses(cx, &p, "{\"prompt\": \"p\"}",
                 "want strings in the columns 'prompt' and 'response'");
    chat_refuses(cx, &p, "{\"other\": 1}", "no column 'messages' with a conversation");
    chat_refuses(cx, &p, "{\"question\": \"q\", \"answer\": 4}",
                 "want strings in the columns 'question' and 'answer'");
    chat_refuses(cx, &p, "{\"instruction\": \"i\", \"input\": [], \"output\": \"o\"}",
                 "want strings in the columns 'instruction', 'input' and 'output'");
    chat_refuses(cx, &p, "{\"prompt\": [{\"role\": \"user\"}], \"completion\": 7}",
                 "the column 'completion' is an integer, want a string or a list of messages");
    chat_refuses(cx, &p, "{\"prompt\": [\"a\"], \"completion\": \"b\"}",
                 "message 1 is a string, want an object");
    chat_refuses(cx, &p, "{\"messages\": [{\"role\": \"user\"}], \"tools\": {}}",
                 "the column 'tools' is a dict, want a list");
    chat_refuses(cx, &p, "{\"messages\": [{\"role\": \"user\"}], \"tools\": \"[1\"}",
                 "reading the JSON text in the column 'tools'");
    chat_refuses(cx, &p, "{\"messages\": [1 2]}", "found no ','");
    place_drop(&p);
}

/* ---- data sets ---- */

#define MODEL OSH_SOURCE_DIR "/examples/docs-llama-3m"

static void load(osh_ctx *cx, osh_dataset *d, const place *p, const char *file,
                 osh_dataset_options opt)
{
    osh_tokenizer *tok = NULL;
    char path[96];
    snprintf(path, sizeof path, "%s/%s", p->dir, file);
    opt.path = path, opt.max_seq_length = opt.max_seq_length ? opt.max_seq_length : 512;
    assert_ok(cx, osh_tokenizer_open(cx, &tok, MODEL));
    assert_ok(cx, osh_dataset_load(cx, d, tok, &opt));
    osh_tokenizer_close(cx, tok);
}

/* Checks that sample i has the ids of `text`, encoded without special tokens. */
static void check_sample(osh_ctx *cx, const osh_dataset *d, int64_t i, const char *text)
{
    osh_tokenizer *tok = NULL;
    osh_ids ids = {0};
    assert_ok(cx, osh_tokenizer_open(cx, &tok, MODEL));
    assert_ok(cx, osh_tokenizer_encode(cx, tok, &ids, text, strlen(text), false));
    assert_int_equal(d->offsets[i + 1] - d->offsets[i], ids.n);
    assert_memory_equal(d->ids + d->offsets[i], ids.ids, (size_t)ids.n * sizeof *ids.ids);
    osh_ids_deinit(cx, &ids);
    osh_tokenizer_close(cx, tok);
}

static void test_rows_of_conversations(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset d = {0};
    place p = place_new();
    file_put(&p, "rows.jsonl",
             "{\"id\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"How?\"}, {\"role\": "
             "\"assistant\", \"content\": \"So.\"}]}\n\n{\"messages\": [{\"role\": \"user\", "
             "\"content\": "
             "\"more \\u00e9\"}], \"id\": 2}\n");
    load(cx, &d, &p, "rows.jsonl", (osh_dataset_options){.model_dir = MODEL});
    assert_int_equal(d.n, 2);
    check_sample(cx, &d, 0, "<|user|>\nHow?<|endoftext|>\n<|assistant|>\nSo.<|endoftext|>\n");
    check_sample(cx, &d, 1, "<|user|>\nmore \xc3\xa9<|endoftext|>\n");
    osh_dataset_deinit(cx, &d);
    load(cx, &d, &p, "rows.jsonl",
         (osh_dataset_options){
             .model_dir = MODEL, .shuffle = true, .max_seq_length = 4, .text_column = "messages"});
    assert_int_equal(d.offsets[2], 8); // the row is cut to 8 tokens
    osh_dataset_deinit(cx, &d);
    place_drop(&p);
}

static void test_rows_by_a_text_template(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset d = {0};
    place p = place_new();
    file_put(&p, "rows.jsonl", "{\"q\": \"Two?\", \"n\": 2.0}\n{\"q\": \"x\", \"n\": [1]}\n");
    file_put(&p, "rows.csv",
             "\xef\xbb\xbfq,\"the \"\"n\"\"\",z\r\nTwo?,\"a, \"\"b\"\"\n\",\r\n,1,2\r\n");
    load(cx, &d, &p, "rows.jsonl", (osh_dataset_options){.text_template = "Q: {{ q }} {{ n }}"});
    check_sample(cx, &d, 0, "Q: Two? 2.0");
    check_sample(cx, &d, 1, "Q: x [1]");
    osh_dataset_deinit(cx, &d);
    load(cx, &d, &p, "rows.csv", (osh_dataset_options){.text_template = "{{ q }}|{{ z }}|"});
    check_sample(cx, &d, 0, "Two?||");
    check_sample(cx, &d, 1, "|2|");
    osh_dataset_deinit(cx, &d);
    place_drop(&p);
}

static void test_data_that_is_refused(void **state)
{
    osh_ctx *cx = *state;
    osh_dataset d = {0};
    osh_tokenizer *tok = NULL;
    place p = place_new();
    char path[96];
    snprintf(path, sizeof path, "%s/rows.jsonl", p.dir);
    osh_dataset_options opt = {.path = path, .max_seq_length = 9, .text_template = "{{ zz }}"};
    file_put(&p, "rows.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": 3}]}\n");
    assert_ok(cx, osh_tokenizer_open(cx, &tok, MODEL));
    assert_fails(cx, OSH_E_FORMAT, "text template line 1: 'zz' is undefined; while reading",
                 osh_dataset_load(cx, &d, tok, &opt));
    opt.text_column = "zz";
    assert_fails(cx, OSH_E_USAGE, "a text template and the text column 'zz'",
                 osh_dataset_load(cx, &d, tok, &opt));
    opt.text_column = opt.text_template = NULL, opt.model_dir = MODEL;
    assert_fails(cx, OSH_E_FORMAT,
                 "chat template line 2: '+' does not support a string and an integer;",
                 osh_dataset_load(cx, &d, tok, &opt));
    opt.model_dir = NULL;
    assert_fails(cx, OSH_E_FORMAT, "no column 'text', found 'messages'",
                 osh_dataset_load(cx, &d, tok, &opt));
    opt.text_column = "messages";
    assert_fails(cx, OSH_E_USAGE, "there is no chat template", osh_dataset_load(cx, &d, tok, &opt));
    osh_tokenizer_close(cx, tok);
    place_drop(&p);
}

static osh_status render_all(osh_ctx *cx, void *user)
{
    osh_chat *c = NULL;
    osh_buf out;
    static const char row[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"q\\u00e9\"}]}";
    osh_buf_init(&out, 0);
    osh_status rc = osh_chat_open(cx, &c, user, NULL);
    if (!rc) rc = osh_chat_render(cx, c, &out, row, sizeof row - 1, NULL);
    if (!rc) assert_string_equal(out.data, "[1, 'A']QÉ{\n  \"a\": 1.5\n}caller x|b|<s>");
    osh_buf_deinit(cx, &out);
    osh_chat_free(cx, c);
    return rc;
}

static void test_failing_allocations(void **state)
{
    place p = place_new();
    file_put(&p, "tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    file_put(
        &p, "chat_template.jinja",
        "{% macro m(x) %}{{ caller() ~ ' ' ~ x }}{% endmacro %}{% set l = [1, 'a'|upper] %}{{ l }}"
        "{% for m in messages %}{{ m.content|upper }}{% endfor %}{{ {'a': 1.5}|tojson(indent=2) }}"
        "{% call m('x') %}caller{% endcall %}{{ 'a|b'.split('a')|join }}|{% set b %}{{ bos_token "
        "}}{% endset %}"
        "{{ b }}");
    torture(*state, render_all, p.dir);
    place_drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_messages_name_construct_and_line, make_context,
                                        drop_context),
        cmocka_unit_test_setup_teardown(test_bounds, make_context, drop_context),
        cmocka_unit_test_setup_teardown(test_steps_count_bytes, make_context, drop_context),
        cmocka_unit_test_setup_teardown(test_last_place_of_a_part, make_context, drop_context),
        cmocka_unit_test_setup_teardown(test_index_in_a_path_ends_with_it, make_context,
                                        drop_context),
        cmocka_unit_test_setup_teardown(test_date_and_strict, make_context, drop_context),
        cmocka_unit_test_setup_teardown(test_where_the_template_is, make_context, drop_context),
        cmocka_unit_test_setup_teardown(test_columns_of_a_conversation, make_context, drop_context),
        cmocka_unit_test_setup_teardown(test_rows_of_conversations, make_context, drop_context),
        cmocka_unit_test_setup_teardown(test_rows_by_a_text_template, make_context, drop_context),
        cmocka_unit_test_setup_teardown(test_data_that_is_refused, make_context, drop_context),
        cmocka_unit_test_setup_teardown(test_failing_allocations, make_context, drop_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
