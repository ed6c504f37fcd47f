/* Configurations of kernels: see config.h. */
#include "codegen/kernel/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/hash.h"

static bool is_model(const f8_kernel_config *v)
{
    return !v->lanes && !v->unroll && !v->grain && !v->threads;
}

void f8_kernel_config_text(const f8_kernel_config *v, char text[F8_KERNEL_CONFIG_TEXT])
{
    int n = 0;
    if (is_model(v))
        n = snprintf(text, F8_KERNEL_CONFIG_TEXT, " model");
    if (v->lanes)
        n += snprintf(text + n, (size_t)(F8_KERNEL_CONFIG_TEXT - n), " lanes %u", v->lanes);
    if (v->threads)
        n += snprintf(text + n, (size_t)(F8_KERNEL_CONFIG_TEXT - n), " threads %u", v->threads);
    if (v->unroll)
        n += snprintf(text + n, (size_t)(F8_KERNEL_CONFIG_TEXT - n), " unroll %u", v->unroll);
    if (v->grain)
        n += snprintf(text + n, (size_t)(F8_KERNEL_CONFIG_TEXT - n), " grain %d", v->grain);
    memmove(text, text + 1, (size_t)n); /* the space before the first word */
}

/* A word of the text, and the values that its number may have. */
typedef struct word {
    const char *name;
    int value[5], n_values;
} word;

enum { LANES, THREADS, UNROLL, GRAIN, N_WORDS };

static const word words[N_WORDS] = {
    [LANES] = {"lanes", {8}, 1},
    [THREADS] = {"threads", {128, 256, 512}, 3},
    [UNROLL] = {"unroll", {1, 2, 4}, 3},
    [GRAIN] = {"grain", {-2, -1, 1, 2}, 4},
};

static bool read_word(const char **at, int *which, int *value)
{
    char name[12];
    int used = 0;
    if (sscanf(*at, "%11[a-z] %d%n", name, value, &used) != 2 || !used ||
        ((*at)[used] && (*at)[used] != ' ') || ((*at)[used] == ' ' && !(*at)[used + 1]))
        return false;
    *at += used + ((*at)[used] == ' ');
    for (*which = 0; *which < N_WORDS; (*which)++)
        if (!strcmp(name, words[*which].name))
            for (int i = 0; i < words[*which].n_values; i++)
                if (words[*which].value[i] == *value)
                    return true;
    return false;
}

bool f8_kernel_config_parse(const char *text, f8_kernel_config *v)
{
    int value[N_WORDS] = {0}, which, x;
    if (!strcmp(text, "model")) {
        *v = (f8_kernel_config){0};
        return true;
    }
    if (!*text)
        return false;
    while (*text) {
        if (!read_word(&text, &which, &x) || value[which])
            return false;
        value[which] = x;
    }
    *v = (f8_kernel_config){.lanes = (uint8_t)value[LANES],
                             .unroll = (uint8_t)value[UNROLL],
                             .grain = (int8_t)value[GRAIN],
                             .threads = (uint16_t)value[THREADS]};
    return true;
}

/* ---- the configurations of a kernel ---- */

static int cpu_configs(const f8_kernel *k, bool wide, f8_kernel_config *out)
{
    static const int8_t grains[] = {-2, -1, 1, 2};
    int n = 1;
    if (wide)
        out[n++] = (f8_kernel_config){.lanes = 8};
    for (uint8_t unroll = 2; unroll <= 4; unroll *= 2) {
        if (!k->flat && k->cols < unroll * 16)
            continue;
        out[n++] = (f8_kernel_config){.unroll = unroll};
        if (wide)
            out[n++] = (f8_kernel_config){.lanes = 8, .unroll = unroll};
    }
    for (size_t i = 0; i < sizeof grains && !k->n_partials; i++)
        out[n++] = (f8_kernel_config){.grain = grains[i]};
    return n;
}

static int cuda_configs(f8_kernel_config *out)
{
    int n = 1;
    for (uint16_t threads = 128; threads <= 512; threads *= 2)
        out[n++] = (f8_kernel_config){.threads = threads};
    for (uint8_t unroll = 1; unroll <= 4; unroll *= 2)
        out[n++] = (f8_kernel_config){.unroll = unroll};
    return n;
}

int f8_kernel_configs(const f8_kernel *k, const f8_target *target, bool wide,
                      f8_kernel_config out[F8_KERNEL_CONFIGS])
{
    out[0] = (f8_kernel_config){0};
    return target && target->kind == F8_TARGET_CUDA ? cuda_configs(out)
                                                    : cpu_configs(k, wide, out);
}

/* ---- kernels ---- */

void f8_kernel_problem_text(const f8_kernel *k, int64_t extent, char text[F8_KERNEL_PROBLEM_TEXT])
{
    char hash[33];
    int64_t power = 1;
    while (power < extent && power <= INT64_MAX / 2)
        power *= 2;
    f8_hash_text(f8_hash_bytes(k->text, strlen(k->text)), hash);
    snprintf(text, F8_KERNEL_PROBLEM_TEXT, "%s %s x %" PRId64, k->flat ? "flat" : "rows", hash,
             power);
}

f8_status f8_kernel_with_config(const f8_kernel *k, const f8_kernel_config *v, f8_arena *arena,
                                f8_kernel **out, f8_diag *d)
{
    char text[F8_KERNEL_CONFIG_TEXT];
    f8_kernel *to = F8_NEW(arena, f8_kernel);
    if (!to)
        return f8_arena_status(arena, d);
    *to = *k;
    to->config = *v;
    if (!is_model(v)) {
        f8_kernel_config_text(v, text);
        to->text = f8_arena_printf(arena, "%svariant %s\n", k->text, text);
        if (!to->text)
            return f8_arena_status(arena, d);
        to->hash = f8_fnv(to->hash, to->text + strlen(k->text)); /* hashed as in f8_kernel_print */
    }
    *out = to;
    return F8_OK;
}
