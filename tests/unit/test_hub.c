/* test_hub.c - reads names of the Hub and settings of the environment, and finds snapshots in the
 * cache. */
#include "dir_fixture.h"
#include "hub/hub.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *(*vars)[2]; // the environment: rows of name and value; a row of NULLs ends the
                               // list
static const char *env(const char *name)
{
    for (const char *(*v)[2] = vars; v && (*v)[0]; v++)
        if (!strcmp((*v)[0], name)) return (*v)[1];
    return NULL;
}

static void test_names(void **state)
{
    fixture *f = *state;
    static const struct { const char *text, *id, *revision; } rows[] = {
        // id NULL: the text is a path
        {"org/name", "org/name", "main"},
        {"Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", "main"},
        {"_a/b_@v1.0", "_a/b_", "v1.0"},
        {"a/b@refs/pr/1", "a/b", "refs/pr/1"},
        {"name", NULL, NULL},
        {"./a/b", NULL, NULL},
        {"../a", NULL, NULL},
        {"/a/b", NULL, NULL},
        {"a/b/c", NULL, NULL},
        {"a/b/", NULL, NULL},
        {"a//b", NULL, NULL},
        {"~/a", NULL, NULL},
        {"a/b--c", NULL, NULL},
        {"a/b.git", NULL, NULL},
        {"a/.b", NULL, NULL},
        {"a/b.", NULL, NULL},
        {"a/b..c", NULL, NULL},
        {"a/b@", NULL, NULL},
        {"a/b@../x", NULL, NULL},
        {"a/b@x/../../y", NULL, NULL},
        {"a/b@/x", NULL, NULL},
        {"a/b@x\\y", NULL, NULL},
        {"a/b c", NULL, NULL},
        {"a@b/c", NULL, NULL},
        {"", NULL, NULL},
        {"/", NULL, NULL},
        {"@", NULL, NULL},
        {"a/"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaa",
         NULL, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        osh_hub_name name;
        bool is;
        assert_ok(f->cx, osh_hub_name_read(f->cx, &name, &is, rows[i].text));
        if (is != (rows[i].id != NULL)) fail_msg("'%s': is a name: %d", rows[i].text, is);
        if (is) assert_string_equal(name.id, rows[i].id);
        if (is) assert_string_equal(name.revision, rows[i].revision);
        osh_hub_name_deinit(f->cx, &name);
    }
}

static void test_file_names(void **state)
{
    (void)state;
    static const char *const fine[] = {"config.json", "a/b.json",       "..a",
                                       "a..",         ".gitattributes", "a b"};
    static const char *const not [] = {"",     "/a",     "a/",  "a//b",  "..",   "../a",
                                       "a/..", "a/../b", "./a", "a/./b", "a\\b", "a\nb"};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        assert_true(osh_hub_file_is_safe(fine[i]));
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        assert_false(osh_hub_file_is_safe(not [i]));
    char long_name[260];
    snprintf(long_name, sizeof long_name, "a/%0255d", 0);
    assert_true(osh_hub_file_is_safe(long_name));
    snprintf(long_name, sizeof long_name, "a/%0256d", 0);
    assert_false(osh_hub_file_is_safe(long_name));
}

static void test_environment(void **state)
{
    fixture *f = *state;
    char home[128];
    snprintf(home, sizeof home, "%s/home", f->dir);
    put_text(f, "token", "  hf_file\r\n");
    assert_ok(f->cx, osh_dir_make(f->cx, home));
    struct { const char *vars[5][2], *cache, *endpoint, *token; bool offline; } rows[] = {
        {{{"HOME", "/h"}}, "/h/.cache/huggingface/hub", "https://huggingface.co", NULL, false},
        {{{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}},
         "/x/huggingface/hub",
         "https://huggingface.co",
         NULL,
         false},
        {{{"HOME", "/h"}, {"HF_HOME", "~/a/$B/${B}/$C$"}, {"B", "bee"}},
         "/h/a/bee/bee/$C$/hub",
         "https://huggingface.co",
         NULL,
         false},
        {{{"HF_HUB_CACHE", "/c"},
          {"HUGGINGFACE_HUB_CACHE", "/d"},
          {"HF_ENDPOINT", "http://h:1//"},
          {"HF_HUB_OFFLINE", "Yes"}},
         "/c",
         "http://h:1",
         NULL,
         true},
        {{{"HUGGINGFACE_HUB_CACHE", "/d"}, {"HF_TOKEN", " hf_x \n"}, {"TRANSFORMERS_OFFLINE", "1"}},
         "/d",
         "https://huggingface.co",
         "hf_x",
         true},
        {{{"HF_HOME", f->dir}, {"HF_HUB_OFFLINE", "0"}, {"TRANSFORMERS_OFFLINE", "1"}},
         NULL,
         "https://huggingface.co",
         "hf_file",
         false},
        {{{"HF_HOME", f->dir}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}, {"HF_TOKEN", "x"}},
         NULL,
         "https://huggingface.co",
         NULL,
         false},
        {{{"HF_HOME", "/none"}, {"HF_TOKEN", "\r\n"}, {"HUGGING_FACE_HUB_TOKEN", "a\nb"}},
         "/none/hub",
         "https://huggingface.co",
         NULL,
         false},
        {{{"HF_HOME", "/none"}, {"HUGGING_FACE_HUB_TOKEN", "a\nb"}},
         "/none/hub",
         "https://huggingface.co",
         "ab",
         false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        osh_hub *hub = NULL;
        vars = rows[i].vars;
        assert_ok(f->cx, osh_hub_open(f->cx, &hub, env));
        if (rows[i].cache) assert_string_equal(hub->cache, rows[i].cache);
        assert_string_equal(hub->endpoint, rows[i].endpoint);
        if (rows[i].token) assert_string_equal(hub->token, rows[i].token);
        else assert_null(hub->token);
        assert_int_equal(hub->offline, rows[i].offline);
        assert_string_equal(hub->rows, !strcmp(hub->endpoint, "http://h:1")
                                           ? "http://datasets-server.h:1"
                                           : "https://datasets-server.huggingface.co");
        osh_hub_close(f->cx, hub);
    }
}

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static void put_in(fixture *f, const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", f->dir, dir);
    assert_ok(f->cx, osh_dir_make(f->cx, path));
    snprintf(path, sizeof path, "%s/%s", dir, name);
    put_text(f, path, text);
}

static osh_status find_once(osh_ctx *cx, void *user)
{
    char *dir = NULL;
    osh_status rc = osh_hub_model(cx, &dir, user, false, env);
    if (!rc && !strstr(dir, "models--org--name/snapshots/" COMMIT)) rc = OSH_E_INTERNAL;
    osh_free(cx, dir);
    return rc;
}

static void test_find(void **state)
{
    fixture *f = *state;
    osh_ctx *cx = f->cx;
    const char *where[][2] = {{"HF_HUB_CACHE", f->dir}, {"HF_HUB_OFFLINE", "1"}, {NULL, NULL}};
    char *dir = NULL, all[2048] = "{\"weight_map\": {";
    vars = where;
    // a name with two slashes is a path
    assert_ok(cx, osh_hub_model(cx, &dir, "no/model/name", false, env));
    assert_string_equal(dir, "no/model/name");
    osh_free(cx, dir);
    assert_fails(cx, OSH_E_IO, osh_hub_model(cx, &dir, "org/name", false, env),
                 "has no org/name at revision main");
    put_in(f, "models--org--name/refs", "main", "../../x");
    assert_fails(cx, OSH_E_FORMAT, osh_hub_model(cx, &dir, "org/name", false, env),
                 "wanted a commit of 40 hex digits, got '../../x'");
    put_in(f, "models--org--name/refs", "main", COMMIT);
    assert_fails(cx, OSH_E_IO, osh_hub_model(cx, &dir, "org/name", false, env), "has no org/name");
    put_in(f, "models--org--name/snapshots/" COMMIT, "tokenizer.json", "{}");
    assert_fails(cx, OSH_E_IO, osh_hub_model(cx, &dir, "org/name", false, env),
                 "lacks config.json, model.safetensors, in ");
    put_in(f, "models--org--name/snapshots/" COMMIT, "config.json", "{}");
    for (int i = 0; i < 12; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s\"t%d\": \"s%d.safetensors\"",
                 i ? "," : "", i, i % 6);
    strcat(all, "}}");
    put_in(f, "models--org--name/snapshots/" COMMIT, "model.safetensors.index.json", all);
    assert_fails(
        cx, OSH_E_IO, osh_hub_model(cx, &dir, "org/name", false, env),
        "lacks s0.safetensors, s1.safetensors, s2.safetensors, s3.safetensors and 2 more, in ");
    put_in(f, "models--org--name/snapshots/" COMMIT, "model.safetensors.index.json",
           "{\"weight_map\": {\"t\": \"../x\"}}");
    assert_fails(cx, OSH_E_FORMAT, osh_hub_model(cx, &dir, "org/name", false, env),
                 "'../x' is not a file name");
    put_in(f, "models--org--name/snapshots/" COMMIT, "model.safetensors.index.json",
           "{\"weight_map\": {\"t\": \"s.safetensors\"}}");
    put_in(f, "models--org--name/snapshots/" COMMIT, "s.safetensors", "x");
    put_in(f, "models--org--name/refs/refs/pr", "1", COMMIT "\n");
    static const char *const names[] = {"org/name", "org/name@" COMMIT, "org/name@refs/pr/1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(torture(find_once, (void *)(uintptr_t)names[i]) > 5);
    assert_fails(cx, OSH_E_IO, osh_hub_model(cx, &dir, "org/name@v2", false, env),
                 "at revision v2");
}

static void test_id_of_dir(void **state)
{
    fixture *f = *state;
    static const struct { const char *dir, *id; } rows[] = {
        {"/c/hub/models--org--name/snapshots/" COMMIT, "org/name"},
        {"models--org--na-me.v1/snapshots/" COMMIT "//", "org/na-me.v1"},
        {"/c/hub/models--org--name/snapshots/main", NULL},
        {"/c/hub/models--name/snapshots/" COMMIT, NULL},
        {"/c/hub/datasets--org--name/snapshots/" COMMIT, NULL},
        {"/c/models--org--name/snapshot/" COMMIT, NULL},
        {"/c/models--org--a--b/snapshots/" COMMIT, NULL},
        {"/snapshots/" COMMIT, NULL},
        {"snapshots/" COMMIT, NULL},
        {"/" COMMIT, NULL},
        {COMMIT, NULL},
        {"/", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *id = NULL; // own
        assert_ok(f->cx, osh_hub_id_of_dir(f->cx, &id, rows[i].dir));
        if (!id != !rows[i].id || (id && strcmp(id, rows[i].id)))
            fail_msg("'%s': got %s", rows[i].dir, id ? id : "none");
        osh_free(f->cx, id);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_names, setup_dir, teardown_dir),
        cmocka_unit_test(test_file_names),
        cmocka_unit_test_setup_teardown(test_id_of_dir, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_environment, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_find, setup_dir, teardown_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
