/* format.h - declares the storage formats, which compressed-tensors calls compressors. A format
 * defines which tensors of a checkpoint contain the codes and scales of one Linear. */
#ifndef OSH_FORMAT_H
#define OSH_FORMAT_H
#include "quant/arith.h"

/* Largest number of tensors of one module, which is a Linear or an attention. A Linear has codes.
 * It also has scales and zero points of its weight, inputs and outputs. */
enum { OSH_FORMAT_MAX_TENSORS = 14 };
typedef struct osh_format_tensor {
    const char *leaf; // part of the tensor's name after the module, such as "weight_packed"
    osh_dtype dtype;
    int ndim;
    int64_t shape[2];
} osh_format_tensor;

typedef struct osh_format_weight { // properties of a weight [O, I] that a format needs
    const osh_q_scheme *scheme; // view
    int64_t O, I;
    osh_dtype dt; // dtype of the dense weight
} osh_format_weight;

typedef struct osh_format_input { // scale and zero point of static activations
    /* `scale` is NULL if the scheme has no static activations. `zero` is NULL if they are
     * symmetric. */
    const osh_tensor *scale, *zero; // views
} osh_format_input;

typedef struct osh_format {
    const char *name; // name of the format, such as "pack-quantized"
    /* Lists the tensors that replace the tensor `weight` of a module, and after them input_scale
     * and input_zero_point of static activations. `out` has space for OSH_FORMAT_MAX_TENSORS. */
    osh_status (*tensors)(osh_ctx *cx, osh_format_tensor *out, int *n, const osh_format_weight *w);
    /* Writes all tensors that `tensors` lists; data[i] is the memory for tensor i. `in` is NULL if
     * activations are not static. If `codes` is NULL, tensor 0 is not written, because the caller
     * writes it with pack_rows. */
    osh_status (*pack)(osh_ctx *cx, void *const *data, const osh_format_weight *w,
                       const void *codes, const osh_qparams *p, const osh_format_input *in);
    /* Writes n consecutive rows of tensor 0, which stores the codes, from codes [n, I]. NULL: the
     * bytes of tensor 0 are the codes. */
    void (*pack_rows)(void *to, const osh_q_scheme *s, int64_t I, const void *codes, int64_t n);
    /* Reads the stored tensors data[i]. Writes the codes to `codes`, and allocates and sets the
     * members of p. Scales may be F32: other tools write F32 scales, while this program writes the
     * weight's dtype. */
    osh_status (*unpack)(osh_ctx *cx, void *codes, osh_qparams *p, const osh_format_weight *w,
                         const osh_tensor *const *data);
} osh_format;
typedef struct osh_format_stored { // name, dtype and shape of a tensor in a checkpoint
    const char *name; // view
    osh_dtype dtype;
    int ndim;
    const int64_t *shape; // view [ndim]
} osh_format_stored;
/* Fails if the stored tensor `has` does not have the dtype and shape of `want`. There are three
 * exceptions. A scale may be BF16, F16 or F32. weight_shape may be I32. A tensor of one number,
 * except weight_global_scale, may have any number of dimensions. */
osh_status osh_format_check(osh_ctx *cx, const osh_format_stored *has,
                            const osh_format_tensor *want);
/* Appends the tensors of static output_activations to `out` [*n]. In every format they come after
 * the tensors of the weight. */
void osh_format_add_output(osh_format_tensor *out, int *n, const osh_q_scheme *s, osh_dtype dt);
extern const osh_format *const osh_formats[]; // all formats; NULL ends the list
/* The format of a weight that is pruned but not quantized. This format is not in osh_formats. */
extern const osh_format osh_format_dense;
/* The next functions write and read the bit stream of the pack-quantized format along a row
 * (compressed-tensors 0.18 and later). The stream is a sequence of 32-bit words, lowest bit first.
 * Element i has the bits [i*bits, (i+1)*bits) and is stored as code + 2^(bits-1). Consecutive words
 * are `word_step` elements apart, and consecutive codes are `code_step` elements apart. So columns
 * of a matrix of zero points can be packed, too. */
/* Returns the number of words of n codes. */
int64_t osh_pack_words(int64_t n, int bits);
void osh_pack_row(uint32_t *words, int64_t word_step, const int8_t *codes, int64_t code_step,
                  int64_t n, int bits);
void osh_unpack_row(int8_t *codes, int64_t code_step, const uint32_t *words, int64_t word_step,
                    int64_t n, int bits);
/* Returns the format with this name, or NULL if there is none. */
const osh_format *osh_format_find(const char *name);
/* Sets *out to the storage format of a scheme. If s->format is set, the result is this format, and
 * the function fails if the format cannot store the weights. `what` names the scheme in errors. */
osh_status osh_format_infer(osh_ctx *cx, const osh_format **out, const osh_q_scheme *s,
                            const char *what);
#endif
