/* yaml_scalar.h - what a plain YAML scalar means, for yaml.c. */
#ifndef OSH_YAML_SCALAR_H
#define OSH_YAML_SCALAR_H
#include "text/yaml.h"

/* Sets kind, b, i, f from text. False: an integer that int64_t cannot hold. */
bool osh_yaml_resolve(osh_yaml *y);
#endif
