/* Files inside the library. */
#ifndef F8_EMBED_H
#define F8_EMBED_H

/* EMBED(name, "path/from/the/top") defines `const char name[]`: the bytes of the file and a NUL.
 * The assembler includes the file itself, so there is one copy of it. The Makefile says on which
 * files an object depends. */
#define EMBED(NAME, FILE)                                                                          \
    __asm__(".section .rodata\n"                                                                   \
            ".global " #NAME "\n"                                                                  \
            ".hidden " #NAME "\n"                                                                  \
            ".type " #NAME ", @object\n" #NAME ":\n"                                               \
            ".incbin \"" FILE "\"\n"                                                               \
            ".byte 0\n"                                                                            \
            ".size " #NAME ", . - " #NAME "\n"                                                     \
            ".previous\n");

#endif
