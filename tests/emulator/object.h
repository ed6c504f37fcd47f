/* Cuts a compiled object into pieces, one a kernel (image.h). */
#ifndef F8_EMU_OBJECT_H
#define F8_EMU_OBJECT_H

#include "tests/emulator/nvrtc.h"

/* The piece of the kernel `name` of an ELF object in memory. False with a note: it has no such
 * kernel, or holds what a piece can't. */
bool f8_emu_cut(const f8_emu_bytes *object, const char *name, f8_emu_bytes *piece);

#endif
