/* cufile.h - NVIDIA's cuFile (GPUDirect Storage): reads between files and the memory of a card past the host's, where
 * the library, its driver and the file system can. */
#ifndef OSH_CUFILE_H
#define OSH_CUFILE_H
#ifdef __cplusplus
extern "C" {
#endif
#include "base/base.h"

/* Opens the library and its driver, once for the process, which has a CUDA context; from then on it must not fork.
 * false: why [room] says what is missing. */
bool osh_cufile_open(osh_ctx *cx, char *why, size_t room);
bool osh_cufile_has_module(void); // nvidia-fs: without it the library itself may go through host memory

/* All of these only where it is open. 0 or more: done, or bytes; less: -1 with errno, else the library's code. */
int64_t osh_cufile_register(void **handle, int fd); // fd: opened with O_DIRECT; stays open as long as the handle
void osh_cufile_deregister(void *handle);
int64_t osh_cufile_lock(void *base, size_t n_bytes); // card memory that many reads go to
void osh_cufile_unlock(void *base);
/* Bytes [at, at + n_bytes) of the file to base + to; fewer, as read(2). From any thread that has the card. */
int64_t osh_cufile_read(void *handle, void *base, size_t n_bytes, int64_t at, int64_t to);
/* What a negative result means: "the file system does not take it (cuFile 5008)". */
const char *osh_cufile_text(int64_t result, char *to, size_t room);
#ifdef __cplusplus
}
#endif
#endif
