/* Fibers: each has a stack; a few instructions of x86-64 switch between them. Registers that a call
 * may change are not saved. */
#ifndef F8_EMU_FIBER_H
#define F8_EMU_FIBER_H

#include <stddef.h>

enum { F8_EMU_STACK = 256 * 1024 };

/* Save where we are in *from and go on at `to`, which an earlier switch saved or f8_emu_fiber_start
 * made. */
void f8_emu_switch(void **from, void *to);

/* Where the stack pointer and the program must be set to go on at a place that f8_emu_switch saved:
 * for a signal's handler. */
void f8_emu_resume(void);

/* A place on an empty stack from which `entry` is called; it never returns. `top`: end of the
 * stack. */
void *f8_emu_fiber_start(void *top, void (*entry)(void));

#endif
