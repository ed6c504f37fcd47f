/* Collectives of a text, on the CPU, in the interpreter and on CUDA: every byte that each rank
 * gets, and how many bytes the ranks move for it. A sum must have the bits of the ranks' numbers
 * added one by one from rank 0, whatever the size. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/shared/api/rank_case.h"
#include "tests/shared/api/rank_gpu.h"
#include "tests/shared/suite.h"

/* Up to so many elements for each rank a reduction is one exchange (passes/unit/collectives.c). */
enum { WHOLE = 1024, DIGEST = 16 }; /* DIGEST: of what a rank runs, compared before a run */

/* Numbers whose sum depends on the order: magnitudes from 2^-12 to 2^12. */
static float number(int rank, int64_t i)
{
    uint32_t h = (uint32_t)rank * 0x9e3779b9u + (uint32_t)i * 0x85ebca6bu;
    h = (h ^ (h >> 15)) * 0x2c1b3c6du;
    h ^= h >> 12;
    return ldexpf((float)((int)(h & 0xffffff) - 0x800000) * 0x1p-23f, (int)(h >> 24) % 25 - 12);
}

/* What goes into element `i`: a few are not finite, some are zeros with signs. */
static float special(int rank, int64_t i)
{
    if (i % 11 == 3)
        return rank == 1 ? NAN : number(rank, i);
    if (i % 11 == 5)
        return rank == 0 ? -INFINITY : number(rank, i);
    if (i % 11 == 7)
        return -0.0f;
    return number(rank, i);
}

static void fill(const rank_case *c, int rank, int batch, const char *port, const fp8c_type *type,
                 void *data)
{
    const int64_t n = fp8c_type_bytes(type) / (int64_t)sizeof(float);
    (void)c, (void)batch;
    for (int64_t i = 0; i < n; i++)
        ((float *)data)[i] = *port == 's' ? special(rank, i) : number(rank, i);
}

static float summed(float (*of)(int, int64_t), int ranks, int64_t i)
{
    float sum = of(0, i);
    for (int r = 1; r < ranks; r++)
        sum += of(r, i);
    return sum;
}

static float largest(int ranks, int64_t i)
{
    float most = fabsf(special(0, i));
    for (int r = 1; r < ranks; r++) {
        const float next = fabsf(special(r, i));
        most = isnan(most) || isnan(next) ? NAN : fmaxf(most, next);
    }
    return most;
}

/* Equal bytes, but any NaN is any other. */
static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

static const char *const targets[] = {"cpu", "reference", "cuda"};

static rank_case the_case(const char *text, const char *target, int ranks, int64_t size)
{
    return (rank_case){.text = text,
                       .dim = {{"R", ranks}, {"N", size}},
                       .options = {.target = target, .recipe = "f32", .inference = 1},
                       .ranks = ranks,
                       .fill = fill};
}

/* ---- reductions ---- */

static const char reductions[] =
    "module reductions\n"
    "dim R = 2, N = 2\n"
    "func forward(%n: f32[N], %s: f32[N], %s3: f32[N], %m: f32[R, N], %s2: f32[R, N]) -> (%sum: "
    "f32[N], "
    "%odd: f32[N], %amax: f32[N], %part: f32[N], %most: f32[N]) {\n"
    "  return all_reduce(%n) {ranks = R}, all_reduce(%s) {ranks = R}, "
    "all_reduce(%s3) {ranks = R, reduce = \"amax\"}, reduce_scatter(%m) {ranks = R}, "
    "reduce_scatter(%s2) {ranks = R, reduce = \"amax\"}\n"
    "}\n";

static void check_reductions(const rank_case *c, int64_t n)
{
    const char *const names[] = {"eval:sum", "eval:odd", "eval:amax", "eval:part", "eval:most"};
    for (int r = 0; r < c->ranks; r++)
        for (int k = 0; k < 5; k++) {
            const float *got = rank_case_floats(c, r, names[k], NULL);
            for (int64_t i = 0; i < n; i++) {
                const float want = k == 0   ? summed(number, c->ranks, i)
                                   : k == 1 ? summed(special, c->ranks, i)
                                   : k == 2 ? largest(c->ranks, i)
                                   : k == 3 ? summed(number, c->ranks, r * n + i)
                                            : largest(c->ranks, r * n + i);
                ck_assert_msg(same(got[i], want), "%s, %s of rank %d of %d: %a at %lld, not %a",
                              c->options.target, names[k], r, c->ranks, got[i], (long long)i, want);
            }
        }
}

