/* xxh3.h - declares XXH3 with the widest vector instructions of the processor. It is twice as fast
 * as with SSE2. */
#ifndef OSH_XXH3_H
#define OSH_XXH3_H
#include <xxhash.h>
#if defined __x86_64__ && __has_include(<xxh_x86dispatch.h>)
/* xxh_x86dispatch.h replaces XXH3's functions by macros, which choose the instructions at run
 * time. */
#include <xxh_x86dispatch.h>
#endif
#endif
