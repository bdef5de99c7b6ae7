/* tensor.h - declares dtypes, and dense row-major tensors in host memory or on a device
 * (tensor/device.h). */
#ifndef OSH_TENSOR_H
#define OSH_TENSOR_H
#include "base/base.h"

typedef enum { // dtypes; io/safetensors_write.c sorts the tensors of a file by dtype
    OSH_I64,
    OSH_F64,
    OSH_F32,
    OSH_I32,
    OSH_BF16,
    OSH_F16,
    OSH_I16,
    OSH_FP8,
    OSH_FP8_E5M2,
    OSH_FP8_E8M0,
    OSH_I8,
    OSH_U8,
    OSH_BOOL,
    OSH_U16,
    OSH_U32,
    OSH_U64,
    OSH_N_DTYPES,
    OSH_DTYPE_NONE = OSH_N_DTYPES
} osh_dtype;
/* Returns the tag of a dtype in safetensors files, such as "F8_E4M3". */
const char *osh_dtype_name(osh_dtype dt);
/* Returns the dtype whose tag in safetensors ("BF16") or name in torch ("bfloat16" or
 * "torch.bfloat16") is `tag`. Returns OSH_DTYPE_NONE for all other texts. */
osh_dtype osh_dtype_of_name(const char *tag);
/* Returns the number of bytes of an element. */
size_t osh_dtype_bytes(osh_dtype dt);
bool osh_dtype_is_float(osh_dtype dt);            // true for F64, F32, BF16, F16 and FP8

enum { OSH_MAX_DIMS = 8 };
typedef struct osh_device osh_device;
typedef struct osh_tensor {
    osh_dtype dtype;
    int ndim;
    int64_t shape[OSH_MAX_DIMS];
    void *data;
    bool own;           // true: the tensor owns `data`
    /* view: device that has `data` in its memory; NULL: `data` is in host memory. */
    osh_device *device;
} osh_tensor;

/* Makes a tensor in host memory. Its elements are not set. */
osh_status osh_tensor_new(osh_ctx *cx, osh_tensor **out, osh_dtype dt, int ndim,
                          const int64_t *shape);
/* Frees the tensor and its data. Accepts NULL. */
void osh_tensor_free(osh_ctx *cx, osh_tensor *t);
/* Returns a view of `data` as a tensor. The view is valid as long as `data` is. */
osh_tensor osh_tensor_view(osh_dtype dt, int ndim, const int64_t *shape, void *data);
/* osh_tensor_numel returns the number of elements of the tensor. osh_tensor_bytes returns the
 * number of bytes of its data. */
int64_t osh_tensor_numel(const osh_tensor *t);
size_t osh_tensor_bytes(const osh_tensor *t);
/* Returns the number of host bytes (gross) of a tensor whose data have n_bytes. */
static inline size_t osh_tensor_gross(size_t n_bytes)
{
    return osh_mem_gross(n_bytes) + osh_mem_gross(sizeof(osh_tensor));
}
/* Sets *n_bytes to the number of bytes of the data of a tensor. Fails if a dimension is negative or
 * the size is too large. */
osh_status osh_shape_bytes(osh_ctx *cx, size_t *n_bytes, osh_dtype dt, int ndim,
                           const int64_t *shape);
/* Sets *numel to the number of elements. Returns false if a dimension is negative or the number
 * overflows. */
bool osh_shape_numel(int64_t *numel, int ndim, const int64_t *shape);

/* Converts n elements of dtype dt (F32, BF16, F16, FP8 or F64) to f32. */
void osh_to_f32(float *to, const void *from, osh_dtype dt, int64_t n);
/* Converts n f32 elements to dtype dt, rounding to nearest, ties to even. */
void osh_from_f32(void *to, osh_dtype dt, const float *from, int64_t n);
float osh_tensor_at(const osh_tensor *t, int64_t i); // returns element i of a float tensor
/* Returns the index of the first NaN or infinity among n elements at p. Returns -1 if there is
 * none, or if dt is not a float dtype. */
int64_t osh_find_nonfinite(const void *p, osh_dtype dt, int64_t n);
#endif
