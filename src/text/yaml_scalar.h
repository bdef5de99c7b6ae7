/* yaml_scalar.h - resolves plain YAML scalars for yaml.c. */
#ifndef OSH_YAML_SCALAR_H
#define OSH_YAML_SCALAR_H
#include "text/yaml.h"

/* Sets kind, b, i and f from text. Returns false for an integer that int64_t cannot hold. */
bool osh_yaml_resolve(osh_yaml *y);
#endif
