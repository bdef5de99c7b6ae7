/* dir_fixture.h - gives each test a new context and a new directory. The directory and its content
 * are removed after the test. */
#ifndef OSH_DIR_FIXTURE_H
#define OSH_DIR_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/base.h"
#include "base/file.h"

typedef struct fixture {
    osh_ctx *cx;
    char dir[64];
} fixture;

static inline int setup_dir(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f) return -1;
    strcpy(f->dir, "test.XXXXXX");
    if (!mkdtemp(f->dir) || osh_ctx_new(&f->cx, 1)) return -1;
    *state = f;
    return 0;
}

static inline int teardown_dir(void **state)
{
    fixture *f = *state;
    int leaked = osh_mem_live(f->cx) != 0;
    osh_dir_remove(f->cx, f->dir);
    osh_ctx_free(f->cx);
    free(f);
    return leaked;
}

static inline void put(fixture *f, const char *name, const void *p, size_t n)
{
    char *path = osh_path_join(f->cx, f->dir, name);
    assert_int_equal(osh_file_write_all(f->cx, path, p, n), OSH_OK);
    osh_free(f->cx, path);
}

static inline void put_text(fixture *f, const char *name, const char *text)
{
    put(f, name, text, strlen(text));
}

static inline void drop(fixture *f, const char *name)
{
    char *path = osh_path_join(f->cx, f->dir, name);
    assert_true(osh_file_exists(path));
    assert_int_equal(osh_file_remove(f->cx, path), OSH_OK);
    osh_free(f->cx, path);
}
#endif
