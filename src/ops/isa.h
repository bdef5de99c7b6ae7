/* isa.h - one instruction set for our kernels, OpenBLAS and oneDNN, and its name: what decides the bytes of products.
 *
 *   --isa          OpenBLAS core   oneDNN may use
 *   generic        Prescott        SSE4.1
 *   avx2           Haswell         AVX2
 *   avx512         SkylakeX        AVX-512
 *   avx512_bf16    SkylakeX        AVX-512 BF16
 *   amx            SkylakeX        AMX
 *
 * auto is the best set of the CPU, with that set's core, so that it is the same as naming the set. OpenBLAS itself
 * chooses by CPU model (Zen, Haswell, Cooperlake): models of one instruction set could give different last bits. */
#ifndef OSH_OPS_ISA_H
#define OSH_OPS_ISA_H
#include "base/isa.h"

/* Pins the set called name (NULL: auto). core: the value of OPENBLAS_CORETYPE that the process must be started with, or
 * NULL where OpenBLAS runs that core already; it reads the variable when it is loaded, so nothing else can set it. */
osh_status osh_isa_select(osh_ctx *cx, const char **core, const char *name);
/* osh_isa_select for a process that cannot start anew: with auto OpenBLAS keeps its core, else a wrong one fails. */
osh_status osh_isa_use(osh_ctx *cx, const char *name);
/* "isa=avx2 openblas=0.3.21/Haswell", and " onednn=2.6.3/avx512_core_bf16" where it multiplies. Equal texts mean equal
 * bytes. */
osh_status osh_isa_describe(osh_ctx *cx, char **text); // own
#endif
