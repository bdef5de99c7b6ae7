/* test_library.c - tests include/oneshot.h: errors, callbacks, and several jobs in a context. */
#include "oneshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "torture.h"

#define MODEL OSH_SOURCE_DIR "/examples/docs-llama-3m"
#define DATA MODEL "/data/calibration.jsonl"

typedef struct seen {
    oneshot *o;
    int n_progress, n_log, interrupt_at;
    double last_fraction;
    int n_parts; // number of progress reports with a fraction between 0 and 1
    char text[4096], log[4096];
} seen;

static void on_progress(void *user, const oneshot_progress *p)
{
    seen *s = user;
    assert_int_equal(p->size, sizeof *p);
    assert_true(p->fraction <= 1);
    s->n_parts += p->fraction > 0 && p->fraction < 1;
    s->last_fraction = p->fraction;
    if (++s->n_progress == s->interrupt_at) oneshot_interrupt(s->o);
}

static void on_log(void *user, int level, const char *text)
{
    seen *s = user;
    assert_true(level <= ONESHOT_LOG_DEBUG);
    s->n_log++;
    strncat(s->log, text, sizeof s->log - strlen(s->log) - 1);
}

static void on_text(void *user, const char *text, size_t n)
{
    seen *s = user;
    strncat(s->text, text,
            n < sizeof s->text - strlen(s->text) - 1 ? n : sizeof s->text - strlen(s->text) - 1);
}

static char dir[] = "/tmp/oneshot-library-XXXXXX";

static int begin(void **state)
{
    static seen s;
    memset(&s, 0, sizeof s);
    oneshot_options opt = ONESHOT_OPTIONS_INIT;
    opt.on_progress = on_progress, opt.on_log = on_log, opt.on_text = on_text, opt.user = &s,
    opt.threads = 2;
    *state = &s;
    return oneshot_new(&s.o, &opt);
}

static int end(void **state)
{
    oneshot_free(((seen *)*state)->o);
    return 0;
}

static void test_options(void **state)
{
    (void)state;
    struct { oneshot_options o; int64_t more; } newer = {.o = ONESHOT_OPTIONS_INIT};
    oneshot_options opt = ONESHOT_OPTIONS_INIT;
    oneshot *o = NULL;
    assert_int_equal(oneshot_new(&o, NULL), ONESHOT_OK);
    assert_string_equal(oneshot_error(o), "");
    oneshot_free(o);
    /* Options of a newer header with one more member: the value 0 is accepted, another value is
     * refused. */
    newer.o.size = sizeof newer;
    assert_int_equal(oneshot_new(&o, &newer.o), ONESHOT_OK);
    oneshot_free(o);
    newer.more = 1;
    assert_int_equal(oneshot_new(&o, &newer.o), ONESHOT_E_USAGE);
    assert_null(o);
    /* Options of an older header: members from on_log on are not read. */
    opt.size = offsetof(oneshot_options, on_log);
    opt.on_log = (void (*)(void *, int, const char *))(intptr_t)1;
    assert_int_equal(oneshot_new(&o, &opt), ONESHOT_OK);
    oneshot_free(o);
    opt.size = 0;
    assert_int_equal(oneshot_new(&o, &opt), ONESHOT_E_USAGE);
    opt = (oneshot_options)ONESHOT_OPTIONS_INIT, opt.threads = 4097;
    assert_int_equal(oneshot_new(&o, &opt), ONESHOT_E_USAGE);
    opt.threads = 0x7fffffff;
    assert_int_equal(oneshot_new(&o, &opt), ONESHOT_E_USAGE);
    opt.threads = -1;
    assert_int_equal(oneshot_new(&o, &opt), ONESHOT_E_USAGE);
    opt.threads = 0, opt.log_level = 4;
    assert_int_equal(oneshot_new(&o, &opt), ONESHOT_E_USAGE);
    oneshot_free(NULL);
}

/* Checks that the job fails with `code`, and that oneshot_error contains `part`. */
#define assert_refused(s, code, call, part)                                                        \
    do {                                                                                           \
        assert_int_equal((call), (code));                                                          \
        if (!strstr(oneshot_error((s)->o), (part)))                                                \
            fail_msg("message '%s'", oneshot_error((s)->o));                                       \
    } while (0)

