/* nvml.h - asks NVIDIA's driver how much memory of a GPU is in use by all processes. The driver's
 * management library (NVML) answers, if it is installed. */
#ifndef OSH_NVML_H
#define OSH_NVML_H
#ifdef __cplusplus
extern "C" {
#endif
#include "base/base.h"

/* Opens the library once for the process. On failure logs the reason at level debug; osh_nvml_used
 * then always returns a negative number. */
void osh_nvml_open(osh_ctx *cx);
/* Returns how many bytes all processes and the driver use on a GPU. bus_id names the GPU in the
 * form that CUDA returns. Returns a negative number if this is unknown. */
int64_t osh_nvml_used(const char *bus_id);
#ifdef __cplusplus
}
#endif
#endif
