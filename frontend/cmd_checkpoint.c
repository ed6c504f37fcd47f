/* Checkpoints: see cmd_checkpoint.h. */
#include "frontend/cmd_checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char cli_state_prefix[] = "fp8c.state.", cli_checkpoint_version[] = "1";

static const st_dtype dtypes[] = {
    [FP8C_F32] = ST_F32,        [FP8C_BF16] = ST_BF16,      [FP8C_F16] = ST_F16,
    [FP8C_I32] = ST_I32,        [FP8C_BOOL] = ST_BOOL,      [FP8C_F8E4M3] = ST_F8_E4M3,
    [FP8C_F8E5M2] = ST_F8_E5M2, [FP8C_F8E8M0] = ST_F8_E8M0,
};

_Static_assert((int)ST_MAX_RANK >= (int)FP8C_MAX_RANK, "every variable can be written");

st_tensor cli_tensor_of(const fp8c_variable *v)
{
    st_tensor t = {.name = v->name,
                   .dtype = dtypes[v->type.dtype],
                   .rank = v->type.rank,
                   .bytes = (uint64_t)fp8c_type_bytes(&v->type)};
    for (int32_t i = 0; i < t.rank; i++)
        t.dim[i] = v->type.dim[i];
    return t;
}

/* ---- saving ---- */

typedef struct saver {
    fp8c_program *program;
    bool read_failed;
} saver;

static bool read_variable(void *user, size_t index, void *to)
{
    saver *s = user;
    s->read_failed = fp8c_program_read(s->program, (int)index, to) != FP8C_OK;
    return !s->read_failed;
}

char *cli_elements_text(fp8c_program *program, bool all)
{
    json_t *lists = json_object();
    fp8c_variable v;
    const char *name;
    for (int i = 0; fp8c_program_variable(program, i, &v) == FP8C_OK; i++) {
        const bool has_list = fp8c_program_element(program, i, 0) && (all || cli_state_is_needed(program, i));
        json_t *list = has_list ? json_array() : NULL;
        for (int64_t k = 0; list && (name = fp8c_program_element(program, i, k)); k++)
            json_array_append_new(list, json_string(name));
        if (list)
            json_object_set_new(lists, v.name, list);
    }
    char *text = json_dumps(lists, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(lists);
    return text;
}

/* All variables as tensors, their states' names made in *names; both to be freed. */
static st_tensor *list_variables(fp8c_program *program, size_t *n, char **names)
{
    fp8c_variable v;
    size_t bytes = 1, used = 0;
    for (*n = 0; fp8c_program_variable(program, (int)*n, &v) == FP8C_OK; (*n)++)
        bytes += v.is_param ? 0 : sizeof cli_state_prefix + strlen(v.name);
    st_tensor *tensor = calloc(*n + 1, sizeof *tensor);
    *names = malloc(bytes);
    if (!tensor || !*names)
        return free(tensor), NULL;
    for (size_t i = 0; i < *n; i++) {
        fp8c_program_variable(program, (int)i, &v);
        tensor[i] = cli_tensor_of(&v);
        if (v.is_param)
            continue;
        tensor[i].name = *names + used;
        used += (size_t)sprintf(*names + used, "%s%s", cli_state_prefix, v.name) + 1;
    }
    return tensor;
}

bool cli_checkpoint_save(const cli *c, const char *path, fp8c_context *ctx,
                         const fp8c_module *module, fp8c_program *program, const char *recipe)
{
    char message[ST_MESSAGE], steps[24], seed[24], *names;
    size_t n;
    saver s = {.program = program};
    st_tensor *tensor = list_variables(program, &n, &names);
    char *elements = cli_elements_text(program, true);
    snprintf(steps, sizeof steps, "%" PRId64, c->steps);
    snprintf(seed, sizeof seed, "%" PRIu64, c->seed);
    snprintf(message, sizeof message, "%s: error: out of memory", path);
    const st_pair metadata[] = {
        {"format", "pt"},
        {"fp8c.version", cli_checkpoint_version},
        {"fp8c.model", fp8c_module_name(module)},
        {"fp8c.recipe", recipe},
        {"fp8c.steps", steps},
        {"fp8c.seed", seed},
        {"fp8c.elements", elements},
    };
    const bool ok = tensor && elements &&
                    st_write(path, tensor, n, metadata, sizeof metadata / sizeof *metadata,
                             read_variable, &s, message);
    if (!ok && s.read_failed)
        cli_fail(ctx);
    else if (!ok)
        fprintf(stderr, "%s\n", message);
    free(tensor);
    free(names);
    free(elements);
    return ok;
}
