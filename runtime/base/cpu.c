/* CPUs: see cpu.h. Bits are those of Intel's and AMD's manuals, CPUID. */
#include "runtime/base/cpu.h"

#include <cpuid.h>
#include <stdio.h>
#include <string.h>

/* ---- the table of features ---- */

typedef enum saved {
    ANY, /* needs no registers of its own */
    YMM, /* these the system must save: bits of XCR0 */
    ZMM,
    TILES
} saved;
enum { EAX, EBX, ECX, EDX };

typedef struct feature {
    const char *name;
    uint32_t leaf, subleaf;
    uint8_t reg, bit;
    saved saved;
} feature;

static const feature features[] = {
    {"cx8", 1, 0, EDX, 8, ANY},
    {"cmov", 1, 0, EDX, 15, ANY},
    {"mmx", 1, 0, EDX, 23, ANY},
    {"fxsr", 1, 0, EDX, 24, ANY},
    {"sse", 1, 0, EDX, 25, ANY},
    {"sse2", 1, 0, EDX, 26, ANY},
    {"sse3", 1, 0, ECX, 0, ANY},
    {"pclmul", 1, 0, ECX, 1, ANY},
    {"ssse3", 1, 0, ECX, 9, ANY},
    {"fma", 1, 0, ECX, 12, YMM},
    {"cx16", 1, 0, ECX, 13, ANY},
    {"sse4.1", 1, 0, ECX, 19, ANY},
    {"sse4.2", 1, 0, ECX, 20, ANY},
    {"crc32", 1, 0, ECX, 20, ANY},
    {"movbe", 1, 0, ECX, 22, ANY},
    {"popcnt", 1, 0, ECX, 23, ANY},
    {"aes", 1, 0, ECX, 25, ANY},
    {"xsave", 1, 0, ECX, 26, YMM},
    {"avx", 1, 0, ECX, 28, YMM},
    {"f16c", 1, 0, ECX, 29, YMM},
    {"rdrnd", 1, 0, ECX, 30, ANY},
    {"fsgsbase", 7, 0, EBX, 0, ANY},
    {"sgx", 7, 0, EBX, 2, ANY},
    {"bmi", 7, 0, EBX, 3, ANY},
    {"avx2", 7, 0, EBX, 5, YMM},
    {"bmi2", 7, 0, EBX, 8, ANY},
    {"invpcid", 7, 0, EBX, 10, ANY},
    {"rtm", 7, 0, EBX, 11, ANY},
    {"avx512f", 7, 0, EBX, 16, ZMM},
    {"evex512", 7, 0, EBX, 16, ZMM},
    {"avx512dq", 7, 0, EBX, 17, ZMM},
    {"rdseed", 7, 0, EBX, 18, ANY},
    {"adx", 7, 0, EBX, 19, ANY},
    {"avx512ifma", 7, 0, EBX, 21, ZMM},
    {"clflushopt", 7, 0, EBX, 23, ANY},
    {"clwb", 7, 0, EBX, 24, ANY},
    {"avx512cd", 7, 0, EBX, 28, ZMM},
    {"sha", 7, 0, EBX, 29, ANY},
    {"avx512bw", 7, 0, EBX, 30, ZMM},
    {"avx512vl", 7, 0, EBX, 31, ZMM},
    {"avx512vbmi", 7, 0, ECX, 1, ZMM},
    {"pku", 7, 0, ECX, 4, ANY},
    {"waitpkg", 7, 0, ECX, 5, ANY},
    {"avx512vbmi2", 7, 0, ECX, 6, ZMM},
    {"shstk", 7, 0, ECX, 7, ANY},
    {"gfni", 7, 0, ECX, 8, ANY},
    {"vaes", 7, 0, ECX, 9, YMM},
    {"vpclmulqdq", 7, 0, ECX, 10, YMM},
    {"avx512vnni", 7, 0, ECX, 11, ZMM},
    {"avx512bitalg", 7, 0, ECX, 12, ZMM},
    {"avx512vpopcntdq", 7, 0, ECX, 14, ZMM},
    {"rdpid", 7, 0, ECX, 22, ANY},
    {"kl", 7, 0, ECX, 23, ANY},
    {"cldemote", 7, 0, ECX, 25, ANY},
    {"movdiri", 7, 0, ECX, 27, ANY},
    {"movdir64b", 7, 0, ECX, 28, ANY},
    {"enqcmd", 7, 0, ECX, 29, ANY},
    {"uintr", 7, 0, EDX, 5, ANY},
    {"avx512vp2intersect", 7, 0, EDX, 8, ZMM},
    {"serialize", 7, 0, EDX, 14, ANY},
    {"tsxldtrk", 7, 0, EDX, 16, ANY},
    {"pconfig", 7, 0, EDX, 18, ANY},
    {"amx-bf16", 7, 0, EDX, 22, TILES},
    {"avx512fp16", 7, 0, EDX, 23, ZMM},
    {"amx-tile", 7, 0, EDX, 24, TILES},
    {"amx-int8", 7, 0, EDX, 25, TILES},
    {"sha512", 7, 1, EAX, 0, ANY},
    {"sm3", 7, 1, EAX, 1, ANY},
    {"sm4", 7, 1, EAX, 2, ANY},
    {"raoint", 7, 1, EAX, 3, ANY},
    {"avxvnni", 7, 1, EAX, 4, YMM},
    {"avx512bf16", 7, 1, EAX, 5, ZMM},
    {"cmpccxadd", 7, 1, EAX, 7, ANY},
    {"amx-fp16", 7, 1, EAX, 21, TILES},
    {"hreset", 7, 1, EAX, 22, ANY},
    {"avxifma", 7, 1, EAX, 23, YMM},
    {"avxvnniint8", 7, 1, EDX, 4, YMM},
    {"avxneconvert", 7, 1, EDX, 5, YMM},
    {"amx-complex", 7, 1, EDX, 8, TILES},
    {"avxvnniint16", 7, 1, EDX, 10, YMM},
    {"prefetchi", 7, 1, EDX, 14, ANY},
    {"usermsr", 7, 1, EDX, 15, ANY},
    {"avx10.1-256", 7, 1, EDX, 19, YMM},
    {"xsaveopt", 0xd, 1, EAX, 0, YMM},
    {"xsavec", 0xd, 1, EAX, 1, YMM},
    {"xsaves", 0xd, 1, EAX, 3, YMM},
    {"ptwrite", 0x14, 0, EBX, 4, ANY},
    {"sahf", 0x80000001, 0, ECX, 0, ANY},
    {"lzcnt", 0x80000001, 0, ECX, 5, ANY},
    {"sse4a", 0x80000001, 0, ECX, 6, ANY},
    {"prfchw", 0x80000001, 0, ECX, 8, ANY},
    {"xop", 0x80000001, 0, ECX, 11, YMM},
    {"lwp", 0x80000001, 0, ECX, 15, ANY},
    {"fma4", 0x80000001, 0, ECX, 16, YMM},
    {"tbm", 0x80000001, 0, ECX, 21, ANY},
    {"mwaitx", 0x80000001, 0, ECX, 29, ANY},
    {"64bit", 0x80000001, 0, EDX, 29, ANY},
    {"clzero", 0x80000008, 0, EBX, 0, ANY},
    {"rdpru", 0x80000008, 0, EBX, 4, ANY},
    {"wbnoinvd", 0x80000008, 0, EBX, 9, ANY},
};

