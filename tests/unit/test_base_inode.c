/* test_base_inode.c - tests the kinds of paths, and whether a path is inside a directory. The paths
 * have links, dots, and names that do not exist yet. */
#include "base/inode.h"
#include "base/file.h"
#include "torture.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static osh_ctx *cx;
static char root[PATH_MAX]; // a path without links
static char start[PATH_MAX];

/* Makes a directory `root` with a/b/file, link -> a/b, dangling -> a/none and loop -> loop, and
 * makes it the working directory. */
static int setup(void **state)
{
    char dir[] = "test_base_inode.XXXXXX";
    if (!getcwd(start, sizeof start) || !mkdtemp(dir) || chdir(dir) || !getcwd(root, sizeof root))
        return 1;
    if (osh_ctx_new(&cx, 1) || osh_dir_make(cx, "a/b") ||
        osh_file_write_all(cx, "a/b/file", "x", 1))
        return 1;
    return symlink("a/b", "link") || symlink("a/none", "dangling") || symlink("loop", "loop");
}

static int teardown(void **state)
{
    int rc = chdir(start) || osh_dir_remove(cx, root);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
    return rc;
}

static void kinds(void **state)
{
    assert_int_equal(osh_inode_at("a").kind, OSH_INODE_DIR);
    assert_int_equal(osh_inode_at("a/b/file").kind, OSH_INODE_FILE);
    assert_int_equal(osh_inode_at("a/b/file").n_bytes, 1);
    assert_int_equal(osh_inode_at("link").kind, OSH_INODE_LINK);
    assert_int_equal(osh_inode_at("dangling").kind, OSH_INODE_LINK);
    assert_int_equal(osh_inode_at("none").kind, OSH_INODE_NONE);
    assert_int_equal(osh_inode_at("a/b/file/none").kind, OSH_INODE_NONE);
    assert_int_equal(osh_inode_at("/dev/null").kind, OSH_INODE_OTHER);
    osh_inode one = osh_inode_at("a/b/file");
    assert_int_equal(one.n_names, 1);
    assert_int_equal(link("a/b/file", "second"), 0);
    one = osh_inode_at("a/b/file");
    assert_int_equal(one.n_names, 2);
    assert_string_equal(osh_inode_text(&one), "a file with a second name (a hard link)");
    assert_int_equal(osh_inode_at("second").inode, one.inode);
}

static void check_real(const char *path, const char *below)
{
    char want[2 * PATH_MAX], *got = NULL;
    snprintf(want, sizeof want, "%s%s", root, below);
    assert_ok(cx, osh_path_real(cx, &got, path));
    assert_string_equal(got, want);
    osh_free(cx, got);
}

static void real_paths(void **state)
{
    char *got = NULL;
    check_real("a", "/a");
    check_real("a/../a/./b//", "/a/b");
    check_real("link", "/a/b");
    check_real("link/file", "/a/b/file");
    check_real("link/..", "/a"); // ".." is the parent directory of the link's target
    check_real(".", "");
    check_real("a/b/..", "/a");
    check_real("none", "/none");
    check_real("link/none/more", "/a/b/none/more");
    check_real("dangling", "/a/none");
    check_real("none/", "/none");
    assert_ok(cx, osh_path_real(cx, &got, "/"));
    assert_string_equal(got, "/");
    osh_free(cx, got);
    assert_ok(cx, osh_path_real(cx, &got, "/none.of.these/x"));
    assert_string_equal(got, "/none.of.these/x");
    osh_free(cx, got);
    assert_fails(cx, OSH_E_IO, osh_path_real(cx, &got, "loop"), "loop");
    assert_fails(cx, OSH_E_IO, osh_path_real(cx, &got, "a/b/file/x"), "Not a directory");
}

static void insides(void **state)
{
    static const struct { const char *path, *dir; bool inside; } rows[] = {
        {"a", "a", true},          {"a/b", "a", true},
        {"a", "a/b", false},       {"link", "a", true},
        {"link/file", "a", true},  {"a/b/file", "link", true},
        {"ab", "a", false},        {"none/x", "none", true},
        {"none", "none/x", false}, {"a/none", "dangling", true},
        {"a", ".", true},          {".", "a", false},
        {"a", "/", true},          {"link/../b", "a/b", true},
        {"a/bc", "a/b", false},    {"none/../a", "a", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool inside = !rows[i].inside;
        assert_ok(cx, osh_path_inside(cx, &inside, rows[i].path, rows[i].dir));
        if (inside != rows[i].inside) print_error("%s in %s\n", rows[i].path, rows[i].dir);
        assert_int_equal(inside, rows[i].inside);
    }
}

static void held(void **state)
{
    osh_file *f = NULL;
    assert_ok(cx, osh_file_hold(cx, &f, "a"));
    assert_true(osh_file_is_at(f, "a"));
    assert_int_equal(rename("a", "moved") | symlink("moved", "a"), 0);
    assert_false(osh_file_is_at(f, "a")); // the link and its target are different files
    assert_true(osh_file_is_at(f, "moved"));
    assert_int_equal(unlink("a") | mkdir("a", 0777), 0);
    assert_false(osh_file_is_at(f, "a"));
    osh_file_close(cx, f);
    assert_fails(cx, OSH_E_IO, osh_file_hold(cx, &f, "none"), "cannot look at none");
}

static osh_status both(osh_ctx *c, void *user)
{
    bool inside;
    return osh_path_inside(c, &inside, "link/none", "a/b/..");
}

static void out_of_memory(void **state)
{
    assert_true(torture(both, NULL) > 3);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(kinds), TEST(real_paths), TEST(insides), TEST(held),
                                       TEST(out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
