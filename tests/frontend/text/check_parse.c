/* The textual language: every message for bad input with its place, canonical text, round trips
 * of the models, and inputs built to hurt (huge lines, deep nesting, no memory).
 *
 * tests/bad/NAME.f8 begins with `# error: LINE:COLUMN: MESSAGE` and, where it needs one, `# -D
 * NAME=N`. tests/golden/NAME.f8 ends with the text it prints as, each line behind `#>`. */
#include <dirent.h>
#include <stdio.h>

#include "frontend/text/diag.h"
#include "tests/shared/passes/passes.h"
#include "tests/shared/roundtrip.h"
#include "tests/shared/suite.h"

typedef struct parsed {
    f8_arena arena;
    f8_diag diag;
    f8_module *m;
    f8_status status;
    char message[4096]; /* rendered, if it failed */
} parsed;

static void parse_with(parsed *p, const char *text, size_t n, const char *file,
                       const f8_dim_override *d, size_t n_d)
{
    memset(p, 0, sizeof *p);
    f8_arena_init(&p->arena, NULL);
    p->status = f8_parse(text, n, file, d, n_d, &p->arena, &p->diag, &p->m);
    ck_assert((p->status == F8_OK) == (p->m != NULL));
    ck_assert(p->diag.status == p->status);
    if (p->status != F8_OK)
        f8_diag_render(&p->diag, text, n, p->message, sizeof p->message);
}

static void parse(parsed *p, const char *text)
{
    parse_with(p, text, strlen(text), "t.f8", NULL, 0);
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s is missing: run from the top of the tree", path);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*n + 1);
    ck_assert(text && fread(text, 1, *n, f) == *n);
    text[*n] = 0;
    fclose(f);
    return text;
}

/* Calls `test` for every .f8 file of a folder; returns how many there were. */
static int each_file(const char *folder, void (*test)(const char *path, char *text, size_t n))
{
    int count = 0;
    DIR *d = opendir(folder);
    ck_assert_msg(d != NULL, "%s is missing: run from the top of the tree", folder);
    for (struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name), n;
        if (length < 4 || strcmp(e->d_name + length - 3, ".f8"))
            continue;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        char *text = read_file(path, &n);
        test(path, text, n);
        free(text);
        count++;
    }
    closedir(d);
    return count;
}

/* "LINE:COLUMN: MESSAGE", or the message alone where no place is known. */
static void place_and_text(const f8_diag *d, char got[1200])
{
    if (d->loc.line)
        snprintf(got, 1200, "%u:%u: %s", d->loc.line, d->loc.column, d->text);
    else
        snprintf(got, 1200, "%s", d->text);
}

/* ---- bad input ---- */

static void bad_file(const char *path, char *text, size_t n)
{
    f8_dim_override d = {0};
    char name[64], got[1200];
    char want[1200] = "1:1: the file is empty; a module begins with 'module NAME'";
    if (n > 0)
        ck_assert_msg(sscanf(text, "# error: %1199[^\n]", want) == 1, "%s says no error", path);
    const char *given = strstr(text, "\n# -D ");
    long long value;
    if (given && sscanf(given, "\n# -D %63[^=]=%lld", name, &value) == 2)
        d = (f8_dim_override){name, value};
    parsed p;
    parse_with(&p, text, n, "t.f8", &d, d.name ? 1 : 0);
    ck_assert_msg(p.status == F8_ERR_INPUT, "%s is accepted", path);
    place_and_text(&p.diag, got);
    ck_assert_msg(!strcmp(got, want), "%s\n  says   %s\n  wanted %s", path, got, want);
    f8_arena_end(&p.arena);
}

START_TEST(bad_input)
{
    ck_assert_int_ge(each_file("tests/bad", bad_file), 100);
}
END_TEST

