/* version.c - which version of the program this is. */
#include "base/base.h"

const char *osh_version(void) { return OSH_VERSION; }
