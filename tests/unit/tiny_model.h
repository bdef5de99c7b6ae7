/* tiny_model.h - writes a tiny model of tests/golden/models to a directory, and opens it with its
 * graph and empty weights. */
#ifndef OSH_TINY_MODEL_H
#define OSH_TINY_MODEL_H
#include "golden/models/tiny.h"
#include "graph/exec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct tiny_model {
    osh_ctx *cx;
    tiny_case t;
    osh_checkpoint *ck;
    osh_graph *g;
    osh_weights *w;
    char dir[32];
} tiny_model;

static inline void tiny_model_open(tiny_model *m, const char *name, osh_dtype dt, int n_threads)
{
    memset(m, 0, sizeof *m);
    assert_int_equal(osh_ctx_new(&m->cx, n_threads), OSH_OK);
    snprintf(m->dir, sizeof m->dir, "tiny-XXXXXX");
    assert_non_null(mkdtemp(m->dir));
    tiny_open(m->cx, &m->t, name);
    tiny_write(m->cx, &m->t, m->dir, dt);
    tiny_check(m->cx, osh_checkpoint_open(m->cx, &m->ck, m->dir));
    tiny_check(m->cx, osh_graph_new(m->cx, &m->g, m->ck, NULL));
    tiny_check(m->cx, osh_weights_new(m->cx, &m->w, m->g));
}

static inline void tiny_model_close(tiny_model *m)
{
    osh_weights_free(m->cx, m->w);
    osh_graph_free(m->cx, m->g);
    osh_checkpoint_close(m->cx, m->ck);
    tiny_check(m->cx, osh_dir_remove(m->cx, m->dir));
    tiny_close(&m->t);
    assert_int_equal(osh_mem_live(m->cx), 0);
    osh_ctx_free(m->cx);
}
#endif