enum { N_FEATURES = sizeof features / sizeof *features };
_Static_assert(N_FEATURES <= 64 * F8_CPU_FEATURE_WORDS, "a bit for each");

const char *f8_cpu_feature_name(size_t index)
{
    return index < N_FEATURES ? features[index].name : NULL;
}

bool f8_cpu_has(const f8_cpu_features *set, size_t index)
{
    return index < N_FEATURES && set->bit[index / 64] >> index % 64 & 1;
}

bool f8_cpu_add(f8_cpu_features *set, const char *name)
{
    for (size_t i = 0; i < N_FEATURES; i++)
        if (!strcmp(features[i].name, name)) {
            set->bit[i / 64] |= (uint64_t)1 << i % 64;
            return true;
        }
    return false;
}

bool f8_cpu_suffices(const f8_cpu_features *set, const f8_cpu_features *needs, char *text,
                     size_t size)
{
    enum { NAMED = 3 };
    size_t missing = 0, n = 0;
    if (size)
        text[0] = 0;
    for (size_t i = 0; i < N_FEATURES; i++)
        if (f8_cpu_has(needs, i) && !f8_cpu_has(set, i) && ++missing <= NAMED && n < size)
            n += (size_t)snprintf(text + n, size - n, "%s%s", missing > 1 ? ", " : "",
                                  features[i].name);
    if (missing > NAMED && n < size)
        snprintf(text + n, size - n, " and %zu more", missing - NAMED);
    return !missing;
}

