/* Other libraries: their products against sums in double, whichever are here; the calls of a CBLAS
 * on a made-up one; and installations that lack something. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/measure/peer.h"
#include "frontend/measure/peer_internal.h"
#include "ir/base/clock.h"
#include "runtime/base/dynlib.h"
#include "tests/shared/random.h"
#include "tests/shared/stub_library.h"
#include "tests/shared/suite.h"

static f8_peers *open_in(const char *folder, int threads)
{
    const char *const folders[] = {folder, NULL};
    const f8_allocator al = f8_default_allocator();
    f8_peers *peers;
    f8_diag diag = {0};
    ck_assert_msg(f8_peers_open_in(&al, threads, folders, &peers, &diag) == F8_OK, "%s", diag.text);
    return peers;
}

static int find(const f8_peers *peers, const char *name)
{
    f8_dtype dtype;
    const char *way;
    for (int i = 0; (way = f8_peers_way(peers, i, &dtype)) != NULL; i++)
        if (!strcmp(way, name))
            return i;
    return -1;
}

/* ---- products ---- */

static const struct {
    int64_t m, n, k;
} sizes[] = {{1, 1, 1},    {1, 37, 65},    {17, 33, 65},  {41, 1, 7},     {5, 19, 1},
             {64, 64, 64}, {130, 70, 257}, {96, 515, 33}, {101, 203, 151}};

typedef struct operands {
    int64_t m, n, k;
    bool trans_a, trans_b;
    double *a, *b;     /* as stored */
    void *to_a, *to_b; /* in the way's dtype */
    float *sum, *c;
    double *exact, *most; /* the product in double; the sum of its terms' sizes */
} operands;

/* 64-byte aligned. */
static void *room(int64_t n, size_t size)
{
    void *p = aligned_alloc(64, ((size_t)n * size + 63) / 64 * 64);
    ck_assert(p != NULL);
    return p;
}

/* From -1 to 1: multiples of 2^-7 for bf16, which has 8 bits; of 2^-23 for f32, so that a library
 * that rounds f32 to fewer bits is found. */
static double *draw(int64_t n, f8_dtype dtype, uint32_t *seed, void **out)
{
    const int half = dtype == F8_F32 ? 1 << 23 : 1 << 7;
    double *x = room(n, sizeof *x);
    *out = room(n, f8_dtype_size(dtype));
    for (int64_t i = 0; i < n; i++) {
        const float value =
            (float)((int)(test_random(seed) % (2 * (uint32_t)half)) - half) / (float)half;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        x[i] = value;
        if (dtype == F8_F32)
            ((float *)*out)[i] = value;
        else
            ((uint16_t *)*out)[i] = (uint16_t)(bits >> 16);
    }
    return x;
}

static void judge(operands *x)
{
    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->n; j++) {
            const double *a = x->trans_a ? &x->a[i] : &x->a[i * x->k];
            const double *b = x->trans_b ? &x->b[j * x->k] : &x->b[j];
            double exact = 0, most = 0;
            for (int64_t l = 0; l < x->k; l++) {
                const double product = a[x->trans_a ? l * x->m : l] * b[x->trans_b ? l : l * x->n];
                exact += product;
                most += fabs(product);
            }
            x->exact[i * x->n + j] = exact;
            x->most[i * x->n + j] = most;
        }
}

static operands make(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, f8_dtype dtype)
{
    uint32_t seed = (uint32_t)(m * 7 + n * 5 + k * 3 + trans_a * 2 + trans_b);
    operands x = {.m = m, .n = n, .k = k, .trans_a = trans_a, .trans_b = trans_b};
    x.a = draw(m * k, dtype, &seed, &x.to_a);
    x.b = draw(k * n, dtype, &seed, &x.to_b);
    x.sum = room(m * n, sizeof *x.sum);
    x.c = room(m * n, sizeof *x.c);
    x.exact = room(m * n, sizeof *x.exact);
    x.most = room(m * n, sizeof *x.most);
    for (int64_t i = 0; i < m * n; i++)
        x.sum[i] = (float)(int)(test_random(&seed) % 1000) / 64.0f;
    judge(&x);
    return x;
}

