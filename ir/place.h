/* Where a value lives at run time. Decided by the memory pass, carried by the plan. */
#ifndef F8_PLACE_H
#define F8_PLACE_H

#include <stdint.h>

typedef enum f8_space {
    F8_SPACE_NONE,   /* nowhere: lives inside its kernel */
    F8_SPACE_ARENA,  /* offset bytes into the function's arena */
    F8_SPACE_STATE,  /* offset bytes into the module's variables */
    F8_SPACE_INPUT,  /* bytes into the caller's buffer of input port `port` */
    F8_SPACE_OUTPUT, /* bytes into the caller's buffer of result port `port` */
    F8_SPACE_CONST,  /* offset bytes into the plan's constants */
} f8_space;

/* A value's elements: matrix view [rows, columns] (f8_type_rows/columns), row r at offset +
 * r * stride * sizeof(dtype). stride == columns when contiguous. */
typedef struct f8_place {
    f8_space space;
    int32_t port;   /* INPUT, OUTPUT */
    int64_t offset; /* bytes */
    int64_t stride; /* elements */
} f8_place;

enum { F8_ARENA_ALIGN = 64 }; /* bytes, of every value's place in the arena */

#endif
