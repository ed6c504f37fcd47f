/* .f8x files that are damaged, made to do harm, or of another version or CPU. Each is refused with
 * a message, and no memory is lost. The test runs none of their code. */
#include "frontend/fp8c_diagnose.h"
#include "frontend/f8x/parts.h"
#include "frontend/program.h"
#include "tests/shared/api/package_case.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

/* ---- damage ---- */

static uint8_t *tiny_file(size_t *n)
{
    fp8c_module *m = parse(ctx, model);
    const fp8c_compile_options o = recipe("delayed");
    const char *path = f8_cli_temp("tiny.f8x");
    ck_assert_msg(fp8c_compile_file(m, &o, 1, path) == FP8C_OK, "%s", fp8c_context_message(ctx));
    uint8_t *bytes = (uint8_t *)f8_cli_read(path, n);
    fp8c_module_destroy(m);
    return bytes;
}

/* Of the whole. */
static int read_reports(fp8c_program *p)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_remat remat = {.struct_size = sizeof remat};
    fp8c_variable v;
    fp8c_decision d;
    fp8c_stored stored;
    fp8c_kernel kernel;
    fp8c_pass pass;
    int n = 0;
    fp8c_program_info(p, &info);
    fp8c_program_remat(p, 0, 0, &remat);
    for (int i = 0; fp8c_program_variable(p, i, &v) == FP8C_OK; i++)
        for (int64_t k = 0; fp8c_program_element(p, i, k, 0); k++) {
            const char *name = fp8c_program_element(p, i, k, 0);
            for (int alias = 0; name; name = fp8c_program_element(p, i, k, alias++ + 1))
                n += (int)strlen(name);
        }
    for (int i = 0; fp8c_program_decision(p, i, &d) == FP8C_OK; i++)
        n += (int)strlen(d.linear) + (int)strlen(d.reason);
    for (int i = 0; fp8c_program_stored(p, i, &stored) == FP8C_OK; i++)
        n += (int)strlen(stored.recipe);
    for (int i = 0; fp8c_program_kernel(p, i, &kernel) == FP8C_OK; i++)
        n += (int)strlen(kernel.name);
    for (int i = 0; fp8c_program_pass(p, i, &pass) == FP8C_OK; i++)
        n += (int)strlen(pass.name);
    return n;
}

/* Everything that can be asked of a program, so that a sanitizer sees it touched. */
static int read_all(fp8c_program *p)
{
    int n = read_reports(p);
    for (int f = 0; fp8c_program_function_name(p, f); f++) {
        fp8c_port port;
        fp8c_step step;
        fp8c_peak peak;
        fp8c_memory memory;
        fp8c_tensor tensor;
        for (int side = 0; side < 2; side++)
            for (int i = 0; fp8c_program_port(p, f, (fp8c_side)side, i, &port) == FP8C_OK; i++)
                n += (int)strlen(port.name) + (int)fp8c_type_bytes(&port.type);
        for (int i = 0; fp8c_program_step(p, f, i, &step) == FP8C_OK; i++)
            n += (int)strlen(step.name) + (step.algorithm ? (int)strlen(step.algorithm) : 0);
        fp8c_program_peak(p, f, &peak);
        for (int i = 0; fp8c_program_memory(p, f, i, &memory) == FP8C_OK; i++)
            n += (int)strlen(memory.category);
        for (int i = 0; fp8c_program_tensor(p, f, i, &tensor) == FP8C_OK; i++)
            n += (int)strlen(tensor.name) + (int)strlen(tensor.category);
    }
    return n;
}

static fp8c_status open_bytes(fp8c_context *with, const void *bytes, size_t n, fp8c_program **out)
{
    const fp8c_open_options o = {.struct_size = sizeof o, .bytes = bytes, .n_bytes = n};
    return fp8c_program_open(with, NULL, &o, out);
}

static fp8c_status look_at(const void *bytes, size_t n)
{
    const fp8c_open_options o = {
        .struct_size = sizeof o, .no_device = 1, .bytes = bytes, .n_bytes = n};
    fp8c_program *p;
    const fp8c_status status = fp8c_program_open(ctx, NULL, &o, &p);
    if (status == FP8C_OK)
        ck_assert_int_ne(read_all(p), -1);
    fp8c_program_destroy(p);
    if (status != FP8C_OK)
        ck_assert_msg(!strncmp(fp8c_context_message(ctx), "error: ", 7), "%s",
                      fp8c_context_message(ctx));
    return status;
}

