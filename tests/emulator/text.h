/* What a text for NVRTC consists of, and which part of it each kernel depends on. */
#ifndef F8_EMU_TEXT_H
#define F8_EMU_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What must have been compiled before the text counts as compiled: each kernel, each definition
 * that no kernel uses, and the preprocessor's lines. */
typedef struct f8_emu_root {
    const char *begin, *end; /* in the text */
    bool is_kernel;
    char name[120]; /* a kernel's */
    uint64_t key; /* the hash of its own text and of all that it uses, comments and spaces aside */
} f8_emu_root;

/* `all`: also the definitions that a kernel uses, which are compiled with it. NULL: no memory.
 * free() frees the array. */
f8_emu_root *f8_emu_roots(const char *text, bool all, size_t *n);

#endif
