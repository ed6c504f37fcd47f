/* An allocator that says no: malloc and its kin of the whole process, while a library allocates.
 * Linked into a program of its own (see README.md). */
#ifndef TEST_NO_MEMORY_H
#define TEST_NO_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Whether allocation `n` of the process (from 1, since the watch began) fails. `call` is the
 * function of the library that fp8c called, or "loading". Any thread that allocates calls it; what
 * it allocates itself is not counted. */
typedef bool (*no_memory_fn)(long n, const char *call);

/* From now on, looks at every `every`-th allocation, and asks `refuse` if a frame of `library` (a
 * part of its file's name) is on the stack; so those of libstdc++ and of libc for it count, too.
 * `refuse` NULL: the watch ends. */
void no_memory_watch(const char *library, long every, no_memory_fn refuse);

/* Allocations since the watch began. */
long no_memory_count(void);

/* For a handler of a signal: the file of the code that the signal met. Frames of libc, libstdc++
 * and libgcc do not count: those who called them do. */
void no_memory_place(char *file, size_t size);

#endif
