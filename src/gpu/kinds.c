/* kinds.c - defines the table of kinds of devices. */
#include "gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#ifdef OSH_CUDA_BUILT
extern const osh_device_type osh_cuda_type;
#endif

const osh_device_kind osh_device_kinds[OSH_N_DEVICE_KINDS] = {
    [OSH_HOST] = {.name = "cpu", .type = &osh_host_type},
    [OSH_GPU] = {.name = "cuda", .type = OSH_CUDA_FN(&osh_cuda_type),
                 .workspace = OSH_GPU_WORKSPACE, .stage = OSH_GPU_STAGE, .reserve = 512 << 20,
                 .host_bytes = OSH_GPU_HOST, .plan_bytes = OSH_GPU_PLANS},
};

bool osh_device_is_auto(const char *text) { return !text || !strcmp(text, "auto"); }

bool osh_device_is_gpu(const char *text)
{
    return osh_device_is_auto(text) ? osh_device_present(&osh_device_kinds[OSH_GPU])
                                    : strcmp(text, "cpu") != 0;
}

static osh_status kind_check(osh_ctx *cx, const osh_device_kind *k)
{
    if (k->type) return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "this program was built without CUDA: there is no device '%s'", k->name);
}

osh_status osh_device_find(osh_ctx *cx, const osh_device_kind **out, int *ordinal, const char *text)
{
    char *end = NULL;
    *out = &osh_device_kinds[osh_device_is_gpu(text)], *ordinal = 0;
    if (osh_device_is_auto(text) || !strcmp(text, (*out)->name)) return kind_check(cx, *out);
    long n = strncmp(text, "cuda:", 5) || text[5] < '0' || text[5] > '9'
                 ? -1
                 : strtol(text + 5, &end, 10);
    if (n < 0 || n > 1023 || *end)
        return osh_fail(cx, OSH_E_USAGE, "--device %s: want cpu, cuda or cuda:N%s", text,
                        strchr(text, ',')
                            ? ", because a process uses one GPU (for several GPUs, see "
                              "docs/how-to/cluster.md)"
                            : "");
    *ordinal = (int)n;
    return kind_check(cx, *out);
}

bool osh_device_present(const osh_device_kind *k) { return k->type && k->type->present(); }

osh_status osh_device_open(osh_ctx *cx, osh_device **out, const osh_device_kind *k, int ordinal,
                           size_t n_bytes)
{
    osh_status rc = kind_check(cx, k);
    return rc ? rc : k->type->open(cx, out, ordinal, n_bytes);
}
