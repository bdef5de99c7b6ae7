/* kernel_test.h - makes tensors with guard bytes, fills them by the counter RNG, and compares the
 * outputs of two kernels of an op. */
#ifndef OSH_KERNEL_TEST_H
#define OSH_KERNEL_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "math/isa.h"
#include "ops/kernel.h"

#include <stdlib.h>

/* GUARD: number of guard bytes on each side of a tensor; SEED: seed of all random values. */
enum { GUARD = 64, SEED = 20240607 };

/* Selects the instruction set that CTest names (cmake/tests.cmake). Returns 77, which means
 * "skipped", if the CPU does not have it. */
static inline int pin_isa(void)
{
    const char *name = getenv("OSH_TEST_ISA");
    osh_isa isa;
    osh_ctx *cx = NULL;
    if (!name) return 0;
    if (!osh_isa_parse(&isa, name) || osh_ctx_new(&cx, 1)) return 1;
    int rc = isa > osh_isa_of_cpu() ? 77 : osh_isa_use(cx, name) ? 1 : 0;
    char *text = NULL;
    if (!rc && !osh_isa_describe(cx, &text)) printf("%s\n", text);
    else printf("%s: %s\n", name, rc == 77 ? "this CPU lacks it" : osh_error_text(cx));
    osh_free(cx, text);
    osh_ctx_free(cx);
    return rc;
}

/* True if this run of the test selects another instruction set than "generic". References do not
 * depend on the instruction set, so they are tested only in the run with "generic". */
static inline bool isa_repeats(void)
{
    const char *name = getenv("OSH_TEST_ISA");
    return name && strcmp(name, "generic") != 0;
}

typedef struct guarded {
    osh_tensor t;
    uint8_t *room; // own
} guarded;

static inline guarded guarded_new(osh_ctx *cx, osh_dtype dt, int ndim, int64_t a, int64_t b)
{
    guarded g = {.t = {.dtype = dt, .ndim = ndim, .shape = {a, b}}};
    size_t n = osh_tensor_bytes(&g.t);

    g.room = osh_alloc(cx, n + 2 * GUARD);
    assert_non_null(g.room);
    memset(g.room, 0xA5, n + 2 * GUARD);
    g.t.data = g.room + GUARD;
    return g;
}

static inline void guarded_check(const guarded *g)
{
    const uint8_t *end = (uint8_t *)g->t.data + osh_tensor_bytes(&g->t);
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(g->room[i], 0xA5);
        assert_int_equal(end[i], 0xA5);
    }
}

static inline void guarded_free(osh_ctx *cx, guarded *g) { osh_free(cx, g->room); }

/* Fills the tensor with values in amp * [-1, 1), rounded to the dtype of the tensor before any
 * kernel reads them. */
static inline void guarded_fill(guarded *g, uint64_t stream, float amp)
{
    int64_t n = osh_tensor_numel(&g->t);
    for (int64_t i = 0; i < n; i++) {
        float f = amp * osh_rng_sym(SEED, stream, (uint64_t)i);
        osh_from_f32(osh_elem(&g->t, i), g->t.dtype, &f, 1);
    }
}

/* Fills the tensor with whole numbers from -15 to 15, which are exact in any dtype. A sum of up to
 * 74,000 products of two such numbers is exact in f32, in any order. */
static inline void guarded_whole(guarded *g, uint64_t stream)
{
    for (int64_t i = 0, n = osh_tensor_numel(&g->t); i < n; i++) {
        float f = (float)(osh_rng_u64(SEED, stream, (uint64_t)i) % 31) - 15;
        osh_from_f32(osh_elem(&g->t, i), g->t.dtype, &f, 1);
    }
}

static inline double value_at(const osh_tensor *t, int64_t i)
{
    float f;
    if (t->dtype == OSH_I32) return ((const int32_t *)t->data)[i];
    if (t->dtype == OSH_U8) return ((const uint8_t *)t->data)[i];
    osh_to_f32(&f, osh_elem(t, i), t->dtype, 1);
    return f;
}

/* Returns the normalized mean square error of `got` against `want`, or infinity if an element is
 * not finite. */
static inline double nmse(const osh_tensor *got, const osh_tensor *want)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0, n = osh_tensor_numel(want); i < n; i++) {
        double g = value_at(got, i), w = value_at(want, i);
        if (!isfinite(g) || !isfinite(w)) return INFINITY;
        diff += (g - w) * (g - w);
        norm += w * w;
    }
    return diff == 0 ? 0 : diff / (norm > 0 ? norm : 1e-300);
}

/* Returns the tolerance (NMSE) for an output of dtype dt. For BF16 and F16, the tolerance allows a
 * few percent of the elements to differ by one unit in the last place. `tol` is added to this
 * allowance. */
static inline double tol_of(double tol, osh_dtype dt)
{
    // the unit in the last place of BF16 is 2^-8; if every element has an error that is spread
    // evenly over a unit, the NMSE is (2^-8)^2 / 12 = 1.3e-6
    if (dt == OSH_BF16) return tol + 2e-7;
    if (dt == OSH_F16) return tol + 4e-9;
    return tol;
}
/* Returns how much NMSE is additionally allowed for f32 sums of n products. All products have one
 * sign, as on the diagonal of X^T X. Each addition has an error of at most 2^-24 times the sum so
 * far, and this sum is on average half of the final one. So the relative error is at most n / 2 x
 * 2^-24.
 *
 * Some inputs have errors near this bound. Example: the square of a BF16 number is 4 k or 4 k + 1,
 * times a power of two. If the last bit of the sum is worth 4, each addition loses the 1. A sum of
 * 2100 such squares in order has an NMSE of 3.3e-11. Libraries add several partial sums, which have
 * smaller errors, but the number of partial sums is not known. A tensor core truncates instead of
 * rounding (Fasi, Higham, Mikaitis, Pranesh 2021), but only after every 4 products or more, so its
 * error is smaller. With the inputs of guarded_whole, sums are exact. */
static inline double tol_sums(int64_t n)
{
    double lost = (double)n / 2 / (1 << 24);
    return lost * lost;
}

/* Returns the tolerance (NMSE) of the GPU's fused attention against the reference. It allows most
 * elements of an output with values up to 1 to differ by a unit in the last place. The elements
 * differ because the reference rounds q k^T, scores and normalized probabilities, and the kernel
 * rounds probabilities before they are normalized (docs/explanation/numerics.md). */
static inline double tol_fused(osh_dtype dt) { return dt == OSH_BF16 ? 1.2e-5 : 2e-7; }
#endif
