/* isa.h - the instruction set that this process computes with: the best of the CPU, or a lower one that was pinned.
 *
 * One setting for the whole process, because OpenBLAS, whose kernels it chooses too (math/isa.h), has one.
 * Our own kernels give the same bytes under every set; matrix products, the libraries' and ours, do not. */
#ifndef OSH_ISA_H
#define OSH_ISA_H
#include "base/base.h"

typedef enum {           // each holds the one before it
    OSH_ISA_GENERIC,     // what every x86-64 has (SSE2), or any other processor
    OSH_ISA_AVX2,        // with FMA and F16C
    OSH_ISA_AVX512,      // F, BW, CD, DQ, VL
    OSH_ISA_AVX512_BF16, // and VNNI
    OSH_ISA_AMX,         // tiles of bf16 and of int8, and the kernel's permission
    OSH_N_ISAS
} osh_isa;

const char *osh_isa_name(osh_isa isa);         // as --isa spells it
bool osh_isa_parse(osh_isa *out, const char *name); // false: not a name; "auto": osh_isa_auto
osh_isa osh_isa_of_cpu(void);                  // the best that CPU and operating system have
osh_isa osh_isa_auto(void);                    // the fastest of those, by a fixed rule of the CPU
osh_isa osh_isa_used(void);                    // the one in force; osh_isa_auto until one is pinned
/* Pins it for the rest of the process; a second time only to the same. OSH_E_UNSUPPORTED where the CPU lacks it. */
osh_status osh_isa_pin(osh_ctx *cx, osh_isa isa);
#endif
