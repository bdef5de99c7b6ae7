/* isa.c - finds the instruction sets of the CPU (CPUID, and the registers that the kernel saves),
 * and stores the set that the process uses. */
#include "base/isa.h"

#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const names[OSH_N_ISAS] = {"generic", "avx2", "avx512", "avx512_bf16", "amx"};

const char *osh_isa_name(osh_isa isa) { return names[isa]; }

bool osh_isa_parse(osh_isa *out, const char *name)
{
    *out = osh_isa_auto();
    if (!strcmp(name, "auto")) return true;
    for (int i = 0; i < OSH_N_ISAS; i++)
        if (!strcmp(name, names[i])) return *out = (osh_isa)i, true;
    return false;
}

#if defined(__x86_64__)
/* Bits of XCR0: registers that the kernel saves. */
enum { STATE_AVX = 0x6, STATE_AVX512 = 0xe6, STATE_AMX = 0x60000 };

static uint32_t saved_states(void)
{
    uint32_t lo, hi;
    __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

/* Asks Linux to permit AMX (arch_prctl, since 5.16). Returns true if Linux permits it. Linux saves
 * the tile registers (8 KiB) only for a process that asks. The call fails if the kernel is too old,
 * if a filter of system calls is active, or if a thread's signal stack is too small. */
static bool tiles_granted(void)
{
    enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return !syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA);
}

static bool bits_all(uint32_t bits, uint32_t want) { return (bits & want) == want; }

osh_isa osh_isa_of_cpu(void)
{
    uint32_t a, b, c, d, b7, c7, d7;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !bits_all(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C))
        return OSH_ISA_GENERIC;
    uint32_t states = saved_states();
    if (!bits_all(states, STATE_AVX) || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) ||
        !bits_all(b7, bit_AVX2))
        return OSH_ISA_GENERIC;
    if (!bits_all(states, STATE_AVX512) ||
        !bits_all(b7, bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL))
        return OSH_ISA_AVX2;
    /* Bit 5 of eax of CPUID leaf 7.1 is AVX512_BF16. */
    if (!bits_all(c7, bit_AVX512VNNI) || !__get_cpuid_count(7, 1, &a, &b, &c, &d) ||
        !bits_all(a, 1u << 5))
        return OSH_ISA_AVX512;
    /* CPUID bits of AMX-BF16, AMX-TILE and AMX-INT8 */
    if (!bits_all(states, STATE_AMX) || !bits_all(d7, 1u << 22 | 1u << 24 | 1u << 25))
        return OSH_ISA_AVX512_BF16;
    return tiles_granted() ? OSH_ISA_AMX : OSH_ISA_AVX512_BF16;
}

/* Returns the fastest set of the CPU. On Intel this is OSH_ISA_AVX512 and not OSH_ISA_AVX512_BF16,
 * because vdpbf16ps is slower there than f32 multiply-adds. (On a CPU with AMX the operations per
 * second of vdpbf16ps were 0.65 of those of f32.) On AMD vdpbf16ps is twice as fast as f32. */
osh_isa osh_isa_auto(void)
{
    uint32_t a, b, c, d;
    osh_isa best = osh_isa_of_cpu();
    bool intel = __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx;
    return best == OSH_ISA_AVX512_BF16 && intel ? OSH_ISA_AVX512 : best;
}
#else
osh_isa osh_isa_of_cpu(void) { return OSH_ISA_GENERIC; }
osh_isa osh_isa_auto(void) { return OSH_ISA_GENERIC; }
#endif

static atomic_int used = -1; // instruction set in use; -1: not determined yet
static atomic_bool pinned;

osh_isa osh_isa_used(void)
{
    int isa = atomic_load_explicit(&used, memory_order_relaxed);
    if (isa < 0) { // several threads may be here at the same time; all store the same value
        isa = osh_isa_auto();
        atomic_store(&used, isa);
    }
    return (osh_isa)isa;
}

osh_status osh_isa_pin(osh_ctx *cx, osh_isa isa)
{
    osh_isa has = osh_isa_of_cpu();
    if (isa > has)
        return osh_fail(cx, OSH_E_UNSUPPORTED, "--isa %s: this CPU has %s at most", names[isa],
                        names[has]);
    if (pinned && osh_isa_used() != isa)
        return osh_fail(cx, OSH_E_USAGE, "--isa %s: this process computes with %s already",
                        names[isa], names[osh_isa_used()]);
    atomic_store(&used, (int)isa);
    atomic_store(&pinned, true);
    return OSH_OK;
}
