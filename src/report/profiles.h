/* profiles.h - reads profiles that were written (base/profile.h, or AMD Quark's), and draws
 * them. */
#ifndef OSH_PROFILES_H
#define OSH_PROFILES_H
#include "base/profile.h"

typedef struct osh_profiled { // a profile from a file
    osh_profile_data d; // own; rows in the order of their first record; peaks of the records
    char *name;         // own: the last part of its path
    char *model, *method; // own: as given to the run; NULL: not in the file
    bool whole;         // it has a summary: the run ended by itself
    int64_t rss_peak, card_peak; // bytes; < 0: unknown
} osh_profiled;

/* Reads a profile. If a kill cut the file short, it reads as far as the file goes. */
osh_status osh_profiled_read(osh_ctx *cx, osh_profiled *out, const char *path);
void osh_profiled_deinit(osh_ctx *cx, osh_profiled *p);

/* Makes a page with a table of peaks and the charts of each profile; for several profiles also a
 * table of peaks by model and method. The caller frees it. */
osh_status osh_profiles_html(osh_ctx *cx, char **html, const osh_profiled *of, int n);
/* Draws memory against time as an SVG of its own. The caller frees it. */
osh_status osh_profile_svg(osh_ctx *cx, char **svg, const osh_profiled *p);
/* Makes the tables as text. The caller frees it. */
osh_status osh_profiles_text(osh_ctx *cx, char **text, const osh_profiled *of, int n);
#endif
