/* test_report.c - makes the JSON and the HTML report of an artificial run with many modules,
 * fallbacks, an error that is NaN, and a budget. Writes a profile and reads it again. */
#include "report/profiles.h"
#include "report/report.h"
#include "report/rows.h"
#include "torture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct made_up { // a plan and a run without a model
    osh_options opt;
    osh_checkpoint ck;
    osh_plan plan;
    osh_modifier modifier;
    osh_recipe recipe;
    osh_run run;
    osh_partition parts;
    osh_subgraph subgraphs[2];
    osh_q_scheme scheme;
    osh_linear *linears;
    osh_result *results;
} made_up;

static const char *step_name(const osh_modifier *m, int k)
{
    (void)m;
    return k ? "b" : "a";
}

static void made_up_make(made_up *m, int n)
{
    static const osh_quantizer quantizer = {.step = step_name};
    static const osh_modifier_type type = {.name = "Made up", .quantizer = &quantizer};
    *m = (made_up){.modifier = {.type = &type}};
    m->recipe = (osh_recipe){.modifiers = &m->modifier, .n = 1};
    m->scheme.group_name = "group_0";
    m->linears = calloc((size_t)n, sizeof *m->linears);
    m->results = calloc((size_t)n, sizeof *m->results);
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%d.<b>&\"up'", i);
        m->linears[i] = (osh_linear){.name = strdup(name), .scheme = &m->scheme, .subgraph = i % 2,
                                     .format = osh_format_find("pack-quantized")};
        m->results[i] = (osh_result){.nmse = 0.001 * (1 + i % 7), .objective = i % 3 ? 12.5 : -1,
                                     .nearest = i % 3 ? 25 : -1, .done = true};
    }
    m->subgraphs[0].name = "model.<i>";
    m->subgraphs[1].name = "model.layers.1";
    m->parts = (osh_partition){.parts = m->subgraphs, .n = 2};
    m->plan = (osh_plan){.in.opt = &m->opt,
                         .in.ck = &m->ck,
                         .schedule.parts = &m->parts,
                         .in.pipeline = OSH_PIPELINE_SEQUENTIAL,
                         .in.recipe = &m->recipe,
                         .match.linears = m->linears,
                         .match.n_linears = n,
                         .manifest.total_bytes = 1000};
    osh_plan_join(&m->plan);
    m->run = (osh_run){.plan = &m->plan, .budget = &m->plan.budget, .results = m->results};
}

static void made_up_drop(made_up *m)
{
    for (int i = 0; i < m->plan.match.n_linears; i++) free(m->linears[i].name);
    free(m->linears);
    free(m->results);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *s = text; (s = strstr(s, what)); s += strlen(what)) n++;
    return n;
}

/* Makes the report as JSON text (*json, own) and as a page (*html, own). */
static osh_status both(osh_ctx *cx, char **json, char **html, const osh_run *run)
{
    static const char path[] = "test_report.json";
    osh_status rc = OSH_OK;
    osh_report r = {0}; // own
    size_t n;
    OSH_TRY(osh_run_report(cx, &r, html, run));
    OSH_TRY(osh_file_write_by(cx, path, osh_report_write, &r));
    OSH_TRY(osh_file_read_all(cx, json, &n, path, 0));
done:
    osh_report_deinit(cx, &r);
    unlink(path);
    return rc;
}

static void write_both(osh_ctx *cx, made_up *m, char **json, char **html, int64_t budget)
{
    assert_ok(cx, osh_fields_default(cx, osh_option_fields, &m->opt));
    m->run.progress.budget_bytes = budget;
    assert_ok(cx, osh_option_set(cx, &m->opt, "model", "/a/secret place/the <model>/"));
    assert_ok(cx, osh_option_set(cx, &m->opt, "ignore", "lm_head"));
    assert_ok(cx, osh_profile_start(cx, NULL));
    osh_profile_end(cx, osh_profile_begin(cx, "observe", "model.<i>"));
    osh_profile_checkpoint(cx, "<script>");
    assert_ok(cx, both(cx, json, html, &m->run));
    osh_profile_stop(cx);
    osh_fields_deinit(cx, osh_option_fields, &m->opt);
}

