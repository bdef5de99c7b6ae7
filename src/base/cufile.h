/* cufile.h - uses NVIDIA's cuFile (GPUDirect Storage) to read files into GPU memory without host
 * memory, if the library, its driver and the file system support it. */
#ifndef OSH_CUFILE_H
#define OSH_CUFILE_H
#ifdef __cplusplus
extern "C" {
#endif
#include "base/base.h"

/* Opens the library and its driver once for the process. The process must have a CUDA context and
 * must not fork afterwards. On failure returns false and writes the reason to `why`, an array of
 * `room` bytes. */
bool osh_cufile_open(osh_ctx *cx, char *why, size_t room);
/* True if the kernel module nvidia-fs is loaded. Without this module cuFile may read through host
 * memory. */
bool osh_cufile_has_module(void);

/* The functions below require a successful osh_cufile_open. On success they return 0 or a number of
 * bytes. On failure they return -1 and set errno, or return cuFile's error code as a negative
 * number below -1. */
/* Registers the file of `fd` and sets *handle. The caller opens `fd` with O_DIRECT, and closes it
 * after osh_cufile_deregister. */
int64_t osh_cufile_register(void **handle, int fd);
void osh_cufile_deregister(void *handle);
int64_t osh_cufile_lock(void *base, size_t n_bytes); // registers GPU memory for many reads
/* Ends the registration that osh_cufile_lock made. */
void osh_cufile_unlock(void *base);
/* Reads bytes [at, at + n_bytes) of the file to the address `base` + `to`. The call may read fewer
 * bytes, like read(2). Any thread that uses the GPU may call it. */
int64_t osh_cufile_read(void *handle, void *base, size_t n_bytes, int64_t at, int64_t to);
/* Returns the meaning of a negative result, such as "the file system does not support it (cuFile
 * 5008)". */
const char *osh_cufile_text(int64_t result, char *to, size_t room);
#ifdef __cplusplus
}
#endif
#endif
