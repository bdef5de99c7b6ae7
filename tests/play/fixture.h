/* fixture.h - ends a test on the emulated GPU. Checks that all memory of the host and of the GPU is
 * freed. */
#ifndef PLAY_FIXTURE_H
#define PLAY_FIXTURE_H
#include "play/play.h"

#include "base/base.h"
#include "tensor/device.h"

static inline bool play_close_leaks(osh_ctx *cx, osh_device *d)
{
    osh_device_close(cx, d);
    osh_play_fail(NULL, 0, 0);
    osh_play_lazy(false);
    bool leak = osh_mem_live(cx) || osh_play_live();
    osh_ctx_free(cx);
    return leak;
}
#endif
