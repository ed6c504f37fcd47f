/* Rendering of diagnostics: see diag.h. */
#include "frontend/text/diag.h"

#include <stdio.h>
#include <string.h>

#include "ir/base/text.h"

/* Lines of up to WHOLE bytes are shown whole. Of longer lines, AROUND bytes on either side of the
 * place are shown. */
enum { WHOLE = 120, AROUND = 60, TAB = 4 };

/* ---- a buffer that counts past its end ---- */

typedef struct out {
    char *buf;
    size_t size, n;
} out;

static void put(out *o, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++, o->n++)
        if (o->n + 1 < o->size)
            o->buf[o->n] = s[i];
}

static void put_text(out *o, const char *s)
{
    put(o, s, strlen(s));
}

/* ---- the source line ---- */

/* Finds the bytes of line `line`, without its end. false if the text has fewer lines. */
static bool find_line(const char *text, size_t n, uint32_t line, const char **start, size_t *length)
{
    const char *at = text, *end = text + n;
    for (uint32_t i = 1; i < line; i++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (!at)
            return false;
        at++;
    }
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    *start = at;
    *length = (size_t)((stop ? stop : end) - at);
    return true;
}

/* Writes one character of the source so that it is safe on a terminal. Returns how many bytes it
 * has, and adds the columns that it covers. */
static size_t put_source_char(out *o, const char *s, size_t n, size_t *columns)
{
    unsigned char c = (unsigned char)s[0];
    size_t length = f8_utf8_length(s, n);
    if (c == '\t') {
        put(o, "    ", TAB);
        *columns += TAB;
        return 1;
    }
    if (length == 1 && c >= 0x20 && c != 0x7F) {
        put(o, s, 1);
        *columns += 1;
        return 1;
    }
    bool c1_control = length == 2 && c == 0xC2 && (unsigned char)s[1] < 0xA0;
    if (length > 1 && !c1_control) {
        put(o, s, length);
        *columns += 1;
        return length;
    }
    char hex[8];
    snprintf(hex, sizeof hex, "<%02X>", c);
    put_text(o, hex);
    *columns += 4;
    return 1;
}

static void put_source(out *o, f8_loc loc, const char *line, size_t length)
{
    size_t place = loc.column ? loc.column - 1 : 0;
    if (place > length)
        place = length;
    size_t from = length > WHOLE && place > AROUND ? place - AROUND : 0;
    while (from > 0 && from < place && ((unsigned char)line[from] & 0xC0) == 0x80)
        from++; /* do not begin in the middle of a character */
    size_t to = length > WHOLE && length - place > AROUND ? place + AROUND : length;
    size_t columns = 0, caret = 0;
    char gutter[32];
    snprintf(gutter, sizeof gutter, "%5u | ", loc.line);
    put_text(o, gutter);
    if (from > 0) {
        put_text(o, "...");
        columns += 3;
    }
    for (size_t i = from; i < to;) {
        if (i <= place)
            caret = columns;
        i += put_source_char(o, line + i, length - i, &columns);
    }
    if (place >= to)
        caret = columns;
    put_text(o, to < length ? "...\n      | " : "\n      | ");
    for (size_t i = 0; i < caret; i++)
        put(o, " ", 1);
    put_text(o, "^\n");
}

/* ---- the whole message ---- */

size_t f8_diag_render(const f8_diag *d, const char *text, size_t n, char *buf, size_t size)
{
    out o = {buf, size, 0};
    const bool file = d->file && *d->file; /* a module that was built by calls has none */
    if (file)
        put_text(&o, d->file);
    if (d->loc.line) {
        char place[32];
        snprintf(place, sizeof place, "%s%u:%u", file ? ":" : "", d->loc.line, d->loc.column);
        put_text(&o, place);
    }
    put_text(&o, file || d->loc.line ? ": error: " : "error: ");
    size_t columns = 0;
    for (size_t i = 0, length = strlen(d->text); i < length;) {
        if (d->text[i] == '\n') { /* some messages have a line for each operand */
            put(&o, d->text + i++, 1);
            continue;
        }
        i += put_source_char(&o, d->text + i, length - i, &columns);
    }
    put_text(&o, "\n");
    const char *line;
    size_t length;
    if (text && d->loc.line && find_line(text, n, d->loc.line, &line, &length))
        put_source(&o, d->loc, line, length);
    if (size)
        buf[o.n < size ? o.n : size - 1] = 0;
    return o.n;
}
