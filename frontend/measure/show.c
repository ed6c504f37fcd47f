/* Numbers as people read them: see columns.h. */
#include <math.h>

#include "frontend/measure/columns.h"
#include "ir/base/format.h"

/* Four digits, or all of those before the point, and then the unit. */
static void show(double x, const char *unit, char to[F8_COLUMN_SHOWN])
{
    const bool whole = fabs(x) >= 999.95 && fabs(x) < 1e15;
    f8_format(to, F8_COLUMN_SHOWN, whole ? "%.0f%s%s" : "%.4g%s%s", x, *unit ? " " : "", unit);
}

static void show_time(double seconds, char to[F8_COLUMN_SHOWN])
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    int i = 0;
    double x = seconds * 1e9;
    for (; i < 3 && x >= 999.95; i++)
        x *= 1e-3;
    show(i == 3 ? seconds : x, unit[i], to);
}

const char *f8_column_show(double x, f8_column_unit unit, char to[F8_COLUMN_SHOWN])
{
    to[0] = 0;
    if (isnan(x))
        return to;
    switch (unit) {
    case F8_UNIT_SECONDS: show_time(x, to); break;
    case F8_UNIT_SHARE: f8_format(to, F8_COLUMN_SHOWN, "%.1f%%", 100 * x); break;
    case F8_UNIT_BOUNDS: f8_format(to, F8_COLUMN_SHOWN, "%.3g", x); break;
    case F8_UNIT_OPERATIONS_A_SECOND: show(x * 1e-9, "GFLOP/s", to); break;
    case F8_UNIT_BYTES_A_SECOND: show(x * 1e-9, "GB/s", to); break;
    default: show(x, f8_measure_unit_text(unit), to); break;
    }
    return to;
}
