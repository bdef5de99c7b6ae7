/* padding.h - adds rows and columns of zeros to tensors of a source when they are read. */
#ifndef OSH_QUANT_PADDING_H
#define OSH_QUANT_PADDING_H
#include "quant/source.h"

/* A dimension that consists of equal parts. For example, the rows of a fused gate and up are two
 * parts. from: size of a part. to: size of the part after zeros are added at the end of the
 * part. */
typedef struct osh_grown { int64_t from, to; } osh_grown;
typedef struct osh_padded {
    int64_t tensor;          // index of the tensor in the checkpoint
    osh_grown rows, columns; // a vector is one row, so its elements are columns
} osh_padded;

/* Replaces tensors of the source by virtual tensors with zeros. May be called once. The indices of
 * tensors do not change. Fails if a tensor is copied as codes (--only). */
osh_status osh_source_pad(osh_ctx *cx, osh_source *s, const osh_padded *of, int64_t n);
int64_t osh_source_n_padded(const osh_source *s); // returns the number of tensors with zeros
/* Returns the bytes of scratch for adding zeros, without the scratch for reading the tensor. */
size_t osh_padding_scratch(const osh_source *s);
#endif