/* Bytes that a rank sends to reduce n numbers so that all get the result. */
static int64_t ring(int64_t n, int64_t ranks)
{
    const int64_t whole = n / ranks * ranks, rest = n - whole;
    if (n / ranks <= WHOLE)
        return (ranks - 1) * n * 4;
    return (2 * (ranks - 1) * (whole / ranks) + (ranks - 1) * rest) * 4;
}

START_TEST(reduced)
{
    for (int ranks = 1; ranks <= 5; ranks++) {
        const int64_t sizes[] = {1,
                                 2,
                                 7,
                                 WHOLE * ranks,
                                 WHOLE * ranks + ranks - 1,
                                 WHOLE * ranks + ranks,
                                 2 * WHOLE * ranks + ranks - 1};
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            rank_case c = the_case(reductions, targets[_i], ranks, sizes[k]);
            rank_case_run(&c);
            check_reductions(&c, sizes[k]);
            for (int r = 0; r < ranks && !_i; r++) {
                ck_assert_int_eq(c.traffic[r].sent, (ranks - 1) * (DIGEST + 2 * sizes[k] * 4) +
                                                        3 * ring(sizes[k], ranks));
                ck_assert_int_eq(c.traffic[r].received, c.traffic[r].sent);
            }
            rank_case_end(&c);
        }
    }
}
END_TEST

/* ---- exchanges ---- */

/* Of elements of 4 bytes and of 2; of values as they are, and of parts and transposed ones, whose
 * bytes do not lie in a row. */
static const char exchanges[] =
    "module exchanges\n"
    "dim R = 2, N = 2\n"
    "func forward(%n: f32[N], %m: f32[R, N], %k: f32[R, 3, N]) -> (%g: f32[R, N], "
    "%gb: bf16[R, N], %gt: f32[R, N, R], %a: f32[R, N], %ab: bf16[R, N], %a3: f32[R, 3, N], "
    "%scalars: f32[R], %cut: f32[R, 2, N], %cuts: f32[R, R, 2, N]) {\n"
    "  %half = all_gather(cast(%n) {to = bf16}) {ranks = R}\n"
    "  %turned = all_gather(transpose(%m) {perm = [1, 0]}) {ranks = R}\n"
    "  %part = slice(%k) {axis = 1, start = 1, stop = 3}\n"
    "  %one = reshape(reduce_max(%n)) {shape = []}\n"
    "  return all_gather(%n) {ranks = R}, %half, %turned, all_to_all(%m) {ranks = R}, "
    "all_to_all(cast(%m) {to = bf16}) {ranks = R}, all_to_all(%k) {ranks = R}, "
    "all_gather(%one) {ranks = R}, all_to_all(%part) {ranks = R}, all_gather(%part) {ranks = R}\n"
    "}\n";

static void check_floats(const rank_case *c, int rank, const char *name, int64_t i, float want)
{
    const float *got = rank_case_floats(c, rank, name, NULL);
    ck_assert_msg(same(got[i], want), "%s, %s of rank %d of %d: %a at %lld, not %a",
                  c->options.target, name, rank, c->ranks, got[i], (long long)i, want);
}

