/* held.c - counts the bands that are not yet searched for the largest magnitude, separately for
 * each group of Linears that share a global scale. Bands that wait to be rounded stay in slots. A
 * slot is a buffer for one band. */
#include "output/held.h"

#include "base/file.h"
#include "budget/bands.h"

typedef struct looked { // how far a Linear is searched for its largest magnitude
    /* Only for the first Linear of a group: number of bands that must still be searched, in all
     * Linears of the group. */
    int64_t left;
    float amax;   // largest magnitude that was found so far
    int rest;     // number of bands of this Linear that are not yet searched
} looked;

typedef struct held_slot {
    int linear;    // index of the Linear whose band is in the slot; -1: the slot is free
    int64_t first; // first row of the band; -1: the band is being read
    uint8_t *from; // view: the rows of the band
} held_slot;

_Static_assert(sizeof(held_slot) <= OSH_HELD_SLOT, "the plan counts a slot with OSH_HELD_SLOT");

struct osh_held {
    const osh_plan *p; // view
    osh_globals *g;    // view
    looked *of;        // own [linears of the plan]: how far each Linear is searched
    /* Linears in the order in which they are searched. i: this stream also rounds Linear i. ~i:
     * this stream only searches Linear i. */
    int *which; // own [n]
    int n, next;
    int64_t n_here;    // number of bands that this stream must still search in Linears that it also
                       // rounds
    int64_t taken; // number of rows of the current Linear that were taken for the search
    held_slot *slots;       // own
    /* n_slots: number of all slots.
     * n_free: number of free slots.
     * n_rounding: number of slots with a band that is being rounded. */
    int n_slots, n_free, n_rounding;
    void *blocks;      // own: memory of all slots
    size_t room;       // size of a slot in bytes
};

static int held_linear(const osh_held *h, int k)
{
    return h->which[k] < 0 ? ~h->which[k] : h->which[k];
}

/* Appends the Linears that share a global scale with `linear` to the list of Linears to search.
 * Leaves out Linears whose largest magnitude is known, and those that are already in the list. */
static void held_add_group(osh_held *h, const bool *here, int linear)
{
    const osh_plan *p = h->p;
    int first = p->match.linears[linear].joint;
    for (int i = first; i >= 0; i = p->match.linears[i].next.joint) {
        if (osh_globals_knows(h->g, i) || h->of[i].rest) continue;
        h->of[i].rest = (int)osh_band_count(&p->match.linears[i]);
        h->of[first].left += h->of[i].rest;
        h->which[h->n++] = here[i] ? i : ~i;
        if (here[i]) h->n_here += h->of[i].rest;
    }
}

static osh_status held_new_slots(osh_ctx *cx, osh_held *h)
{
    osh_status rc = OSH_OK;
    h->n_slots = h->n_free =
        h->n_here < h->p->budget.memory.n_held ? (int)h->n_here : h->p->budget.memory.n_held;
    if (!h->n_slots) goto done;
    h->room = osh_held_slot_bytes(&h->p->budget);
    OSH_NEW(cx, h->slots, h->n_slots);
    for (int k = 0; k < h->n_slots; k++) h->slots[k].linear = -1;
    if (!(h->blocks = osh_alloc(cx, (size_t)h->n_slots * h->room + OSH_BLOCK_BYTES)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for bands that are held");
done:
    return rc;
}

osh_status osh_held_new(osh_ctx *cx, osh_held **out, const osh_plan *p, osh_globals *g,
                        const int64_t *ids, int64_t n)
{
    osh_status rc = OSH_OK;
    osh_held *h = NULL; // own
    bool *here = NULL;  // own [linears of the plan]: true if this stream rounds the Linear
    *out = NULL;
    if (!g) return rc;
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST); // osh_globals_bytes counts the lists
    OSH_NEW(cx, h, 1);
    OSH_NEW(cx, here, p->match.n_linears);
    OSH_NEW(cx, h->of, p->match.n_linears);
    OSH_NEW(cx, h->which, p->match.n_linears);
    osh_mem_use(cx, old);
    h->p = p, h->g = g;
    for (int64_t k = 0; k < n; k++)
        if (p->manifest.out_info[ids[k]].source < 0)
            here[p->manifest.out_info[ids[k]].linear] = true;
    for (int64_t k = 0; k < n; k++) {
        int linear = p->manifest.out_info[ids[k]].linear;
        if (p->manifest.out_info[ids[k]].source < 0 && osh_stream_looks(p->budget.schedule, linear))
            held_add_group(h, here, linear);
    }
    if (!h->n) goto done;
    OSH_TRY(held_new_slots(cx, h));
    *out = h, h = NULL; // give
done:
    osh_mem_use(cx, old);
    osh_held_free(cx, h);
    osh_free(cx, here);
    return rc;
}

void osh_held_free(osh_ctx *cx, osh_held *h)
{
    if (!h) return;
    osh_free(cx, h->of);
    osh_free(cx, h->which);
    osh_free(cx, h->slots);
    osh_free(cx, h->blocks);
    osh_free(cx, h);
}

bool osh_held_knows(const osh_held *h, int linear)
{
    return !h || h->p->match.linears[linear].joint < 0 ||
           !h->of[h->p->match.linears[linear].joint].left;
}

static int held_take_slot(osh_held *h)
{
    int k = 0;
    if (!h->n_free) return -1;
    while (h->slots[k].linear >= 0) k++;
    h->n_free--;
    return k;
}

bool osh_held_take(osh_held *h, osh_held_band *b, int wanted)
{
    if (!h || h->next == h->n) return false;
    int linear = held_linear(h, h->next);
    const osh_linear *l = &h->p->match.linears[linear];
    bool waited = wanted >= 0 && h->p->match.linears[wanted].joint == l->joint,
         here = h->which[h->next] >= 0;
    if (here && !h->n_free && (!waited || h->n_rounding)) return false;
    int64_t rows = osh_band_of_linear(l), left = l->O - h->taken;
    *b = (osh_held_band){
        linear, h->taken, left < rows ? left : rows, here ? held_take_slot(h) : -1};
    if (b->slot >= 0) h->slots[b->slot] = (held_slot){linear, -1, NULL};
    if ((h->taken += b->n) == l->O) h->taken = 0, h->next++;
    return true;
}

uint8_t *osh_held_room(const osh_held *h, int slot)
{
    return (uint8_t *)osh_file_align(h->blocks) + (size_t)slot * h->room;
}

void osh_held_saw(osh_held *h, const osh_held_band *b, float amax, uint8_t *from)
{
    looked *l = &h->of[b->linear];
    if (b->slot >= 0) h->slots[b->slot].first = b->first, h->slots[b->slot].from = from;
    if (amax > l->amax) l->amax = amax;
    if (!--l->rest) osh_globals_put(h->g, b->linear, l->amax);
    h->of[h->p->match.linears[b->linear].joint].left--;
}

uint8_t *osh_held_find(osh_held *h, int linear, int64_t first, int *slot)
{
    *slot = -1;
    for (int k = 0; h && k < h->n_slots; k++)
        if (h->slots[k].linear == linear && h->slots[k].first == first) {
            h->n_rounding++;
            return h->slots[*slot = k].from;
        }
    return NULL;
}

void osh_held_give_back(osh_held *h, int slot)
{
    if (slot < 0) return;
    h->slots[slot].linear = -1;
    h->n_free++, h->n_rounding--;
}
