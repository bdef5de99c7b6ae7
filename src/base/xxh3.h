/* xxh3.h - XXH3 with the widest instructions of the processor, which is twice as fast as with the
 * common ones. */
#ifndef OSH_XXH3_H
#define OSH_XXH3_H
#include <xxhash.h>
#if defined __x86_64__ && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h> // redefines XXH3's names to dispatched functions
#endif
#endif
