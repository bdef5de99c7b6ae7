/* test_device.c - src/ops/cuda/device.cu, copies.cu and blas.cu on the played card: copies, order, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "ops/cuda/cuda.h"
#include "play/play.h"

static void test_copies(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    osh_device *d = NULL;
    osh_tensor *t = NULL;
    enum { N = 11 << 20 };
    int64_t shape[1] = {N};

    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    if (osh_cuda_open(cx, &d, 0, 64 << 20)) fail_msg("%s", osh_error_text(cx));
    printf("%s\n", d->text);
    assert_int_equal(osh_tensor_new_on(cx, &t, d, OSH_LIFE_LONG, OSH_U8, 1, shape), OSH_OK);
    char *a = osh_alloc(cx, N), *b = osh_alloc(cx, N);
    for (int i = 0; i < N; i++) a[i] = (char)(i * 7 + i / 1000);
    assert_int_equal(osh_tensor_put(cx, t, 0, a, N), OSH_OK);
    assert_int_equal(osh_tensor_get(cx, b, t, 0, N), OSH_OK);
    assert_memory_equal(a, b, N);
    osh_free(cx, a), osh_free(cx, b);
    osh_tensor_free(cx, t);
    osh_device_close(cx, d);
    assert_int_equal(osh_play_live(), 0);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