START_TEST(rendering)
{
    parsed p;
    parse(&p, "module t\n\tdim A = 1,\tB = A - 1\n");
    ck_assert_str_eq(p.message, "t.f8:2:17: error: dim 'B' is 0: it must be positive\n"
                                "    2 |     dim A = 1,    B = A - 1\n"
                                "      |                       ^\n");
    f8_arena_end(&p.arena);
    /* A long line: what is around the place, cut between characters. */
    char line[1000] = "module t # ";
    for (size_t i = 0; i < 80; i++)
        strcat(line, "\xc3\xa9");
    strcat(line, "\nparam a: f32[1");
    for (size_t i = 0; i < 60; i++)
        strcat(line, " + 1");
    strcat(line, " + x");
    for (size_t i = 0; i < 60; i++)
        strcat(line, " + 1");
    parse(&p, line);
    const char *source = strstr(p.message, "\n    2 | ...");
    const char *caret = strstr(p.message, "\n      | ");
    ck_assert_msg(source && caret, "%s", p.message);
    ck_assert_msg(source[strcspn(caret, "^")] == 'x', "%s", p.message);
    ck_assert_uint_lt((size_t)(caret - source), 160);
    /* Any buffer size: terminated, and the whole length returned. */
    char small[512];
    size_t whole = strlen(p.message);
    for (size_t size = 0; size < sizeof small; size++) {
        memset(small, 'z', sizeof small);
        ck_assert_uint_eq(f8_diag_render(&p.diag, line, strlen(line), small, size), whole);
        ck_assert(size == 0 || strlen(small) == (size <= whole ? size - 1 : whole));
        ck_assert(small[size] == 'z');
    }
    f8_arena_end(&p.arena);
    /* Bytes that are no text are spelled out, also in the message. */
    f8_diag d = {.loc = {1, 3}, .text = "bad \xff\x1b"};
    f8_diag_render(&d, "a\xc2z\x07", 4, small, sizeof small);
    ck_assert_str_eq(small, "1:3: error: bad <FF><1B>\n    1 | a<C2>z<07>\n      |      ^\n");
    d = (f8_diag){.loc = {7, 3}, .text = "beyond the text"};
    f8_diag_render(&d, "a", 1, small, sizeof small);
    ck_assert_str_eq(small, "7:3: error: beyond the text\n");
}
END_TEST

/* ---- hostile input ---- */

/* An allocator that fails after `left` allocations and refuses to hold more than `most` bytes. */
typedef struct budget {
    long left;
    size_t held, peak, most;
} budget;

static void *budget_alloc(void *user, size_t size, size_t align)
{
    budget *b = user;
    if (b->left-- <= 0 || b->held + size > b->most)
        return NULL;
    b->held += size;
    b->peak = b->held > b->peak ? b->held : b->peak;
    return aligned_alloc(align < 16 ? 16 : align, (size + 63) / 64 * 64);
}

static void budget_free(void *user, void *ptr, size_t size)
{
    ((budget *)user)->held -= size;
    free(ptr);
}

static f8_status parse_within(budget *b, const char *text, size_t n, f8_diag *diag)
{
    f8_allocator allocator = {budget_alloc, budget_free, b};
    f8_arena arena;
    f8_module *m;
    f8_arena_init(&arena, &allocator);
    *diag = (f8_diag){0};
    f8_status s = f8_parse(text, n, "t.f8", NULL, 0, &arena, diag, &m);
    ck_assert((s == F8_OK) == (m != NULL));
    f8_arena_end(&arena);
    ck_assert_uint_eq(b->held, 0);
    return s;
}

