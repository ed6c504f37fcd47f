/* CUDA texts that passed their checks before, remembered in build/nvrtc: compiling with the real
 * NVRTC takes minutes. A text's file is named by a hash of everything that its passing depends on:
 * NVRTC's version, the options, the header, the architecture, the checks and the text. Remove the
 * folder to compile everything again. Several threads and processes may use it. */
#ifndef F8_TESTS_NVRTC_CACHE_H
#define F8_TESTS_NVRTC_CACHE_H

#include "runtime/cuda/device.h"

typedef struct nvrtc_cache {
    uint64_t compiler; /* hash of NVRTC's version, its options and our header */
} nvrtc_cache;

/* Makes the folder. Fails the running test where NVRTC is not there. */
void nvrtc_cache_open(nvrtc_cache *cache, f8_cuda *cuda);

typedef struct nvrtc_entry {
    char path[64];
} nvrtc_entry;

/* The entry of a text. `checks` names what is checked of it. */
nvrtc_entry nvrtc_cache_entry(const nvrtc_cache *cache, const char *arch, const char *checks,
                              const char *text);
bool nvrtc_cache_has(const nvrtc_entry *entry);
/* The text has passed; `note` goes into the file. */
void nvrtc_cache_keep(const nvrtc_entry *entry, const char *note);

/* Whether this run compiles the kernel for the architecture (the name of a CUDA target). By default
 * one of `share` kernels is compiled, for one architecture. A hash of the kernel's name chooses, so
 * that each architecture has its part. With FP8C_NVRTC=all each kernel is compiled for all
 * (tests/README.md). */
bool nvrtc_in_turn(const char *kernel, const char *arch, unsigned share);

/* Comments name the node that a kernel is of, and its description. Texts that differ in nothing
 * else are one text. */
void nvrtc_remove_comments(char *cuda);

#endif
