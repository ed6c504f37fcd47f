/* The fields of records: tables by which records.c writes them and read.c reads them. */
#ifndef F8_MEASURE_FIELDS_H
#define F8_MEASURE_FIELDS_H

#include "frontend/measure/measure.h"

typedef enum f8_field_kind {
    F8_FIELD_TEXT,    /* "": nothing */
    F8_FIELD_INTEGER, /* from 0 */
    F8_FIELD_AMOUNT,  /* a number from 0 */
    F8_FIELD_MAYBE,   /* a number from 0, or NaN, which is null */
    F8_FIELD_FLAG,
    F8_FIELD_KIND,
    F8_FIELD_STATE,
    F8_FIELD_ANSWER,
    F8_FIELD_FIGURE, /* a number that is made of others, and is not read */
    F8_FIELD_COUNT   /* a size_t of that sort */
} f8_field_kind;

typedef struct f8_field {
    const char *name;
    f8_field_kind kind;
    size_t offset;
    bool needed; /* a record without it is refused */
} f8_field;

/* Each table ends with a row without a name. */
extern const f8_field f8_about_fields[], f8_process_fields[], f8_problem_fields[], f8_way_fields[];

/* The objects in a record `process`. */
typedef struct f8_field_part {
    const char *name;
    const f8_field *fields;
    size_t offset;
} f8_field_part;
enum { F8_FIELD_PARTS = 4 };
extern const f8_field_part f8_process_parts[F8_FIELD_PARTS];

/* Words by enumerator; NULL past the last. */
extern const char *const f8_measure_kinds[], *const f8_measure_states[];

#endif
