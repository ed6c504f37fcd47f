/* What a program knows of its variables beside their types: where each is, whose memory that is,
 * and whether it has a value. The programs of a context know of each other's, so that memory that
 * two of them share is used alike. */
#ifndef F8_VARIABLES_H
#define F8_VARIABLES_H

#include "frontend/fp8c.h"
#include "runtime/plan.h"

typedef struct f8_program_variable {
    uintptr_t at, own; /* its memory now, and memory of ours; 0: none. `at` changes under the
                          context's lock, because binds of other programs read it */
    bool valued, own_valued; /* it has a value: where it is now; in memory of ours */
    bool kept;               /* a gradient that `update` reads and leaves as it is */
    bool lent;               /* others may have its memory */
    bool made;               /* it is codes that are kept, or their scales */
    bool made_of, prepared;  /* `prepare` reads it; writes it */
} f8_program_variable;

/* The amax histories of a program whose functions have a form for empty ones. On a CPU they are
 * looked at before each run of such a function. A GPU's are read only when they can have changed.
 */
typedef struct f8_histories {
    int32_t variable; /* -1: no function has such a form */
    float *copy;      /* room for a GPU's */
    bool shared;      /* others may write them at any time */
    int64_t sure;     /* none is empty, nor will be after as many more pushes; -1: not known */
} f8_histories;

/* Whether the kept gradients hold sums: they do where the count of micro-steps is above 0, else
 * they count as zeros. sums.c. */
typedef struct f8_gradient_sums {
    int32_t count; /* the variable; -1: there is no `update` */
    bool shared;   /* others may write the count at any time */
    bool known;    /* on a GPU: `value` is the count's */
    float value;
    bool stale; /* the last run was an `update`: kept gradients hold what they held before */
} f8_gradient_sums;

/* Codes of weights that are kept between runs, and amaxes of weights under `delayed`. codes.c. */
typedef struct f8_kept_codes {
    uint32_t n;      /* variables that hold codes or their scales */
    int32_t prepare; /* the function that makes them; -1: there are none */
    bool stale;      /* they may not be those of the weights */
    /* Others may write a weight at any time: they were given its memory, or it lies in theirs. */
    bool viewed, bound;
} f8_kept_codes;

/* Once a program is compiled or opened: from here on it has p->var, and other programs of the
 * context know of it. F8_ERR_INPUT: its option `external` matches nothing. The second may be called
 * without the first. */
f8_status f8_variables_begin(fp8c_program *p, f8_diag *diag);
void f8_variables_end(fp8c_program *p);

/* Whether a name matches the program's option `external`. */
bool f8_is_external(const fp8c_program *p, const char *name);

/* A variable's memory, on a GPU its address there; NULL: none is bound. The program has memory. */
void *f8_variable_memory(const fp8c_program *p, uint32_t variable);

/* A variable whose memory overlaps these bytes; -1: none. */
int f8_variable_overlaps(const fp8c_program *p, const void *at, int64_t bytes);

/* All variables have memory (F8_ERR_INPUT: one has not); all have values; all variables of a
 * function have values (F8_ERR_INPUT: one has not). */
f8_status f8_variables_bound(const fp8c_program *p, f8_diag *diag);
bool f8_variables_valued(const fp8c_program *p);
f8_status f8_variables_ready(const fp8c_program *p, const f8_plan_func *func, f8_diag *diag);

/* Those that have memory got values; none has a value any more; one got a value. */
void f8_variables_set(fp8c_program *p);
void f8_variables_clear(fp8c_program *p);
void f8_variable_set(fp8c_program *p, uint32_t variable);
/* keep[v]: variable v has a value. In the program's arena. NULL: out of memory. */
bool *f8_variables_keep(fp8c_program *p, f8_arena *arena);

/* The whole type of a variable that ranks may share. */
f8_type f8_variable_whole(const fp8c_program *p, uint32_t variable);
/* Copies this rank's part of a whole value to `to`, which has room for it. Rows beyond the value's
 * end are zeros. */
void f8_variable_part(const fp8c_program *p, uint32_t variable, const void *whole, void *to);

/* The variable's memory is known to others from now on. */
f8_status f8_variable_lend(fp8c_program *p, uint32_t variable, f8_diag *diag);
/* The variable is at `at` from now on; NULL: in memory of ours. F8_ERR_INPUT: that memory overlaps
 * another variable's of this program, or is used otherwise by another program of the context. */
f8_status f8_variable_move(fp8c_program *p, uint32_t variable, void *at, f8_diag *diag);
/* The variable leaves the caller's memory. An external one then lies nowhere and has no value. */
void f8_variable_lift(fp8c_program *p, uint32_t variable);

/* ---- sums.c ---- */

/* Finds the count and the kept gradients. p->var is there. */
void f8_sums_begin(fp8c_program *p);
/* The count has changed, nobody knows how. */
void f8_sums_forget(fp8c_program *p);
/* Before somebody looks at variables, or changes them: gradients that count as zeros are zeros. The
 * second is for one variable. */
f8_status f8_sums_settle(fp8c_program *p, f8_diag *diag);
f8_status f8_sums_look(fp8c_program *p, uint32_t variable, f8_diag *diag);
f8_status f8_sums_lend(fp8c_program *p, uint32_t variable, f8_diag *diag);
/* f8_codes_run, where no codes are kept. */
f8_status f8_sums_run(fp8c_program *p, uint32_t function, f8_diag *diag);

/* ---- codes.c ---- */

/* Finds the variables with codes. p->var is there. */
void f8_codes_begin(fp8c_program *p);
/* Before a write of a state: whether codes stay as they are, because it has what it had of all
 * weights. A caller may write the scales of activations. */
f8_status f8_codes_keep(fp8c_program *p, uint32_t variable, const void *value, bool *keeps,
                        f8_diag *diag);
/* The variable got a value that no function gave it; others have its memory from now on; it has
 * moved. */
void f8_codes_changed(fp8c_program *p, uint32_t variable);
void f8_codes_lend(fp8c_program *p, uint32_t variable);
void f8_codes_moved(fp8c_program *p, uint32_t variable);
/* Whether `prepare` has to run before the function: it reads codes, and they may be stale. */
bool f8_codes_wanting(const fp8c_program *p, int function);
/* Runs a function as f8_program_form gave it. */
f8_status f8_codes_run(fp8c_program *p, uint32_t function, f8_diag *diag);

#endif
