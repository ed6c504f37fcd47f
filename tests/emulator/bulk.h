/* Bulk copies to shared memory, and the barriers that count their bytes: the state of one block.
 * The data of a copy arrives when a thread waits for its barrier, or at once. Until then the memory
 * that it goes to is poison. The functions return what the kernel did wrong, as text, or NULL. */
#ifndef F8_EMU_BULK_H
#define F8_EMU_BULK_H

#include <stdbool.h>

void f8_emu_bulk_reset(void); /* a block begins */
const char *f8_emu_bulk_begin(unsigned long long *barrier, int n);
const char *f8_emu_bulk_expect(const unsigned long long *barrier, int bytes);
const char *f8_emu_bulk_copy(void *to, const void *from, int bytes,
                             const unsigned long long *barrier, bool at_once);
/* *done: phase `phase` has all its bytes. If not, some are still to be copied or expected. */
const char *f8_emu_bulk_wait(const unsigned long long *barrier, unsigned phase, bool *done);
const char *f8_emu_bulk_end(void); /* a block ends */

#endif
