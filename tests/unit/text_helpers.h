/* text_helpers.h - declares helpers for the tests of src/text: a context, files with given bytes,
 * and allocation failures. */
#ifndef OSH_TEXT_HELPERS_H
#define OSH_TEXT_HELPERS_H
#include "base/base.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static inline int make_context(void **state)
{
    osh_ctx *cx = NULL;
    if (osh_ctx_new(&cx, 1)) return -1;
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    *state = cx;
    return 0;
}

/* Frees the context. Fails if the test has not freed all memory. */
static inline int drop_context(void **state)
{
    size_t live = osh_mem_live(*state);
    osh_ctx_free(*state);
    return live ? -1 : 0;
}

#define assert_ok(cx, call)                                                                        \
    do {                                                                                           \
        osh_status status_ = (call);                                                               \
        if (status_) fail_msg("%s: %d %s", #call, status_, osh_error_text(cx));                    \
    } while (0)

/* Asserts that the call fails with `code` and a message that contains the text `holds`. */
#define assert_fails(cx, code, holds, call)                                                        \
    do {                                                                                           \
        osh_status status_ = (call);                                                               \
        if (status_ != (code) || !strstr(osh_error_text(cx), (holds)))                             \
            fail_msg("%s: status %d, text '%s', wanted %d with '%s'", #call, status_,              \
                     osh_error_text(cx), (code), (holds));                                         \
        osh_error_clear(cx);                                                                       \
    } while (0)

/* Calls fn again and again, until a call succeeds. In the n-th call the n-th allocation fails. A
 * call may fail only with OSH_E_NOMEM, and must leak nothing. */
static inline void torture(osh_ctx *cx, osh_status (*fn)(osh_ctx *cx, void *user), void *user)
{
    size_t live = osh_mem_live(cx);
    for (int64_t n = 1; n < 100000; n++) {
        osh_mem_fail_after(cx, n);
        osh_status rc = fn(cx, user);
        osh_mem_fail_after(cx, -1);
        assert_int_equal(osh_mem_live(cx), live);
        if (rc == OSH_OK) {
            assert_true(n > 1);
            return;
        }
        if (rc != OSH_E_NOMEM) fail_msg("allocation %d: %d %s", (int)n, rc, osh_error_text(cx));
        osh_error_clear(cx);
    }
    fail_msg("still failing after 100000 allocations");
}
#endif