static void end(operands *x)
{
    void *const all[] = {x->a, x->b, x->to_a, x->to_b, x->sum, x->c, x->exact, x->most};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* A sum of k products in f32, in any order, with or without fused multiply-adds, is off by at most
 * g sum |a b|, g = k u / (1 - k u), u = 2^-24 (Higham 2002, section 3.1); the old C is one term
 * more. Products of these operands are multiples of 2^-46, so none is subnormal; the sum in double
 * is off by less than a millionth of that bound. */
static void compare(const operands *x, bool accumulate, const char *what)
{
    const double terms = (double)(x->k + accumulate), u = ldexp(1, -24);
    const double g = terms * u / (1 - terms * u) * 1.000001;
    for (int64_t i = 0; i < x->m * x->n; i++) {
        const double old = accumulate ? (double)x->sum[i] : 0, exact = x->exact[i] + old;
        const double bound = g * (x->most[i] + fabs(old));
        ck_assert_msg(fabs((double)x->c[i] - exact) <= bound,
                      "%s %d x %d x %d%s%s%s: element %d is %.9g, not %.9g within %g", what,
                      (int)x->m, (int)x->n, (int)x->k, x->trans_a ? " A transposed" : "",
                      x->trans_b ? " B transposed" : "", accumulate ? " accumulated" : "", (int)i,
                      (double)x->c[i], exact, bound);
    }
}

/* What C held must not count without accumulate, so it is NaN. Twice: a product is used again. */
static void multiply(f8_peers *peers, int way, operands *x, bool accumulate)
{
    f8_dtype dtype;
    const char *what = f8_peers_way(peers, way, &dtype);
    const f8_peer_product p = {x->m, x->n, x->k, x->trans_a, x->trans_b, accumulate};
    f8_peer_gemm *gemm;
    f8_diag diag = {0};
    ck_assert_msg(f8_peer_prepare(peers, way, &p, &gemm, &diag) == F8_OK, "%s: %s", what,
                  diag.text);
    for (int run = 0; run < 2; run++) {
        for (int64_t i = 0; i < x->m * x->n; i++)
            x->c[i] = accumulate ? x->sum[i] : NAN;
        ck_assert_msg(f8_peer_run(gemm, x->to_a, x->to_b, x->c, &diag) == F8_OK, "%s: %s", what,
                      diag.text);
        compare(x, accumulate, what);
    }
    f8_peer_release(gemm);
}

static int multiply_all(f8_peers *peers)
{
    f8_dtype dtype;
    int ways = 0;
    for (; f8_peers_way(peers, ways, &dtype); ways++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int form = 0; form < 4; form++) {
                operands x = make(sizes[i].m, sizes[i].n, sizes[i].k, form & 1, form & 2, dtype);
                multiply(peers, ways, &x, false);
                multiply(peers, ways, &x, true);
                end(&x);
            }
    return ways;
}

/* Of this machine, on all CPUs and on one thread. The library itself needs oneDNN. */
START_TEST(products)
{
    f8_peers *peers;
    f8_diag diag = {0};
    f8_dtype dtype;
    const f8_allocator al = f8_default_allocator();
    ck_assert_msg(f8_peers_open(&al, _i, &peers, &diag) == F8_OK, "%s", diag.text);
    ck_assert_str_eq(f8_peers_way(peers, 0, &dtype), "oneDNN matmul f32");
    ck_assert_int_eq(dtype, F8_F32);
    ck_assert_int_eq(strncmp(f8_peers_describe(peers), "oneDNN 2.", 9), 0);
    if (strstr(f8_peers_describe(peers), "avx512_core")) /* oneDNN 2 has bf16 on all of these */
        ck_assert_int_eq(find(peers, "oneDNN matmul bf16"), 1);
    ck_assert_int_ge(multiply_all(peers), 1);
    ck_assert(f8_peers_way(peers, -1, &dtype) == NULL);
    f8_peers_close(peers);
}
END_TEST

/* ---- a made-up CBLAS ---- */

/* Slow, with the functions of OpenBLAS, MKL or BLIS. Its numbers of threads are what the last call
 * set; a product asks that they be 3. Loading it asks that SIGINT be held. */
static const char blas[] =
    "#include <signal.h>\n#include <stdint.h>\n#include <string.h>\n"
    "#ifndef START\n#define START 7\n#endif\n"
    "static long threads = START; static int held;\n"
    "__attribute__((constructor)) static void load(void)\n"
    "{ sigset_t s; sigprocmask(SIG_BLOCK, 0, &s); held = sigismember(&s, SIGINT); }\n"
    "long stub_threads(void) { return threads; }\n"
    "int stub_held(void) { return held; }\n"
    "#define GEMM(NAME, T, F)                                                        \\\n"
    "void NAME(int o, int ta, int tb, int m, int n, int k, float alpha, const T *a, int lda, \\\n"
    "          const T *b, int ldb, float beta, float *c, int ldc)                   \\\n"
    "{                                                                               \\\n"
    "    if (o != 101 || threads != 3) return;                                       \\\n"
    "    for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) {                   \\\n"
    "        double s = 0;                                                           \\\n"
    "        for (int l = 0; l < k; l++)                                             \\\n"
    "            s += (double)F(a[ta == 112 ? l * lda + i : i * lda + l]) *          \\\n"
    "                 F(b[tb == 112 ? j * ldb + l : l * ldb + j]);                   \\\n"
    "        float *to = &c[i * ldc + j];                                            \\\n"
    "        *to = (float)(alpha * s + (beta ? beta * *to : 0));                     \\\n"
    "    }                                                                           \\\n"
    "}\n"
    "static float widen(uint16_t x)\n"
    "{ uint32_t b = (uint32_t)x << 16; float f; memcpy(&f, &b, 4); return f; }\n"
    "#define SAME(x) (x)\n"
    "#ifdef GEMM_F32\nGEMM(cblas_sgemm, float, SAME)\n#endif\n"
    "#ifdef GEMM_BF16\nGEMM(GEMM_BF16, uint16_t, widen)\n#endif\n"
    "#ifdef OPENBLAS\n"
    "void openblas_set_num_threads(int n) { threads = n; }\n"
    "int openblas_get_num_threads(void) { return threads; }\n"
    "int openblas_get_parallel(void) { return PARALLEL; }\n"
    "const char *openblas_get_config(void) { return \"OpenBLAS 0.3.99 DYNAMIC Stub\"; }\n"
    "const char *openblas_get_corename(void) { return \"Stub\"; }\n#endif\n"
    "#ifdef MKL\n"
    "int layer = -1;\n"
    "int MKL_Set_Threading_Layer(int l) { return layer = l; }\n"
    "void MKL_Set_Num_Threads(int n) { threads = n; }\n"
    "int MKL_Get_Max_Threads(void) { return layer < 0 ? -1 : threads; }\n"
    "void MKL_Get_Version_String(char *to, int n)\n"
    "{ strncpy(to, \"Stub Math Kernel Library Version 2099.1-Product Build 1\", n); }\n#endif\n"
    "#ifdef BLIS\n"
    "void bli_thread_set_num_threads(int64_t n) { threads = n; }\n"
    "int64_t bli_thread_get_num_threads(void) { return threads; }\n"
    "const char *bli_info_get_version_str(void) { return \"9.9\"; }\n"
    "int bli_arch_query_id(void) { return 5; }\n"
    "const char *bli_arch_string(int id) { return id == 5 ? \"stub\" : \"?\"; }\n#endif\n";

static const struct {
    const char *file, *arguments, *about, *way[2];
} whole[] = {
    {"libopenblas.so.0",
     "-DOPENBLAS -DPARALLEL=1 -DGEMM_F32",
     "OpenBLAS 0.3.99 (Stub)",
     {"OpenBLAS sgemm"}},
    {"libopenblas.so.0",
     "-DOPENBLAS -DPARALLEL=0 -DGEMM_F32 -DGEMM_BF16=cblas_sbgemm",
     "OpenBLAS 0.3.99 (Stub, one thread)",
     {"OpenBLAS sgemm", "OpenBLAS sbgemm"}},
    {"libmkl_rt.so.2",
     "-DMKL -DGEMM_F32 -DGEMM_BF16=cblas_gemm_bf16bf16f32",
     "MKL 2099.1-Product",
     {"MKL sgemm", "MKL gemm_bf16bf16f32"}},
    {"libmkl_rt.so.3", "-DMKL -DGEMM_F32", "MKL 2099.1-Product", {"MKL sgemm"}},
    {"libblis.so.4", "-DBLIS -DGEMM_F32", "BLIS 9.9 (stub)", {"BLIS sgemm"}},
    {"libcblas.so.3", "-DGEMM_F32 -DSTART=3", "CBLAS libcblas.so.3", {"CBLAS sgemm"}},
};

/* The parts of MKL that libmkl_rt.so.VERSION would load, which are looked for and not opened. */
static void make_parts(const char *folder, const char *file, const char *without)
{
    static const char *const parts[] = {"core", "intel_lp64", "def", "sequential"};
    char name[128];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(parts[i], without)) {
            snprintf(name, sizeof name, "%s/libmkl_%s%s", folder, parts[i], strstr(file, ".so"));
            f8_stub_file(name, "");
        }
}