static const struct {
    const char *before, *repeated, *after, *message;
} lines[] = {
    {"module ", "a", "", "1:8: this name is longer than 511 bytes"},
    {"module t\nparam w: f32[", "9", "", "2:14: this integer does not fit into 64 bits"},
    {"module t\nparam w: f32[] const(", "9", "",
     "2:22: this number has 100000000 characters; the limit is 127"},
    {"module t\nrecipe \"", "*", "", "2:8: this string is longer than 1023 bytes"},
    {"module t\ndim A = 1", " + 1", " + x", "2:100000013: there is no dim or repeat variable 'x'"},
    {"module t # ", "x", "\nend",
     "2:1: expected dim, param, state, repeat, func, recipe, optimizer, "
     "accumulate or zero, found 'end'"},
    {"module t\n", " ", "end",
     "2:100000001: expected dim, param, state, repeat, func, recipe, optimizer, "
     "accumulate or zero, found 'end'"},
    {"module t\ndim A = ", "(", "", "2:209: nested deeper than 200 levels"},
    {"module t\ndim A = ", "-", "", "2:209: nested deeper than 200 levels"},
    {"module t\nfunc f(%x: f32[]) -> f32[] { return ", "neg(", "",
     "2:837: nested deeper than 200 levels"},
    {"module t\nfunc f(%x: f32[]) -> f32[] { return concat(", "%x,", "",
     "2:3116: a call has at most 1024 operands"},
    {"module t\nfunc f(%x: f32[]) -> f32[] {", "%y=%x ", "",
     "2:35: '%y' is already defined, at 2:29"},
    {"module t ", "accumulate 1 ", "", "1:23: 'accumulate' is already declared, at 1:10"},
};

/* What takes time beyond the line's length runs into the suite's timeout. */
START_TEST(line_of_100_megabytes)
{
    const size_t n_line = 100 * 1000 * 1000;
    const char *before = lines[_i].before, *after = lines[_i].after;
    size_t n = strlen(before), unit = strlen(lines[_i].repeated);
    const size_t total = n + n_line + strlen(after);
    char *text = malloc(total + 1);
    ck_assert(text);
    memcpy(text, before, n);
    memcpy(text + n, lines[_i].repeated, unit);
    for (size_t i = unit; i < n_line; i *= 2)
        memcpy(text + n + i, text + n, i < n_line - i ? i : n_line - i);
    strcpy(text + n + n_line, after);
    budget b = {.left = 1000, .most = 1 << 20};
    f8_diag diag;
    ck_assert_int_eq(parse_within(&b, text, total, &diag), F8_ERR_INPUT);
    char got[1200], rendered[4096];
    size_t length = f8_diag_render(&diag, text, total, rendered, sizeof rendered);
    place_and_text(&diag, got);
    ck_assert_str_eq(got, lines[_i].message);
    ck_assert_uint_lt(length, 1000);
    free(text);
}
END_TEST

static const struct {
    const char *before, *open, *inside, *close, *message;
} nests[] = {
    {"module t\ndim A = ", "(", "1", ")", "nested deeper than 200 levels"},
    {"module t\nparam w: f32[] normal(", "sqrt(", "1", ")", "nested deeper than 200 levels"},
    {"module t\n", "repeat i < 2 { ", "", "}", "'i' is already the variable of the repeat at 2:1"},
    {"module t\nfunc f(%x: f32[]) -> f32[] { return ", "abs(", "%x", ")",
     "nested deeper than 200 levels"},
    {"module t\nfunc f(%x: f32[]) -> f32[] { return ", "add(%x, ", "%x", ")",
     "nested deeper than 200 levels"},
    {"module t\nfunc f(%x: f32[]) -> f32[] { ", "repeat i < 0 { ", "", "}",
     "ends without a 'return'"},
};

START_TEST(nesting_10000_deep)
{
    enum { DEPTH = 10000 };
    char *text = calloc(DEPTH, 20);
    ck_assert(text);
    char *at = stpcpy(text, nests[_i].before);
    for (int i = 0; i < DEPTH; i++)
        at = stpcpy(at, nests[_i].open);
    at = stpcpy(at, nests[_i].inside);
    for (int i = 0; i < DEPTH; i++)
        at = stpcpy(at, nests[_i].close);
    strcpy(at, "}");
    parsed p;
    parse(&p, text);
    ck_assert_int_eq(p.status, F8_ERR_INPUT);
    ck_assert_msg(strstr(p.diag.text, nests[_i].message) != NULL, "%s", p.diag.text);
    f8_arena_end(&p.arena);
    free(text);
}
END_TEST

