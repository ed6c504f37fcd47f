/* GEMMs to tune that are asked for as such: by a command line, a file, or a suite of a model.
 * Internal to frontend/.
 *
 *     gemms.c       what a GEMM is, as text; lists of them
 *     gemm_spec.c   the form of the command line, with lists and ranges
 *     gemm_file.c   files: CSV and JSON Lines; suites
 *     gemm.c        a GEMM as a module
 *     gemm_run.c    tuning one; lists of them (frontend/measure/ measures those)
 *
 * M and N are the rows and columns of the result, K is the length of the sums. On the command line:
 *
 *     gemm    = sizes "x" sizes "x" sizes ":" formats { ":" hows }
 *     sizes   = size { "," size }             size    = N | N ".." N "*" N | N ".." N "+" N
 *     formats = format { "," format }         format  = dtype [ "x" dtype ]
 *     hows    = how { "," how }               all of one kind: see F8_TUNE_HOWS
 *
 * `1..4096*2x4096x4096:f8e4m3` is 13 GEMMs. Every part that is a list multiplies their number. */
#ifndef F8_TUNE_GEMMS_H
#define F8_TUNE_GEMMS_H

#include "frontend/fp8c_tune.h"
#include "ir/base/status.h"
#include "ir/base/type.h"

/* How a GEMM is computed, each a kind with its words. The first word of a kind is the default.
 * X(kind, "name", words...) */
#define F8_TUNE_HOWS(X)                                                                            \
    X(SCALING, "scaling", "tensor", "row", "block", "mx")                                          \
    X(ROLE, "role", "", "fprop", "dgrad", "wgrad")                                                 \
    X(EPILOGUE, "epilogue", "f32", "bf16", "bias", "accumulate")                                   \
    X(LAYOUT, "layout", "", "nn", "nt", "tn", "tt")

enum {
#define X(kind, name, ...) F8_TUNE_##kind,
    F8_TUNE_HOWS(X)
#undef X
        F8_TUNE_KINDS,
    F8_TUNE_WORDS = 5, /* of a kind at most */
    F8_TUNE_GEMM_TEXT = 128,
    F8_TUNE_LISTED = 64,
    F8_TUNE_MOST_GEMMS = 10000
};
/* Of the words above, by their index. */
enum { F8_TUNE_TENSOR, F8_TUNE_ROW, F8_TUNE_BLOCK, F8_TUNE_MX };
enum { F8_TUNE_NO_ROLE, F8_TUNE_FPROP, F8_TUNE_DGRAD, F8_TUNE_WGRAD };
enum { F8_TUNE_F32, F8_TUNE_BF16, F8_TUNE_BIAS, F8_TUNE_ACCUMULATE };

typedef struct f8_tune_gemm {
    int64_t m, n, k;
    f8_dtype a, b;              /* F8_F32, F8_BF16, or FP8 both */
    uint8_t how[F8_TUNE_KINDS]; /* indices of words */
    int64_t count;              /* how often a step has it */
    const char *name;           /* "": none */
} f8_tune_gemm;

/* ---- gemms.c ---- */

extern const char *const f8_tune_how_name[F8_TUNE_KINDS];
/* The word; NULL past the last of its kind. */
const char *f8_tune_word(int kind, int index);
/* The index of the word in its kind; -1: it is none. */
int f8_tune_find_word(int kind, const char *word, size_t length);
/* Writes the kind's words with commas between them, and returns `text`. */
const char *f8_tune_list_words(int kind, char text[F8_TUNE_LISTED]);
/* "f8e4m3", or "f8e5m2xf8e4m3". False: it is none. */
bool f8_tune_format(const char *text, size_t length, f8_dtype *a, f8_dtype *b);
extern const char f8_tune_formats[]; /* what is expected then, for messages */

/* What the GEMM's operands are stored as, by its layout, or else by its role: the second operand is
 * [N, K], that of dgrad [K, N], and those of wgrad [K, M] and [K, N]. So weights are [out, in]. */
