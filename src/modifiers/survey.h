/* survey.h - what a Linear would lose under each of several schemes. A survey stands in the place of a quantizer: it
 * wants the same statistics, changes no weight and makes no codes. */
#ifndef OSH_SURVEY_H
#define OSH_SURVEY_H
#include "modifiers/modifier.h"

/* m is a quantizer; its arguments and schemes stay. */
osh_status osh_survey_begin(osh_ctx *cx, osh_modifier *m);
/* The k-th scheme that may stand in the place of s: bits, by rising ones, then schemes with a name; its strings are
 * views of s. False: no more. */
bool osh_survey_scheme(osh_q_scheme *out, const osh_modifier *m, const osh_q_scheme *s, int k);
/* Some candidate rounds inputs, and not all alike. */
bool osh_survey_of_inputs(const osh_modifier *m);
/* What it is called: "4 bits", "NVFP4A16". */
void osh_survey_label(char out[16], const osh_modifier *m, int k);
enum { OSH_SURVEY_BITS = 3 }; // of the rounding whose effect on the model is measured
/* What the candidates decide, for who compares two surveys: "2 3 4 8". */
void osh_survey_name(char *out, size_t cap, const osh_modifier *m);
#endif
