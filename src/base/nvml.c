/* nvml.c - calls NVIDIA's NVML. The types agree with NVML's API reference. */
#include "base/nvml.h"
#include "base/library.h"

#include <stddef.h>

typedef struct memory { unsigned long long total, free, used; } memory; // nvmlMemory_t

static struct {
    int (*init)(void);
    int (*by_bus_id)(const char *bus_id, void **device);
    int (*memory_info)(void *device, memory *out);
} nvml;
static atomic_bool is_open;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool tried; // protected by `lock`

static const osh_symbol symbols[] = {
    {"nvmlInit_v2", offsetof(__typeof__(nvml), init)},
    {"nvmlDeviceGetHandleByPciBusId_v2", offsetof(__typeof__(nvml), by_bus_id)},
    {"nvmlDeviceGetMemoryInfo", offsetof(__typeof__(nvml), memory_info)},
};
static const osh_library library = {{"libnvidia-ml.so.1"}, "figures of the driver", "of the driver",
                                    symbols, sizeof symbols / sizeof *symbols};

static osh_status nvml_library_open(osh_ctx *cx)
{
    osh_status rc = OSH_OK;
    void *handle;
    OSH_TRY(osh_library_open(cx, &handle, &nvml, &library));
    int code = nvml.init();
    if (code) OSH_FAIL(cx, OSH_E_UNSUPPORTED, "nvmlInit_v2 fails with code %d", code);
done:
    return rc;
}

void osh_nvml_open(osh_ctx *cx)
{
    pthread_mutex_lock(&lock);
    if (!tried) {
        tried = true;
        if (!nvml_library_open(cx)) atomic_store(&is_open, true);
        else {
            osh_log(cx, OSH_LOG_DEBUG, "cannot read the GPU's memory from its driver: %s",
                    osh_error_text(cx));
            osh_error_clear(cx);
        }
    }
    pthread_mutex_unlock(&lock);
}

int64_t osh_nvml_used(const char *bus_id)
{
    memory m = {0};
    void *device = NULL;
    if (!atomic_load(&is_open) || nvml.by_bus_id(bus_id, &device) || nvml.memory_info(device, &m))
        return -1;
    return (int64_t)m.used;
}
