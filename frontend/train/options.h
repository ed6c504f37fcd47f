/* The options of a training (options.def), and as JSON: {"--recipe": "delayed", "-D": {"B": 2}}. */
#ifndef F8_TRAIN_OPTIONS_H
#define F8_TRAIN_OPTIONS_H

#include <jansson.h>
#include <stdbool.h>

#include "frontend/fp8c.h"

enum {
    F8_MOST_DIMS = 32,
    F8_MOST_RECIPES = 16,
    F8_MOST_TEXTS = 64,
    F8_MOST_THREADS = 256,
    F8_MOST_PATTERNS = 4096 /* characters, with the commas and the NUL */
};

/* ---- the kinds of values ---- */

/* KIND(name, what a value is, for messages) */
#define F8_OPTION_KINDS(KIND)                                                                      \
    KIND(TEXT, "a text of at least one character")                                                 \
    KIND(TOKENS, "u16, u32 or bytes")                                                              \
    KIND(TEXTS, "a text of at least one character")                                                \
    KIND(RECIPES, "a text of at least one character")                                              \
    KIND(PATTERNS, "name patterns of at least one character, and all of less than 4096")           \
    KIND(TENSORS, "NAME=FILE.npy or NAME=FILE.safetensors[:TENSOR]")                               \
    KIND(COUNT, "a whole number of at least 1")                                                    \
    KIND(ORDINAL, "a whole number of at least 0")                                                  \
    KIND(THREADS, "a whole number from 1 to 256")                                                  \
    KIND(STAGE, "0, 1, 2 or 3")                                                                    \
    KIND(PERIOD, "a whole number of at least 0")                                                   \
    KIND(NUMBER, "a number above 0 and below 1e30")                                                \
    KIND(SEED, "a whole number from 0 to 2^63 - 1")                                                \
    KIND(FLAG, "")                                                                                 \
    KIND(LEVEL, "")                                                                                \
    KIND(DIM, "NAME=N with a whole number N")                                                      \
    KIND(RULE, "a text of at least one character")                                                 \
    KIND(ROWS, "a whole number of at least 1, or all")                                             \
    KIND(RANKS, "a whole number from 1 to 1024")                                                   \
    KIND(SHARES, "a list of numbers between 0 and 1, with commas between")                         \
    KIND(MEMORY, "a number of bytes, such as 6G, 512M or 4096K, or a share between 0 and 1")
_Static_assert(F8_MOST_THREADS == 256, "THREADS");
_Static_assert(F8_MOST_PATTERNS == 4096, "PATTERNS");
enum {
#define KIND(kind, expected) F8_KIND_##kind,
    F8_OPTION_KINDS(KIND)
#undef KIND
        F8_KINDS,
/* of each option */
#define OPTION(field, name, kind, sets, goes_on, ranks, folder, api)                               \
    F8_TRAIN_KIND_##field = F8_KIND_##kind,
#include "frontend/train/options.def"
#undef OPTION
};

extern const char *const f8_option_expected[F8_KINDS];

typedef const char *f8_option_TEXT, *f8_option_TOKENS;
typedef int64_t f8_option_COUNT;
typedef int32_t f8_option_THREADS, f8_option_STAGE, f8_option_ORDINAL, f8_option_PERIOD,
    f8_option_LEVEL, f8_option_ROWS;
typedef double f8_option_NUMBER;
typedef uint64_t f8_option_SEED;
typedef bool f8_option_FLAG;
typedef struct f8_option_MEMORY {
    int64_t bytes;
    double share; /* one of the two; the other is 0 */
} f8_option_MEMORY;
typedef struct f8_option_TEXTS {
    const char *text[F8_MOST_TEXTS];
    size_t n;
} f8_option_TEXTS, f8_option_TENSORS, f8_option_RULE;
typedef struct f8_option_PATTERNS {
    char text[F8_MOST_PATTERNS]; /* "": none */
} f8_option_PATTERNS;
typedef struct f8_option_RECIPES {
    const char *text[F8_MOST_RECIPES];
    size_t n;
} f8_option_RECIPES;
typedef struct f8_option_DIM {
    fp8c_dim dim[F8_MOST_DIMS];
    size_t n;
} f8_option_DIM;

/* ---- the options ---- */

typedef enum f8_goes_on { RUN_KEPT, RUN_FREE, RUN_PLANS, RUN_OWN } f8_goes_on;
enum { RANKS_ALIKE, RANKS_APART };
enum { ANYWHERE, NEEDS_FOLDER };

enum {
#define OPTION(field, name, kind, sets, goes_on, ranks, folder, api) F8_TRAIN_AT_##field,
#include "frontend/train/options.def"
#undef OPTION
    F8_TRAIN_OPTIONS
};
enum {
#define OPTION(field, name, kind, sets, goes_on, ranks, folder, api)                               \
    F8_TRAIN_FOLDER_##field = folder,
#include "frontend/train/options.def"
#undef OPTION
};
typedef struct f8_train_options {
#define OPTION(field, name, kind, sets, goes_on, ranks, folder, api) f8_option_##kind field;
#include "frontend/train/options.def"
#undef OPTION
    bool given[F8_TRAIN_OPTIONS]; /* which of them the caller gave */
} f8_train_options;

typedef struct f8_train_option {
    const char *name;
    f8_goes_on goes_on;
    int ranks;
} f8_train_option;
extern const f8_train_option f8_train_option_rows[F8_TRAIN_OPTIONS];

/* Adds patterns behind those that are there, with a comma between. false: there are none to add, or
 * there is no room. */
bool f8_train_patterns_add(f8_option_PATTERNS *to, const char *text);

/* The values that options have where nothing else is said. */
enum {
    F8_DEFAULT_STEPS = 100,
    F8_DEFAULT_KEEP = 2,  /* checkpoints */
    F8_DEFAULT_EVERY = 10 /* steps from one with statistics to the next */
};
extern const char f8_default_recipe[];

/* The options of a compile of the training under a recipe. Texts stay in *o. needs_steps: the
 * module's schedule does (fp8c_module_info). */
fp8c_compile_options f8_train_compile_options(const f8_train_options *o, const char *recipe,
                                              bool needs_steps);

static inline fp8c_module_info f8_module_info(const fp8c_module *module)
{
    fp8c_module_info info = {.struct_size = sizeof info};
    fp8c_module_report(module, &info);
    return info;
}

/* The values of all options, given or not: one that has none is null. With `only_given` those that
 * were given. NULL: out of memory. */
json_t *f8_train_options_json(const f8_train_options *o, bool only_given);
/* The value of one option by its index, F8_TRAIN_AT_x. NULL: out of memory. */
json_t *f8_train_option_json(const f8_train_options *o, int at);
/* Sets an option to a value that f8_train_option_json made. Texts stay in the value, which must
 * live on. false: it is no such value. */
bool f8_train_option_set(f8_train_options *o, int at, const json_t *value);

#endif