static void test_refused(void **state)
{
    seen *s = *state;
    assert_refused(s, ONESHOT_E_USAGE, oneshot_compress(s->o, NULL), "--model is not given");
    assert_refused(s, ONESHOT_E_USAGE, oneshot_plan(s->o, (oneshot_argument[]){{"modle", ""}, {0}}),
                   "did you mean model?");
    assert_refused(s, ONESHOT_E_USAGE,
                   oneshot_plan(s->o, (oneshot_argument[]){{"threads", "1"}, {0}}),
                   "oneshot_options");
    assert_refused(s, ONESHOT_E_USAGE,
                   oneshot_plan(s->o, (oneshot_argument[]){{"seed", NULL}, {0}}), "want a value");
    assert_refused(s, ONESHOT_E_USAGE, oneshot_plan(s->o, (oneshot_argument[]){{"seed", "x"}, {0}}),
                   "seed");
    assert_refused(s, ONESHOT_E_USAGE,
                   oneshot_plan(s->o, (oneshot_argument[]){{"output", "a"},
                                                           {"ignore", "x"},
                                                           {"ignore", "y"},
                                                           {"output-dir", "b"},
                                                           {0}}),
                   "output-dir was given twice: 'a' and 'b'");
    assert_refused(s, ONESHOT_E_USAGE,
                   oneshot_compress(s->o, (oneshot_argument[]){{"streaming", "true"}, {0}}),
                   "--model is not given"); // `streaming` is accepted, so the error is a missing
                                            // model
    assert_refused(s, ONESHOT_E_USAGE,
                   oneshot_eval(s->o, (oneshot_argument[]){{"streaming", "true"}, {0}}),
                   "unknown option 'streaming'");
    assert_refused(s, ONESHOT_E_USAGE, oneshot_verify(s->o, NULL, NULL), "output directory");
    assert_refused(s, ONESHOT_E_USAGE, oneshot_verify(s->o, "/nowhere", NULL), "/nowhere");
    assert_int_equal(s->n_progress, 0);
}

static void test_jobs(void **state)
{
    seen *s = *state;
    char out[80];
    const oneshot_argument args[] = {
        {"model", MODEL},         {"dataset", DATA},        {"scheme", "W4A16"},
        {"method", "gptq"},       {"output_dir", out},      {"num_calibration_samples", "4"},
        {"max-seq-length", "32"}, {"host_memory", "400MB"}, {0}};
    snprintf(out, sizeof out, "%s/out", dir);
    assert_int_equal(oneshot_plan(s->o, args), ONESHOT_OK);
    assert_non_null(strstr(s->text, "quantized  28 modules"));
    s->interrupt_at = 6;
    assert_refused(s, ONESHOT_E_INTERRUPTED, oneshot_compress(s->o, args), "interrupted");
    assert_int_not_equal(access(out, F_OK), 0);
    s->text[0] = 0; // clears what the interrupted job has printed; the same call continues the job
    assert_int_equal(oneshot_compress(s->o, args), ONESHOT_OK);
    assert_string_equal(oneshot_error(s->o), "");
    assert_non_null(strstr(s->text, "28 modules"));
    assert_true(s->n_progress > 10 && s->last_fraction > 0.9 && s->n_parts > 5);
    assert_int_equal(s->n_log, 0); // the job has logged no warnings
    s->text[0] = 0;
    assert_int_equal(oneshot_verify(s->o, out, (oneshot_argument[]){{"model", MODEL}, {0}}),
                     ONESHOT_OK);
    s->text[0] = 0;
    assert_int_equal(oneshot_eval(s->o, (oneshot_argument[]){{"model", out},
                                                             {"dataset", DATA},
                                                             {"max_windows", "2"},
                                                             {"max_seq_length", "64"},
                                                             {0}}),
                     ONESHOT_OK);
    assert_non_null(strstr(s->text, "perplexity "));
    oneshot_interrupt(s->o); // if no job runs, an interrupt ends the next job, but no later job
    assert_int_equal(
        oneshot_eval(s->o, (oneshot_argument[]){{"model", out}, {"dataset", DATA}, {0}}),
        ONESHOT_E_INTERRUPTED);
    assert_int_equal(oneshot_verify(s->o, out, NULL), ONESHOT_OK);
}

