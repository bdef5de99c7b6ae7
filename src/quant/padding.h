/* padding.h - adds rows and columns of zeros to tensors of a source, when the tensors are read. */
#ifndef OSH_QUANT_PADDING_H
#define OSH_QUANT_PADDING_H
#include "quant/source.h"

/* How one dimension of a tensor grows. The dimension consists of equal parts; for example, the rows
 * of a fused gate and up are two parts. from: size of a part. to: size of the part with the zeros,
 * which are added at its end. */
typedef struct osh_grown { int64_t from, to; } osh_grown;
typedef struct osh_padded {
    int64_t tensor;          // index (in the checkpoint) of the tensor to which zeros are added
    osh_grown rows, columns; // how both dimensions grow; a vector counts as one row
} osh_padded;

/* Replaces the n tensors `of` by virtual tensors with added zeros. The indices of all tensors
 * remain the same. Must not be called twice. Fails if a tensor is copied as codes (--only). */
osh_status osh_source_pad(osh_ctx *cx, osh_source *s, const osh_padded *of, int64_t n);
/* Returns the number of tensors to which zeros are added. */
int64_t osh_source_n_padded(const osh_source *s);
/* Returns the number of bytes of scratch for adding zeros, without the scratch for reading the
 * stored tensor. */
size_t osh_padding_scratch(const osh_source *s);
#endif
