/* Faults that tests put into a program while it runs: see README.md. The linker puts the wrappers
 * of wrap.c around a few functions of the library (--wrap), so the library knows of no faults. */
#ifndef F8_TEST_FAULT_H
#define F8_TEST_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { F8_FAULT_TEXT = 160, F8_FAULT_WHY = 640 };

typedef enum f8_fault_kind {
    F8_FAULT_NONE,
    F8_FAULT_FLIP,    /* one bit of one element of a value */
    F8_FAULT_CORRUPT, /* `count` elements from `element` on: their mantissas are noise */
    F8_FAULT_GEMM,    /* one element of a product is `factor` times what it was */
    F8_FAULT_STALE,   /* states keep the values that they had before the function */
    F8_FAULT_ZERO,    /* the gradient of a parameter is zero */
    F8_FAULT_INF,     /* an element of a variable is Inf, before the function */
    F8_FAULT_NAN,     /* an element of an input is NaN, before the function */
    F8_FAULT_BIT      /* one bit of one element of a variable, before the function */
} f8_fault_kind;

typedef struct f8_fault {
    f8_fault_kind kind;
    char function[F8_FAULT_TEXT];
    char value[F8_FAULT_TEXT]; /* a name, #K, or empty: what the kind has as its default */
    int64_t nth; /* of the values of exactly that name the nth, from 0; -1: a variable's, or else
                    the first */
    char recipe[F8_FAULT_TEXT]; /* of programs that were compiled with this recipe; empty: of all */
    char target[F8_FAULT_TEXT]; /* "cpu" or "cuda" */
    int64_t step, micro;        /* from 1; micro 0: whichever */
    int64_t element;            /* -1: the first; of kind gemm the largest */
    int64_t count, bit;
    int64_t rank; /* -1: every rank */
    double factor;
    bool always; /* from `step` on; else once in this process */
} f8_fault;

/* false: `why` says what is wrong with the text. */
bool f8_fault_parse(const char *text, f8_fault *out, char why[F8_FAULT_WHY]);
const char *f8_fault_kind_name(f8_fault_kind k);
/* Whether it happens before the function, and not in it. */
bool f8_fault_is_between(const f8_fault *f);

/* The fault of all programs that are compiled from now on, in whichever thread; NULL: none. What
 * really happened is appended to the file `log`, a line of JSON for each time (NULL: nowhere). A
 * fault that a program can't have ends the process with a message and exit code 2. */
void f8_fault_use(const f8_fault *fault, const char *log);
/* How often something was changed since f8_fault_use. */
int64_t f8_fault_count(void);
/* The next compile prints the values of its functions as JSON Lines and ends the process. */
void f8_fault_list(void);

#endif
