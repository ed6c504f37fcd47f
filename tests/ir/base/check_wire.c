/* Structs as bytes. What is written is read back, and its bytes are fixed. No input makes the
 * reader go beyond it, or ask for more memory than its size justifies. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/wire.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

typedef struct point {
    int32_t x;
    const char *label;
} point;

typedef struct everything {
    uint8_t a;
    uint16_t b;
    uint32_t c;
    uint64_t d;
    int32_t e;
    int64_t f;
    float g;
    double h;
    bool i;
    enum { RED, GREEN, BLUE } colour;
    const char *none, *empty, *text;
    f8_type type;
    point *points;
    uint32_t n_points;
    int64_t *numbers;
    size_t n_numbers;
} everything;

static void wire_point(f8_wire *w, void *element)
{
    point *p = element;
    f8_wire_i32(w, &p->x);
    f8_wire_text(w, &p->label);
}

static void wire(f8_wire *w, everything *x)
{
    f8_wire_u8(w, &x->a);
    f8_wire_u16(w, &x->b);
    f8_wire_u32(w, &x->c);
    f8_wire_u64(w, &x->d);
    f8_wire_i32(w, &x->e);
    f8_wire_i64(w, &x->f);
    f8_wire_f32(w, &x->g);
    f8_wire_f64(w, &x->h);
    f8_wire_bool(w, &x->i);
    F8_WIRE_ENUM(w, x->colour, BLUE + 1);
    f8_wire_text(w, &x->none);
    f8_wire_name(w, &x->empty);
    f8_wire_name(w, &x->text);
    f8_wire_type(w, &x->type);
    F8_WIRE_ARRAY(w, x->points, x->n_points, wire_point);
    F8_WIRE_ARRAY(w, x->numbers, x->n_numbers, f8_wire_i64s);
}

static point points[] = {{-1, "a"}, {2147483647, NULL}, {0, ""}};
static int64_t numbers[] = {INT64_MIN, 0, INT64_MAX};
static everything sample(void)
{
    return (everything){.a = 255,
                        .b = 65535,
                        .c = 0x80000001u,
                        .d = UINT64_MAX - 1,
                        .e = INT32_MIN,
                        .f = -2,
                        .g = -0.0f,
                        .h = 1e-310,
                        .i = true,
                        .colour = BLUE,
                        .empty = "",
                        .text = "text",
                        .type = {.dtype = F8_E8M0, .rank = 8, .dim = {1, 2, 3, 4, 5, 6, 7, 8}},
                        .points = points,
                        .n_points = 3,
                        .numbers = numbers,
                        .n_numbers = 3};
}

static f8_arena arena;

static void setup(void)
{
    f8_arena_init(&arena, NULL);
}

static void teardown(void)
{
    f8_arena_end(&arena);
}

START_TEST(round_trip)
{
    everything x = sample(), y = {0};
    f8_wire w, r;
    f8_diag d = {0};
    f8_wire_begin_write(&w, &arena);
    wire(&w, &x);
    f8_wire_begin_read(&r, w.bytes, w.size, &arena, "all");
    wire(&r, &y);
    ck_assert_msg(f8_wire_end(&r, &d) == F8_OK, "%s", d.text);
    ck_assert(y.a == x.a && y.b == x.b && y.c == x.c && y.d == x.d && y.e == x.e && y.f == x.f &&
              y.i && y.colour == BLUE);
    ck_assert(!memcmp(&y.g, &x.g, sizeof x.g) && !memcmp(&y.h, &x.h, sizeof x.h));
    ck_assert_ptr_null(y.none);
    ck_assert_str_eq(y.empty, "");
    ck_assert_str_eq(y.text, "text");
    ck_assert(f8_type_equal(&x.type, &y.type));
    ck_assert_uint_eq(y.n_points, 3);
    ck_assert(y.points[0].x == -1 && !strcmp(y.points[0].label, "a") &&
              y.points[1].x == INT32_MAX && !y.points[1].label && !strcmp(y.points[2].label, ""));
    ck_assert(y.n_numbers == 3 && !memcmp(y.numbers, numbers, sizeof numbers));
    f8_wire again;
    f8_wire_begin_write(&again, &arena);
    wire(&again, &y);
    ck_assert(again.size == w.size && !memcmp(again.bytes, w.bytes, w.size));
}
END_TEST

/* Files are read by other builds: these bytes stay. */
START_TEST(fixed_bytes)
{
    static const uint8_t want[] = {0x01, 0x02, 0x03, 0x04, 3, 0, 0, 0, 'a', 'b', 'c',
                                   0xff, 0xff, 0xff, 0xff, 1, 1, 0, 0, 0,   0,   0,
                                   0,    0,    9,    0,    0, 0, 0, 0, 0,   0};
    f8_wire w;
    uint32_t a = 0x04030201;
    const char *text = "abc", *none = NULL;
    bool yes = true;
    int64_t nine = 9, *list = &nine;
    size_t n = 1;
    f8_wire_begin_write(&w, &arena);
    f8_wire_u32(&w, &a);
    f8_wire_text(&w, &text);
    f8_wire_text(&w, &none);
    f8_wire_bool(&w, &yes);
    F8_WIRE_ARRAY(&w, list, n, f8_wire_i64s);
    ck_assert_uint_eq(w.size, sizeof want);
    ck_assert_mem_eq(w.bytes, want, sizeof want);
}
END_TEST

