/* altup.h - declares the attributes of the ops of Gemma 3n and of DiffLlama. Gemma 3n's AltUp has S
 * streams of D channels. All streams are in one value [N, S*D]: stream i is in columns
 * [i D, (i + 1) D).
 *
 *   stream_mix      in x [N, S*D], c [N, S*S]                  out [N, S*D]
 *   stream_correct  in x [N, S*D], y [N, D], c [N, S]          out [N, S*D]
 *   stream_add      in x [N, S*D], y [N, D]                    out [N, S*D]
 *   match_rms       in x [N, D], like [N, D]                   out [N, D]
 *   gaussian_topk   in x [N, F]                                out [N, F]
 *   channel_gain    in x [N, D], w [D]                         out [N, D]
 *   tanh            in x [N, D]                                out [N, D]
 *   diff_heads      in a, b [N, H*W], q1, k1, q2, k2 [W/2]     out [N, H*W]
 *
 * Shapes: N tokens of the batch, D channels, F intermediate_size, H pairs of heads of W
 * elements. */
#ifndef OSH_ALTUP_H
#define OSH_ALTUP_H
#include "ops/op.h"

typedef struct { int64_t streams; } osh_stream_mix_attr;
/* active: index of the stream that was the input of the layer.
 * first: index of the first stream to which y is added. */
typedef struct { int64_t active; } osh_stream_correct_attr;
typedef struct { int64_t first; } osh_stream_add_attr;
/* sparsity: fraction of the elements of a row that become 0. */
typedef struct { double sparsity; } osh_gaussian_topk_attr;
typedef struct { int64_t head_dim, layer; double eps; } osh_diff_heads_attr;
#endif
