/* Renders diagnostics for people.
 *
 *     gpt.f8:12:7: error: `layernom`: no such op (did you mean `layernorm`?)
 *        12 |   %n = layernom(%x)
 *           |        ^
 */
#ifndef F8_DIAG_H
#define F8_DIAG_H

#include "ir/base/status.h"

/* Renders `d` into buf. The result is always terminated and cut short if it does not fit; the
 * return value is the length that it would have had, as snprintf returns it. `text` of n bytes is
 * the source that d->loc refers to, or NULL. If the place is known, the source line and a caret
 * follow the message. Tabs become spaces, long lines are clipped around the column, and bytes that
 * are not printable text are shown as <XX>. The result ends with a newline. */
size_t f8_diag_render(const f8_diag *d, const char *text, size_t n, char *buf, size_t size);

#endif