/* bf16 rounds f32 to nearest, ties to even. */
static uint16_t bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void check_exchanges(const rank_case *c, int rank, int64_t n)
{
    const uint16_t *gb = rank_case_value(c, rank, "eval:gb")->data,
                   *ab = rank_case_value(c, rank, "eval:ab")->data;
    for (int r = 0; r < c->ranks; r++) {
        float most = number(r, 0);
        for (int64_t i = 0; i < n; i++) {
            most = fmaxf(most, number(r, i));
            check_floats(c, rank, "eval:g", r * n + i, number(r, i));
            check_floats(c, rank, "eval:a", r * n + i, number(r, rank * n + i));
            ck_assert_uint_eq(gb[r * n + i], bf16(number(r, i)));
            ck_assert_uint_eq(ab[r * n + i], bf16(number(r, rank * n + i)));
            for (int k = 0; k < c->ranks; k++)
                check_floats(c, rank, "eval:gt", (r * n + i) * c->ranks + k, number(r, k * n + i));
            for (int k = 0; k < 2 * c->ranks; k++)
                check_floats(c, rank, "eval:cuts", (r * 2 * c->ranks + k) * n + i,
                             number(r, (k / 2 * 3 + 1 + k % 2) * n + i));
            for (int k = 1; k < 3; k++)
                check_floats(c, rank, "eval:cut", (r * 2 + k - 1) * n + i,
                             number(r, (rank * 3 + k) * n + i));
            for (int k = 0; k < 3; k++)
                check_floats(c, rank, "eval:a3", (r * 3 + k) * n + i,
                             number(r, (rank * 3 + k) * n + i));
        }
        check_floats(c, rank, "eval:scalars", r, most);
    }
}

START_TEST(exchanged)
{
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int64_t n = 1; n <= 130; n = 4 * n + 1) {
            rank_case c = the_case(exchanges, targets[_i], ranks, n);
            rank_case_run(&c);
            for (int r = 0; r < ranks; r++)
                check_exchanges(&c, r, n);
            rank_case_end(&c);
        }
}
END_TEST

/* ---- broadcasts ---- */

static const char broadcasts[] =
    "module broadcasts\n"
    "dim R = 2, N = 2, ROOT = 1\n"
    "func forward(%n: f32[N], %k: f32[3, N]) -> (%b: f32[N], %bb: bf16[N], %part: f32[2, N]) {\n"
    "  %cut = slice(%k) {axis = 0, start = 1, stop = 3}\n"
    "  return collective_broadcast(%n) {ranks = R, root = ROOT - 1}, "
    "collective_broadcast(cast(%n) {to = bf16}) {ranks = R, root = ROOT - 1}, "
    "collective_broadcast(%cut) {ranks = R, root = ROOT - 1}\n"
    "}\n";

START_TEST(broadcast)
{
    static const int64_t sizes[] = {1, 130, 4 * WHOLE + 3}; /* the last one in parts */
    for (int ranks = 1; ranks <= 4; ranks++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            const int root = ranks - 1 - (int)k % ranks;
            rank_case c = the_case(broadcasts, targets[_i], ranks, sizes[k]);
            c.dim[2] = (fp8c_dim){"ROOT", root + 1};
            rank_case_run(&c);
            for (int r = 0; r < ranks; r++) {
                const uint16_t *bb = rank_case_value(&c, r, "eval:bb")->data;
                for (int64_t i = 0; i < sizes[k]; i++) {
                    check_floats(&c, r, "eval:b", i, number(root, i));
                    ck_assert_uint_eq(bb[i], bf16(number(root, i)));
                    for (int row = 0; row < 2; row++)
                        check_floats(&c, r, "eval:part", row * sizes[k] + i,
                                     number(root, (row + 1) * sizes[k] + i));
                }
            }
            rank_case_end(&c);
        }
}
END_TEST

/* ---- a rank's own rows ---- */

/* Of a value that all ranks have: of elements of 4 bytes and of 2, and of a transposed one. */
static const char slices[] =
    "module slices\n"
    "dim R = 2, N = 2, E = 1\n"
    "func forward(%m: f32[N, 3]) -> (%s: f32[E, 3], %sb: bf16[E, 3], %st: f32[E, 3]) {\n"
    "  %turned = transpose(reshape(%m) {shape = [3, N]}) {perm = [1, 0]}\n"
    "  return all_slice(%m) {ranks = R}, all_slice(cast(%m) {to = bf16}) {ranks = R}, "
    "all_slice(%turned) {ranks = R}\n"
    "}\n";

static void fill_alike(const rank_case *c, int rank, int batch, const char *port,
                       const fp8c_type *type, void *data)
{
    (void)rank;
    fill(c, 0, batch, port, type, data);
}