static long ask_stub(const char *folder, const char *file, const char *symbol)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", f8_stub_path(folder), file);
    const char *const names[] = {path, NULL};
    f8_dynlib lib;
    f8_diag diag = {0};
    long (*get)(void);
    ck_assert_msg(f8_dynlib_open("a stub", names, &lib, &diag) == F8_OK, "%s", diag.text);
    void *found = f8_dynlib_find(&lib, symbol);
    memcpy(&get, &found, sizeof get);
    return get();
}

START_TEST(made_up)
{
    const char *file = whole[_i].file;
    f8_stub_compile("blas", file, blas, whole[_i].arguments);
    if (strstr(file, "mkl"))
        make_parts("blas", file, "");
    f8_peers *peers = open_in(f8_stub_path("blas"), 3);
    ck_assert_str_eq(f8_peers_describe(peers), whole[_i].about);
    for (int i = 0; i < 2 && whole[_i].way[i]; i++) {
        f8_dtype dtype;
        ck_assert_str_eq(f8_peers_way(peers, i, &dtype), whole[_i].way[i]);
        ck_assert_int_eq(dtype, i ? F8_BF16 : F8_F32);
    }
    ck_assert_int_eq(multiply_all(peers), whole[_i].way[1] ? 2 : 1);
    ck_assert_int_eq((int)ask_stub("blas", file, "stub_held"), 1);
    f8_peers_close(peers);
    if (!strstr(file, "cblas"))
        ck_assert_int_eq(ask_stub("blas", file, "stub_threads"), 7);
}
END_TEST

