/* Fuzz target of the textual language: any bytes give a message or a module; a module passes the
 * verifier, and its text parses again to the same module and prints the same. The same bytes as a
 * recipe and as a recipe rule, which the command line and the API take: what is read prints and
 * reads back the same.
 *
 * usage: fuzz_parse -max_total_time=60 -timeout=5 -dict=tests/fuzz/parse.dict CORPUS tests/golden
 * tests/bad \
 *                   tests/fuzz/parse frontend/models
 * CORPUS is a folder of its own, for the inputs that it finds. */
#include <stdio.h>

#include "frontend/text/diag.h"
#include "ir/recipe.h"
#include "tests/shared/roundtrip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Small enough that no input is slow. */
static const f8_parse_limits limits = {
    .nodes = 5000, .declarations = 500, .unrolled = 1 << 16, .depth = 50};
/* What a module printed in full may need. */
static const f8_parse_limits wide = {
    .nodes = 10000, .declarations = 2000, .unrolled = 1 << 16, .depth = 50};

static void require(bool ok, const char *what, const f8_diag *d, const rt_text *t)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %u:%u: %s\n%s\n", what, d->loc.line, d->loc.column, d->text,
            t && t->text ? t->text : "");
    abort();
}

static void try_recipe(const char *text)
{
    f8_diag diag = {0};
    f8_recipe r, again;
    char printed[F8_RECIPE_TEXT], twice[F8_RECIPE_TEXT];
    if (f8_recipe_parse(text, F8_NOWHERE, &r, &diag) != F8_OK) {
        require(diag.status == F8_ERR_INPUT && diag.text[0], "a recipe fails without a message",
                &diag, NULL);
        return;
    }
    f8_recipe_print(&r, printed, sizeof printed);
    require(f8_recipe_parse(printed, F8_NOWHERE, &again, &diag) == F8_OK &&
                f8_recipe_equal(&r, &again) &&
                !strcmp(f8_recipe_print(&again, twice, sizeof twice), printed),
            "a recipe does not read back", &diag, NULL);
}

static void try_rule(const char *text, f8_arena *arena)
{
    static const char module[] = "module m dim B = 2, L = 3";
    f8_diag diag = {0};
    f8_recipe_rule rule, again;
    f8_module *m;
    static const size_t size = 8192; /* every byte of a pattern may be two */
    char *printed = f8_arena_array(arena, 2, size), *twice = printed + size;
    f8_parse_limited(module, sizeof module - 1, "m", NULL, 0, &limits, arena, &diag, &m);
    if (f8_parse_rule(text, m, &diag, &rule) != F8_OK) {
        require(diag.status == F8_ERR_INPUT && diag.text[0], "a rule fails without a message",
                &diag, NULL);
        return;
    }
    f8_rule_print(&rule, printed, size);
    require(f8_parse_rule(printed, m, &diag, &again) == F8_OK &&
                !strcmp(f8_rule_print(&again, twice, size), printed),
            "a rule does not read back", &diag, NULL);
}

static void try_alone(const uint8_t *data, size_t size)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    char *text = f8_arena_strndup(&arena, (const char *)data, size);
    require(text != NULL, "no memory", &(f8_diag){0}, NULL);
    try_recipe(text);
    try_rule(text, &arena);
    f8_arena_end(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_alone(data, size);
    f8_arena arena;
    f8_diag diag = {0};
    f8_module *first, *second;
    f8_dim_override override = {"B", 2};
    bool overridden = size > 0 && data[size - 1] == 'B';
    f8_arena_init(&arena, NULL);
    f8_status s = f8_parse_limited((const char *)data, size, "fuzz.f8", &override, overridden,
                                   &limits, &arena, &diag, &first);
    if (s != F8_OK) {
        char message[512];
        require(s == F8_ERR_INPUT && diag.status == s && diag.text[0],
                "a failure without a message", &diag, NULL);
        f8_diag_render(&diag, (const char *)data, size, message, sizeof message);
    } else {
        require(f8_verify(first, &diag) == F8_OK, "the verifier refuses what was parsed", &diag,
                NULL);
        rt_text a = rt_print(first);
        s = f8_parse_limited(a.text, a.n, "printed", NULL, 0, &wide, &arena, &diag, &second);
        require(s == F8_OK, "printed text does not parse", &diag, &a);
        rt_text b = rt_print(second);
        require(a.n == b.n && !memcmp(a.text, b.text, a.n), "printing again differs", &diag, &b);
        require(rt_same_module(first, second, false), "another graph after printing", &diag, &a);
        free(a.text);
        free(b.text);
    }
    f8_arena_end(&arena);
    return 0;
}
