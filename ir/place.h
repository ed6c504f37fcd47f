/* Where a value lies at run time. The memory pass decides it, and the plan holds it. */
#ifndef F8_PLACE_H
#define F8_PLACE_H

#include <stdint.h>

typedef enum f8_space {
    F8_SPACE_NONE,   /* nowhere: the value exists only inside its kernel */
    F8_SPACE_ARENA,  /* in the function's arena */
    F8_SPACE_STATE,  /* in the module's variables */
    F8_SPACE_INPUT,  /* in the caller's buffer of input port `port` */
    F8_SPACE_OUTPUT, /* in the caller's buffer of result port `port` */
    F8_SPACE_CONST,  /* in the plan's constants */
} f8_space;

/* The place of a value, seen as a matrix [rows, columns] (f8_type_rows, f8_type_columns): row r is
 * at offset + r * stride * f8_dtype_size. stride == columns when the value is contiguous. */
typedef struct f8_place {
    f8_space space;
    int32_t port;   /* INPUT, OUTPUT */
    int64_t offset; /* bytes from the start of the space or buffer */
    int64_t stride; /* elements */
} f8_place;

enum { F8_ARENA_ALIGN = 64 }; /* bytes: the alignment of every allocation of the arena */

/* The state that counts the micro-steps since the last update: while it is 0, gradients count as
 * zeros. */
#define F8_COUNT_NAME "opt.micro_steps"

#endif