/* ---- what is not here, or not whole ---- */

static const struct {
    const char *file, *arguments;
} broken[] = {
    {NULL, NULL},
    {"libdnnl.so.2", "-DGEMM_F32"},
    {"libopenblas.so.0", "-DOPENBLAS -DPARALLEL=1"},
    {"libopenblas.so.0", "-DGEMM_F32"},
    {"libopenblas.so.0", ""}, /* no library at all */
    {"libblis.so.4", "-DGEMM_F32"},
    {"libcblas.so.3", "-DBLIS"},
};

static void is_empty(f8_peers *peers)
{
    const f8_peer_product p = {.m = 1, .n = 1, .k = 1};
    f8_dtype dtype;
    f8_peer_gemm *gemm;
    f8_diag diag = {0};
    ck_assert(f8_peers_way(peers, 0, &dtype) == NULL);
    ck_assert_str_eq(f8_peers_describe(peers), "");
    ck_assert_int_eq(f8_peer_prepare(peers, 0, &p, &gemm, &diag), F8_ERR_INPUT);
    ck_assert(gemm == NULL);
    f8_peers_close(peers);
}

START_TEST(absent)
{
    if (broken[_i].file && *broken[_i].arguments)
        f8_stub_compile("broken", broken[_i].file, blas, broken[_i].arguments);
    else if (broken[_i].file)
        f8_stub_file("broken/libopenblas.so.0", "no library\n");
    is_empty(open_in(f8_stub_path("broken"), 1));
}
END_TEST

/* A part of MKL is missing: it would end the process. */
START_TEST(parts_of_mkl)
{
    static const char *const parts[] = {"core", "intel_lp64", "def", "sequential"};
    f8_stub_compile("mkl", "libmkl_rt.so.2", blas, "-DMKL -DGEMM_F32");
    make_parts("mkl", "libmkl_rt.so.2", parts[_i]);
    is_empty(open_in(f8_stub_path("mkl"), 1));
}
END_TEST

/* A CBLAS of which nothing is known is taken where there is no other. */
START_TEST(another_name)
{
    f8_stub_compile("both", "libcblas.so.3", blas, "-DGEMM_F32");
    f8_stub_compile("both", "libblis.so.4", blas, "-DBLIS -DGEMM_F32");
    f8_peers *peers = open_in(f8_stub_path("both"), 3);
    ck_assert_str_eq(f8_peers_describe(peers), "BLIS 9.9 (stub)");
    ck_assert_int_eq(find(peers, "CBLAS sgemm"), -1);
    f8_peers_close(peers);
}
END_TEST