static const char *variable(const char *name)
{
    return !strcmp(name, "HF_HOME") ? dir : !strcmp(name, "HF_HUB_OFFLINE") ? "1" : NULL;
}

static void test_names(void **state)
{
    (void)state;
    const oneshot_argument args[] = {{"model", "org/name"}, {"scheme", "W4A16"}, {0}};
    oneshot_options opt = ONESHOT_OPTIONS_INIT;
    for (int named = 0; named < 2; named++) {
        seen s = {0};
        opt.variable = named ? variable : NULL;
        assert_int_equal(oneshot_new(&s.o, &opt), ONESHOT_OK);
        assert_int_not_equal(oneshot_plan(s.o, args), ONESHOT_OK);
        const char *why = named ? "has no org/name" : "wanted a model's";
        if (!strstr(oneshot_error(s.o), why)) fail_msg("message '%s'", oneshot_error(s.o));
        oneshot_free(s.o);
    }
}

static void test_warning(void **state)
{
    seen *s = *state;
    assert_int_equal(
        oneshot_plan(
            s->o,
            (oneshot_argument[]){{"model", MODEL}, {"scheme", "W4A16"}, {"ignore", "nobody"}, {0}}),
        ONESHOT_OK);
    assert_int_equal(s->n_log, 1);
    assert_non_null(strstr(s->log, "ignore nobody"));
}

/* Functions accept a context or a name that is NULL. */
static void test_null(void **state)
{
    seen *s = *state;
    char path[160];
    assert_int_equal(oneshot_new(NULL, NULL), ONESHOT_E_USAGE);
    assert_int_equal(oneshot_compress(NULL, NULL), ONESHOT_E_USAGE);
    assert_int_equal(oneshot_verify(NULL, "out", NULL), ONESHOT_E_USAGE);
    assert_int_equal(oneshot_profile_start(NULL, "p.yaml"), ONESHOT_E_USAGE);
    assert_int_equal(oneshot_stage_begin(NULL, "stage"), -1);
    oneshot_stage_end(NULL, 0), oneshot_checkpoint(NULL, "here"), oneshot_profile_stop(NULL);
    oneshot_interrupt(NULL);
    assert_non_null(strstr(oneshot_error(NULL), "NULL"));
    snprintf(path, sizeof path, "%s/null.yaml", dir);
    assert_int_equal(oneshot_profile_start(s->o, path), ONESHOT_OK);
    int stage = oneshot_stage_begin(s->o, NULL);
    oneshot_checkpoint(s->o, NULL);
    oneshot_stage_end(s->o, stage);
    oneshot_profile_stop(s->o);
}

/* The message of a failed start does not contain those of earlier failures. */
static void test_profile_again(void **state)
{
    seen *s = *state;
    char first[256];
    assert_int_equal(oneshot_profile_start(s->o, "/nowhere/p.yaml"), ONESHOT_E_IO);
    snprintf(first, sizeof first, "%s", oneshot_error(s->o));
    assert_int_equal(oneshot_profile_start(s->o, "/nowhere/p.yaml"), ONESHOT_E_IO);
    assert_string_equal(oneshot_error(s->o), first);
    assert_int_equal(oneshot_profile_start(s->o, NULL), ONESHOT_OK);
    assert_string_equal(oneshot_error(s->o), "");
    oneshot_profile_stop(s->o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_names),
        cmocka_unit_test_setup_teardown(test_refused, begin, end),
        cmocka_unit_test_setup_teardown(test_jobs, begin, end),
        cmocka_unit_test_setup_teardown(test_warning, begin, end),
        cmocka_unit_test_setup_teardown(test_null, begin, end),
        cmocka_unit_test_setup_teardown(test_profile_again, begin, end),
    };
    if (!mkdtemp(dir)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char line[160];
    snprintf(line, sizeof line, "rm -rf %s", dir);
    return system(line) || failed;
}
