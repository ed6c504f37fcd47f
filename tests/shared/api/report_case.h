/* Folders of runs that no training made: their records are made up, so that it is known what a
 * report must find in them. */
#ifndef F8_TEST_REPORT_CASE_H
#define F8_TEST_REPORT_CASE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct f8_report_case {
    int layers, steps;  /* the layers have two linears with x, w, dy, y */
    int every;          /* watched steps; 0: no statistics */
    uint32_t seed;      /* of what scatters */
    const char *recipe; /* "bf16": figures of a quantization are what-if ones, of `current` */
    const char *prefix; /* of the names of linears; NULL: "h" */
    int bad_from;       /* from this step on the x of F8_REPORT_BAD suffers; 0: never */
    int bad_for;        /* so many steps; 0: up to the end */
    int loss_from;      /* from this step on the loss rises; 0: never */
} f8_report_case;

#define F8_REPORT_BAD "h.1.mlp.x"

/* Writes a folder of that name into the folder of this test, and gives its path, which is valid for
 * a few calls. */
const char *f8_report_case_write(const char *name, const f8_report_case *c);
/* Writes a file of a folder, or appends to it. */
void f8_report_case_put(const char *folder, const char *name, const char *text, bool append);

#endif
