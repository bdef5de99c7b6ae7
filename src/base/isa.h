/* isa.h - chooses the instruction set that this process uses: the fastest of the CPU, or a set that
 * the user chose.
 *
 * The whole process uses one set, because OpenBLAS has one setting per process, and the set also
 * chooses OpenBLAS's kernels (math/isa.h). Only the bytes of matrix products depend on the set; all
 * other kernels give the same bytes with every set. */
#ifndef OSH_ISA_H
#define OSH_ISA_H
#include "base/base.h"

typedef enum {           // each set includes all earlier sets of this list
    OSH_ISA_GENERIC,     // every x86-64 (SSE2), and every other processor
    OSH_ISA_AVX2,        // AVX2, FMA and F16C
    OSH_ISA_AVX512,      // AVX-512 F, BW, CD, DQ and VL
    OSH_ISA_AVX512_BF16, // also VNNI
    OSH_ISA_AMX,         // tiles of bf16 and of int8; the kernel must permit their use
    OSH_N_ISAS
} osh_isa;

const char *osh_isa_name(osh_isa isa); // returns the set's name as in --isa
/* Finds the set with this name; "auto" gives osh_isa_auto. Returns false if the name is unknown. */
bool osh_isa_parse(osh_isa *out, const char *name);
/* Returns the largest set that the CPU and the operating system support. */
osh_isa osh_isa_of_cpu(void);
/* Returns the fastest of the supported sets, by a fixed rule for each kind of CPU. */
osh_isa osh_isa_auto(void);
osh_isa osh_isa_used(void); // returns the pinned set, or osh_isa_auto() if none is pinned
/* Pins `isa` for the rest of the process. A second call must name the same set. Fails with
 * OSH_E_UNSUPPORTED if the CPU lacks the set. */
osh_status osh_isa_pin(osh_ctx *cx, osh_isa isa);
#endif