void f8_tune_transposed(const f8_tune_gemm *g, bool transposed[2]);
/* Why there is no such GEMM on any target; NULL: there may be. */
const char *f8_tune_impossible(const f8_tune_gemm *g);
/* The GEMM as --gemm takes it, without count and name. Returns `text`. */
const char *f8_tune_gemm_text(const f8_tune_gemm *g, char text[F8_TUNE_GEMM_TEXT]);
/* The bytes of its operands, scales and result; a double, since they may be beyond any memory. */
double f8_tune_gemm_bytes(const f8_tune_gemm *g);

/* A list; the texts in it are its own. Zeros but for the arena, which the caller ends. */
typedef struct f8_tune_gemms {
    f8_arena arena;
    f8_tune_gemm *gemm;
    size_t n, room;
} f8_tune_gemms;
/* Append a copy. F8_ERR_INPUT: the list has F8_TUNE_MOST_GEMMS already. */
f8_status f8_tune_gemms_add(f8_tune_gemms *list, const f8_tune_gemm *g, f8_diag *diag);

/* ---- gemm_spec.c ---- */

/* Append the GEMMs of a text of the form above. */
f8_status f8_tune_gemms_parse(f8_tune_gemms *list, const char *text, f8_diag *diag);

/* ---- gemm_file.c ---- */

/* Append the GEMMs of a file. Its first character that begins no comment says which: { JSON Lines,
 * else CSV, whose first row has the names of the columns. A line that begins with # is a comment.
 * Columns, and keys of JSON: m, n, k; format, or a and b; and, if one likes, the names of
 * F8_TUNE_HOWS, count (1), name. diag has the line and the column; `path` is borrowed with it. */
f8_status f8_tune_gemms_read(f8_tune_gemms *list, const char *path, f8_diag *diag);
/* Append the GEMMs of a suite. Its file is NAME.csv in the installed folder, or in bench/suites/ of
 * the tree that this code was built in. A `name` that has a slash or a dot is the path of a file.
 */
f8_status f8_tune_gemms_suite(f8_tune_gemms *list, const char *name, f8_diag *diag);

/* ---- gemm.c ---- */

/* Make a module whose function `forward` has nothing but `copies` such products, each on operands
 * of its own: inputs `a.0`, `b.0`, `a_scale.0`, `b_scale.0`, `sum.0`, `bias.0`, as far as it has
 * them, and a result `c.0`; and so on. It is to be compiled under recipe f32, which changes no
 * dtype in it. */
fp8c_status f8_tune_gemm_module(fp8c_context *ctx, const f8_tune_gemm *g, int copies,
                                fp8c_module **out);
/* The products whose operands take so many bytes together, within reason: 8 at most. */
int f8_tune_gemm_copies(const f8_tune_gemm *g, double bytes);
enum { F8_TUNE_COLD_BYTES = 64 << 20 }; /* more than most caches have */
/* Whether this machine has memory for so many products. On a GPU the allocation says so itself. */
f8_status f8_tune_gemm_fits(const f8_tune_gemm *g, int copies, const char *target, f8_diag *diag);

/* ---- gemm_run.c ---- */

/* Tune the GEMM of the text. FP8C_ERR_MEMORY also where this machine's memory is known to be too
 * small; the message says how much is needed. */
fp8c_status f8_tune_one(fp8c_context *ctx, const fp8c_tune_options *options, fp8c_tuning **out);

/* What a list is made of: texts as --gemm, --gemm-file and --suite take them. */
typedef struct f8_tune_sources {
    const char *const *spec, *const *file, *const *suite;
    size_t n_specs, n_files, n_suites;
} f8_tune_sources;
/* Make a list of all of them, in this order; end its arena also after a failure. A GEMM that is
 * there several times is there once, with the sum of its counts. */
fp8c_status f8_tune_gather(fp8c_context *ctx, const f8_tune_sources *from, f8_tune_gemms *list);

#endif
