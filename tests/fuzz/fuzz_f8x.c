/* Fuzz target of .f8x files. Any bytes give a message, or a package; each of its variants loads or
 * gives a message, and what loads is written with the same bytes. Checksums are corrected first,
 * since otherwise the reader would stop at them.
 *
 * usage: fuzz_f8x -max_total_time=60 -timeout=5 CORPUS SEEDS, where CORPUS is a folder of its own
 * for what it finds and SEEDS has files of `fp8c compile` to start from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/fp8c.h"
#include "frontend/f8x/parts.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define VERSION TEXT(FP8C_VERSION_MAJOR) "." TEXT(FP8C_VERSION_MINOR) "." TEXT(FP8C_VERSION_PATCH)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what, const char *message)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, message);
    abort();
}

/* Fields that were read are the fields that are written. */
static void check_fields(f8_plan *plan, f8_compile_report *report, f8_arena *arena)
{
    f8_wire w, r, again;
    f8_plan plan_again = {0};
    f8_compile_report report_again = {0};
    f8_diag d = {0};
    f8_wire_begin_write(&w, arena);
    f8_package_wire_fields(&w, plan, report);
    f8_wire_begin_read(&r, w.bytes, w.size, arena, "again");
    f8_package_wire_fields(&r, &plan_again, &report_again);
    require(f8_wire_end(&r, &d) == F8_OK, "what was read can't be read again", d.text);
    f8_wire_begin_write(&again, arena);
    f8_package_wire_fields(&again, &plan_again, &report_again);
    require(again.size == w.size && !memcmp(again.bytes, w.bytes, w.size),
            "written again it differs", "");
}

static void open_it(const uint8_t *bytes, size_t size)
{
    f8_arena arena;
    f8_package package;
    f8_plan plan;
    f8_compile_report report;
    f8_diag d = {0};
    f8_arena_init(&arena, NULL);
    if (f8_package_open(bytes, size, VERSION, &arena, &package, &d) == F8_OK) {
        for (uint32_t i = 0; i < package.n_programs && i < 4; i++)
            for (uint32_t k = 0; k < package.program[i].n_variants && k < 4; k++) {
                d = (f8_diag){0};
                if (f8_package_load(&package, &package.program[i], k, &arena, &plan, &report, &d) ==
                    F8_OK)
                    check_fields(&plan, &report, &arena);
                else
                    require(d.text[0], "a failure without a message", "");
            }
    } else {
        require(d.text[0], "a failure without a message", "");
    }
    f8_arena_end(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t room = (size + F8_PACKAGE_PAGE) / F8_PACKAGE_PAGE * F8_PACKAGE_PAGE;
    uint8_t *bytes = aligned_alloc(F8_PACKAGE_PAGE, room), *exact = malloc(size);
    memcpy(bytes, data, size);
    memset(bytes + size, 0x5a, room - size);
    memcpy(exact, data, size); /* so that the sanitizer sees a step beyond the end */
    open_it(exact, size);
    free(exact);
    if (size >= F8_PACKAGE_HEADER) {
        f8_package_seal(bytes, size);
        open_it(bytes, size);
    }
    free(bytes);
    return 0;
}
