/* yaml_scalar.h - resolves plain YAML scalars for yaml.c. */
#ifndef OSH_YAML_SCALAR_H
#define OSH_YAML_SCALAR_H
#include "text/yaml.h"

/* Sets y->kind and the value (b, i or f) from y->text. Returns false for an integer outside
 * int64_t. */
bool osh_yaml_resolve(osh_yaml *y);
#endif
