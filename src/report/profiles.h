/* profiles.h - reads profiles that were written (base/profile.h, or AMD Quark's), and draws
 * them. */
#ifndef OSH_PROFILES_H
#define OSH_PROFILES_H
#include "base/profile.h"

typedef struct osh_profiled { // a profile from a file
    osh_profile_data d; // own; rows in the order of their first record; peaks come from the records
    char *name;         // own: the last part of its path
    char *model, *method; // own: as they were given to the run; NULL: the file does not name them
    bool whole;         // true if the file has a summary, so the run ended by itself
    int64_t rss_peak, card_peak; // bytes of host memory and of GPU memory; < 0: unknown
} osh_profiled;

/* Reads a profile from its file. If a kill has cut the file short, the records before the cut are
 * read. */
osh_status osh_profiled_read(osh_ctx *cx, osh_profiled *out, const char *path);
void osh_profiled_deinit(osh_ctx *cx, osh_profiled *p);

/* Makes a page with a table of peaks and the charts of each profile; for several profiles also a
 * table of peaks by model and method. The caller frees it. */
osh_status osh_profiles_html(osh_ctx *cx, char **html, const osh_profiled *of, int n);
/* Draws memory against time as a complete SVG file. The caller frees it. */
osh_status osh_profile_svg(osh_ctx *cx, char **svg, const osh_profiled *p);
/* Makes the tables as text. The caller frees it. */
osh_status osh_profiles_text(osh_ctx *cx, char **text, const osh_profiled *of, int n);
#endif