/* ---- this CPU ---- */

static uint64_t saved_registers(void)
{
    uint32_t r[4], low, high;
    if (!__get_cpuid(1, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) || !(r[ECX] >> 27 & 1)) /* OSXSAVE */
        return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

f8_cpu_features f8_cpu_detect(void)
{
    static const uint64_t wanted[] = {[ANY] = 0, [YMM] = 0x6, [ZMM] = 0xe6, [TILES] = 0x60000};
    const uint64_t saves = saved_registers();
    f8_cpu_features set = {0};
    uint32_t r[4] = {0};
    for (size_t i = 0; i < N_FEATURES; i++) {
        const feature *f = &features[i];
        /* In a virtual machine each question takes a trip to the host. */
        if ((!i || f->leaf != f[-1].leaf || f->subleaf != f[-1].subleaf) &&
            !__get_cpuid_count(f->leaf, f->subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]))
            memset(r, 0, sizeof r);
        if (r[f->reg] >> f->bit & 1 && (saves & wanted[f->saved]) == wanted[f->saved])
            set.bit[i / 64] |= (uint64_t)1 << i % 64;
    }
    return set;
}

char *f8_cpu_name(char name[F8_CPU_NAME])
{
    uint32_t r[12];
    for (uint32_t i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002 + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3])) {
            memcpy(name, "an x86-64 CPU", sizeof "an x86-64 CPU");
            return name;
        }
    memcpy(name, r, sizeof r);
    name[F8_CPU_NAME - 1] = 0;
    return name;
}

f8_cpu_identity f8_cpu_identity_from(const uint32_t vendor[3], uint32_t signature)
{
    const uint32_t family = signature >> 8 & 15, model = signature >> 4 & 15;
    f8_cpu_identity id = {.family = family, .model = model};
    memcpy(id.vendor, vendor, 12);
    if (family == 15)
        id.family += signature >> 20 & 255;
    if (family == 15 || family == 6)
        id.model += (signature >> 16 & 15) << 4;
    return id;
}

f8_cpu_identity f8_cpu_identify(void)
{
    uint32_t r[4] = {0}, vendor[3] = {0}, signature = 0;
    if (__get_cpuid(0, &r[EAX], &r[EBX], &r[ECX], &r[EDX]))
        memcpy(vendor, (uint32_t[]){r[EBX], r[EDX], r[ECX]}, sizeof vendor);
    if (__get_cpuid(1, &r[EAX], &r[EBX], &r[ECX], &r[EDX]))
        signature = r[EAX];
    return f8_cpu_identity_from(vendor, signature);
}

/* ---- levels ---- */

/* What each has beyond the one before: x86-64 psABI, "Micro-Architecture Levels". */
#define LEVEL_3                                                                                    \
    "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "cx16", "sahf", "popcnt", "sse3", "sse4.1",       \
        "sse4.2", "crc32", "ssse3", "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", \
        "xsave"
#define LEVEL_4 "avx512f", "evex512", "avx512bw", "avx512cd", "avx512dq", "avx512vl"

static const struct {
    f8_cpu_level level;
    const char *adds[32];
} levels[] = {
    {{"cpu:x86-64-v3", "x86-64-v3"}, {LEVEL_3}},
    {{"cpu:x86-64-v4", "x86-64-v4"}, {LEVEL_4}},
};

enum { N_LEVELS = sizeof levels / sizeof *levels };

const f8_cpu_level *f8_cpu_level_at(size_t index)
{
    return index < N_LEVELS ? &levels[index].level : NULL;
}

const f8_cpu_level *f8_cpu_level_by_target(const char *target)
{
    for (size_t i = 0; i < N_LEVELS; i++)
        if (!strcmp(levels[i].level.target, target))
            return &levels[i].level;
    return NULL;
}

f8_cpu_features f8_cpu_level_features(const f8_cpu_level *level)
{
    f8_cpu_features set = {0};
    for (size_t i = 0; i < N_LEVELS; i++) {
        for (size_t k = 0; levels[i].adds[k]; k++)
            f8_cpu_add(&set, levels[i].adds[k]);
        if (&levels[i].level == level)
            break;
    }
    return set;
}
