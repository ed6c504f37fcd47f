/* The page: page.html with the style, the data and the program in their places. A file of its own
 * then needs nothing else, not even a network. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frontend/diagnose/report/parts.h"
#include "ir/base/embed.h"

EMBED(f8_report_html, "frontend/diagnose/report/page/page.html")
EMBED(f8_report_css, "frontend/diagnose/report/page/page.css")
EMBED(f8_report_js_base, "frontend/diagnose/report/page/base.js")
EMBED(f8_report_js_charts, "frontend/diagnose/report/page/charts.js")
EMBED(f8_report_js_tensors, "frontend/diagnose/report/page/tensors.js")
EMBED(f8_report_js_curves, "frontend/diagnose/report/page/curves.js")
EMBED(f8_report_js_page, "frontend/diagnose/report/page/page.js")
EMBED(f8_report_js_index, "frontend/diagnose/report/page/index.js")

/* The data stand in a <script> element, which ends at "</script>" wherever that is: so no "<"
 * stands in them. In JSON it can only be in a text, where \u003c is the same. */
static void put_json(FILE *to, const char *text)
{
    for (const char *at; (at = strchr(text, '<')); text = at + 1) {
        fwrite(text, 1, (size_t)(at - text), to);
        fputs("\\u003c", to);
    }
    fputs(text, to);
}

static void put_page(FILE *to, f8_report_kind kind, const char *data)
{
    static const char style[] = "@STYLE@", place[] = "@DATA@", script[] = "@SCRIPT@";
    const char *at = f8_report_html, *next = strstr(at, style);
    fwrite(at, 1, (size_t)(next - at), to);
    fputs(f8_report_css, to);
    at = next + strlen(style);
    next = strstr(at, place);
    fwrite(at, 1, (size_t)(next - at), to);
    put_json(to, data);
    at = next + strlen(place);
    next = strstr(at, script);
    fwrite(at, 1, (size_t)(next - at), to);
    static const char *const scripts[][6] = {
        [F8_REPORT_RUNS] = {f8_report_js_base, f8_report_js_charts, f8_report_js_curves,
                            f8_report_js_tensors, f8_report_js_page},
        [F8_REPORT_INDEX] = {f8_report_js_base, f8_report_js_charts, f8_report_js_curves,
                             f8_report_js_index}};
    for (size_t i = 0; scripts[kind][i]; i++)
        fputs(scripts[kind][i], to);
    fputs(next + strlen(script), to);
}

f8_status f8_report_page(const f8_report *r, int again, char **text, size_t *size, f8_diag *diag)
{
    json_t *data = NULL;
    *text = NULL;
    const f8_status status = f8_report_data(r, &data, diag);
    json_object_set_new(data, "again", json_integer(again));
    if (again)
        json_object_set_new(data, "written", json_integer((json_int_t)time(NULL)));
    char *json = status == F8_OK ? json_dumps(data, F8_REPORT_FLAGS) : NULL;
    json_decref(data);
    FILE *to = json ? open_memstream(text, size) : NULL;
    if (to)
        put_page(to, r->kind, json);
    free(json);
    const bool whole = to && !ferror(to);
    if (to && !(fclose(to) == 0 && whole)) {
        free(*text);
        *text = NULL;
    }
    return status != F8_OK ? status : *text ? F8_OK : f8_report_no_memory(diag);
}