static void few_modules(void **state)
{
    osh_ctx *cx;
    made_up m;
    char *json, *html;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    made_up_make(&m, 5);
    m.results[2].fallback = "rounded <to> nearest";
    m.results[3].nmse = 0; // a module with an error of 0 has a row, but no bar
    m.results[3].losses = (osh_losses){2, {8, 6.5}, 65};
    m.results[4].nmse = NAN;
    write_both(cx, &m, &json, &html, (int64_t)1 << 30);
    /* The beginning of the module's name occurs in 5 rows of modules and in one row of
     * fallbacks. */
    assert_int_equal(count(html, "<td>model.<wbr>layers.<wbr>"), 6);
    /* The end of the module's name occurs in 5 rows of modules, one row of fallbacks, and 5 bars of
     * the chart. */
    assert_int_equal(count(html, "&lt;b&gt;&amp;&quot;up&#39;"), 5 + 1 + 5);
    assert_int_equal(count(html, "rounded &lt;to&gt; nearest"), 1);
    assert_int_equal(count(html, "<b>&"), 0);
    assert_int_equal(count(html, "<script>"), 0);
    assert_int_equal(count(html, "model.<i>"), 0);
    assert_int_equal(count(html, " budget 1.1&nbsp;GB"), 1);
    assert_int_equal(count(html, "secret"), 0);
    // "the <model>" occurs in the name of the model and in an option
    assert_int_equal(count(html, "the &lt;model&gt;"), 2);
    assert_int_equal(count(html, "the</span> <span>&lt;model&gt;"), 3); // "the <model>" occurs in
                                                                        // three commands
    assert_non_null(
        strstr(json, "\"command\": \"oneshot --model 'the <model>/' --ignore lm_head\""));
    assert_int_equal(count(html, "nan\""), 0); // no coordinate is NaN
    assert_non_null(strstr(json, "\"budget_bytes\": 1073741824"));
    assert_non_null(strstr(json, "\"fallback\": \"rounded <to> nearest\""));
    assert_int_equal(count(html, ">a 100.0&nbsp;%, b 81.2&nbsp;%<"), 1);
    assert_int_equal(count(html, ">10.0&nbsp;%<"), 1);
    assert_non_null(strstr(json, "\"step\": \"b\""));
    assert_int_equal(count(json, "\"loss\": 6.5"), 1);
    assert_int_equal(count(json, "\"relative_output_error\": 0.1"), 1);
    assert_null(strstr(json, "secret"));
    assert_null(strstr(json, "NaN"));
    osh_free(cx, json);
    osh_free(cx, html);
    made_up_drop(&m);
    osh_ctx_free(cx);
}

static void many_modules(void **state)
{
    osh_ctx *cx;
    made_up m;
    char *json, *html;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    made_up_make(&m, 6000);
    m.results[4321].objective = 40; // the chart must show the module with the largest error
    write_both(cx, &m, &json, &html, 0);
    assert_int_equal(count(html, ": 160.0&nbsp;%</title>"), 1);
    assert_non_null(strstr(html, "<tr><td>model.<wbr>layers.<wbr>4321."));
    assert_true(count(html, "<tr><td>model.<wbr>layers.<wbr>") == 1000 && strlen(html) < 600000);
    assert_non_null(strstr(html, "All 6000 are in oneshot-report.json"));
    // 6000 modules and 2 subgraphs have the key relative_squared_error
    assert_int_equal(count(json, "\"relative_squared_error\""), 6000 + 2);
    osh_free(cx, json);
    osh_free(cx, html);
    made_up_drop(&m);
    osh_ctx_free(cx);
}

static osh_status report(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    char *json = NULL, *html = NULL; // own
    OSH_TRY(osh_profile_start(cx, NULL));
    osh_profile_end(cx, osh_profile_begin(cx, "observe", "model.<i>"));
    OSH_TRY(both(cx, &json, &html, &((made_up *)user)->run));
done:
    osh_profile_stop(cx);
    osh_free(cx, json);
    osh_free(cx, html);
    return rc;
}

static void no_memory(void **state)
{
    made_up m;
    made_up_make(&m, 3);
    assert_true(torture(report, &m) > 20);
    made_up_drop(&m);
}

static const char profile[] = "test_report_profile.yaml";

static osh_status profiles(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    osh_profiled of[2] = {0};            // own
    char *html = NULL, *text = NULL;     // own
    OSH_TRY(osh_profiled_read(cx, &of[0], profile));
    OSH_TRY(osh_profiled_read(cx, &of[1], profile));
    OSH_TRY(osh_profiles_html(cx, &html, of, 2));
    OSH_TRY(osh_profiles_text(cx, &text, of, 2));
done:
    for (int i = 0; i < 2; i++) osh_profiled_deinit(cx, &of[i]);
    osh_free(cx, html);
    osh_free(cx, text);
    return rc;
}

