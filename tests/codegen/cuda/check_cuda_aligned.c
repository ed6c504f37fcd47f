/* Row kernels for aligned launches. Their text has no code for other addresses, and kernels of
 * launches that are not known to be aligned have it. In every plan, each vector that such a
 * kernel's text accesses lies at a multiple of its bytes: this is read from the text, not from the
 * rule that chose the kernel. The emulator faults where the promise is broken. check_cuda_rows
 * compares the results of both kinds. */
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/kernel/kernel_bodies.h"
#include "tests/shared/kernel/kernel_device.h"
#include "tests/shared/suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const recipes[] = {"bf16", "delayed", "current", "block"};

static bool is_for_aligned(const f8_build_kernel *k)
{
    return k->text && strstr(k->text, "\naligned\n");
}

static const f8_build_kernel *kernel_of(const cuda_plan *p, const char *symbol)
{
    for (size_t i = 0; i < p->stats.n_kernels; i++)
        if (!strcmp(p->stats.kernel[i].symbol, symbol))
            return &p->stats.kernel[i];
    ck_abort_msg("no kernel %s", symbol);
}

/* ---- the promise ---- */

/* The index of the integer that is the stride of buffer `buffer`'s rows; -1: it has no rows. */
static int stride_of(const char *text, int buffer)
{
    char begins[24];
    int stride;
    snprintf(begins, sizeof begins, "  buffer %d: ", buffer);
    const char *line = strstr(text, begins);
    ck_assert_msg(line != NULL, "no buffer %d in\n%s", buffer, text);
    const char *at = strstr(line, " stride i");
    return at && at < strchr(line, '\n') && sscanf(at, " stride i%d", &stride) == 1 ? stride : -1;
}

/* The next vector in memory that the text accesses: its bytes and its buffer. */
static const char *next_vector(const char *at, int *element, int64_t *bytes, int *buffer)
{
    int columns;
    for (; (at = strstr(at, "f8_")); at += 3) {
        if (sscanf(at, "f8_get<%d, %d>(w%*d[u], %*1[oq]%d", element, &columns, buffer) != 3 &&
            sscanf(at, "f8_put<%d, %d>(%*1[oq]%d", element, &columns, buffer) != 3 &&
            sscanf(at, "f8_put_far<%d, %d>(%*1[oq]%d", element, &columns, buffer) != 3)
            continue;
        *bytes = (int64_t)*element * columns;
        *bytes = *bytes > 16 ? 16 : *bytes;
        return at + 3;
    }
    return NULL;
}

/* Returns the number of vectors that were checked. */
static int check_launch(const f8_build_kernel *k, const f8_step *s, const f8_step_phase *phase)
{
    const f8_launch *l = &phase->launch;
    int checked = 0, element, buffer;
    int64_t bytes;
    for (uint32_t n = 0; n < l->n_instances; n++) {
        const f8_arg *arg = s->arg + phase->first_arg + n * l->n_args;
        const int64_t *ints = s->ints + phase->first_int + n * l->n_ints;
        for (const char *at = k->cuda; (at = next_vector(at, &element, &bytes, &buffer));) {
            const int stride = stride_of(k->text, buffer);
            ck_assert_msg(arg[buffer].offset % bytes == 0 &&
                              (stride < 0 || ints[stride] * element % bytes == 0),
                          "step '%s', buffer %d: vectors of %" PRId64 " bytes at offset %" PRId64
                          " of rows of %" PRId64 "\n%s",
                          s->name, buffer, bytes, arg[buffer].offset,
                          stride < 0 ? 0 : ints[stride] * element, k->text);
            checked++;
        }
    }
    return checked;
}

static int check_promises(const cuda_plan *p)
{
    int checked = 0;
    for (uint32_t f = 0; f < p->plan.n_funcs; f++)
        for (uint32_t i = 0; i < p->plan.func[f].n_steps; i++) {
            const f8_step *s = &p->plan.func[f].step[i];
            for (uint32_t n = 0; n < s->n_phases; n++) {
                const f8_build_kernel *k = kernel_of(p, s->phase[n].launch.symbol);
                if (is_for_aligned(k))
                    checked += check_launch(k, s, &s->phase[n]);
            }
        }
    return checked;
}

/* ---- texts ---- */

typedef struct kinds {
    int aligned, others; /* kernels with vectors */
} kinds;

