/* isa.h - one instruction set for our kernels and OpenBLAS, and its name: what decides the bytes of products.
 *
 *   --isa          OpenBLAS core
 *   generic        Prescott
 *   avx2           Haswell
 *   avx512         SkylakeX
 *   avx512_bf16    SkylakeX
 *   amx            SkylakeX
 *
 * auto is the best set of the CPU, with that set's core, so that it is the same as naming the set. OpenBLAS itself
 * chooses by CPU model (Zen, Haswell, Cooperlake): models of one instruction set could give different last bits. */
#ifndef OSH_OPS_ISA_H
#define OSH_OPS_ISA_H
#include "base/isa.h"

/* Pins the set called name (NULL: auto). core: the value that OPENBLAS_CORETYPE must have when OpenBLAS is opened,
 * which the first product or osh_isa_load does. */
osh_status osh_isa_select(osh_ctx *cx, const char **core, const char *name);
/* osh_isa_select for who leaves the variable as it is: with auto OpenBLAS keeps its core, else a wrong one makes the
 * first product fail. */
osh_status osh_isa_use(osh_ctx *cx, const char *name);
osh_status osh_isa_check_core(osh_ctx *cx, const char *runs); // whether OpenBLAS with this core serves the set in force
/* Opens OpenBLAS under the set in force. Ops do so themselves; a job that counts its memory does it before.
 * OSH_E_UNSUPPORTED: it is not there, or its core is wrong. */
osh_status osh_isa_load(osh_ctx *cx);
/* osh_mem_uncounted, and what the libraries will take beside. */
int64_t osh_isa_uncounted(osh_ctx *cx);
enum { OSH_ISA_NOISE_BYTES = 256 << 10 }; // by which it may differ in the next run: on top of what a refusal names
/* Of that, for each thread that multiplies: what it touches of OpenBLAS's packing buffer (P x Q and Q x 256 floats,
 * 1.3 MB with SkylakeX, 0.8 MB with Haswell), its stack and its heap. */
enum { OSH_ISA_THREAD_BYTES = 3 << 19 };
/* "isa=avx2 openblas=0.3.21/Haswell". Equal texts mean equal bytes. */
osh_status osh_isa_describe(osh_ctx *cx, char **text); // own
#endif