START_TEST(truncated)
{
    size_t n;
    uint8_t *bytes = tiny_file(&n);
    ck_assert_int_eq(look_at(bytes, n), FP8C_OK);
    for (size_t k = 0; k < n; k += k < 512 || k > n - 64 ? 1 : 509) {
        ck_assert_msg(look_at(bytes, k) == FP8C_ERR_INPUT, "%zu bytes of %zu are taken", k, n);
        said(ctx, k < 8 ? "not a .f8x file" : "damaged");
    }
    uint8_t *more = calloc(1, n + 100);
    memcpy(more, bytes, n);
    for (size_t k = 1; k <= 100; k += 33) {
        ck_assert_int_eq(look_at(more, n + k), FP8C_ERR_INPUT);
        said(ctx, "damaged: it has");
    }
    free(more);
    free(bytes);
}
END_TEST

START_TEST(flipped_header)
{
    size_t n;
    uint8_t *bytes = tiny_file(&n);
    for (size_t i = 0; i < F8_PACKAGE_HEADER; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1 << bit);
            ck_assert_msg(look_at(bytes, n) == FP8C_ERR_INPUT, "bit %d of byte %zu", bit, i);
            bytes[i] ^= (uint8_t)(1 << bit);
        }
    ck_assert_int_eq(look_at(bytes, n), FP8C_OK);
    free(bytes);
}
END_TEST

START_TEST(flipped_anywhere)
{
    const int flips = f8_cli_sanitized() ? 1000 : 10000;
    size_t n;
    uint32_t seed = 2026;
    uint8_t *bytes = tiny_file(&n);
    printf("seed %u, %zu bytes\n", seed, n);
    for (int i = 0; i < flips; i++) {
        const uint32_t r = test_random(&seed);
        const size_t at = test_random(&seed) % n;
        bytes[at] ^= (uint8_t)(1 << r % 8);
        ck_assert_msg(look_at(bytes, n) == FP8C_ERR_INPUT, "bit %u of byte %zu", r % 8, at);
        bytes[at] ^= (uint8_t)(1 << r % 8);
    }
    ck_assert_int_eq(look_at(bytes, n), FP8C_OK);
    free(bytes);
}
END_TEST

/* The same with checksums that fit: a file made to do harm. Said, or taken and reported on; never a
 * crash. */
START_TEST(sealed)
{
    const int rounds = f8_cli_sanitized() ? 1000 : 3000;
    size_t n;
    uint32_t seed = 7;
    uint8_t *bytes = tiny_file(&n), *bad = malloc(n);
    int refused = 0;
    printf("seed %u\n", seed);
    for (int i = 0; i < rounds; i++) {
        memcpy(bad, bytes, n);
        /* constants and code, the pages at the end, are all the same to whoever only looks */
        for (uint32_t k = 1 + test_random(&seed) % 3; k > 0; k--)
            bad[F8_PACKAGE_HEADER + test_random(&seed) % (n - F8_PACKAGE_HEADER)] =
                (uint8_t)test_random(&seed);
        f8_package_seal(bad, n);
        const fp8c_status status = look_at(bad, n);
        ck_assert(status == FP8C_OK || status == FP8C_ERR_INPUT || status == FP8C_ERR_UNSUPPORTED);
        refused += status != FP8C_OK;
    }
    printf("%d of %d refused\n", refused, rounds);
    ck_assert_int_gt(refused, 0);
    free(bad);
    free(bytes);
}
END_TEST

/* ---- another version, another CPU ---- */

static void put32(uint8_t *at, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(x >> 8 * i);
}

START_TEST(versions)
{
    enum { FORMAT = 8, PLAN = 12, VERSION = 16 };
    size_t n;
    char words[64];
    uint8_t *bytes = tiny_file(&n), *other = malloc(n);
    static const int at[] = {FORMAT, PLAN};
    for (int i = 0; i < 2; i++) {
        memcpy(other, bytes, n);
        put32(other + at[i], 77);
        f8_package_seal(other, n);
        ck_assert_int_eq(look_at(other, n), FP8C_ERR_UNSUPPORTED);
        said(ctx, "77");
    }
    memcpy(other, bytes, n);
    memcpy(other + VERSION, "99.8.7", 7);
    f8_package_seal(other, n);
    ck_assert_int_eq(look_at(other, n), FP8C_ERR_UNSUPPORTED);
    said(ctx, "the file is of fp8c 99.8.7 (format ");
    snprintf(words, sizeof words, "this is fp8c %s (format ", fp8c_version());
    said(ctx, words);
    free(other);
    free(bytes);
}
END_TEST

