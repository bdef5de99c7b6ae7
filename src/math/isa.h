/* isa.h - selects one instruction set for the program's own kernels and for OpenBLAS. The set
 * decides the last bits of matrix products.
 *
 *   --isa          OpenBLAS core
 *   generic        Prescott
 *   avx2           Haswell
 *   avx512         SkylakeX
 *   avx512_bf16    SkylakeX
 *   amx            SkylakeX
 *
 * An OpenBLAS core is a group of kernels for one CPU family. `--isa auto` selects the best set of
 * the CPU, and the core of this set. `auto` gives the same bytes as the name of this set. If nobody
 * selects a core, OpenBLAS chooses one by CPU model (Zen, Haswell, Cooperlake). Two CPU models with
 * the same instruction set could then give different last bits. */
#ifndef OSH_OPS_ISA_H
#define OSH_OPS_ISA_H
#include "base/isa.h"

/* Pins the instruction set with the name `name` (NULL: auto). Sets *core to the value that the
 * environment variable OPENBLAS_CORETYPE must have before OpenBLAS is opened. (The first matrix
 * product, or osh_isa_load, opens it.) */
osh_status osh_isa_select(osh_ctx *cx, const char **core, const char *name);
/* Pins the instruction set like osh_isa_select, for callers that do not set OPENBLAS_CORETYPE. With
 * `auto`, OpenBLAS chooses its core itself. With another name, the first matrix product fails if
 * OpenBLAS does not use the core of the set. */
osh_status osh_isa_use(osh_ctx *cx, const char *name);
/* Fails with OSH_E_UNSUPPORTED if the user chose the instruction set by name and OpenBLAS uses
 * another core. `runs`: name of the core that OpenBLAS uses. */
osh_status osh_isa_check_core(osh_ctx *cx, const char *runs);
/* Opens OpenBLAS with the pinned instruction set. Ops open OpenBLAS themselves. But a job that
 * measures its own memory must open it before the measurement. Fails with OSH_E_UNSUPPORTED if
 * OpenBLAS is missing or if osh_isa_check_core fails. */
osh_status osh_isa_load(osh_ctx *cx);
/* Returns the bytes that the program uses but does not count (osh_mem_uncounted), plus an estimate
 * of the bytes that libraries allocate later. */
int64_t osh_isa_uncounted(osh_ctx *cx);
/* Largest difference in bytes between the results of osh_isa_uncounted in two runs of one command.
 * Messages add it to the smallest budget that they recommend. */
enum { OSH_ISA_NOISE_BYTES = 256 << 10 };
/* Bytes that osh_isa_uncounted adds for each thread that computes matrix products. They are for the
 * stack, the heap, and the part of OpenBLAS's packing buffer that the thread writes. This part is P
 * x Q and Q x 256 floats for OpenBLAS's block sizes P and Q: 1.3 MB with SkylakeX, 0.8 MB with
 * Haswell. */
enum { OSH_ISA_THREAD_BYTES = 3 << 19 };
/* Sets *text (own) to a description of the instruction set and of the library, such as "isa=avx2
 * openblas=0.3.21/Haswell". If two processes have equal descriptions, their matrix products have
 * equal bytes. */
osh_status osh_isa_describe(osh_ctx *cx, char **text);
#endif
