/* format.h - how codes and scales of one Linear become tensors of a checkpoint (compressors of compressed-tensors).
 */
#ifndef OSH_FORMAT_H
#define OSH_FORMAT_H
#include "quant/arith.h"

enum { OSH_FORMAT_MAX_TENSORS = 14 }; // and of scales of an attention and of outputs beside it
typedef struct osh_format_tensor {
    const char *leaf; // "weight_packed"
    osh_dtype dtype;
    int ndim;
    int64_t shape[2];
} osh_format_tensor;

typedef struct osh_format_weight { // what is stored: a weight [O, I]
    const osh_q_scheme *scheme; // view
    int64_t O, I;
    osh_dtype dt; // of the dense weight
} osh_format_weight;

typedef struct osh_format_input { // of static activations; views
    const osh_tensor *scale, *zero; // NULL: not there
} osh_format_input;

typedef struct osh_format {
    const char *name; // "pack-quantized"
    /* Tensors that replace `weight` (input_scale, input_zero_point of static activations included). */
    osh_status (*tensors)(osh_ctx *cx, osh_format_tensor *out, int *n, const osh_format_weight *w);
    /* data[i] is room for tensor i of tensors(). in NULL: activations are not static. codes NULL: all but tensor 0,
     * which has been made by pack_rows. */
    osh_status (*pack)(osh_ctx *cx, void *const *data, const osh_format_weight *w, const void *codes,
                       const osh_qparams *p, const osh_format_input *in);
    /* n rows of tensor 0, which has its rows one after the other, from codes [n, I]; NULL: its bytes are the codes. */
    void (*pack_rows)(void *to, const osh_q_scheme *s, int64_t I, const void *codes, int64_t n);
    /* data[i] as stored (scale dtype sdt may be F32 in other tools' files) to codes and params (allocated here). */
    osh_status (*unpack)(osh_ctx *cx, void *codes, osh_qparams *p, const osh_format_weight *w,
                         const osh_tensor *const *data);
} osh_format;
typedef struct osh_format_stored { // a tensor of a file
    const char *name; // view
    osh_dtype dtype;
    int ndim;
    const int64_t *shape; // view [ndim]
} osh_format_stored;
/* Refuses a tensor that does not have the dtype and the shape of want. A scale may be BF16, F16 or F32, the shape of a
 * weight may be I32, and a tensor of one number may have any number of dimensions, but for weight_global_scale. */
osh_status osh_format_check(osh_ctx *cx, const osh_format_stored *has, const osh_format_tensor *want);
/* Those of static output_activations, which stand behind them in every format. */
void osh_format_add_output(osh_format_tensor *out, int *n, const osh_q_scheme *s, osh_dtype dt);
extern const osh_format *const osh_formats[]; // all; ends with NULL
extern const osh_format osh_format_dense;     // of what is pruned and not quantized: the weight; none of them
/* Bit stream of the pack-quantized format along a row (compressed-tensors 0.18 and later): element i of bits b takes
 * the bits [i*b, (i+1)*b), lowest first, of 32-bit words; stored as code + 2^(b-1). *_step: elements from one to the
 * next, so that columns (zero points) pack as well. */
int64_t osh_pack_words(int64_t n, int bits);
void osh_pack_row(uint32_t *words, int64_t word_step, const int8_t *codes, int64_t code_step, int64_t n, int bits);
void osh_unpack_row(int8_t *codes, int64_t code_step, const uint32_t *words, int64_t word_step, int64_t n, int bits);
const osh_format *osh_format_find(const char *name); // pack-quantized int-quantized float-quantized naive-quantized
osh_status osh_format_infer(osh_ctx *cx, const osh_format **out, const osh_q_scheme *s,
                            const char *what); // explicit format wins, checked
#endif