typedef struct memory {
    uint8_t *bytes;
    size_t n;
} memory;

static f8_status put(void *user, const void *bytes, size_t n)
{
    memory *m = user;
    m->bytes = realloc(m->bytes, m->n + n);
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
    return F8_OK;
}

/* The tiny file, needing what no CPU has all of: AMD's and Intel's own. */
START_TEST(another_cpu)
{
    size_t n;
    uint8_t *bytes = tiny_file(&n),
            *page = aligned_alloc(F8_PACKAGE_PAGE, (n + 4095) / 4096 * 4096);
    f8_arena arena;
    f8_package package;
    f8_plan plan;
    f8_compile_report report;
    f8_diag d = {0};
    char name[F8_CPU_NAME];
    memory out = {0};
    const f8_allocator allocator = f8_default_allocator();
    memcpy(page, bytes, n);
    f8_arena_init(&arena, NULL);
    ck_assert_msg(f8_package_open(page, n, fp8c_version(), &arena, &package, &d) == F8_OK, "%s",
                  d.text);
    ck_assert_int_eq(f8_package_load(&package, &package.program[0], 0, &arena, &plan, &report, &d),
                     F8_OK);
    package.program[0].variant[0].plan = &plan;
    package.program[0].variant[0].report = &report;
    /* Written again unchanged it is the same file. */
    ck_assert_int_eq(f8_package_write(&package, &allocator, put, &out, &d), F8_OK);
    ck_assert(out.n == n && !memcmp(out.bytes, bytes, n));
    out.n = 0;
    ck_assert(f8_cpu_add(&package.program[0].needs, "xop") &&
              f8_cpu_add(&package.program[0].needs, "amx-complex"));
    ck_assert_int_eq(f8_package_write(&package, &allocator, put, &out, &d), F8_OK);
    fp8c_program *p;
    ck_assert_int_eq(open_bytes(ctx, out.bytes, out.n, &p), FP8C_ERR_UNSUPPORTED);
    said(ctx, "code for cpu needs ");
    said(ctx, "xop");
    said(ctx, f8_cpu_name(name));
    ck_assert_ptr_null(p);
    ck_assert_int_eq(look_at(out.bytes, out.n), FP8C_OK); /* without running it */
    free(out.bytes);
    free(page);
    free(bytes);
    f8_arena_end(&arena);
}
END_TEST

static const char two[] =
    "module two\n"
    "dim B <= 2\n"
    "param fc.weight: f32[32, 32] normal(0.1)\n"
    "func forward(%x: f32[B, 32]) -> (%loss: f32[]) {\n"
    "  return reshape(reduce_sum(reshape(linear(%x, fc.weight)) {shape = [B*32]})) "
    "{shape = []}\n"
    "}\n"
    "optimizer adamw {lr = 0.05}\n";

/* Names reach terminals: a file can't hold one that would drive it, whoever made the file. */
START_TEST(control_characters)
{
    static const char harmless[] = "fc.weight";
    char text[sizeof two + 32];
    size_t n;
    snprintf(text, sizeof text, "%.*s {name = \"\x1b]0;fc\x07\"}%s",
             (int)(strstr(two, "fc.weight)) {") + 10 - two), two,
             strstr(two, "fc.weight)) {") + 10);
    fp8c_module *m = parse(ctx, text);
    const fp8c_compile_options o = recipe("bf16");
    ck_assert_int_eq(fp8c_compile_file(m, &o, 1, f8_cli_temp("names.f8x")), FP8C_ERR_UNSUPPORTED);
    said(ctx, "a name has a control character or is not UTF-8, so it can't be stored in a file");
    fp8c_module_destroy(m);
    uint8_t *bytes = tiny_file(&n), *at = memmem(bytes, n, harmless, sizeof harmless - 1);
    ck_assert_ptr_nonnull(at);
    *at = 0x1b;
    f8_package_seal(bytes, n);
    ck_assert_int_eq(look_at(bytes, n), FP8C_ERR_INPUT);
    said(ctx, "a text has a control character or is not UTF-8");
    free(bytes);
}
END_TEST

