/* tier.h - lists the tiers in which values are stored between subgraphs: GPU memory, host memory,
 * disk. */
#ifndef OSH_TIER_H
#define OSH_TIER_H

typedef enum { OSH_TIER_DEVICE, OSH_TIER_HOST, OSH_TIER_DISK } osh_tier;
/* Returns the name of a tier as in the options: "device", "host" or "disk". */
const char *osh_tier_name(osh_tier t);
#endif
