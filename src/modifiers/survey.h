/* survey.h - estimates the loss of a Linear under each of several schemes. A survey replaces a
 * quantizer: it needs the same statistics, but changes no weight and makes no codes. */
#ifndef OSH_SURVEY_H
#define OSH_SURVEY_H
#include "modifiers/modifier.h"

/* Turns the quantizer m into a survey. Its arguments and schemes do not change. */
osh_status osh_survey_begin(osh_ctx *cx, osh_modifier *m);
/* Returns the k-th candidate to replace s: bits in rising order, then named schemes. Its strings
 * are views of s. Returns false if there are no more. */
bool osh_survey_scheme(osh_q_scheme *out, const osh_modifier *m, const osh_q_scheme *s, int k);
/* True if candidates can differ in the way they round inputs. */
bool osh_survey_of_inputs(const osh_modifier *m);
/* Writes the label of candidate k: "4 bits" or "NVFP4A16". */
void osh_survey_label(char out[16], const osh_modifier *m, int k);
enum { OSH_SURVEY_BITS = 3 }; // bits of the rounding whose effect on the model is measured
/* Writes a name of the set of candidates, such as "2 3 4 8", by which two surveys are compared. */
void osh_survey_name(char *out, size_t cap, const osh_modifier *m);
#endif
