/* A set as tables of Markdown: see measure.h. Tables are those of GitHub's Markdown and Pandoc's.
 */
#include <ctype.h>
#include <string.h>

#include "frontend/measure/columns.h"

/* ---- texts ---- */

/* A text that shows as it is: what Markdown would read as its own has a backslash before it. A row
 * of a table is one line. A _ within a word is only a _. */
static void put_text(const char *text, FILE *to)
{
    for (const char *at = text; *at; at++) {
        const bool within = *at == '_' && at > text && isalnum((unsigned char)at[-1]) &&
                            isalnum((unsigned char)at[1]);
        if (strchr("\\`*_[]<>|~&#", *at) && !within)
            fputc('\\', to);
        fputc(strchr("\t\r\n", *at) ? ' ' : *at, to);
    }
}

/* A line of code, which shows as it is. */
static void put_code(const char *text, FILE *to)
{
    fputs("    ", to);
    for (; *text; text++)
        fputc(strchr("\t\r\n", *text) ? ' ' : *text, to);
    fputs("\n\n", to);
}

/* ---- values ---- */

static void put_value(const f8_measure_value *value, FILE *to)
{
    char text[F8_COLUMN_SHOWN];
    if (value->text)
        put_text(value->text, to);
    else
        fputs(f8_column_show(value->number, value->unit, text), to);
}

/* ---- tables ---- */

/* The head of a table. Texts stand on the left, numbers (unit not TEXT) on the right. */
typedef struct head {
    const char *name;
    f8_column_unit unit;
} head;

static void put_head(const head *h, size_t n, FILE *to)
{
    for (size_t i = 0; i < n; i++) {
        fputs(i ? " " : "| ", to);
        put_text(h[i].name, to);
        fputs(" |", to);
    }
    fputs("\n|", to);
    for (size_t i = 0; i < n; i++)
        fputs(h[i].unit == F8_UNIT_TEXT ? " --- |" : " ---: |", to);
    fputc('\n', to);
}

static void put_numbers(const head *h, const double *x, size_t n, FILE *to)
{
    char text[F8_COLUMN_SHOWN];
    for (size_t i = 0; i < n; i++) {
        fputc(' ', to);
        fputs(f8_column_show(x[i], h[i].unit, text), to);
        fputs(" |", to);
    }
    fputc('\n', to);
}

/* Where and how: what the set says as a whole. What it does not say has no row. */
static void put_where(const f8_measure_set *set, f8_arena *arena, FILE *to)
{
    const f8_measure_row row = f8_measure_row_of(set, NULL, arena);
    const f8_measure_value command = f8_measure_value_of(&row, F8_COLUMN_set_command);
    fputs("## Where and how\n\n", to);
    if (f8_measure_is_known(&command))
        put_code(command.text, to);
    put_head((const head[]){{"what", F8_UNIT_TEXT}, {"value", F8_UNIT_TEXT}}, 2, to);
    for (int i = 0; i < F8_COLUMNS; i++) {
        if (!(f8_columns[i].parts & F8_COLUMN_WHERE) || !*f8_columns[i].heading)
            continue;
        const f8_measure_value value = f8_measure_value_of(&row, i);
        if (!f8_measure_is_known(&value))
            continue;
        fputs("| ", to);
        put_text(f8_columns[i].heading, to);
        fputs(" | ", to);
        put_value(&value, to);
        fputs(" |\n", to);
    }
    if (f8_measure_was_loaded(set))
        fputs("\nThe machine's load was above its CPUs before a process began.\n", to);
}

static void put_headlines(const f8_measure_set *set, FILE *to)
{
    static const head h[] = {{"cache", F8_UNIT_TEXT},        {"problems", F8_UNIT_COUNT},
                             {"timed", F8_UNIT_COUNT},       {"lacking", F8_UNIT_COUNT},
                             {"out of time", F8_UNIT_COUNT}, {"model", F8_UNIT_SECONDS},
                             {"best", F8_UNIT_SECONDS},      {"best, same bits", F8_UNIT_SECONDS},
                             {"regret", F8_UNIT_SHARE},      {"share of limit", F8_UNIT_SHARE},
                             {"best's share", F8_UNIT_SHARE}};
    enum { N = sizeof h / sizeof *h };
    f8_measure_headline x;
    for (int i = 0; f8_measure_headline_at(set, i, &x); i++) {
        if (!i) {
            fputs("\n## A step\n\n", to);
            put_head(h, N, to);
        }
        fputs("| ", to);
        put_text(x.cache, to);
        fputs(" |", to);
        const double number[] = {
            (double)x.problems, (double)x.timed, (double)x.lacking, (double)x.late, x.model, x.best,
            x.best_same_bits,   x.regret,        x.share,           x.best_share};
        put_numbers(h + 1, number, N - 1, to);
    }
}

static void put_peers(const f8_measure_set *set, FILE *to)
{
    static const head h[] = {{"cache", F8_UNIT_TEXT},         {"other library", F8_UNIT_TEXT},
                             {"problems", F8_UNIT_COUNT},     {"best is slower in", F8_UNIT_COUNT},
                             {"not known in", F8_UNIT_COUNT}, {"model / other", F8_UNIT_COUNT},
                             {"best / other", F8_UNIT_COUNT}};
    enum { N = sizeof h / sizeof *h };
    f8_measure_peer_line x;
    for (int i = 0; f8_measure_peer_at(set, i, &x); i++) {
        if (!i) {
            fputs("\n## Beside other libraries\n\nTimes over theirs, as geometric means; slower: "
                  "beyond the interval, not known: too few processes for one.\n\n",
                  to);
            put_head(h, N, to);
        }
        fputs("| ", to);
        put_text(x.cache, to);
        fputs(" | ", to);
        put_text(x.peer, to);
        fputs(" |", to);
        const double number[] = {(double)x.problems, (double)x.slower, (double)x.unknown, x.model,
                                 x.best};
        put_numbers(h + 2, number, N - 2, to);
    }
}

static bool is_shown(int column)
{
    return !(f8_columns[column].parts & F8_COLUMN_WHERE) && *f8_columns[column].heading;
}

static void put_measurements(const f8_measure_set *set, f8_arena *arena, FILE *to)
{
    head h[F8_COLUMNS];
    size_t n = 0;
    for (int i = 0; i < F8_COLUMNS; i++)
        if (is_shown(i))
            h[n++] = (head){f8_columns[i].heading, f8_columns[i].unit};
    fputs("\n## Measurements\n\n", to);
    put_head(h, n, to);
    for (size_t k = 0; k < set->n_measurements; k++) {
        const f8_measure_row row = f8_measure_row_of(set, &set->measurement[k], arena);
        fputc('|', to);
        for (int i = 0; i < F8_COLUMNS; i++) {
            if (!is_shown(i))
                continue;
            const f8_measure_value value = f8_measure_value_of(&row, i);
            fputc(' ', to);
            put_value(&value, to);
            fputs(" |", to);
        }
        fputc('\n', to);
    }
}

char *f8_measure_markdown(const f8_measure_set *set)
{
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    f8_arena arena;
    f8_arena_init(&arena, &set->arena.allocator);
    if (to) {
        fputs("# Measurements of fp8c\n\n", to);
        put_where(set, &arena, to);
        put_headlines(set, to);
        put_peers(set, to);
        put_measurements(set, &arena, to);
    }
    return f8_measure_ended(to, &text, true, &arena);
}
