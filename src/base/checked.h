/* checked.h - speeds up inner loops over large arrays under AddressSanitizer.
 *
 * In such a loop, checking each value takes ten times as long as computing with it. A function
 * marked OSH_RANGES_CHECKED is not instrumented. The caller of such a function first calls
 * osh_check_range for the ranges that the function reads and writes. Without the sanitizer,
 * OSH_RANGES_CHECKED and osh_check_range do nothing. */
#ifndef OSH_CHECKED_H
#define OSH_CHECKED_H
#include <stddef.h>
#include <stdint.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define OSH_RANGES_CHECKED __attribute__((no_sanitize("address"), no_sanitize("undefined")))

static inline void osh_check_range(const void *p, size_t n)
{
    void *bad = n ? __asan_region_is_poisoned((void *)(uintptr_t)p, n) : NULL;
    /* Reading this byte makes the sanitizer report its address. */
    if (bad) (void)*(volatile char *)bad;
}
#else
#define OSH_RANGES_CHECKED
static inline void osh_check_range(const void *p, size_t n) { (void)p, (void)n; }
#endif
#endif