START_TEST(nested_repeats_are_bounded)
{
    char text[4096] = "module t\n";
    for (int i = 0; i < 40; i++)
        sprintf(text + strlen(text), "repeat v%d < 1 {", i);
    parsed p;
    parse(&p, text);
    ck_assert_msg(strstr(p.diag.text, "repeats are nested deeper than 32"), "%s", p.diag.text);
    f8_arena_end(&p.arena);
    parse(&p, "module t\nfunc f(%x: f32[]) -> f32[] {\n"
              "  repeat i < 2000000 carry %y = %x { %y = add(%y, (i)) }\n  return %y\n}\n");
    ck_assert_msg(strstr(p.diag.text, "more than 1000000 nodes"), "%s", p.diag.text);
    f8_arena_end(&p.arena);
}
END_TEST

START_TEST(memory_runs_out)
{
    size_t n;
    char *text = read_file("frontend/models/gpt2_124m.f8", &n);
    long needed = 0;
    f8_diag diag;
    for (long allowed = 0;; allowed++) {
        budget b = {.left = allowed, .most = SIZE_MAX};
        f8_status s = parse_within(&b, text, n, &diag);
        if (s == F8_OK)
            break;
        needed = allowed + 1;
        ck_assert_int_eq(s, F8_ERR_MEMORY);
        ck_assert_msg(strstr(diag.text, "bytes"), "%s", diag.text);
    }
    ck_assert_int_ge(needed, 3);
    free(text);
}
END_TEST

/* ---- good input ---- */

/* parse -> print -> parse -> print: the same text and the same graph. */
static void round_trip(const char *path, const parsed *p, bool exact)
{
    f8_diag diag = {0};
    ck_assert_msg(f8_verify(p->m, &diag) == F8_OK, "%s: %s", path, diag.text);
    rt_text first = rt_print(p->m);
    parsed again;
    parse_with(&again, first.text, first.n, "printed", NULL, 0);
    ck_assert_msg(again.status == F8_OK, "%s: printed text does not parse: %s", path,
                  again.message);
    ck_assert_msg(rt_same_module(p->m, again.m, exact), "%s: another graph after printing", path);
    rt_text second = rt_print(again.m);
    ck_assert_msg(first.n == second.n && !memcmp(first.text, second.text, first.n),
                  "%s: prints otherwise the second time", path);
    free(first.text);
    free(second.text);
    f8_arena_end(&again.arena);
}

static void golden_file(const char *path, char *text, size_t n)
{
    parsed p;
    parse_with(&p, text, n, path, NULL, 0);
    ck_assert_msg(p.status == F8_OK, "%s", p.message);
    round_trip(path, &p, true);
    rt_text want = {0}, got = rt_print(p.m);
    for (char *line = text; (line = strstr(line, "\n#>"));) {
        line += 3 + (line[3] == ' ');
        rt_write(&want, line, strcspn(line, "\n") + 1);
    }
    ck_assert_msg(want.text && !strcmp(want.text, got.text), "%s prints\n%s", path, got.text);
    free(want.text);
    free(got.text);
    f8_arena_end(&p.arena);
}

START_TEST(golden)
{
    ck_assert_int_ge(each_file("tests/golden", golden_file), 5);
}
END_TEST

static void model_file(const char *path, char *text, size_t n)
{
    parsed p;
    parse_with(&p, text, n, path, NULL, 0);
    ck_assert_msg(p.status == F8_OK, "%s", p.message);
    round_trip(path, &p, true);
    /* Every node knows where it comes from. */
    const f8_func *f = f8_module_find_func(p.m, "forward");
    ck_assert(f);
    for (f8_ref r = 1; r < f->graph->n_nodes; r++)
        ck_assert_msg(f->graph->loc[r].line > 5 && f->graph->loc[r].column > 2, "%s: node %u", path,
                      r);
    f8_arena_end(&p.arena);
}

