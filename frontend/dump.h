/* Dumps: what a compile makes on its way, as files for people. See fp8c_context_options.dump.
 * Internal to frontend/.
 *
 * Each compile has a folder of its own in the one given: MODULE.TARGET.N, with the first N that is
 * free. It holds
 *     00_input.f8, 01_precision.f8, ...   the module before the passes and after each
 *     kernel_000.txt, ...                 what kernels compute (codegen/kernel/kernel.h)
 *     llvm_000.ll, image_000.cu, ...      the texts they were compiled from
 * A file that can't be written is missing, and the log says so once. */
#ifndef F8_DUMP_H
#define F8_DUMP_H

#include <limits.h>
#include <stdatomic.h>

#include "ir/base/log.h"
#include "passes/unit/pass.h"

typedef struct f8_dump {
    char folder[PATH_MAX]; /* "": no dump */
    const f8_log *log;
    int modules;        /* files written so far */
    atomic_bool failed; /* the log has said that a file is missing */
} f8_dump;

/* Make the folder of one compile. If that fails, there is no dump. */
void f8_dump_begin(f8_dump *d, const char *below, const char *module, const char *target,
                   const f8_log *log);

/* These are f8_options.show and f8_build_options.dump; `dump` is an f8_dump. Several threads may
 * call the second. */
void f8_dump_show(void *dump, const f8_unit *u, const char *pass);
void f8_dump_text(void *dump, const char *file, const char *text);

#endif
