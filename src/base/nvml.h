/* nvml.h - what NVIDIA's driver says of a card as a whole, through its management library (NVML) where that is. */
#ifndef OSH_NVML_H
#define OSH_NVML_H
#ifdef __cplusplus
extern "C" {
#endif
#include "base/base.h"

/* Once for the process; where it fails, a message of level debug says why, and nothing is known from then on. */
void osh_nvml_open(osh_ctx *cx);
/* Bytes in use on the card, of all processes and of the driver itself; bus_id as CUDA gives it. < 0: unknown. */
int64_t osh_nvml_used(const char *bus_id);
#ifdef __cplusplus
}
#endif
#endif