START_TEST(models)
{
    ck_assert_int_ge(each_file("frontend/models", model_file), 3);
}
END_TEST

static int64_t count_parameters(const f8_module *m)
{
    int64_t total = 0;
    for (size_t i = 0; i < m->n_vars; i++)
        total += f8_type_elements(&m->var[i].type);
    return total;
}

/* The models of known sizes have them: tensors and parameters as published, where they are. */
static const struct {
    const char *file;
    f8_dim_override dim; /* name NULL: as it stands */
    uint32_t tensors;
    int64_t parameters;
} sizes[] = {
    {"frontend/models/gpt2_124m.f8", {0}, 148, 124439808},
    /* llm-foundry's scripts/train/benchmarking/README.md lists 125m at two lengths of positions. */
    {"frontend/models/mpt_125m.f8", {0}, 148, 125311488},
    {"frontend/models/mpt_125m.f8", {"T", 1024}, 148, 124525056},
    {"frontend/models/mpt_1b.f8", {0}, 292, 1315950592},
    /* Embedding, head, the last norm, and a block; with all 32 it is meta-llama/Meta-Llama-3-8B. */
    {"frontend/models/llama3_8b_block.f8", {0}, 12, 2 * 128256ll * 4096 + 4096 + 218112000},
    {"frontend/models/llama3_8b_block.f8", {"L", 32}, 291, 8030261248},
};
START_TEST(models_have_their_sizes)
{
    size_t n;
    char *text = read_file(sizes[_i].file, &n);
    parsed p;
    parse_with(&p, text, n, sizes[_i].file, &sizes[_i].dim, sizes[_i].dim.name != NULL);
    ck_assert_msg(p.m != NULL, "%s", p.message);
    ck_assert_uint_eq(p.m->n_vars, sizes[_i].tensors);
    ck_assert_int_eq(count_parameters(p.m), sizes[_i].parameters);
    f8_arena_end(&p.arena);
    free(text);
}
END_TEST

START_TEST(gpt2_is_gpt2)
{
    size_t n;
    char *text = read_file("frontend/models/gpt2_124m.f8", &n);
    parsed p;
    parse_with(&p, text, n, "gpt2_124m.f8", NULL, 0);
    static const struct {
        const char *name;
        int64_t rows, columns; /* columns 0: a vector */
    } some[] = {{"wte.weight", 50257, 768},
                {"wpe.weight", 1024, 768},
                {"h.0.attn.c_attn.weight", 768, 2304},
                {"h.11.attn.c_proj.weight", 768, 768},
                {"h.5.mlp.c_fc.weight", 768, 3072},
                {"h.5.mlp.c_proj.weight", 3072, 768},
                {"h.11.ln_2.bias", 768, 0},
                {"ln_f.weight", 768, 0}};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        int32_t v = f8_module_find_var(p.m, some[i].name);
        ck_assert_msg(v >= 0, "%s", some[i].name);
        const f8_type *t = &p.m->var[v].type;
        ck_assert_int_eq(t->dim[0], some[i].rows);
        ck_assert_int_eq(t->rank, some[i].columns ? 2 : 1);
        ck_assert(!some[i].columns || t->dim[1] == some[i].columns);
    }
    const f8_var *proj = &p.m->var[f8_module_find_var(p.m, "h.3.mlp.c_proj.weight")];
    ck_assert(proj->init == F8_INIT_NORMAL && proj->init_arg > 0.00408 && proj->init_arg < 0.00409);
    f8_arena_end(&p.arena);
    free(text);
}
END_TEST

