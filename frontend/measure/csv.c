/* A set as comma-separated values: see measure.h. Lines end with a newline alone, as those of this
 * folder's other files do: readers of RFC 4180 take both ends, and Unix's tools only this one. */
#include <string.h>

#include "frontend/measure/columns.h"

static void put_field(const char *text, FILE *to)
{
    if (!text[strcspn(text, ",\"\r\n")]) {
        fputs(text, to);
        return;
    }
    fputc('"', to);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', to);
        fputc(*text, to);
    }
    fputc('"', to);
}

static void put_value(const f8_measure_value *value, FILE *to)
{
    char number[F8_MEASURE_NUMBER];
    if (value->text)
        put_field(value->text, to);
    else if (f8_measure_is_known(value))
        fputs(f8_measure_number(value->number, number), to);
}

static const char *end_of(int column)
{
    return column == F8_COLUMNS - 1 ? "\n" : ",";
}

static void put_row(const f8_measure_row *row, FILE *to)
{
    for (int i = 0; i < F8_COLUMNS; i++) {
        const f8_measure_value value = f8_measure_value_of(row, i);
        put_value(&value, to);
        fputs(end_of(i), to);
    }
}

char *f8_measure_csv(const f8_measure_set *set)
{
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    f8_arena arena;
    f8_arena_init(&arena, &set->arena.allocator);
    for (int i = 0; to && i < F8_COLUMNS; i++) {
        fputs(f8_columns[i].name, to);
        fputs(end_of(i), to);
    }
    for (size_t i = 0; to && i < set->n_measurements; i++) {
        const f8_measure_row row = f8_measure_row_of(set, &set->measurement[i], &arena);
        put_row(&row, to);
    }
    return f8_measure_ended(to, &text, true, &arena);
}