/* A file made to do harm: an axis that tells a value, of a port that has no such axis. The caller's
 * shape is not read beyond its end. */
START_TEST(other_axes)
{
    fp8c_module *m = parse(ctx, two);
    f8_diag d = {0};
    memory out = {0};
    const f8_allocator allocator = f8_default_allocator();
    const fp8c_compile_options o = recipe("bf16");
    fp8c_program *from = compile(ctx, m, &o), *p;
    int64_t value = 2, shape[8] = {2, 32, 1, 1, 1, 1, 1, 1};
    f8_package_variant v = {
        .value = &value, .n_values = 1, .plan = &from->now->plan, .report = &from->now->report};
    const fp8c_tensor_view view = {.shape = shape, .ndim = 2}, *const given = &view;
    ck_assert_int_eq(from->bounds.n_axes, 1);
    for (int32_t axis = 0; axis <= F8_MAX_RANK; axis++) {
        f8_bound_axis a = from->bounds.axis[0];
        a.axis = axis;
        f8_package_program program = {.target = "cpu",
                                      .dim = from->bounds.bound,
                                      .n_dims = 1,
                                      .axis = &a,
                                      .n_axes = 1,
                                      .variant = &v,
                                      .n_variants = 1};
        const f8_package package = {
            .program = &program, .n_programs = 1, .version = fp8c_version()};
        out.n = 0;
        ck_assert_int_eq(f8_package_write(&package, &allocator, put, &out, &d), F8_OK);
        const fp8c_status status = open_bytes(ctx, out.bytes, out.n, &p);
        ck_assert_int_eq(status, axis < F8_MAX_RANK ? FP8C_OK : FP8C_ERR_INPUT);
        if (status != FP8C_OK)
            continue;
        /* The size of axis 1 is 32, which is no value of the dim. The number stored after the shape
         * is 1, which would be one. */
        ck_assert_int_eq(fp8c_program_fit(p, 0, &given, 1), axis == 1 ? FP8C_ERR_INPUT : FP8C_OK);
        fp8c_program_destroy(p);
    }
    free(out.bytes);
    fp8c_program_destroy(from);
    fp8c_module_destroy(m);
}
END_TEST

/* A file made to do harm: elements that their variable does not have, and other names of such. */
START_TEST(other_elements)
{
    fp8c_module *m = parse(ctx, two);
    f8_diag d = {0};
    memory out = {0};
    const f8_allocator allocator = f8_default_allocator();
    const fp8c_compile_options o = recipe("delayed");
    fp8c_program *from = compile(ctx, m, &o), *p;
    f8_compile_report report = from->now->report;
    f8_elements *e = F8_NEW_ARRAY(&from->arena, f8_elements, report.n_elements);
    ck_assert_int_eq(report.n_elements, 3);
    for (int i = 0; i < 5; i++) {
        f8_element_alias alias = {i == 3 ? e->n : 1, "fc.y"};
        memcpy(e, report.elements, report.n_elements * sizeof *e);
        ck_assert_int_ge(e->n, 3);
        if (i > 2) {
            e[1].alias = &alias;
            e[1].n_aliases = 1;
        }
        e[2].n -= i == 1;
        e[0].var = i == 2 ? fp8c_program_find_variable(from, "opt.step") : e[0].var;
        f8_compile_report other = report;
        other.elements = e;
        int64_t value = 2;
        f8_package_variant v = {
            .value = &value, .n_values = 1, .plan = &from->now->plan, .report = &other};
        f8_package_program program = {.target = "cpu",
                                      .dim = from->bounds.bound,
                                      .n_dims = 1,
                                      .variant = &v,
                                      .n_variants = 1};
        const f8_package package = {
            .program = &program, .n_programs = 1, .version = fp8c_version()};
        out.n = 0;
        ck_assert_int_eq(f8_package_write(&package, &allocator, put, &out, &d), F8_OK);
        const bool wrong = i > 0 && i < 4;
        ck_assert_msg(open_bytes(ctx, out.bytes, out.n, &p) == (wrong ? FP8C_ERR_INPUT : FP8C_OK),
                      "%d: %s", i, fp8c_context_message(ctx));
        if (wrong)
            said(ctx, i == 3 ? "it has another name of an element that does not exist"
                             : "the compile report names elements that a variable does not have");
        else
            fp8c_program_destroy(p);
    }
    free(out.bytes);
    fp8c_program_destroy(from);
    fp8c_module_destroy(m);
}
END_TEST

