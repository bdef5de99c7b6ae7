/* version.c - returns the version of the program. */
#include "base/base.h"

const char *osh_version(void) { return OSH_VERSION; }