/* However short, it is refused, and what was read is harmless. */
START_TEST(truncated)
{
    everything x = sample();
    f8_wire w;
    f8_wire_begin_write(&w, &arena);
    wire(&w, &x);
    for (size_t n = 0; n <= w.size + 1; n++) {
        uint8_t *bytes = malloc(n + 1); /* exact, for the sanitizer */
        memcpy(bytes, w.bytes, n < w.size ? n : w.size);
        bytes[n] = 0;
        everything y = {0};
        f8_wire r;
        f8_diag d = {0};
        f8_wire_begin_read(&r, bytes, n, &arena, "all");
        wire(&r, &y);
        const f8_status status = f8_wire_end(&r, &d);
        ck_assert_int_eq(status, n == w.size ? F8_OK : F8_ERR_INPUT);
        if (status != F8_OK)
            ck_assert_msg(!strncmp(d.text, "all: ", 5), "%s", d.text);
        ck_assert(y.text && y.empty);
        free(bytes);
    }
}
END_TEST

static f8_status read_as(const uint8_t *bytes, size_t n, void (*field)(f8_wire *), f8_diag *d)
{
    f8_wire r;
    f8_arena small;
    *d = (f8_diag){0};
    f8_arena_init(&small, NULL);
    f8_wire_begin_read(&r, bytes, n, &small, "it");
    field(&r);
    const f8_status status = f8_wire_end(&r, d);
    f8_arena_end(&small);
    return status;
}

static void a_bool(f8_wire *w)
{
    bool b = false;
    f8_wire_bool(w, &b);
}

static void a_size(f8_wire *w)
{
    int64_t n = 0;
    f8_wire_size(w, &n);
    ck_assert_int_ge(n, 0);
}

/* What could not be read is not written either. */
START_TEST(unwritable)
{
    static const char *const bad[] = {"\x1b[31m", "a\n",  "\x7f",
                                      "\xc2\x80", "\xff", "\xed\xa0\x80"},
                             *const good[] = {"", "a b~", "\xc3\xa4", "\xc2\xa0",
                                              "\xf0\x9f\x98\x80"};
    f8_wire w;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const char *s = good[i];
        f8_wire_begin_write(&w, &arena);
        f8_wire_text(&w, &s);
        ck_assert_int_eq(f8_wire_end(&w, NULL), F8_OK);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f8_diag d = {0};
        const char *s = bad[i];
        f8_wire_begin_write(&w, &arena);
        f8_wire_name(&w, &s);
        ck_assert_int_eq(f8_wire_end(&w, &d), F8_ERR_UNSUPPORTED);
        ck_assert_str_eq(
            d.text,
            "a name has a control character or is not UTF-8, so it can't be stored in a file");
    }
}
END_TEST

static void a_text(f8_wire *w)
{
    const char *s = NULL;
    f8_wire_name(w, &s);
    ck_assert_ptr_nonnull(s);
}

static void a_type(f8_wire *w)
{
    f8_type t = {0};
    f8_wire_type(w, &t);
    ck_assert_int_ge(f8_type_bytes(&t), 0);
}