static void check_slices(const rank_case *c, int rank, int64_t rows, int64_t each)
{
    const uint16_t *sb = rank_case_value(c, rank, "eval:sb")->data;
    for (int64_t i = 0; i < 3 * each; i++) {
        const int64_t row = rank * each + i / 3, column = i % 3;
        const float want = row < rows ? number(0, 3 * row + column) : 0;
        check_floats(c, rank, "eval:s", i, want);
        ck_assert_uint_eq(sb[i], bf16(want));
        check_floats(c, rank, "eval:st", i, row < rows ? number(0, column * rows + row) : 0);
    }
}

START_TEST(sliced)
{
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int64_t rows = 1; rows <= 9; rows += 2) { /* some ranks have fewer rows, or none */
            const int64_t each = (rows + ranks - 1) / ranks;
            rank_case c = the_case(slices, targets[_i], ranks, rows);
            c.dim[2] = (fp8c_dim){"E", each};
            c.fill = fill_alike;
            rank_case_run(&c);
            for (int r = 0; r < ranks; r++) {
                check_slices(&c, r, rows, each);
                if (!_i) /* nothing is exchanged but what a rank runs */
                    ck_assert_int_eq(c.traffic[r].sent, (ranks - 1) * DIGEST);
            }
            rank_case_end(&c);
        }
}
END_TEST

/* ---- sums of the library ---- */

static const char library[] =
    "module library\n"
    "dim R = 2, N = 2\n"
    "func forward(%n: f32[N], %m: f32[R, N]) -> (%sum: f32[N], %part: f32[N]) {\n"
    "  return all_reduce(%n) {ranks = R, order = \"library\"}, "
    "reduce_scatter(%m) {ranks = R, order = \"library\"}\n"
    "}\n";

/* The order of the stand-ins, which is not that of the ranks. */
static float backwards(int ranks, int64_t i)
{
    float sum = number(ranks - 1, i);
    for (int r = ranks - 2; r >= 0; r--)
        sum += number(r, i);
    return sum;
}

/* What the library gives is the result, bit for bit; it is near the sum in the order of the ranks:
 * each of ranks - 1 additions rounds twice as much as either sum does. */
START_TEST(added_by_library)
{
    enum { N = 3001 };
    int64_t others = 0;
    for (int ranks = 1; ranks <= 5; ranks++) {
        rank_case c = the_case(library, targets[_i], ranks, N);
        rank_case_run(&c);
        for (int r = 0; r < ranks; r++)
            for (int part = 0; part < 2; part++) {
                const float *got = rank_case_floats(&c, r, part ? "eval:part" : "eval:sum", NULL);
                for (int64_t i = 0; i < N; i++) {
                    const int64_t at = part ? r * N + i : i;
                    double terms = 0;
                    for (int k = 0; k < ranks; k++)
                        terms += fabs((double)number(k, at));
                    ck_assert_msg(same(got[i], backwards(ranks, at)),
                                  "%s, rank %d of %d: %a at %lld, not %a", targets[_i], r, ranks,
                                  got[i], (long long)i, backwards(ranks, at));
                    const float ordered = summed(number, ranks, at);
                    ck_assert_double_le(fabs((double)got[i] - ordered),
                                        2 * (ranks - 1) * 0x1p-24 * terms);
                    others += !same(got[i], ordered);
                }
            }
        for (int r = 0; r < ranks && strcmp(targets[_i], "cuda"); r++)
            ck_assert_int_eq(c.traffic[r].sums, ranks > 1 ? 2 : 0);
        rank_case_end(&c);
    }
    ck_assert_int_gt(others, N / 4); /* or the test would not see who adds */
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("collectives");
    TCase *c = tcase_create("values");
    tcase_set_timeout(c, 300);
    const int n = rank_gpus("collectives on CUDA") ? 3 : 2;
    tcase_add_loop_test(c, reduced, 0, n);
    tcase_add_loop_test(c, exchanged, 0, n);
    tcase_add_loop_test(c, broadcast, 0, n);
    tcase_add_loop_test(c, sliced, 0, n);
    tcase_add_loop_test(c, added_by_library, 0, n);
    suite_add_tcase(suite, c);
    return suite;
}
