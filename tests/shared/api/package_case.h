/* For tests of .f8x files: a context and a folder for files, as a fixture. */
#ifndef F8_TEST_PACKAGE_CASE_H
#define F8_TEST_PACKAGE_CASE_H

#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"

static fp8c_context *ctx;

static void setup(void)
{
    f8_cli_setup();
    ctx = new_context();
}

static void teardown(void)
{
    fp8c_context_destroy(ctx);
    f8_cli_teardown();
}

#endif
