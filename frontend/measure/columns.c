/* What files of other formats say of a set: see columns.h. */
#include "frontend/measure/columns.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/fields.h"
#include "ir/base/format.h"
#include "ir/base/text.h"

enum { WAY = F8_COLUMN_WAY, FIGURE = F8_COLUMN_FIGURE, WHERE = F8_COLUMN_WHERE };

const f8_column f8_columns[F8_COLUMNS] = {
#define COLUMN(name, heading, parts, unit, value) {#name, heading, parts, F8_UNIT_##unit},
#include "frontend/measure/columns.def"
#undef COLUMN
};

const char *f8_measure_unit_text(f8_column_unit unit)
{
    static const char *const all[] = {
#define X(e, text) text,
        F8_COLUMN_UNITS(X)
#undef X
    };
    return all[unit];
}

const char *f8_measure_number(double x, char text[F8_MEASURE_NUMBER])
{
    for (int digits = 15; digits <= 17; digits++) {
        f8_format(text, F8_MEASURE_NUMBER, "%.*g", digits, x);
        if (f8_number(text) == x)
            break;
    }
    return text;
}

/* ---- words of the files ---- */

static const char *answer_name(f8_measure_answer answer)
{
    return answer == F8_MEASURE_UNKNOWN ? "" : answer == F8_MEASURE_YES ? "yes" : "no";
}

static double intensity(const f8_measure_problem *p)
{
    return p->flops > 0 && p->bytes > 0 ? p->flops / p->bytes : NAN;
}

/* ---- of the processes of a row ---- */

f8_measure_row f8_measure_row_of(const f8_measure_set *set, const f8_measurement *m,
                                 f8_arena *arena)
{
    f8_measure_row row = {.set = set, .m = m, .arena = arena};
    const size_t most = m && m->n_processes ? m->n_processes : set->n_processes;
    row.process = F8_NEW_ARRAY(arena, const f8_measure_process *, most);
    for (size_t i = 0; row.process && i < most; i++) {
        const f8_measure_process *p = m && m->n_processes
                                          ? f8_measure_find_process(set, m->process[i].process)
                                          : &set->process[i];
        if (p)
            row.process[row.n_processes++] = p;
    }
    return row;
}

/* The median of what the processes have at this offset, without those that do not know it. */
static double median(const f8_measure_row *row, size_t offset)
{
    double *x = F8_NEW_ARRAY(row->arena, double, row->n_processes);
    size_t n = 0;
    for (size_t i = 0; x && i < row->n_processes; i++) {
        memcpy(&x[n], (const char *)row->process[i] + offset, sizeof *x);
        n += x[n] > 0;
    }
    return n ? f8_measure_quantile(x, n, 0.5) : NAN;
}

/* A machine has as many CPUs in all of its processes; sets of several machines have the least. */
static double cpus(const f8_measure_row *row)
{
    int64_t least = 0;
    for (size_t i = 0; i < row->n_processes; i++)
        if (!least || row->process[i]->cpus < least)
            least = row->process[i]->cpus;
    return least > 0 ? (double)least : NAN;
}

/* The first date (sign -1) or the last (1): as texts they are in the order of time. */
static const char *date(const f8_measure_row *row, int sign)
{
    const char *best = "";
    for (size_t i = 0; i < row->n_processes; i++) {
        const char *next = row->process[i]->date;
        if (next && *next && (!*best || sign * strcmp(next, best) > 0))
            best = next;
    }
    return best;
}

/* ---- values ---- */

static f8_measure_value text_value(const f8_measure_row *row, const char *text)
{
    f8_measure_value value = {.text = text ? text : "", .unit = F8_UNIT_TEXT};
    if (f8_text_is_plain(value.text, strlen(value.text)))
        return value;
    char *copy = f8_arena_strdup(row->arena, value.text);
    if (copy)
        f8_text_make_plain(copy);
    value.text = copy ? copy : "";
    return value;
}

/* A text that grows in an arena. */
typedef struct list {
    f8_arena *arena;
    char *text;
    size_t n, room;
} list;

static void put(list *l, const char *text)
{
    const size_t length = strlen(text);
    char *grown = f8_arena_grow(l->arena, l->text, l->n, &l->room, l->n + length + 1, 1);
    if (!grown)
        return;
    l->text = grown;
    memcpy(grown + l->n, text, length);
    l->n += length;
}

static void put_number(list *l, double x)
{
    char text[F8_MEASURE_NUMBER];
    if (!isnan(x))
        put(l, f8_measure_number(x, text));
}

static f8_measure_value all_runs(const f8_measure_row *row)
{
    list l = {.arena = row->arena};
    for (size_t i = 0; i < row->m->n_processes; i++) {
        put(&l, i ? ";" : "");
        for (size_t run = 0; run < row->m->process[i].n; run++) {
            put(&l, run ? " " : "");
            put_number(&l, row->m->process[i].seconds[run]);
        }
    }
    return text_value(row, l.text);
}

static f8_measure_value process_ids(const f8_measure_row *row)
{
    list l = {.arena = row->arena};
    for (size_t i = 0; i < row->n_processes; i++) {
        put(&l, i ? ";" : "");
        put(&l, row->process[i]->id ? row->process[i]->id : "");
    }
    return text_value(row, l.text);
}

static f8_measure_value loads(const f8_measure_row *row)
{
    list l = {.arena = row->arena};
    bool known = false;
    for (size_t i = 0; i < row->n_processes; i++) {
        put(&l, i ? ";" : "");
        put_number(&l, row->process[i]->load);
        known |= !isnan(row->process[i]->load);
    }
    return text_value(row, known ? l.text : "");
}

static f8_measure_value number_value(double x)
{
    return (f8_measure_value){.number = x};
}

#define TEXT(x) text_value(row, x)
#define NUMBER(x) number_value((double)(x))
#define SOME(x) number_value((x) ? (double)(x) : NAN)
#define MEDIAN(field) number_value(median(row, offsetof(f8_measure_process, field)))

f8_measure_value f8_measure_value_of(const f8_measure_row *row, int column)
{
    const f8_measurement *m = row->m;
    const f8_measure_problem *p = m ? &m->problem : NULL;
    const f8_measure_about *a = &row->set->about;
    f8_measure_value value = {.number = NAN};
    switch (column) {
#define COLUMN(name, heading, parts, unit, value_of)                                               \
    case F8_COLUMN_##name: value = value_of; break;
#include "frontend/measure/columns.def"
#undef COLUMN
    }
    value.unit = f8_columns[column].unit;
    if (value.unit == F8_UNIT_RATE)
        value.unit = p->flops > 0 ? F8_UNIT_OPERATIONS_A_SECOND : F8_UNIT_BYTES_A_SECOND;
    return value;
}

bool f8_measure_is_known(const f8_measure_value *value)
{
    return value->text ? *value->text : !isnan(value->number);
}

/* ---- texts ---- */

char *f8_measure_ended(FILE *to, char **text, bool written, f8_arena *arena)
{
    const bool whole = to && written && !ferror(to) && !arena->failed;
    f8_arena_end(arena);
    if (to && !fclose(to) && whole)
        return *text;
    free(to ? *text : NULL);
    return NULL;
}
