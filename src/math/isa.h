/* isa.h - selects one instruction set for our kernels and for OpenBLAS. It decides the bytes of
 * products.
 *
 *   --isa          OpenBLAS core
 *   generic        Prescott
 *   avx2           Haswell
 *   avx512         SkylakeX
 *   avx512_bf16    SkylakeX
 *   amx            SkylakeX
 *
 * auto is the best set of the CPU with the core of that set, so it gives the same bytes as the name
 * of that set. Without a setting OpenBLAS chooses a core by CPU model (Zen, Haswell, Cooperlake),
 * and models with the same instruction set could give different last bits. */
#ifndef OSH_OPS_ISA_H
#define OSH_OPS_ISA_H
#include "base/isa.h"

/* Pins the set called `name` (NULL: auto). Sets *core to the value that OPENBLAS_CORETYPE must have
 * before OpenBLAS is opened by the first product or by osh_isa_load. */
osh_status osh_isa_select(osh_ctx *cx, const char **core, const char *name);
/* Does the same as osh_isa_select for callers that do not set the variable. With auto, OpenBLAS
 * keeps the core that it chooses. With another name, a wrong core makes the first product fail. */
osh_status osh_isa_use(osh_ctx *cx, const char *name);
/* Fails with OSH_E_UNSUPPORTED if the set was pinned by name and `runs`, the core of OpenBLAS, is
 * not the core of the set. */
osh_status osh_isa_check_core(osh_ctx *cx, const char *runs);
/* Opens OpenBLAS with the set in use. Ops do this themselves; a job that counts its memory calls
 * this first. Fails with OSH_E_UNSUPPORTED if OpenBLAS is missing or runs a wrong core. */
osh_status osh_isa_load(osh_ctx *cx);
/* Returns osh_mem_uncounted plus an estimate of the bytes that the libraries will take. */
int64_t osh_isa_uncounted(osh_ctx *cx);
/* Bytes by which osh_isa_uncounted may differ between two runs. A message about a budget that is
 * too small adds them to the bytes that it names. */
enum { OSH_ISA_NOISE_BYTES = 256 << 10 };
/* Bytes that osh_isa_uncounted counts for each thread that multiplies: the touched part of
 * OpenBLAS's packing buffer (P x Q and Q x 256 floats, 1.3 MB with SkylakeX, 0.8 MB with Haswell),
 * its stack and its heap. */
enum { OSH_ISA_THREAD_BYTES = 3 << 19 };
/* Describes the set and the library: "isa=avx2 openblas=0.3.21/Haswell". Products have the same
 * bytes where this text is the same. */
osh_status osh_isa_describe(osh_ctx *cx, char **text); // own
#endif
