/* share.h - lets several ranks write one output. Each file is written by one rank. Rank 0 makes the
 * directory and the files and writes the journal; the other ranks open the files that they write.
 * A rank writes tensors, syncs its files, and then sends the records of these tensors to rank 0.
 * Rank 0 appends these records to the journal, as if it had written the tensors itself. So the
 * records of a rank reach the journal only after its bytes are on the disk. */
#ifndef OSH_SHARE_H
#define OSH_SHARE_H
#include "output/emit.h"
#include "ranks/ranks.h"

/* Makes the emitters of all ranks. Each rank calls this function instead of osh_emitter_new. Only
 * rank 0 creates or continues the partial directory. If an earlier run has left results in it, rank
 * 0 sends them to the other ranks. If samples are divided (plan/division.h), rank 0 writes all
 * files, and the other ranks write nothing. If not, each rank writes only some of the files. */
osh_status osh_emitter_share(osh_ctx *cx, osh_emitter **out, const osh_plan *p, osh_result *results,
                             bool *finished);
/* True if this rank writes the file of output tensor `out`. */
bool osh_emit_is_mine(const osh_emitter *e, int64_t out);

typedef struct osh_sharing { // callback on rank 0 for each Linear that another rank has written
    void (*seen)(osh_ctx *cx, void *user, int linear, double nmse);
    void *user;
} osh_sharing;
/* Called from time to time while tensors are written. Rank 0 takes the records that have arrived
 * from other ranks. The other ranks send their records. */
osh_status osh_emit_exchange(osh_ctx *cx, osh_emitter *e, const osh_sharing *s);
/* Each rank calls this function after it has written its files. On rank 0 the function returns when
 * the records of all ranks are taken. */
osh_status osh_emit_exchange_all(osh_ctx *cx, osh_emitter *e, const osh_sharing *s);
#endif
