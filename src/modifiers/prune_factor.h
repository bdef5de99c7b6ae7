/* prune_factor.h - computes the factor of a Hessian for SparseGPTModifier. */
#ifndef OSH_PRUNE_FACTOR_H
#define OSH_PRUNE_FACTOR_H
#include "tensor/device.h"

typedef struct osh_prune_factor {
    /* Upper triangular U with U^T U = H^-1, [I, I]: a view of the Hessian's memory or of `room`.
     * NULL: H cannot be factored, or all columns are dead. */
    const float *u;
    osh_device *device; // view: the device that has u in its memory; NULL: u is in host memory
    /* Own [I, I]: copy in host memory of a factor from a device; NULL: there is no copy. */
    float *room;
    bool *dead;  // own [I]: true for dead columns, whose input is 0 in all tokens
    bool any;    // false if all columns are dead, for example because an expert got no token
} osh_prune_factor;
typedef struct osh_prune_damping {
    double frac; // damping: this fraction of the mean of the diagonal is added to the diagonal
    int64_t n_samples; // number of samples from which the Hessian is computed
    bool stays;        // true: if a device has the Hessian, the factor remains there
} osh_prune_damping;
/* Adds damping to the Hessian h, and replaces h by its factor. Only the lower triangle of h is
 * read; h is on a device or in host memory. The caller frees *f with osh_prune_factor_deinit, also
 * after a failure. */
osh_status osh_prune_factor_fill(osh_ctx *cx, osh_prune_factor *f, osh_tensor *h,
                                 osh_prune_damping damping);
void osh_prune_factor_deinit(osh_ctx *cx, osh_prune_factor *f);
typedef struct osh_prune_place {
    bool there; // true: the Hessian is on a device
    bool stays; // true: if a device has the Hessian, the factor remains there
} osh_prune_place;
/* Returns the number of host bytes that a factor needs until osh_prune_factor_deinit. Sets *work to
 * the number of host bytes that osh_prune_factor_fill needs, including the bytes of the factor. */
size_t osh_prune_factor_bytes(int64_t I, int n_threads, osh_prune_place place, size_t *work);
/* Returns the number of bytes that osh_prune_factor_fill allocates in the arena of a device. */
size_t osh_prune_factor_device_bytes(int64_t I);
#endif
