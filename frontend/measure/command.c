/* The command line that measures a row again: see measure.h. */
#include <string.h>

#include "frontend/measure/measure.h"

static bool is(const char *text, const char *word)
{
    return text && !strcmp(text, word);
}

/* A set may come from anybody's file, and people paste what it holds. */
const char *f8_measure_quote(const char *word, f8_arena *arena)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=.,:/@%";
    if (*word && !word[strspn(word, plain)])
        return word;
    char *to = f8_arena_array(arena, 4 * strlen(word) + 3, 1), *at = to;
    if (!to)
        return NULL;
    for (*at++ = '\''; *word; word++)
        if (*word == '\'') {
            memcpy(at, "'\\''", 4);
            at += 4;
        } else
            *at++ = *word;
    *at = '\'';
    return to;
}

/* " OPTION WORD", or "" where the set does not say. */
static const char *option(const char *name, const char *word, f8_arena *arena)
{
    const char *quoted = word && *word ? f8_measure_quote(word, arena) : "";
    if (!quoted || !*quoted)
        return quoted;
    return f8_arena_printf(arena, " %s %s", name, quoted);
}

const char *f8_measure_command(const f8_measure_set *set, const f8_measurement *m, f8_arena *arena)
{
    const f8_measure_about *about = &set->about;
    if (!m->problem.m || is(m->cache, "step") || !is(about->program, "fp8c"))
        return about->command ? about->command : "";
    const char *threads =
        about->threads > 0 ? f8_arena_printf(arena, "%lld", (long long)about->threads) : "";
    const char *part[] = {
        option("--gemm", m->problem.text, arena),
        option("--cache", m->cache, arena),
        option("--inputs", about->inputs, arena),
        option("--threads", threads, arena),
        option("--target", is(about->target, "cpu") ? "" : about->target, arena),
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (!part[i] || !threads)
            return NULL;
    return f8_arena_printf(arena, "fp8c tune%s%s%s%s%s%s", part[0], part[1], part[2], part[3],
                           part[4], m->kind == F8_MEASURE_PEER ? " --peers" : "");
}
