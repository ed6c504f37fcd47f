/* A thread's asynchronous copies to shared memory. The data of a copy arrives when the thread waits
 * for its group, or at once. Until then the memory that it goes to is poison. */
#ifndef F8_EMU_COPIES_H
#define F8_EMU_COPIES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct f8_emu_copy {
    void *to;
    const void *from; /* NULL: zeros */
    uint32_t bytes, group;
} f8_emu_copy;

typedef struct f8_emu_copies {
    f8_emu_copy *at;
    uint32_t n, room;
    uint32_t group; /* the open one; groups count from 0 */
} f8_emu_copies;

/* false: there is no memory. */
bool f8_emu_copies_begin(f8_emu_copies *c, void *to, const void *from, uint32_t bytes,
                         bool at_once);
void f8_emu_copies_commit(f8_emu_copies *c);
void f8_emu_copies_wait(f8_emu_copies *c, uint32_t pending);
/* The thread ends: what it did wrong, as text, or NULL. */
const char *f8_emu_copies_end(f8_emu_copies *c);

#endif