/* ---- what a way can't ---- */

START_TEST(refused)
{
    const f8_peer_product large = {.m = 2, .n = (int64_t)1 << 31, .k = 2}, none = {.m = 1, .n = 1};
    f8_peer_gemm *gemm;
    f8_diag diag = {0}, second = {0};
    f8_stub_compile("blas", "libblis.so.4", blas, "-DBLIS -DGEMM_F32");
    f8_peers *peers = open_in(f8_stub_path("blas"), 3);
    ck_assert_int_eq(f8_peer_prepare(peers, 0, &large, &gemm, &diag), F8_ERR_UNSUPPORTED);
    ck_assert_str_eq(diag.text, "BLIS sgemm takes no size above 2147483647, and this is 2 x "
                                "2147483648 x 2");
    ck_assert(gemm == NULL);
    ck_assert_int_eq(f8_peer_prepare(peers, 0, &none, &gemm, &second), F8_ERR_INPUT);
    f8_peers_close(peers);
}
END_TEST

/* Threads do not outlive a fork: a product would wait for them without end. */
START_TEST(after_fork)
{
    const f8_peer_product p = {.m = 256, .n = 256, .k = 256};
    f8_peers *peers = open_in("", 2);
    operands x = make(256, 256, 256, false, false, F8_F32);
    f8_peer_gemm *gemm, *second;
    int status;
    ck_assert_int_eq(f8_peer_prepare(peers, 0, &p, &gemm, NULL), F8_OK);
    ck_assert_int_eq(f8_peer_run(gemm, x.to_a, x.to_b, x.c, NULL), F8_OK);
    const pid_t child = fork();
    if (child == 0)
        _exit(f8_peer_prepare(peers, 0, &p, &second, NULL) == F8_ERR_UNSUPPORTED &&
                      f8_peer_run(gemm, x.to_a, x.to_b, x.c, NULL) == F8_ERR_UNSUPPORTED
                  ? 0
                  : 1);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_int_eq(f8_peer_run(gemm, x.to_a, x.to_b, x.c, NULL), F8_OK);
    f8_peer_release(gemm);
    end(&x);
    f8_peers_close(peers);
}
END_TEST

/* ---- the caller's state ---- */

/* The caller's OpenMP keeps its number of threads, and the caller its signals. */
START_TEST(caller)
{
    static const char *const files[] = {"libgomp.so.1", NULL};
    f8_dynlib gnu;
    sigset_t before, after;
    f8_diag diag = {0};
    ck_assert_msg(f8_dynlib_open("OpenMP", files, &gnu, &diag) == F8_OK, "%s", diag.text);
    const f8_openmp openmp = f8_openmp_find(&gnu);
    ck_assert_int_ge(openmp.n, 1);
    f8_openmp_enter(&openmp, 5);
    sigemptyset(&before);
    sigaddset(&before, SIGUSR1);
    sigprocmask(SIG_SETMASK, &before, NULL);
    f8_peers *peers = open_in("", 2);
    operands x = make(64, 64, 64, false, false, F8_F32);
    multiply(peers, 0, &x, false);
    end(&x);
    f8_peers_close(peers);
    ck_assert_int_eq(openmp.runtime[0].get(), 5);
    sigprocmask(SIG_BLOCK, NULL, &after);
    for (int s = 1; s < SIGRTMIN; s++)
        ck_assert_int_eq(sigismember(&after, s), sigismember(&before, s));
}
END_TEST

static atomic_int heard;
static atomic_bool ends;

/* It needs some stack, as the handlers of interpreters do. */
static void hear(int number)
{
    volatile char room[2048];
    memset((char *)(uintptr_t)room, number, sizeof room);
    heard++;
}

/* Signals to the process, which any thread takes that does not hold them. */
static void *call(void *user)
{
    const struct timespec a_moment = {.tv_nsec = 20000};
    (void)user;
    while (!ends) {
        kill(getpid(), SIGUSR1);
        nanosleep(&a_moment, NULL);
    }
    return NULL;
}

/* oneDNN's code for AVX2 points the stack pointer into the heap, in its own threads, too. A handler
 * that ran there would write into what it multiplies. */
