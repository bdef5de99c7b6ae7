/* survey.h - estimates the loss of each Linear under several schemes. A survey is a modifier that
 * replaces a quantizer in order to choose schemes. It collects the statistics of the quantizer, but
 * does not change weights and produces no codes. */
#ifndef OSH_SURVEY_H
#define OSH_SURVEY_H
#include "modifiers/modifier.h"

/* Turns the quantizer m into a survey. The arguments and schemes of m do not change. */
osh_status osh_survey_begin(osh_ctx *cx, osh_modifier *m);
/* Sets *out to the scheme s, changed to candidate number k. The first candidates are numbers of
 * bits, in ascending order. The other candidates are named schemes. The strings of *out are views
 * of s. Returns false if k is too large. */
bool osh_survey_scheme(osh_q_scheme *out, const osh_modifier *m, const osh_q_scheme *s, int k);
/* True if two candidates may round inputs in different ways. */
bool osh_survey_of_inputs(const osh_modifier *m);
/* Writes the label of candidate number k, such as "4 bits" or "NVFP4A16". */
void osh_survey_label(char out[16], const osh_modifier *m, int k);
/* A survey measures how much the model's predictions change if a weight is rounded. For this
 * measurement, weights are rounded to this number of bits. */
enum { OSH_SURVEY_BITS = 3 };
/* Writes a text that names all candidates, such as "2 3 4 8". Surveys with equal texts have the
 * same candidates. */
void osh_survey_name(char *out, size_t cap, const osh_modifier *m);
#endif
