/* See fiber.h. */
#include "tests/emulator/fiber.h"

#ifndef __x86_64__
#error "the emulator's fibers are written for x86-64"
#endif

__asm__(".text\n"
        ".p2align 4\n"
        ".global f8_emu_switch\n"
        ".hidden f8_emu_switch\n"
        ".type f8_emu_switch, @function\n"
        "f8_emu_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        ".global f8_emu_resume\n"
        ".hidden f8_emu_resume\n"
        ".type f8_emu_resume, @function\n"
        "f8_emu_resume:\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size f8_emu_switch, . - f8_emu_switch\n");

void *f8_emu_fiber_start(void *top, void (*entry)(void))
{
    void **sp = (void **)((size_t)top & ~(size_t)15);
    *--sp = NULL;          /* so that entry finds the stack as a call leaves it */
    *--sp = (void *)entry; /* what `ret` takes */
    for (int i = 0; i < 6; i++)
        *--sp = NULL;
    return sp;
}
