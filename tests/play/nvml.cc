/* nvml.cc - emulates the part of NVML that the program uses. It reports that 3 GiB of GPU memory
 * are used by another process. */
#include <string.h>

struct memory { unsigned long long total, free, used; };
static bool is_up;

extern "C" int nvmlInit_v2() { return is_up = true, 0; }
extern "C" int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
    if (!is_up || strcmp(bus_id, "0000:0B:00.0")) return 6; // NVML's error "not found"
    return *device = &is_up, 0;
}
extern "C" int nvmlDeviceGetMemoryInfo(void *device, memory *out)
{
    if (device != &is_up) return 2; // NVML's error "invalid argument"
    *out = memory{8ull << 30, 5ull << 30, 3ull << 30};
    return 0;
}