static void an_array(f8_wire *w)
{
    point *p = NULL;
    uint32_t n = 0;
    F8_WIRE_ARRAY(w, p, n, wire_point);
    ck_assert(n == 0 || p);
}

#define FF4 0xff, 0xff, 0xff, 0xff
START_TEST(refused)
{
    static const struct {
        uint8_t bytes[24];
        size_t n;
        void (*field)(f8_wire *);
        const char *says;
    } bad[] = {
        {{2}, 1, a_bool, "a value that is not defined"},
        {{0, 0, 0, 0, 0, 0, 0, 0x80}, 8, a_size, "negative"},
        {{FF4}, 4, a_text, "a name is missing"},
        {{0xfe, 0xff, 0xff, 0xff}, 4, a_text, "a text has a negative length"},
        {{5, 0, 0, 0, 'a'}, 5, a_text, "ends too early"},
        {{0xff, 0xff, 0xff, 0x7f}, 4, a_text, "ends too early"},
        {{2, 0, 0, 0, 'a', 0}, 6, a_text, "NUL"},
        {{2, 0, 0, 0, 'a', 0x1b}, 6, a_text, "a control character"},
        {{1, 0, 0, 0, '\n'}, 5, a_text, "a control character"},
        {{1, 0, 0, 0, 0x7f}, 5, a_text, "a control character"},
        {{2, 0, 0, 0, 0xc2, 0x9b}, 6, a_text, "a control character"}, /* U+009B, CSI */
        {{2, 0, 0, 0, 0xc0, 0x80}, 6, a_text, "not UTF-8"},
        {{1, 0, 0, 0, 0xc3}, 5, a_text, "not UTF-8"},
        {{99, 0}, 2, a_type, "a value that is not defined"},
        {{0, F8_MAX_RANK + 1}, 2, a_type, "a value that is not defined"},
        {{0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 10, a_type, "not positive"},
        {{0, 1, FF4, FF4}, 10, a_type, "not positive"},
        {{0, 1, FF4, 0xff, 0xff, 0xff, 0x7f}, 10, a_type, "too large"},
        {{FF4, FF4}, 8, an_array, "longer than the bytes left"},
        {{2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, FF4}, 16, an_array, "longer than the bytes left"},
        {{0, 0, 0, 0, 0, 0, 0, 0, 7}, 9, an_array, "1 bytes follow its end"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f8_diag d;
        ck_assert_int_eq(read_as(bad[i].bytes, bad[i].n, bad[i].field, &d), F8_ERR_INPUT);
        ck_assert_msg(strstr(d.text, bad[i].says) != NULL, "%zu: '%s' does not say '%s'", i, d.text,
                      bad[i].says);
    }
}
END_TEST

/* Memory that reading takes stays in proportion to the bytes, whatever they say. */
static size_t taken;

static void *count_alloc(void *user, size_t size, size_t align)
{
    (void)user;
    taken += size;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void count_free(void *user, void *p, size_t size)
{
    (void)user, (void)size;
    free(p);
}

START_TEST(noise)
{
    const f8_allocator counting = {count_alloc, count_free, NULL};
    uint32_t seed = 11;
    enum { ROUNDS = 20000, MOST = 200 };
    printf("seed %u\n", seed);
    for (int i = 0; i < ROUNDS; i++) {
        uint8_t bytes[MOST];
        const size_t n = test_random(&seed) % MOST;
        for (size_t k = 0; k < n;
             k++) /* counts and choices are mostly small, or they would all be refused */
            bytes[k] = test_random(&seed) % 3 ? 0 : (uint8_t)test_random(&seed);
        f8_arena own;
        f8_wire r;
        everything y = {0};
        f8_diag d = {0};
        f8_arena_init(&own, &counting);
        taken = 0;
        f8_wire_begin_read(&r, bytes, n, &own, "noise");
        wire(&r, &y);
        f8_wire_end(&r, &d);
        ck_assert_uint_le(
            taken, 1 << 20); /* an arena's first chunk, and elements of 16 bytes for 8 read */
        f8_arena_end(&own);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("wire");
    TCase *t = tcase_create("wire");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, round_trip);
    tcase_add_test(t, fixed_bytes);
    tcase_add_test(t, truncated);
    tcase_add_test(t, unwritable);
    tcase_add_test(t, refused);
    tcase_add_test(t, noise);
    suite_add_tcase(s, t);
    return s;
}
