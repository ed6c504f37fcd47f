/* Fields of records, and arrays that grow. */
#include <math.h>
#include <stdlib.h>

#include "frontend/diagnose/report/parts.h"
#include "ir/base/file.h"

f8_status f8_report_no_memory(f8_diag *diag)
{
    return f8_file_fail(diag, F8_ERR_MEMORY, NULL, "out of memory");
}

f8_status f8_report_grow(void *array, size_t *room, size_t n, size_t size, f8_diag *diag)
{
    void **at = array;
    if (n < *room)
        return F8_OK;
    const size_t more = *room ? *room * 2 : 16;
    void *grown = realloc(*at, more * size);
    if (!grown)
        return f8_report_no_memory(diag);
    *at = grown;
    *room = more;
    return F8_OK;
}

bool f8_report_number(const json_t *record, const char *name, double *to)
{
    const json_t *value = json_object_get(record, name);
    *to = json_is_number(value) ? json_number_value(value) : NAN;
    return !value || json_is_number(value) || json_is_null(value);
}

const char *f8_report_text(const json_t *record, const char *name)
{
    const json_t *value = json_object_get(record, name);
    return !value || json_is_null(value) ? "" : json_string_value(value);
}
