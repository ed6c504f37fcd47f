/* What files of other formats say of a set: the columns of columns.def. Internal to this folder. */
#ifndef F8_MEASURE_COLUMNS_H
#define F8_MEASURE_COLUMNS_H

#include <stdio.h>

#include "frontend/measure/measure.h"

enum {
#define COLUMN(name, heading, parts, unit, value) F8_COLUMN_##name,
#include "frontend/measure/columns.def"
#undef COLUMN
    F8_COLUMNS
};

/* Parts of a column. */
enum { F8_COLUMN_WAY = 1, F8_COLUMN_FIGURE = 2, F8_COLUMN_WHERE = 4 };

/* Units. X(enumerator, "text"); RATE is of operations, of a kernel of bytes. */
#define F8_COLUMN_UNITS(X)                                                                         \
    X(TEXT, "")                                                                                    \
    X(COUNT, "")                                                                                   \
    X(SHARE, "")                                                                                   \
    X(BOUNDS, "bounds")                                                                            \
    X(SECONDS, "s")                                                                                \
    X(OPERATIONS, "FLOP")                                                                          \
    X(BYTES, "B")                                                                                  \
    X(OPERATIONS_A_BYTE, "FLOP/B")                                                                 \
    X(RATE, "FLOP/s")                                                                              \
    X(OPERATIONS_A_SECOND, "FLOP/s")                                                               \
    X(BYTES_A_SECOND, "B/s")                                                                       \
    X(MEGAHERTZ, "MHz")                                                                            \
    X(WATTS, "W")                                                                                  \
    X(CELSIUS, "\xc2\xb0"                                                                          \
               "C")
typedef enum f8_column_unit {
#define X(e, text) F8_UNIT_##e,
    F8_COLUMN_UNITS(X)
#undef X
} f8_column_unit;

typedef struct f8_column {
    const char *name, *heading;
    int parts;
    f8_column_unit unit; /* F8_UNIT_TEXT: it holds texts */
} f8_column;
extern const f8_column f8_columns[F8_COLUMNS];

/* A measurement, or the set as a whole. */
typedef struct f8_measure_row {
    const f8_measure_set *set;
    const f8_measurement *m;            /* NULL: the set; only columns of part WHERE have a value */
    const f8_measure_process **process; /* that ran it; of one without runs all of the set */
    size_t n_processes;
    f8_arena *arena; /* of texts that are made; whether it failed is to be asked at the end */
} f8_measure_row;
f8_measure_row f8_measure_row_of(const f8_measure_set *set, const f8_measurement *m,
                                 f8_arena *arena);

/* What a row has in a column. A text is UTF-8 whose only control characters are tabs and newlines,
 * and "" where it says nothing; a number is NaN where it is not known. */
typedef struct f8_measure_value {
    const char *text; /* NULL: a number */
    double number;
    f8_column_unit unit; /* a rate's is that of its problem */
} f8_measure_value;
f8_measure_value f8_measure_value_of(const f8_measure_row *row, int column);
bool f8_measure_is_known(const f8_measure_value *value);
const char *f8_measure_unit_text(f8_column_unit unit);

enum { F8_MEASURE_NUMBER = 32 };
/* The shortest decimal number that reads back as `x`. Returns `text`. */
const char *f8_measure_number(double x, char text[F8_MEASURE_NUMBER]);

/* A number as people read it, "3.512 ms"; "" where it is not known (NaN). Returns `to`. (show.c) */
enum { F8_COLUMN_SHOWN = 64 };
const char *f8_column_show(double x, f8_column_unit unit, char to[F8_COLUMN_SHOWN]);

/* What stands below a table: the machine and its limits, the headlines, peers. (table.c) */
void f8_measure_put_foot(const f8_measure_set *set, FILE *to);

/* Close a text (open_memstream, NULL if that failed), and end the arena that its rows used. NULL,
 * and nothing is left to free, if it was not written, or if memory ran out anywhere. */
char *f8_measure_ended(FILE *to, char **text, bool written, f8_arena *arena);

#endif
