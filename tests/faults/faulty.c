/* The program fp8c_faulty: the command fp8c with the fault that the environment describes. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/faults/fault.h"

__attribute__((constructor)) static void read_environment(void)
{
    const char *text = getenv("FP8C_FAULT"), *list = getenv("FP8C_FAULT_LIST");
    char why[F8_FAULT_WHY];
    f8_fault fault;
    if (text && *text) {
        if (!f8_fault_parse(text, &fault, why)) {
            fprintf(stderr, "FP8C_FAULT: %s\n", why);
            _exit(2);
        }
        f8_fault_use(&fault, getenv("FP8C_FAULT_LOG"));
    }
    if (list && *list == '1')
        f8_fault_list();
}
