/* The text of a fault: see fault.h. */
#include "tests/faults/fault.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {
    [F8_FAULT_FLIP] = "flip",   [F8_FAULT_CORRUPT] = "corrupt", [F8_FAULT_GEMM] = "gemm",
    [F8_FAULT_STALE] = "stale", [F8_FAULT_ZERO] = "zero",       [F8_FAULT_INF] = "inf",
    [F8_FAULT_NAN] = "nan",     [F8_FAULT_BIT] = "bit"};
enum { KINDS = sizeof kinds / sizeof *kinds };

const char *f8_fault_kind_name(f8_fault_kind k)
{
    return kinds[k];
}

bool f8_fault_is_between(const f8_fault *f)
{
    return f->kind == F8_FAULT_INF || f->kind == F8_FAULT_NAN || f->kind == F8_FAULT_BIT;
}

static bool wrong(char why[F8_FAULT_WHY], const char *key, const char *value, const char *says)
{
    snprintf(why, F8_FAULT_WHY, "%s=%s: %s", key, value, says);
    return false;
}

static bool read_kind(f8_fault *f, const char *value, char why[F8_FAULT_WHY])
{
    for (int k = 1; k < KINDS; k++)
        if (!strcmp(value, kinds[k])) {
            f->kind = (f8_fault_kind)k;
            return true;
        }
    return wrong(why, "kind", value, "not one of flip, corrupt, gemm, stale, zero, inf, nan, bit");
}

static bool read_when(f8_fault *f, const char *value, char why[F8_FAULT_WHY])
{
    f->always = !strcmp(value, "always");
    return f->always || !strcmp(value, "once") || wrong(why, "when", value, "not once or always");
}

static bool read_number(f8_fault *f, const char *key, const char *value, char why[F8_FAULT_WHY])
{
    const struct {
        const char *key;
        int64_t *to, least;
    } numbers[] = {{"step", &f->step, 1},       {"micro", &f->micro, 1}, {"rank", &f->rank, 0},
                   {"element", &f->element, 0}, {"bit", &f->bit, 0},     {"count", &f->count, 1}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char *end;
        if (strcmp(key, numbers[i].key) != 0)
            continue;
        errno = 0;
        *numbers[i].to = strtoll(value, &end, 10);
        return (*value && !*end && !errno && *numbers[i].to >= numbers[i].least) ||
               wrong(why, key, value, "not such a number");
    }
    return wrong(why, key, value, "no such key");
}

static bool read_factor(f8_fault *f, const char *value, char why[F8_FAULT_WHY])
{
    char *end;
    f->factor = strtod(value, &end);
    return (*value && !*end && isfinite(f->factor)) ||
           wrong(why, "factor", value, "not such a number");
}

static bool read_text(f8_fault *f, const char *key, const char *value, bool *is_text,
                      char why[F8_FAULT_WHY])
{
    static const char *const functions[] = {"prepare", "micro_step", "update",
                                            "eval",    "forward",    "backward"};
    char *to = !strcmp(key, "function") ? f->function
               : !strcmp(key, "value")  ? f->value
               : !strcmp(key, "recipe") ? f->recipe
               : !strcmp(key, "target") ? f->target
                                        : NULL;
    *is_text = to != NULL;
    if (!to)
        return false;
    if (!*value || strlen(value) >= F8_FAULT_TEXT)
        return wrong(why, key, value, "empty or too long");
    strcpy(to, value);
    if (to == f->target && strcmp(value, "cpu") != 0 && strcmp(value, "cuda") != 0)
        return wrong(why, key, value, "not cpu or cuda");
    if (to != f->function)
        return true;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const size_t n = strlen(functions[i]);
        if (!strncmp(value, functions[i], n) && (!value[n] || value[n] == '.'))
            return true;
    }
    return wrong(why, key, value, "no function has this name");
}

static bool read_pair(f8_fault *f, const char *key, const char *value, char why[F8_FAULT_WHY])
{
    bool is_text;
    if (!strcmp(key, "kind"))
        return read_kind(f, value, why);
    if (!strcmp(key, "when"))
        return read_when(f, value, why);
    if (!strcmp(key, "factor"))
        return read_factor(f, value, why);
    const bool read = read_text(f, key, value, &is_text, why);
    return is_text ? read : read_number(f, key, value, why);
}

/* What the text must say, and what it need not. */
static bool complete(f8_fault *f, char why[F8_FAULT_WHY])
{
    const bool between = f8_fault_is_between(f);
    const char *missing = !f->kind   ? "kind"
                          : !f->step ? "step"
                          : !*f->value && f->kind != F8_FAULT_STALE && f->kind != F8_FAULT_NAN
                              ? "value"
                              : NULL;
    if (missing) {
        snprintf(why, F8_FAULT_WHY, "%s=... is missing", missing);
        return false;
    }
    if (!strcmp(f->target, "cuda") && !between)
        return wrong(why, "target", f->target, "only kinds inf, nan and bit");
    if (!*f->function)
        strcpy(f->function, f->kind == F8_FAULT_STALE ? "update" : "micro_step");
    return true;
}

bool f8_fault_parse(const char *text, f8_fault *out, char why[F8_FAULT_WHY])
{
    *out = (f8_fault){
        .nth = -1, .element = -1, .count = 64, .rank = -1, .factor = 1.5, .target = "cpu"};
    while (*text) {
        char pair[2 * F8_FAULT_TEXT];
        const size_t n = strcspn(text, ",");
        if (n >= sizeof pair)
            return wrong(why, "...", text, "too long");
        memcpy(pair, text, n);
        pair[n] = 0;
        char *value = strchr(pair, '=');
        if (!value)
            return wrong(why, pair, "", "KEY=VALUE is wanted");
        *value++ = 0;
        if (!read_pair(out, pair, value, why))
            return false;
        text += n + (text[n] == ',');
    }
    return complete(out, why);
}