START_TEST(linear_names)
{
    size_t n;
    char *text = read_file("frontend/models/gpt.f8", &n), name[64], all[2048] = "";
    parsed p;
    f8_dim_override d = {"L", 1};
    parse_with(&p, text, n, "gpt.f8", &d, 1);
    ck_assert_msg(p.status == F8_OK, "%s", p.message);
    const f8_func *f = &p.m->func[0];
    for (f8_ref r = 1; r < f->graph->n_nodes; r++)
        if (f8_linear_name(f, r, name, sizeof name))
            sprintf(all + strlen(all), "%s ", name);
    ck_assert_str_eq(all, "h.0.attn.c_attn h.0.attn.c_proj h.0.mlp.c_fc h.0.mlp.c_proj lm_head ");
    f8_arena_end(&p.arena);
    free(text);
}
END_TEST

/* What the README shows is the language. */
START_TEST(readme_example)
{
    size_t n;
    char *text = read_file("frontend/text/README.md", &n);
    char *from = strstr(text, "```\nmodule "), *to = from ? strstr(from + 4, "```") : NULL;
    ck_assert(to != NULL);
    parsed p;
    parse_with(&p, from + 4, (size_t)(to - from) - 4, "README.md", NULL, 0);
    ck_assert_msg(p.status == F8_OK, "%s", p.message);
    round_trip("README.md", &p, true);
    f8_arena_end(&p.arena);
    free(text);
}
END_TEST

START_TEST(overrides)
{
    const char *text = "module t\ndim B, T = 8, C = 2 * T\nparam w: f32[B, T, C] zeros\n";
    f8_dim_override d[] = {{"B", 3}, {"T", 5}, {"B", 4}};
    parsed p;
    parse_with(&p, text, strlen(text), "t.f8", d, 3);
    ck_assert_msg(p.status == F8_OK, "%s", p.message);
    ck_assert_int_eq(p.m->var[0].type.dim[0], 4);
    ck_assert_int_eq(p.m->var[0].type.dim[1], 5);
    ck_assert_int_eq(p.m->var[0].type.dim[2], 10);
    f8_arena_end(&p.arena);
}
END_TEST

/* The same text with any byte changed, dropped or the end cut off: a message or a module that
 * prints and parses again, and never anything else. Seeded; the fuzz target goes further. */
START_TEST(mutations)
{
    size_t n;
    char *text = read_file("frontend/models/llama_block.f8", &n), *copy = malloc(n);
    const char spice[] = "{}()[],.%#\"<->=+*/ \n0179lLx\\\t";
    uint64_t seed = 12345;
    ck_assert(copy);
    for (int i = 0; i < 3000; i++) {
        size_t length = n;
        memcpy(copy, text, n);
        for (int k = 0; k < 1 + i % 3; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t at = (size_t)(seed >> 33) % length;
            if (seed >> 60 == 0)
                length = at ? at : 1;
            else
                copy[at] = spice[(seed >> 20) % (sizeof spice - 1)];
        }
        parsed p;
        parse_with(&p, copy, length, "mutated", NULL, 0);
        if (p.status == F8_OK)
            round_trip("mutated", &p, false);
        f8_arena_end(&p.arena);
    }
    free(copy);
    free(text);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("parse");
    TCase *bad = tcase_create("bad"), *good = tcase_create("good");
    tcase_set_timeout(bad, 120);
    tcase_set_timeout(good, 120);
    tcase_add_test(bad, bad_input);
    tcase_add_test(bad, rendering);
    tcase_add_loop_test(bad, line_of_100_megabytes, 0, sizeof lines / sizeof *lines);
    tcase_add_loop_test(bad, nesting_10000_deep, 0, sizeof nests / sizeof *nests);
    tcase_add_test(bad, nested_repeats_are_bounded);
    tcase_add_test(bad, memory_runs_out);
    tcase_add_test(good, golden);
    tcase_add_test(good, models);
    tcase_add_loop_test(good, models_have_their_sizes, 0, sizeof sizes / sizeof *sizes);
    tcase_add_test(good, gpt2_is_gpt2);
    tcase_add_test(good, linear_names);
    tcase_add_test(good, readme_example);
    tcase_add_test(good, overrides);
    tcase_add_test(good, mutations);
    suite_add_tcase(s, bad);
    suite_add_tcase(s, good);
    return s;
}
