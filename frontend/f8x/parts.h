/* What writing and reading of a .f8x file share. Internal to frontend/f8x/. */
#ifndef F8_PACKAGE_PARTS_H
#define F8_PACKAGE_PARTS_H

#include "frontend/f8x/package.h"
#include "runtime/plan_file.h"

typedef struct f8_section {
    uint64_t offset, size;
} f8_section;

enum { F8_PACKAGE_VERSION_TEXT = 24 };

/* As it lies in the file, field by field, with zeros up to header_hash. */
typedef struct f8_package_header {
    uint64_t magic;
    uint32_t format, plan_format;
    char version[F8_PACKAGE_VERSION_TEXT]; /* fp8c_version(), then zeros */
    uint64_t size;                         /* of the file */
    uint32_t n_sections;
    f8_hash body;   /* of everything behind the header */
    f8_hash header; /* of all header bytes before it */
} f8_package_header;

extern const uint64_t f8_package_magic;
void f8_package_wire_header(f8_wire *w, f8_package_header *h);
void f8_package_wire_section(f8_wire *w, f8_section *s);
void f8_package_wire_index(f8_wire *w, f8_package *p);
/* A plan and its compile report. */
void f8_package_wire_fields(f8_wire *w, f8_plan *plan, f8_compile_report *report);

#endif
