/* See kernel_configs.h. */
#include "tests/shared/kernel/kernel_configs.h"

bool kv_body(kcase *c, int index)
{
    switch (index) {
    case 0: kc_layernorm(c, F8_BF16, 19, 300, true); return true;
    case 1: kc_layernorm(c, F8_F32, 5, 1000, false); return true;
    case 2: kc_norm_backward(c, 67, 100, true, false, true); return true;
    case 3: kc_softmax(c, 13, 333); return true;
    case 4: kc_pointwise(c, 9, 131); return true;
    case 5: kc_ints_and_truth(c, 4, 100); return true;
    case 6: kc_row_blocks(c, 5, 128, F8_F32, true); return true;
    case 7: kc_column_runs(c, 70, 100, 32, 0); return true;
    case 8: kc_tiles(c, 66, 130, 64, 64); return true;
    case 9: kc_scaled_runs(c, 3, 32, 100, false); return true;
    case 10: kc_periodic(c, 40, true); return true;
    case 11: kc_embedding(c, 129); return true;
    case 12: kc_targets(c, 200); return true;
    case 13: kc_in_place(c, 9, 130); return true;
    case 14: kc_small_shapes(c, true); return true;
    case 15: kc_pointwise(c, 150, 257); return true; /* more than one task */
    case 16: kc_softmax(c, 300, 16); return true;
    case 17: kc_norm_backward(c, 70, 1100, true, true, true); return true; /* wide and staged */
    case 18: kc_residual_norm(c, 40, 1100); return true;
    case 19: kc_wide_loss(c, F8_F32, 33, 333, (kc_wide){100, 0.5, 1, KC_WIDE_NONE}); return true;
    case 20: kc_wide_loss(c, F8_F32, 5, 9000, (kc_wide){4096, 16, 9, KC_WIDE_NONE}); return true;
    default: return false;
    }
}

const char *kv_config(bool cuda, int index)
{
    static const char *const cpu[] = {"lanes 8", "unroll 2 grain -2", "unroll 4",
                                      "lanes 8 unroll 4 grain 2", NULL};
    static const char *const gpu[] = {"threads 128 unroll 1", "threads 512 unroll 4",
                                      "threads 256 unroll 2", NULL};
    return cuda ? gpu[index] : cpu[index];
}

static const char *find(void *user, const f8_build_problem *problem, f8_choice_source *source)
{
    *source = F8_CHOICE_DATABASE;
    return problem->kernel ? user : NULL;
}

void kv_use(const char *variant)
{
    static f8_build_choices choices;
    choices = (f8_build_choices){find, (void *)(uintptr_t)variant};
    kc_choices = variant ? &choices : NULL;
}
