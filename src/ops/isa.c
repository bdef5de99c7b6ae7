/* isa.c - pins the instruction set of the libraries and names what they run. */
#include "ops/isa.h"
#include "ops/cpu/gemm.h"

#include <cblas.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct isa_row {
    const char *core, *dnnl_name;
    dnnl_cpu_isa_t dnnl;
} isa_row;
static const isa_row rows[OSH_N_ISAS] = {
    [OSH_ISA_GENERIC] = {"Prescott", "sse41", dnnl_cpu_isa_sse41},
    [OSH_ISA_AVX2] = {"Haswell", "avx2", dnnl_cpu_isa_avx2},
    [OSH_ISA_AVX512] = {"SkylakeX", "avx512_core", dnnl_cpu_isa_avx512_core},
    [OSH_ISA_AVX512_BF16] = {"SkylakeX", "avx512_core_bf16", dnnl_cpu_isa_avx512_core_bf16},
    [OSH_ISA_AMX] = {"SkylakeX", "avx512_core_amx", dnnl_cpu_isa_avx512_core_amx},
};

osh_status osh_isa_select(osh_ctx *cx, const char **core, const char *name)
{
    osh_status rc = OSH_OK;
    osh_isa isa;

    *core = NULL;
    if (!osh_isa_parse(&isa, name ? name : "auto"))
        OSH_FAIL(cx, OSH_E_USAGE, "--isa '%s': not an instruction set", name);
    OSH_TRY(osh_isa_pin(cx, isa));
    /* Refused once oneDNN was asked anything: then a set pinned before this one, which is the same, holds. */
    dnnl_set_max_cpu_isa(rows[isa].dnnl);
    if (strcasecmp(openblas_get_corename(), rows[isa].core)) *core = rows[isa].core;
done:
    return rc;
}

osh_status osh_isa_use(osh_ctx *cx, const char *name)
{
    osh_status rc = OSH_OK;
    const char *core = NULL;

    OSH_TRY(osh_isa_select(cx, &core, name));
    if (core && name && strcmp(name, "auto"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "--isa %s: OpenBLAS runs its %s kernels, want %s: start the process with "
                 "OPENBLAS_CORETYPE=%s", name, openblas_get_corename(), core, core);
done:
    return rc;
}

osh_status osh_isa_describe(osh_ctx *cx, char **text)
{
    osh_isa isa = osh_isa_used();
    const char *config = openblas_get_config(), *version = strpbrk(config, "0123456789"); // "OpenBLAS 0.3.21 ..."
    int n = version ? (int)strcspn(version, " ") : 1;
    const dnnl_version_t *v = dnnl_version();

    *text = isa < OSH_ISA_AVX512_BF16
                ? osh_sprintf(cx, "isa=%s openblas=%.*s/%s", osh_isa_name(isa), n, version ? version : "?",
                              openblas_get_corename())
                : osh_sprintf(cx, "isa=%s openblas=%.*s/%s onednn=%d.%d.%d/%s", osh_isa_name(isa), n,
                              version ? version : "?", openblas_get_corename(), v->major, v->minor, v->patch,
                              rows[isa].dnnl_name);
    return *text ? OSH_OK : OSH_E_NOMEM;
}
