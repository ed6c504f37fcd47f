/* Rendering of diagnostics: what a person reads when an input is wrong.
 *
 *     gpt.f8:12:7: error: `layernom`: no such op (did you mean `layernorm`?)
 *        12 |   %n = layernom(%x)
 *           |        ^
 */
#ifndef F8_DIAG_H
#define F8_DIAG_H

#include "ir/base/status.h"

/* Renders `d` into buf (always terminated, cut short when it does not fit); returns the length
 * it would have had, as snprintf does. `text` of n bytes is the source d->loc points into, or
 * NULL. The message line is followed by the source line and a caret where the place is known:
 * tabs become spaces, long lines are clipped around the column, and bytes that are no printable
 * text are shown as <XX>. Ends with a newline. */
size_t f8_diag_render(const f8_diag *d, const char *text, size_t n, char *buf, size_t size);

#endif
