/* tok_split.c - searches for patterns of tokenizer.json, and cuts pieces at matches, with the five
 * behaviours of NormalizedString::split. */
#include "tokenizer/tok_split.h"

#include <string.h>

enum { CHECK_EVERY = 4096 }; // number of pieces or matches between checks for an interrupt

osh_status osh_tok_pattern_find(osh_ctx *cx, const osh_tok_pattern *p, const char *s, size_t n,
                                size_t from, osh_hit *at)
{
    osh_status rc = OSH_OK;

    if (!p->re) {
        const char *hit = from < n ? memmem(s + from, n - from, p->literal, p->n_literal) : NULL;
        at->start = hit ? (size_t)(hit - s) : SIZE_MAX;
        at->end = hit ? at->start + p->n_literal : SIZE_MAX;
        return OSH_OK;
    }
    OSH_TRY(osh_regex_find_valid(cx, p->re, s, n, from, at));
done:
    return rc;
}

osh_status osh_tok_pattern_find_open(osh_ctx *cx, const osh_tok_pattern *p, const char *s, size_t n,
                                     size_t from, osh_hit *at)
{
    if (p->re && p->local) return osh_regex_find_open(cx, p->re, s, n, from, at);
    *at = (osh_hit){SIZE_MAX, from};
    if (p->re) return OSH_OK;
    osh_status rc = osh_tok_pattern_find(cx, p, s, n, from, at);
    if (at->start != SIZE_MAX) return rc;
    // no match begins before this position
    at->end = n - from < p->n_literal ? from : n - p->n_literal + 1;
    while (at->end > from && at->end < n && ((unsigned char)s[at->end] & 0xC0) == 0x80) --at->end;
    return rc;
}

/* A cutter joins neighbouring segments of one piece (matches and the gaps between them) to new
 * pieces. The member `kind` says which segments are joined. */
typedef struct cutter {
    osh_ctx *cx;
    osh_tok_text *out;
    osh_tok_piece in;
    osh_split_kind kind;
    bool invert, before; // before: true if the last segment was a match
    bool held;           // true if the new piece [start, end) may still grow by more segments
    size_t start, end;
    uint8_t cont; // value of `cont` for new pieces that begin at a cut
} cutter;

/* Returns bytes [start, end) of the input piece as a new piece. If the new piece begins at a cut,
 * its `cont` says that this pre-tokenizer and all earlier ones have handled its beginning. */
static osh_tok_piece cutter_part(const cutter *c, size_t start, size_t end)
{
    osh_tok_piece p = {.at = c->in.at + (uint32_t)start,
                       .len = (uint32_t)(end - start),
                       .id = -1,
                       .cont = c->cont};

    if (start == 0) p.first = c->in.first, p.cont = c->in.cont;
    return p;
}

static osh_status cutter_emit(cutter *c)
{
    if (!c->held || c->start == c->end) return OSH_OK;
    return osh_tok_piece_add(c->cx, c->out, cutter_part(c, c->start, c->end));
}

/* Adds a segment: appends it to the growing piece, or emits that piece and begins a new one with
 * the segment. */
static osh_status cutter_add(cutter *c, size_t start, size_t end, bool match)
{
    osh_status rc = OSH_OK;
    bool join = false;

    match ^= c->invert;
    switch (c->kind) {
    case OSH_SPLIT_REMOVED:
        if (match) return OSH_OK;
        break;
    case OSH_SPLIT_ISOLATED: break;
    case OSH_SPLIT_CONTIGUOUS: join = c->held && match == c->before; break;
    case OSH_SPLIT_PREVIOUS: join = c->held && match && !c->before; break;
    case OSH_SPLIT_NEXT: join = c->held && !match && c->before; break;
    }
    c->before = match;
    if (join) {
        c->end = end;
        return OSH_OK;
    }
    OSH_TRY(cutter_emit(c));
    c->held = true;
    c->start = start;
    c->end = end;
done:
    return rc;
}

/* Adds the matches and the gaps between them as segments. Sets *done to the end of the last match,
 * and *known to a position before which no further match begins. */
