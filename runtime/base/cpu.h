/* Who made an x86-64 CPU, its features, and the levels that code is compiled for ahead of time.
 *
 * Features have LLVM's names. A feature counts if the CPU has it and the system saves the registers
 * it needs. The CPU is asked at each call; nothing is cached. */
#ifndef F8_CPU_H
#define F8_CPU_H

#include "ir/base/status.h"

enum { F8_CPU_FEATURE_WORDS = 2 };

/* A set; all zeros: none. */
typedef struct f8_cpu_features {
    uint64_t bit[F8_CPU_FEATURE_WORDS];
} f8_cpu_features;

/* Of this CPU. */
f8_cpu_features f8_cpu_detect(void);
/* "Intel(R) Xeon(R) ...", as the CPU calls itself, or "an x86-64 CPU". Returns name. */
enum { F8_CPU_NAME = 49 };
char *f8_cpu_name(char name[F8_CPU_NAME]);

/* What CPUID says of the CPU. The vendor is "AuthenticAMD" or "GenuineIntel", for example, or "" if
 * CPUID has none. Family and model include the extended fields: Zen 3 and Zen 4 have family 25, Zen
 * 5 has 26. */
typedef struct f8_cpu_identity {
    char vendor[13];
    uint32_t family, model;
} f8_cpu_identity;
f8_cpu_identity f8_cpu_identify(void);
/* The same from the registers of leaf 0 (EBX, EDX, ECX) and EAX of leaf 1. */
f8_cpu_identity f8_cpu_identity_from(const uint32_t vendor[3], uint32_t signature);

/* The name of each feature in turn; NULL past the last. f8_cpu_add is false for an unknown name. */
const char *f8_cpu_feature_name(size_t index);
bool f8_cpu_has(const f8_cpu_features *set, size_t index);
bool f8_cpu_add(f8_cpu_features *set, const char *name);
/* Whether the set has all of `needs`. If not, what it lacks is written to text: "avx512f, avx512bw
 * and 3 more". */
bool f8_cpu_suffices(const f8_cpu_features *set, const f8_cpu_features *needs, char *text,
                     size_t size);

/* A target "cpu:..." is code for a level. */
typedef struct f8_cpu_level {
    const char *target; /* "cpu:x86-64-v3" */
    const char *llvm;   /* what LLVM calls the CPU */
} f8_cpu_level;
/* Each level in turn, with all features of the one before; NULL past the last. */
const f8_cpu_level *f8_cpu_level_at(size_t index);
/* NULL if no level has this name. */
const f8_cpu_level *f8_cpu_level_by_target(const char *target);
f8_cpu_features f8_cpu_level_features(const f8_cpu_level *level);

#endif
