/* prune_factor.h - computes the factor of a Hessian for SparseGPTModifier. */
#ifndef OSH_PRUNE_FACTOR_H
#define OSH_PRUNE_FACTOR_H
#include "tensor/device.h"

typedef struct osh_prune_factor {
    /* Upper factor U of H^-1, [I, I]: a view of the Hessian or of `room`. NULL: H cannot be
     * factored, or all columns are dead. */
    const float *u;
    osh_device *device; // view: the device that has u in its memory; NULL: u is in host memory
    float *room; // own [I, I]: copy of a factor that a device has computed; NULL: no such copy
    bool *dead;  // own [I]: true for columns whose input is 0 in all tokens
    bool any;    // false: all columns are dead, for example if an expert got no token
} osh_prune_factor;
typedef struct osh_prune_damping {
    double frac;       // fraction of the mean of the diagonal that is added to the diagonal
    int64_t n_samples; // number of samples of the Hessian
    bool stays;        // true: the factor of a Hessian on a device stays there
} osh_prune_damping;
/* Damps H and replaces it by its factor. h: the lower triangle of the Hessian, on a device or in
 * host memory. The caller frees *f with osh_prune_factor_deinit, also after a failure. */
osh_status osh_prune_factor_fill(osh_ctx *cx, osh_prune_factor *f, osh_tensor *h,
                                 osh_prune_damping damping);
void osh_prune_factor_deinit(osh_ctx *cx, osh_prune_factor *f);
typedef struct osh_prune_place {
    bool there; // true: the Hessian is on a device
    bool stays; // member of osh_prune_damping
} osh_prune_place;
/* Returns the host bytes that the members of a factor need until osh_prune_factor_deinit. Sets
 * *work to the host bytes of osh_prune_factor_fill, which include these bytes. */
size_t osh_prune_factor_bytes(int64_t I, int n_threads, osh_prune_place place, size_t *work);
/* Returns the bytes that osh_prune_factor_fill allocates in the arena of a device. */
size_t osh_prune_factor_device_bytes(int64_t I);
#endif
