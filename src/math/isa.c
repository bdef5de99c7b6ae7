/* isa.c - pins the instruction set of the program's own kernels and of OpenBLAS, and describes the
 * set in use. */
#include "math/isa.h"
#include "base/profile.h"
#include "math/blas.h"

#include <stdatomic.h>
#include <string.h>
#include <strings.h>

static const char *const cores[OSH_N_ISAS] = {"Prescott", "Haswell", "SkylakeX", "SkylakeX",
                                              "SkylakeX"};
/* True if the user chose the instruction set by name. OpenBLAS must then use the core of this
 * set. */
static atomic_bool by_name;

osh_status osh_isa_select(osh_ctx *cx, const char **core, const char *name)
{
    osh_status rc = OSH_OK;
    osh_isa isa;

    *core = NULL;
    if (!osh_isa_parse(&isa, name ? name : "auto"))
        OSH_FAIL(cx, OSH_E_USAGE, "--isa '%s': not an instruction set", name);
    OSH_TRY(osh_isa_pin(cx, isa));
    if (name && strcmp(name, "auto")) atomic_store(&by_name, true);
    *core = cores[isa];
done:
    return rc;
}

osh_status osh_isa_use(osh_ctx *cx, const char *name)
{
    const char *core;
    return osh_isa_select(cx, &core, name);
}

osh_status osh_isa_check_core(osh_ctx *cx, const char *runs)
{
    const char *want = cores[osh_isa_used()];
    if (!atomic_load(&by_name) || !strcasecmp(runs, want)) return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "--isa %s: OpenBLAS runs its %s kernels instead of %s: set "
                    "OPENBLAS_CORETYPE=%s before OpenBLAS is loaded",
                    osh_isa_name(osh_isa_used()), runs, want, want);
}

osh_status osh_isa_load(osh_ctx *cx)
{
    return osh_blas_open(cx);
}

/* Estimate of the bytes that OpenBLAS, stacks and the heap of the C library allocate after the call
 * of osh_isa_uncounted. The estimate does not include the bytes of each thread
 * (OSH_ISA_THREAD_BYTES). */
enum { LIBRARY_BYTES = 2 << 20 };

int64_t osh_isa_uncounted(osh_ctx *cx)
{
    return osh_mem_uncounted(cx) + LIBRARY_BYTES + (int64_t)osh_threads(cx) * OSH_ISA_THREAD_BYTES;
}

osh_status osh_isa_describe(osh_ctx *cx, char **text)
{
    osh_status rc = OSH_OK;
    osh_isa isa = osh_isa_used();

    *text = NULL;
    OSH_TRY(osh_blas_open(cx));
    // `version` is the version number in a text such as "OpenBLAS 0.3.21 ..."
    const char *version = strpbrk(osh_blas()->get_config(), "0123456789");
    *text = osh_sprintf(cx, "isa=%s openblas=%.*s/%s", osh_isa_name(isa),
                        version ? (int)strcspn(version, " ") : 1, version ? version : "?",
                        osh_blas()->get_corename());
    if (!*text) rc = OSH_E_NOMEM;
done:
    return rc;
}
