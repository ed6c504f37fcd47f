/* The NVRTC stand-in: compiles a text for the host, with our own fp8c.cuh in place of the header
 * that the caller gives. */
#ifndef F8_EMU_NVRTC_H
#define F8_EMU_NVRTC_H

#include "tests/emulator/common.h"
#include "tests/emulator/image.h"

enum { F8_EMU_TOOLKIT_MAJOR = 13, F8_EMU_TOOLKIT_MINOR = 0 };

typedef struct f8_emu_bytes {
    char *p; /* malloc's; NUL-terminated beyond n */
    size_t n;
} f8_emu_bytes;

/* A whole file; p is NULL if it can't be read. */
f8_emu_bytes f8_emu_read_file(const char *path);

/* Compile `text` (called `name` in messages), or what the cache lacks of it, to the pieces of its
 * kernels. NVRTC_SUCCESS with `image`; NVRTC_ERROR_COMPILATION with the compiler's messages in
 * `log`. */
nvrtcResult f8_emu_compile(const char *text, const char *name, bool has_header, f8_emu_bytes *image,
                           f8_emu_bytes *log);
extern int64_t f8_emu_compiler_runs; /* of this process */

#endif
