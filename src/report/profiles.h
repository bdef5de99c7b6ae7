/* profiles.h - profiles that were written (base/profile.h, or AMD Quark's), read again and drawn. */
#ifndef OSH_PROFILES_H
#define OSH_PROFILES_H
#include "base/profile.h"

typedef struct osh_profiled { // a file
    osh_profile_data d; // own; rows in the order of their first record, peaks as far as records tell
    char *name;         // own: the last part of its path
    char *model, *method; // own: as the run was told; NULL: the file does not say
    bool whole;         // it has a summary: the run ended by itself
    int64_t rss_peak, card_peak; // bytes; < 0: unknown
} osh_profiled;

/* A file that a kill cut short is read as far as it goes. */
osh_status osh_profiled_read(osh_ctx *cx, osh_profiled *out, const char *path);
void osh_profiled_deinit(osh_ctx *cx, osh_profiled *p);

/* One: what it took, drawn. More: their peaks side by side, and each drawn. own */
osh_status osh_profiles_html(osh_ctx *cx, char **html, const osh_profiled *of, int n);
osh_status osh_profile_svg(osh_ctx *cx, char **svg, const osh_profiled *p); // memory against time alone; own
osh_status osh_profiles_text(osh_ctx *cx, char **text, const osh_profiled *of, int n); // tables alone
#endif
