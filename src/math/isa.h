/* isa.h - one instruction set for our kernels and for OpenBLAS. It decides the bytes of products.
 *
 *   --isa          OpenBLAS core
 *   generic        Prescott
 *   avx2           Haswell
 *   avx512         SkylakeX
 *   avx512_bf16    SkylakeX
 *   amx            SkylakeX
 *
 * auto is the best set of the CPU with the core of that set, so it equals naming the set. By itself
 * OpenBLAS chooses a core by CPU model (Zen, Haswell, Cooperlake), and models with the same
 * instruction set could give different last bits. */
#ifndef OSH_OPS_ISA_H
#define OSH_OPS_ISA_H
#include "base/isa.h"

/* Pins the set called `name` (NULL: auto). core: OPENBLAS_CORETYPE must have this value when
 * OpenBLAS is opened; the first product or osh_isa_load opens it. */
osh_status osh_isa_select(osh_ctx *cx, const char **core, const char *name);
/* Does osh_isa_select for callers that do not set the variable. With auto, OpenBLAS keeps its core;
 * otherwise a wrong core makes the first product fail. */
osh_status osh_isa_use(osh_ctx *cx, const char *name);
/* Fails with OSH_E_UNSUPPORTED if the set was pinned by name and OpenBLAS runs another core than
 * its own. */
osh_status osh_isa_check_core(osh_ctx *cx, const char *runs);
/* Opens OpenBLAS under the set in force. Ops do this themselves; a job that counts its memory calls
 * this first. OSH_E_UNSUPPORTED: OpenBLAS is missing, or its core is wrong. */
osh_status osh_isa_load(osh_ctx *cx);
/* Returns osh_mem_uncounted plus an estimate of the bytes that the libraries will take. */
int64_t osh_isa_uncounted(osh_ctx *cx);
/* Bytes by which osh_isa_uncounted may differ in the next run. A refusal adds them to the bytes
 * that it names. */
enum { OSH_ISA_NOISE_BYTES = 256 << 10 };
/* The part of osh_isa_uncounted for each thread that multiplies: the touched part of OpenBLAS's
 * packing buffer (P x Q and Q x 256 floats, 1.3 MB with SkylakeX, 0.8 MB with Haswell), its stack
 * and its heap. */
enum { OSH_ISA_THREAD_BYTES = 3 << 19 };
/* Describes the set and the library: "isa=avx2 openblas=0.3.21/Haswell". Equal texts mean equal
 * bytes. */
osh_status osh_isa_describe(osh_ctx *cx, char **text); // own
#endif
