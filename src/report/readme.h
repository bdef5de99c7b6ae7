/* readme.h - writes the README.md of an output. */
#ifndef OSH_README_H
#define OSH_README_H
#include "run/run.h"

/* Makes the text; *out: own. Its bytes depend only on the source, the settings and the result. */
osh_status osh_readme_make(osh_ctx *cx, char **out, const osh_run *r);
#endif
