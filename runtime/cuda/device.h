/* The GPU's libraries, found at run time, and one of its devices.
 *
 * README.md, "Where libraries are searched", has the order in which folders are searched. The
 * environment is read when the object is created, never later. */
#ifndef F8_CUDA_H
#define F8_CUDA_H

#include "ir/base/status.h"
#include "ir/target.h"

typedef struct f8_cuda f8_cuda;

/* The environment as the context read it; strings are copied. All NULL: nothing was set. */
typedef struct f8_cuda_paths {
    const char *fp8c_cuda_path, *cuda_home, *cuda_path, *virtual_env, *home;
} f8_cuda_paths;
f8_cuda_paths f8_cuda_paths_from_environment(void); /* borrowed from the environment */

/* Nothing is loaded yet. */
f8_status f8_cuda_create(const f8_cuda_paths *paths, const f8_allocator *allocator, f8_cuda **out,
                         f8_diag *diag);
/* May be NULL; after all that uses it. One retain of the device's primary context stays with the
 * process (README.md, "Context"). */
void f8_cuda_destroy(f8_cuda *cuda);

/* Loads the driver and opens device `ordinal` (its primary context). Done once: later calls return
 * the first answer. F8_ERR_LIBRARY names the library and every place that was searched, or has the
 * driver's own error. */
f8_status f8_cuda_device(f8_cuda *cuda, int ordinal, f8_diag *diag);

typedef struct f8_cuda_facts {
    char name[128];
    int sm;               /* 90 */
    int driver;           /* 13000: the CUDA version the driver takes */
    int multiprocessors;
    int64_t memory, memory_free; /* bytes */
    int shared_per_block; /* most dynamic shared memory a block may have */
} f8_cuda_facts;
f8_status f8_cuda_device_facts(f8_cuda *cuda, f8_cuda_facts *out,
                               f8_diag *diag); /* after f8_cuda_device */

/* ---- NVRTC: needs no device ---- */

/* Compiles one text. `arch` is "sm_90a". cubin, ptx (either may be NULL) and log are the arena's.
 * On F8_ERR_INTERNAL (the text does not compile) log has the compiler's messages. It also has
 * ptxas' report of every kernel (registers, spills, stack). Several threads may call it at once. */
typedef struct f8_nvrtc_result {
    uint8_t *cubin;
    size_t cubin_size;
    char *ptx, *log;
} f8_nvrtc_result;
typedef struct f8_nvrtc_options {
    bool want_ptx;
    /* Compile in about half the time, to slower code of the same results. NVRTC does so since 12.9;
     * an older one compiles as always. */
    bool fast;
} f8_nvrtc_options;
f8_status f8_cuda_compile(f8_cuda *cuda, const char *text, const char *name, const char *header,
                          const char *header_name, const char *arch, f8_nvrtc_options options,
                          f8_arena *arena, f8_nvrtc_result *out, f8_diag *diag);
/* F8_ERR_UNSUPPORTED when the NVRTC found is too old for an architecture, "sm_90a". */
f8_status f8_cuda_knows(f8_cuda *cuda, const char *arch, f8_arena *arena, f8_diag *diag);
/* Loads NVRTC, as f8_cuda_compile does, and gives its version, 13000. */
f8_status f8_cuda_nvrtc(f8_cuda *cuda, int *version, f8_diag *diag);
/* What else decides what f8_cuda_compile makes, apart from texts, architecture and
 * f8_nvrtc_options: NVRTC's version and options, as text for a cache key. Loads NVRTC. NULL if the
 * arena failed. */
f8_status f8_cuda_compiler(f8_cuda *cuda, f8_arena *arena, const char **out, f8_diag *diag);

/* ---- what is here: for doctor and for the message of `--target cuda` ---- */

typedef struct f8_cuda_library {
    const char *name;    /* "NVRTC" */
    const char *path;    /* the file, or NULL: not loaded */
    const char *version; /* "13.0", or NULL: unknown */
    int major;           /* of the version; 0: unknown */
    const char
        *why; /* NULL if usable; else the whole message, with every place that was searched */
    const char *refused; /* "; FILE does not load (reason)" for each file that exists and was passed
                            over; or NULL */
    const char *const *sonames; /* NULL-terminated */
} f8_cuda_library;

/* Describes library i and loads it to do so. False past the last. The strings are the object's.
 * Needs no device. */
bool f8_cuda_describe(f8_cuda *cuda, int i, f8_cuda_library *out);
/* The folders that are searched, in order, NULL-terminated: patterns, and "" for the loader's own
 * path. */
const char *const *f8_cuda_looked_in(const f8_cuda *cuda);

/* How many devices the driver sees; 0 is no failure. F8_ERR_LIBRARY: there is no driver, or it
 * fails. */
f8_status f8_cuda_count(f8_cuda *cuda, int *count, f8_diag *diag);
/* The facts of device `ordinal`. Its context is neither made nor needed, so memory_free stays 0.
 * `pci` (40 bytes, may be NULL) is its address on the bus, "" if the driver does not tell. */
f8_status f8_cuda_inspect(f8_cuda *cuda, int ordinal, f8_cuda_facts *out, char *pci, f8_diag *diag);

#endif
