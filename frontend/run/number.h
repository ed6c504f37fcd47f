/* How the records of a run write numbers with all their bits. */
#ifndef F8_RUN_NUMBER_H
#define F8_RUN_NUMBER_H

#include <jansson.h>
#include <math.h>

#include "ir/base/format.h"

/* A number as text that has all its bits: "0x1.8p+1", "inf", "nan". */
static inline const char *f8_hex(double x, char text[40])
{
    f8_format(text, 40, isnan(x) ? "nan" : "%a", x); /* a NaN whatever its sign is */
    return text;
}

/* The number of such a text in a record. NaN: there is none. */
static inline double f8_of_hex(const json_t *record, const char *name)
{
    const char *text = json_string_value(json_object_get(record, name));
    return text ? f8_number(text) : NAN;
}

#endif
