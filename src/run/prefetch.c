/* prefetch.c - reads the weights of the next visit on one thread, as one item of a reader. More
 * threads would not be faster, because the file system also prefetches. */
#include "run/prefetch.h"

#include <string.h>

#include "base/ahead.h"
#include "budget/layout.h"
#include "schedule/visit.h"

struct osh_prefetch {
    osh_read_ahead *reader;       // own
    const osh_graph *g;       // view
    const osh_checkpoint *ck; // view
    int w0, w1;               // the interval [w0, w1) contains the weights of the next visit
    bool *want;               // own [w1 - w0]: true for weights that are prefetched
    osh_weights *w; // own: the weights that were read (w->host), and their blocks on the GPU (w->w)
    /* GPU to which the weights are copied; NULL: they are only read to host memory. */
    osh_device *device;       // view
};

static osh_status prefetch_read(osh_ctx *cx, osh_prefetch *f, int i)
{
    osh_status rc = OSH_OK;
    const osh_tensor *h, *d = f->w->w[i];
    OSH_TRY(osh_weight_load(cx, &f->w->host[i], f->g, f->ck, i));
    h = f->w->host[i];
    if (d)
        OSH_TRY(f->device->type->put_ahead(cx, f->device, d->data, h->data, osh_tensor_bytes(h)));
done:
    return rc;
}

/* Reads all weights that f->want marks. Callback for the member `read` of osh_read_items. */
static osh_status prefetch_read_all(osh_ctx *cx, void *user, int item)
{
    osh_status rc = OSH_OK;
    osh_prefetch *f = user;
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    for (int i = f->w0; i < f->w1; i++) {
        if (osh_read_ahead_stops(cx, f->reader)) break;
        if (f->want[i - f->w0]) OSH_TRY(prefetch_read(cx, f, i));
    }
done:
    osh_mem_use(cx, old);
    return rc;
}

/* True if the weight may get a block on the GPU before visit number `visit` begins. For this, the
 * plan must have an address for the weight in the part OSH_WAY_AHEAD.
 * In a resumed run, the visit may begin with a later part (`begins`), such as its second pass
 * (OSH_WAY_AGAIN) if all its Linears are solved. If the plan also has an address for the weight in
 * this later part, the visit itself loads the weight there, so the result is false. */
static bool prefetch_has_place(const osh_budget *p, int visit, osh_way begins, int weight)
{
    const osh_layout_kind kind = OSH_LAYOUT_WEIGHT;
    if (!p->memory.places) return true;
    return osh_places_has(p, visit, OSH_WAY_AHEAD, kind, weight) &&
           (begins == OSH_WAY_AHEAD || !osh_places_has(p, visit, begins, kind, weight));
}

/* Allocates blocks on the GPU for all weights that are prefetched. If one block does not fit,
 * allocates none. The caller's thread allocates the blocks, because the addresses must be the same
 * in each run. */
static void prefetch_take_places(osh_ctx *cx, osh_prefetch *f, const osh_budget *p, int visit,
                                 osh_way begins)
{
    bool all = true;
    for (int i = f->w0; i < f->w1 && all; i++) {
        if (!f->want[i - f->w0] || !prefetch_has_place(p, visit, begins, i)) continue;
        osh_places_aim(p, visit, OSH_WAY_AHEAD, OSH_LAYOUT_WEIGHT, i);
        const osh_entry *e = osh_weight_entry(f->g, f->ck, i);
        all = !osh_tensor_new_on(cx, &f->w->w[i], (osh_where){f->device, OSH_LIFE_LONG}, e->dtype,
                                 e->ndim, e->shape);
    }
    if (all) return;
    osh_error_clear(cx); // this is no error, because the visit itself can load the weights
    for (int i = f->w0; i < f->w1; i++) osh_tensor_free(cx, f->w->w[i]), f->w->w[i] = NULL;
    f->device = NULL;
}

osh_status osh_prefetch_start(osh_ctx *cx, osh_prefetch **out, const osh_budget *p,
                              const bool *want, int visit, osh_way begins)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    osh_device *device = p->schedule->visits[visit - 1].how.prefetch_device ? p->in->device : NULL;
    osh_prefetch *f = NULL; // own
    OSH_NEW(cx, f, 1);
    f->g = g, f->ck = p->in->ck, f->device = device;
    osh_range r = osh_range_at(p->schedule, visit);
    f->w0 = r.w0, f->w1 = r.w1;
    OSH_NEW(cx, f->want, r.w1 - r.w0);
    memcpy(f->want, want + r.w0, (size_t)(r.w1 - r.w0) * sizeof *want);
    OSH_TRY(osh_weights_new(cx, &f->w, g));
    if (device) prefetch_take_places(cx, f, p, visit, begins);
    OSH_TRY(osh_device_type_of(f->device)->follow(cx, f->device));
    OSH_TRY(osh_read_ahead_start(cx, &f->reader,
                                 &(osh_read_items){prefetch_read_all, f, 1, .ahead = true}));
    *out = f, f = NULL;
done:
    osh_prefetch_free(cx, f);
    return rc;
}

osh_status osh_prefetch_take(osh_ctx *cx, osh_prefetch *f, osh_weights *w)
{
    osh_status rc = OSH_OK;
    if (!f) goto done;
    OSH_TRY(osh_read_ahead_wait(cx, f->reader));
    OSH_TRY(osh_device_type_of(f->device)->fence(cx, f->device));
    for (int i = f->w0; i < f->w1; i++) {
        osh_tensor **from = &f->w->host[i], **to = w->device ? &w->host[i] : &w->w[i];
        if (!*from || w->w[i] || *to) continue;
        *to = *from, *from = NULL; // passes ownership
        w->w[i] = w->device ? f->w->w[i] : *to, f->w->w[i] = NULL; // passes ownership
        if (w->device) continue;
        osh_mem_move(cx, w->w[i]->data, OSH_MEM_DEVICE);
        osh_mem_move(cx, w->w[i], OSH_MEM_DEVICE);
    }
done:
    return rc;
}

void osh_prefetch_free(osh_ctx *cx, osh_prefetch *f)
{
    if (!f) return;
    osh_read_ahead_free(cx, f->reader);
    osh_weights_free(cx, f->w);
    osh_free(cx, f->want);
    osh_free(cx, f);
}
