/* The options of a compile: see options.h. */
#include "frontend/options.h"

#include <stddef.h>
#include <string.h>

/* Types of fields by kind. */
typedef int32_t of_FLAG, of_COUNT;
typedef int64_t of_LONG;
typedef double of_NUMBER;
typedef const char *of_TEXT;
typedef fp8c_write_fn of_WRITE;
typedef void *of_USER, *of_STREAM;
typedef void *(*of_DEVICE_ALLOC)(void *user, size_t size);
typedef void (*of_DEVICE_FREE)(void *user, void *ptr, size_t size);
typedef const struct fp8c_calibration *of_CALIBRATION;
typedef const fp8c_stored_as *of_STORED;
typedef size_t of_SIZE;
typedef const fp8c_comm *of_COMM;
typedef struct fp8c_arena *of_ARENA;

/* A field of fp8c.h without a row, or a row of another place or type, does not compile. */
typedef struct rows {
    size_t struct_size;
#define OPTION(field, kind, usual, needs, excludes, bits, ranks, kept, with, help) of_##kind field;
#include "frontend/options.def"
#undef OPTION
} rows;
_Static_assert(sizeof(rows) == sizeof(fp8c_compile_options), "a row for each option");
#define OPTION(field, kind, usual, needs, excludes, bits, ranks, kept, with, help)                 \
    _Static_assert(offsetof(rows, field) == offsetof(fp8c_compile_options, field) &&               \
                       _Generic(((fp8c_compile_options *)NULL)->field, of_##kind: 1, default: 0),  \
                   "the row of " #field);
#include "frontend/options.def"
#undef OPTION

enum {
#define OPTION(field, kind, usual, needs, excludes, bits, ranks, kept, with, help) AT_##field,
#include "frontend/options.def"
#undef OPTION
    N_OPTIONS
};
_Static_assert(N_OPTIONS <= 64, "a set of options is 64 bits");

#define NONE 0
#define ONE(field) (UINT64_C(1) << AT_##field)
enum { SAME, BITS };
enum { APART, ALIKE };
enum { VALUE, COPY, DROP };
enum { IN_FILE = 1, IN_CALIBRATION = 2 };
enum { FLAG, COUNT, LONG, NUMBER, TEXT, WRITE, USER, STREAM, DEVICE_ALLOC, DEVICE_FREE,
       CALIBRATION, STORED, SIZE, COMM, ARENA };

static const struct row {
    const char *name, *usual;
    size_t offset, size;
    uint64_t needs, excludes;
    int kind, bits, ranks, kept, with;
} option[] = {
#define OPTION(field, kind, usual, needs, excludes, bits, ranks, kept, with, help)                 \
    {#field, usual, offsetof(fp8c_compile_options, field), sizeof(of_##kind),                      \
     needs,  excludes, kind, bits, ranks, kept, with},
#include "frontend/options.def"
#undef OPTION
};

static const void *at(const fp8c_compile_options *o, int i)
{
    return (const char *)o + option[i].offset;
}

static const char *text_at(const fp8c_compile_options *o, int i)
{
    const char *text;
    memcpy(&text, at(o, i), sizeof text);
    return text;
}

static bool is_given(const fp8c_compile_options *o, int i)
{
    static const char zeros[16];
    if (option[i].kind == STORED)
        return o->n_stored_weights > 0;
    return memcmp(at(o, i), zeros, option[i].size) != 0;
}

static int first_of(uint64_t set)
{
    return __builtin_ctzll(set);
}

/* The first option of a set that is given; -1: none is. */
static int given_of(const fp8c_compile_options *o, uint64_t set)
{
    for (; set; set &= set - 1)
        if (is_given(o, first_of(set)))
            return first_of(set);
    return -1;
}

static f8_status lacks(const struct row *r, f8_diag *diag)
{
    const uint64_t more = r->needs & (r->needs - 1);
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s needs `%s`%s%s%s", r->name,
                   option[first_of(r->needs)].name, more ? " or `" : "",
                   more ? option[first_of(more)].name : "", more ? "`" : "");
}

f8_status f8_options_check(const fp8c_compile_options *o, f8_diag *diag)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct row *r = &option[i];
        if (!is_given(o, i))
            continue;
        if (r->needs && given_of(o, r->needs) < 0)
            return lacks(r, diag);
        const int other = given_of(o, r->excludes);
        if (other >= 0)
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "`%s` and `%s` are both given: give one of them", r->name,
                           option[other].name);
    }
    return F8_OK;
}

f8_status f8_options_check_file(const fp8c_compile_options *o, f8_diag *diag)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if (!(option[i].with & IN_FILE) && is_given(o, i))
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "a file can't have %s", option[i].name);
    return F8_OK;
}

static const fp8c_stored_as *copy_stored(const fp8c_compile_options *o, f8_arena *arena)
{
    fp8c_stored_as *list = F8_NEW_ARRAY(arena, fp8c_stored_as, o->n_stored_weights);
    for (size_t i = 0; list && i < o->n_stored_weights; i++)
        list[i] = (fp8c_stored_as){f8_arena_strdup(arena, o->stored_weights[i].name),
                                   f8_arena_strdup(arena, o->stored_weights[i].recipe)};
    return list;
}

void f8_options_keep(fp8c_compile_options *own, const fp8c_compile_options *o, f8_arena *arena)
{
    *own = *o;
    for (int i = 0; i < N_OPTIONS; i++) {
        void *to = (char *)own + option[i].offset;
        if (option[i].kept == DROP)
            memset(to, 0, option[i].size);
        if (option[i].kept == COPY && option[i].kind == TEXT) {
            const char *copy = f8_arena_strdup(arena, text_at(o, i));
            memcpy(to, &copy, sizeof copy);
        }
    }
    own->stored_weights = o->n_stored_weights ? copy_stored(o, arena) : NULL;
}

fp8c_compile_options f8_options_for_calibration(const fp8c_compile_options *o)
{
    fp8c_compile_options own = *o;
    for (int i = 0; i < N_OPTIONS; i++)
        if (!(option[i].with & IN_CALIBRATION))
            memset((char *)&own + option[i].offset, 0, option[i].size);
    return own;
}

static void hash_stored(const fp8c_compile_options *o, f8_hasher *h)
{
    for (size_t i = 0; i < o->n_stored_weights; i++) {
        const fp8c_stored_as *s = &o->stored_weights[i];
        f8_hasher_add(h, s->name ? s->name : "", s->name ? strlen(s->name) + 1 : 1);
        f8_hasher_add(h, s->recipe ? s->recipe : "", s->recipe ? strlen(s->recipe) + 1 : 1);
    }
}

void f8_options_hash(const fp8c_compile_options *o, f8_hasher *h)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        if (option[i].ranks != ALIKE)
            continue;
        if (option[i].kind == TEXT) {
            const char *text = text_at(o, i) ? text_at(o, i) : option[i].usual;
            f8_hasher_add(h, text ? text : "", text ? strlen(text) + 1 : 1);
        } else if (option[i].kind == STORED) {
            hash_stored(o, h);
        } else {
            f8_hasher_add(h, at(o, i), option[i].size);
        }
    }
}