START_TEST(signals)
{
    static const int64_t large[][3] = {{512, 16, 512}, {48, 48, 1000}, {101, 203, 1030}};
    enum { N = sizeof large / sizeof *large };
    pthread_t other;
    sigset_t one, before;
    ck_assert_int_eq(setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1), 0);
    f8_peers *peers = open_in("", 3);
    signal(SIGUSR1, hear);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, &before);
    ck_assert_int_eq(pthread_create(&other, NULL, call, NULL), 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int i = 0; i < 4 * N; i++) {
        const int64_t *size = large[i / 4];
        operands x = make(size[0], size[1], size[2], i & 1, i & 2, F8_F32);
        for (int j = 0; j < 10; j++)
            multiply(peers, 0, &x, false);
        end(&x);
    }
    ends = true;
    pthread_join(other, NULL);
    ck_assert_int_gt(heard, 10); /* they come, in between */
    f8_peers_close(peers);
}
END_TEST

/* A thread that is busy for a while, or until it is told to stop, then sleeps. */
typedef struct busy {
    double seconds; /* 0: until it is told */
    atomic_bool stop, done;
    pthread_mutex_t lock; /* held by the test */
} busy;

static void *be_busy(void *user)
{
    busy *b = user;
    const double start = f8_seconds_now();
    while (b->seconds > 0 ? f8_seconds_now() - start < b->seconds : !atomic_load(&b->stop))
        ;
    atomic_store(&b->done, true);
    pthread_mutex_lock(&b->lock);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* As long as a thread looks for work, and not without end. */
START_TEST(rest)
{
    busy b = {.seconds = _i ? 0 : 0.1, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t id;
    pthread_mutex_lock(&b.lock);
    ck_assert_int_eq(pthread_create(&id, NULL, be_busy, &b), 0);
    f8_peers_rest();
    ck_assert_int_eq(atomic_load(&b.done), _i == 0);
    atomic_store(&b.stop, true);
    pthread_mutex_unlock(&b.lock);
    pthread_join(id, NULL);
}
END_TEST

/* Memory that ends at the n-th request, and what is not given back. */
typedef struct budget {
    int left, held;
} budget;

static void *take(void *user, size_t size, size_t align)
{
    budget *b = user;
    if (b->left-- <= 0)
        return NULL;
    b->held++;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void give(void *user, void *p, size_t size)
{
    (void)size;
    ((budget *)user)->held -= p != NULL;
    free(p);
}

START_TEST(memory)
{
    const f8_peer_product p = {.m = 8, .n = 8, .k = 8};
    f8_status status = F8_ERR_MEMORY;
    int failures = 0;
    for (int n = 0; status == F8_ERR_MEMORY; n++) {
        budget b = {.left = n};
        const f8_allocator al = {take, give, &b};
        f8_peers *peers;
        f8_peer_gemm *gemm = NULL;
        f8_diag diag = {0};
        status = f8_peers_open(&al, 1, &peers, &diag);
        if (status == F8_OK)
            status = f8_peer_prepare(peers, 0, &p, &gemm, &diag);
        ck_assert_msg(status == F8_OK || status == F8_ERR_MEMORY, "%s", diag.text);
        failures += status == F8_ERR_MEMORY;
        f8_peer_release(gemm);
        f8_peers_close(peers);
        ck_assert_int_eq(b.held, 0);
    }
    ck_assert_int_ge(failures, 3); /* the peers, their arena, a product */
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("peer");
    TCase *here = tcase_create("products");
    tcase_add_loop_test(here, products, 0, 2);
    tcase_add_test(here, after_fork);
    tcase_add_test(here, caller);
    tcase_add_test(here, signals);
    tcase_add_loop_test(here, rest, 0, 2);
    tcase_add_test(here, memory);
    suite_add_tcase(s, here);
    TCase *stubs = tcase_create("stubs");
    tcase_add_checked_fixture(stubs, f8_stub_setup, f8_stub_teardown);
    tcase_add_loop_test(stubs, made_up, 0, sizeof whole / sizeof *whole);
    tcase_add_loop_test(stubs, absent, 0, sizeof broken / sizeof *broken);
    tcase_add_loop_test(stubs, parts_of_mkl, 0, 4);
    tcase_add_test(stubs, another_name);
    tcase_add_test(stubs, refused);
    suite_add_tcase(s, stubs);
    return s;
}
