/* A small static linker: ELF objects from LLVM become one position-independent image.
 *
 * The image is code, followed by constants on the next page. Every relocation is resolved here, so
 * loading an image (runtime/base/blob.h) is one mapping. Kernels import nothing: a reference to a
 * symbol that no object defines (memcpy, expf, ...) is an error that names the symbol. The same
 * objects in the same order give the same bytes. */
#ifndef F8_CODEGEN_LINK_H
#define F8_CODEGEN_LINK_H

#include "codegen/cpu/llvm.h"

typedef struct f8_link_symbol {
    const char *name; /* in the arena given to f8_link */
    uint64_t offset;  /* bytes from the start of the image, below code_size */
} f8_link_symbol;

typedef struct f8_link_image {
    uint8_t *bytes;
    size_t size;
    size_t code_size; /* [0, code_size) is code, the rest constants; a multiple of F8_BLOB_PAGE */
    f8_link_symbol *symbols; /* the global functions, sorted by name */
    size_t symbol_count;
} f8_link_image;

/* Links `count` x86-64 relocatable objects. All memory comes from `arena`. F8_ERR_INTERNAL:
 * undefined or repeated symbols, writable or zero-filled data, thread-local data, relocations that
 * need a load address, or a malformed object; emitters produce none of these. */
f8_status f8_link(const f8_object *objects, size_t count, f8_arena *arena, f8_link_image *out,
                  f8_diag *d);

/* The symbol of that name, or NULL. */
const f8_link_symbol *f8_link_find(const f8_link_image *image, const char *name);

#endif
