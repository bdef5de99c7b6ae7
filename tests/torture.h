/* torture.h - defines assertions that print the error message of an osh_ctx, and the torture loop,
 * which makes each allocation fail in turn. */
#ifndef OSH_TORTURE_H
#define OSH_TORTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

/* Asserts that the call succeeds. On failure, prints the error message of cx. */
#define assert_ok(cx, call)                                                                        \
    do {                                                                                           \
        osh_status rc_ = (call);                                                                   \
        if (rc_) print_error("%s\n", osh_error_text(cx));                                          \
        assert_int_equal(rc_, OSH_OK);                                                             \
    } while (0)

/* Asserts that the call returns the status `code` with a message that contains `part`, then clears
 * the message. */
#define assert_fails(cx, code, call, part)                                                         \
    do {                                                                                           \
        assert_int_equal((call), (code));                                                          \
        if (!strstr(osh_error_text(cx), (part)))                                                   \
            fail_msg("message '%s' does not hold '%s'", osh_error_text(cx), (part));               \
        osh_error_clear(cx);                                                                       \
    } while (0)

/* Calls `run` again and again. In the n-th call the n-th allocation fails. The loop ends after the
 * first call in which no allocation fails. Each failing call must return OSH_E_NOMEM with a message
 * and leak nothing. Returns the number of allocations. */
static inline int64_t torture(osh_status (*run)(osh_ctx *cx, void *user), void *user)
{
    for (int64_t n = 1;; n++) {
        osh_ctx *cx = NULL;
        assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
        osh_mem_fail_after(cx, n);
        osh_status rc = run(cx, user);
        bool hit = osh_mem_fail_hit(cx);
        if (rc != (hit ? OSH_E_NOMEM : OSH_OK))
            print_error("allocation %lld: status %d, %s\n", (long long)n, rc, osh_error_text(cx));
        assert_int_equal(rc, hit ? OSH_E_NOMEM : OSH_OK);
        if (hit) assert_non_null(strstr(osh_error_text(cx), "cannot allocate"));
        assert_int_equal(osh_mem_live(cx), 0);
        osh_ctx_free(cx);
        if (!hit) return n - 1;
    }
}
#endif