/* Writes a profile and reads it again. Checks the stages, their times without inner stages, the
 * checkpoints, the model and the method. */
static void profile_comes_back(void **state)
{
    osh_ctx *cx;
    osh_profiled p;
    osh_profile_data d;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_ok(cx, osh_profile_about(cx, "a \"model\"", "<method>"));
    assert_ok(cx, osh_profile_start(cx, profile));
    osh_scope outer = osh_profile_begin(cx, "observe", "model.layers.0");
    osh_scope inner = osh_profile_begin(cx, "load", "model.layers.0");
    char *block = osh_alloc(cx, 3 << 20);
    osh_free(cx, block);
    usleep(20000);
    osh_profile_end(cx, inner);
    osh_profile_checkpoint(cx, "mine: \xe2\x80\xa6");
    osh_profile_end(cx, outer);
    osh_profile_end(cx, osh_profile_begin(cx, "my own stage", NULL));
    osh_profile_stop(cx);
    assert_ok(cx, osh_profile_read(cx, &d));
    assert_ok(cx, osh_profiled_read(cx, &p, profile));
    assert_true(p.whole);
    assert_string_equal(p.model, "a \"model\"");
    assert_string_equal(p.method, "<method>");
    assert_string_equal(p.name, profile);
    assert_int_equal(p.d.n_rows, d.n_rows);
    for (size_t i = 0; i < d.n_rows; i++) {
        assert_string_equal(p.d.rows[i].phase, d.rows[i].phase);
        assert_int_equal(!p.d.rows[i].of, !d.rows[i].of);
        /* Records are rounded to milliseconds and hundredths of a MB. */
        assert_true(fabs(p.d.rows[i].seconds - d.rows[i].seconds) < 0.003);
        assert_true(llabs(p.d.rows[i].live_bytes - d.rows[i].live_bytes) < 20000);
    }
    assert_int_equal(p.d.n_marks, 1);
    assert_string_equal(p.d.marks[0].name, "mine: \xe2\x80\xa6");
    osh_profiled_deinit(cx, &p);
    osh_profile_data_deinit(cx, &d);
    osh_ctx_free(cx);
    assert_true(torture(profiles, NULL) > 40);
    unlink(profile);
}

/* Prints three rows in at most `most` lines. Each row has an order. If there are too few lines, the
 * rows with the highest order are left out. If lines remain, the rows with the lowest order get a
 * second line. A word that is longer than a line is cut between two characters. */
static void rows_share_lines(void **state)
{
    osh_ctx *cx;
    osh_rows r = {0};
    osh_buf b;
    char word[260] = "";
    int left;
    (void)state;
    osh_buf_init(&b, 0);
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (int i = 0; i < 60; i++) strcat(word, "\u00e4"); // makes a word of 120 bytes
    assert_int_equal(osh_rows_add(cx, &r, 2, "last", "%s", word), OSH_OK);
    assert_int_equal(osh_rows_add(cx, &r, 0, "first", "%s %s %s", word, word, word), OSH_OK);
    assert_int_equal(osh_rows_add(cx, &r, 1, "", "a\nb"), OSH_OK);
    for (int most = 1; most <= 5; most++) {
        int lines = 0;
        osh_buf_clear(&b);
        assert_int_equal(osh_rows_print(cx, &b, &left, &r, most), OSH_OK);
        assert_int_equal(left, most < 3 ? 3 - most : 0);
        for (char *at = b.data, *end; (end = strchr(at, '\n')); at = end + 1, lines++) {
            assert_in_range(end - at, OSH_ROW_LABEL + 1, 80);
            for (char *c = at; c < end; c++) // a line has only whole characters of two bytes
                if ((unsigned char)*c == 0xc3) assert_int_equal((unsigned char)*++c, 0xa4);
        }
        assert_int_equal(lines, most < 4 ? most : 4);
        assert_int_equal(strstr(b.data, "a\\u000ab") != NULL, most > 1);
        assert_int_equal(!strncmp(b.data, "last", 4), most > 2);
    }
    osh_rows_deinit(cx, &r);
    osh_buf_deinit(cx, &b);
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_modules),
        cmocka_unit_test(many_modules),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(profile_comes_back),
        cmocka_unit_test(rows_share_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