/* A kernel has the code all the same where registers are short (f8_cuda_layout.branches). */
static kinds check_texts(const cuda_plan *p)
{
    kinds n = {0};
    for (size_t i = 0; i < p->stats.n_kernels; i++) {
        const f8_build_kernel *k = &p->stats.kernel[i];
        const char *rows = k->text ? strstr(k->text, "kernel rows x ") : NULL;
        const bool tests = strstr(k->cuda, "const bool wide = (") != NULL;
        const bool parts = strstr(k->cuda, "_some<") || strstr(k->cuda, "_ragged<");
        if (is_for_aligned(k) && !tests) {
            n.aligned++;
            ck_assert_msg(!parts || !rows || atoi(rows + 14) % 8, "%s", k->cuda);
        } else if (!is_for_aligned(k) && tests) {
            n.others++;
            ck_assert_msg(parts, "%s", k->cuda);
        }
    }
    return n;
}

/* ---- plans ---- */

START_TEST(models)
{
    static const char *const names[] = {"gpt2_124m", "gpt", "mpt_125m", "llama_block"};
    for (size_t m = 0; m < sizeof names / sizeof *names; m++) {
        cuda_plan p;
        cuda_plan_build(&p, names[m], NULL, recipes[_i], "sm_90a",
                        (f8_build_options){.text_only = true});
        ck_assert_msg(p.status == F8_OK, "%s, %s: %s", names[m], recipes[_i], p.diag.text);
        ck_assert_int_gt(check_promises(&p), 50);
        const kinds n = check_texts(&p);
        ck_assert_int_gt(n.aligned, 10);
        /* llama_block has parts of concatenations at odd offsets; scales of blocks have 6
         * columns */
        if (strcmp(names[m], "llama_block") && strcmp(recipes[_i], "block"))
            ck_assert_msg(n.others == 0, "%s, %s: %d kernels for any address", names[m],
                          recipes[_i], n.others);
        cuda_plan_end(&p);
    }
}
END_TEST

/* Rows of 96 columns at offsets and strides that are multiples of 16 bytes, or not. */
START_TEST(slices)
{
    static const struct {
        int columns, start;
        bool aligned;
    } at[] = {{128, 0, true}, {128, 32, true},  {128, 8, true},   {128, 3, false},
              {128, 1, false}, {130, 0, false}, {129, 32, false}, {132, 4, true}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        cuda_plan p;
        char text[400];
        snprintf(text, sizeof text,
                 "module slices\n"
                 "func forward(%%x: f32[37, %d]) -> (%%y: f32[37, 96]) {\n"
                 "  return gelu(slice(%%x) {start = %d, stop = %d})\n}\n",
                 at[i].columns, at[i].start, at[i].start + 96);
        cuda_plan_lower(&p, &(cuda_model){.text = text,
                                          .file = "slices.f8",
                                          .recipe = "f32",
                                          .inference = true,
                                          .target = f8_target_by_name("sm_90a")});
        cuda_plan_finish(&p, (f8_build_options){.text_only = true});
        ck_assert_msg(p.status == F8_OK, "%s", p.diag.text);
        const kinds n = check_texts(&p);
        ck_assert_msg(n.aligned == at[i].aligned && n.others == !at[i].aligned,
                      "columns %d from %d: %d and %d", at[i].columns, at[i].start, n.aligned,
                      n.others);
        ck_assert((check_promises(&p) > 0) == at[i].aligned);
        cuda_plan_end(&p);
    }
}
END_TEST

/* ---- the device ---- */

/* The emulator alone is asked: on a GPU the process's context would be lost. */
START_TEST(a_broken_promise_faults)
{
    cuda_device device;
    kcase c;
    cuda_device_open(&device);
    if (!device.count) {
        f8_cuda_destroy(device.cuda);
        return;
    }
    kc_begin(&c);
    kc_layernorm(&c, F8_BF16, 37, 768, true);
    ck_assert_int_eq(kc_run_misaligned(&c, &device), 716); /* CUDA_ERROR_MISALIGNED_ADDRESS */
    kc_end(&c);
    f8_cuda_destroy(device.cuda); /* memory stays: the context is lost */
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda aligned");
    TCase *plans = tcase_create("plans");
    tcase_set_timeout(plans, 120);
    tcase_add_loop_test(plans, models, 0, sizeof recipes / sizeof *recipes);
    tcase_add_test(plans, slices);
    suite_add_tcase(s, plans);
    TCase *device = tcase_create("device");
    tcase_set_timeout(device, 120);
    tcase_add_test(device, a_broken_promise_faults);
    suite_add_tcase(s, device);
    return s;
}
