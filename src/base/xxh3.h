/* xxh3.h - XXH3 with the widest instructions that the processor has: twice as fast as with those that every one has. */
#ifndef OSH_XXH3_H
#define OSH_XXH3_H
#include <xxhash.h>
#if defined __x86_64__ && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h> // takes the names over
#endif
#endif
