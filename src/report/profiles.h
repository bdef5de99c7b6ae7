/* profiles.h - reads the files of profiles (of base/profile.h, or of AMD Quark), and draws the
 * profiles. */
#ifndef OSH_PROFILES_H
#define OSH_PROFILES_H
#include "base/profile.h"

typedef struct osh_profiled { // a profile from a file
    /* The rows of d are in the order of their first records. The peaks are computed from the
     * records. */
    osh_profile_data d; // own
    char *name;         // own: last part of the file's path
    char *model, *method; // own: model and method of the run; NULL: not in the file
    bool whole;         // true if the file has a summary, so the run ended by itself
    int64_t rss_peak, gpu_peak; // host memory and GPU memory in bytes; < 0: unknown
} osh_profiled;

/* Reads a profile from its file. If the file is incomplete because the run was killed, its complete
 * records are read. */
osh_status osh_profiled_read(osh_ctx *cx, osh_profiled *out, const char *path);
void osh_profiled_deinit(osh_ctx *cx, osh_profiled *p);

/* Makes a page (*html, own) with a table of peaks and the charts of each profile. For several
 * profiles the page also has a table of peaks by model and method. */
osh_status osh_profiles_html(osh_ctx *cx, char **html, const osh_profiled *of, int n);
/* Draws memory against time as a complete SVG file. The caller frees *svg. */
osh_status osh_profile_svg(osh_ctx *cx, char **svg, const osh_profiled *p);
/* Makes the tables of osh_profiles_html as text (*text, own). */
osh_status osh_profiles_text(osh_ctx *cx, char **text, const osh_profiled *of, int n);
#endif