/* A file made to do harm: a plan for another value that has other variables than the first's, whose
 * memory it would share. */
START_TEST(other_variables)
{
    fp8c_module *m = parse(ctx, two);
    fp8c_program *p;
    f8_diag d = {0};
    memory out = {0};
    const f8_allocator allocator = f8_default_allocator();
    const fp8c_compile_options o[2] = {
        recipe("bf16"), {.struct_size = sizeof o[0], .recipe = "bf16", .inference = 1}};
    fp8c_program *const of[2] = {compile(ctx, m, &o[0]), compile(ctx, m, &o[1])};
    int64_t values[] = {2, 1};
    f8_package_variant v[2] = {0};
    for (int honest = 1; honest >= 0; honest--) {
        for (int i = 0; i < 2; i++) {
            const f8_variant *from = of[honest ? 0 : i]->now;
            v[i] = (f8_package_variant){
                .value = &values[i], .n_values = 1, .plan = &from->plan, .report = &from->report};
        }
        const f8_bounds *b = &of[0]->bounds;
        f8_package_program program = {.target = "cpu",
                                      .dim = b->bound,
                                      .n_dims = (uint32_t)b->n,
                                      .axis = b->axis,
                                      .n_axes = (uint32_t)b->n_axes,
                                      .variant = v,
                                      .n_variants = 2};
        const f8_package package = {
            .program = &program, .n_programs = 1, .version = fp8c_version()};
        out.n = 0;
        ck_assert_int_eq(f8_package_write(&package, &allocator, put, &out, &d), F8_OK);
        ck_assert_msg(open_bytes(ctx, out.bytes, out.n, &p) == FP8C_OK, "%s",
                      fp8c_context_message(ctx));
        const fp8c_status status = fp8c_program_set_dim(p, "B", 1);
        ck_assert_int_eq(status, honest ? FP8C_OK : FP8C_ERR_INPUT);
        if (!honest)
            said(ctx, "do not have the same variables");
        fp8c_program_destroy(p);
    }
    free(out.bytes);
    fp8c_program_destroy(of[0]);
    fp8c_program_destroy(of[1]);
    fp8c_module_destroy(m);
}
END_TEST

/* Every allocation of opening a file may fail, and nothing is lost. */
START_TEST(memory_fails)
{
    size_t n;
    uint8_t *bytes = tiny_file(&n);
    long fail_at = 1;
    for (;; fail_at++) {
        counting c = {.fail_at = fail_at};
        const fp8c_context_options o = counted_options(&c);
        fp8c_context *own;
        if (fp8c_context_create(&o, &own) != FP8C_OK) {
            ck_assert_int_eq(c.live, 0);
            continue;
        }
        fp8c_program *p;
        const fp8c_status status = open_bytes(own, bytes, n, &p);
        ck_assert(status == FP8C_OK || status == FP8C_ERR_MEMORY);
        fp8c_program_destroy(p);
        fp8c_context_destroy(own);
        ck_assert_int_eq(c.live, 0);
        ck_assert_int_eq(c.bytes, 0);
        if (status == FP8C_OK)
            break;
    }
    printf("%ld allocations\n", fail_at - 1);
    ck_assert_int_gt(fail_at, 10);
    free(bytes);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("package damage");
    TCase *t = tcase_create("package damage");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, truncated);
    tcase_add_test(t, flipped_header);
    tcase_add_test(t, flipped_anywhere);
    tcase_add_test(t, sealed);
    tcase_add_test(t, versions);
    tcase_add_test(t, another_cpu);
    tcase_add_test(t, control_characters);
    tcase_add_test(t, other_axes);
    tcase_add_test(t, other_elements);
    tcase_add_test(t, other_variables);
    tcase_add_test(t, memory_fails);
    suite_add_tcase(s, t);
    return s;
}