static osh_status cut_matches(cutter *c, const osh_tok_step *st, const osh_haystack *h,
                              osh_match_fn next_match, size_t *known, size_t *done)
{
    osh_status rc = OSH_OK;
    const char *s = h->s;
    size_t n = h->n, done_to = 0, from = 0, start = 0, end = 0;

    *known = n;
    for (size_t k = 1; from <= n; k++) {
        if (k % CHECK_EVERY == 0 && osh_interrupted(c->cx))
            OSH_FAIL(c->cx, OSH_E_INTERRUPTED, "interrupted while tokenizing");
        OSH_TRY(next_match(c->cx, st, h, from, &start, &end));
        if (start == SIZE_MAX && h->open) *known = end;
        if (start == SIZE_MAX) break;
        // true for an empty match at the end of the previous match; such a match is ignored
        bool again = start == end && start == done_to && start > 0;
        if (!again) {
            if (start > done_to) OSH_TRY(cutter_add(c, done_to, start, false));
            OSH_TRY(cutter_add(c, start, end, true));
            done_to = end;
        }
        from = end;
        uint32_t cp;
        if (start == end) from += end < n ? osh_utf8_next(s + end, n - end, &cp) : 1;
    }
    if (done_to < *known) OSH_TRY(cutter_add(c, done_to, *known, false));
    *done = done_to;
done:
    return rc;
}

/* Cuts a piece whose end is known. */
static osh_status cut_piece(cutter *c, const osh_tok_step *st, const osh_haystack *h,
                            osh_match_fn next_match)
{
    osh_status rc = OSH_OK;
    size_t known, done_to;

    OSH_TRY(cut_matches(c, st, h, next_match, &known, &done_to));
    OSH_TRY(cutter_emit(c));
done:
    return rc;
}

void osh_tok_leave(osh_tok_work *w, osh_tok_piece begin, size_t n)
{
    w->open = false;
    w->left += n;
    w->tail = begin;
}

/* Cuts the open piece, which is the last piece; more text follows it. Later text cannot change the
 * segments before the last gap, so they are cut. The last gap remains the open piece; a later
 * pre-tokenizer may cut it. */
static osh_status cut_open(cutter *c, const osh_tok_step *st, const osh_haystack *h,
                           osh_match_fn next_match, osh_tok_work *w)
{
    osh_status rc = OSH_OK;
    size_t known, done_to, from;

    OSH_TRY(cut_matches(c, st, h, next_match, &known, &done_to));
    bool joins = c->kind != OSH_SPLIT_ISOLATED && c->kind != OSH_SPLIT_REMOVED;
    bool gap = known > done_to && c->held && c->start == done_to && c->end == known;
    if (gap) {
        from = done_to;
    } else if (joins) {
        from = c->held ? c->start : done_to;
    } else {
        OSH_TRY(cutter_emit(c));
        from = known; // later text may make a removed segment longer
    }
    if (from > 0) w->made_up = 0;
    osh_tok_piece p = cutter_part(c, from, gap ? known : from);
    w->left += h->n - (p.at - c->in.at) - p.len;
    if (p.len) {
        OSH_TRY(osh_tok_piece_add(c->cx, c->out, p));
    } else {
        osh_tok_leave(w, p, 0);
        w->left -= w->made_up;
    }
done:
    return rc;
}

osh_status osh_tok_split(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w,
                             osh_split_kind kind, bool invert, osh_match_fn next_match)
{
    osh_status rc = OSH_OK;
    osh_tok_text *in = w->cur, *out = w->next;

    out->n_pieces = 0;
    for (size_t i = 0; i < in->n_pieces; i++) {
        osh_tok_piece p = in->pieces[i];
        cutter c = {.cx = cx, .out = out, .in = p, .kind = kind, .invert = invert,
                    .cont = (uint8_t)(st->index < 254 ? st->index + 1 : 255)};
        osh_haystack h = {in->s + p.at, p.len, w->open && i + 1 == in->n_pieces};
        if (i % CHECK_EVERY == 0 && osh_interrupted(cx))
            OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted while tokenizing");
        if (p.id >= 0)
            OSH_TRY(osh_tok_piece_add(cx, out, p));
        else
            OSH_TRY(h.open ? cut_open(&c, st, &h, next_match, w)
                           : cut_piece(&c, st, &h, next_match));
    }
    osh_tok_piece *pieces = in->pieces; // `pieces` stays valid, because the array does not grow
    size_t cap = in->cap_pieces;
    in->pieces = out->pieces, in->cap_pieces = out->cap_pieces, in->n_pieces = out->n_pieces;
    out->pieces = pieces, out->cap_pieces = cap, out->n_pieces = 0;
done:
    return rc;
}
