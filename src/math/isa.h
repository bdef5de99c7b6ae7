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
 * the CPU and the OpenBLAS core of that set. `--isa auto` and `--isa` with the name of that set
 * give the same bytes. If nobody selects a core, OpenBLAS chooses one by CPU model (Zen, Haswell,
 * Cooperlake), and two CPU models with the same instruction set could give different last bits. */
#ifndef OSH_OPS_ISA_H
#define OSH_OPS_ISA_H
#include "base/isa.h"

/* Pins the instruction set called `name` (NULL: auto). Sets *core to the value that the environment
 * variable OPENBLAS_CORETYPE must have before OpenBLAS is opened. The first matrix product or
 * osh_isa_load opens OpenBLAS. */
osh_status osh_isa_select(osh_ctx *cx, const char **core, const char *name);
/* Pins the instruction set like osh_isa_select, for callers that do not set OPENBLAS_CORETYPE. With
 * `auto`, OpenBLAS chooses its core itself. With another name, the first matrix product fails if
 * OpenBLAS does not use the core of the named set. */
osh_status osh_isa_use(osh_ctx *cx, const char *name);
/* `runs` is the name of the core that OpenBLAS uses. Fails with OSH_E_UNSUPPORTED if the user chose
 * the instruction set by name and `runs` is not the core of that set. */
osh_status osh_isa_check_core(osh_ctx *cx, const char *runs);
/* Opens OpenBLAS with the pinned instruction set. Ops open OpenBLAS themselves; a job that measures
 * its memory calls this function before it measures. Fails with OSH_E_UNSUPPORTED if OpenBLAS is
 * missing or osh_isa_check_core fails. */
osh_status osh_isa_load(osh_ctx *cx);
/* Returns osh_mem_uncounted, the bytes that the program does not count, plus an estimate of the
 * bytes that libraries allocate later. */
int64_t osh_isa_uncounted(osh_ctx *cx);
/* Largest difference, in bytes, of the values of osh_isa_uncounted in two runs of one command.
 * Messages add it to the smallest budget that they name. */
enum { OSH_ISA_NOISE_BYTES = 256 << 10 };
/* Bytes that osh_isa_uncounted adds for each thread that computes matrix products: the stack, the
 * heap, and the bytes of OpenBLAS's packing buffer that the thread writes (P x Q and Q x 256 floats
 * with OpenBLAS's block sizes P and Q: 1.3 MB with SkylakeX, 0.8 MB with Haswell). */
enum { OSH_ISA_THREAD_BYTES = 3 << 19 };
/* Sets *text to a description of the instruction set and of the library, such as "isa=avx2
 * openblas=0.3.21/Haswell". Two processes with equal descriptions compute matrix products with
 * equal bytes. The caller owns *text. */
osh_status osh_isa_describe(osh_ctx *cx, char **text); // own
#endif
