/* The time that each step of a program's plan took: see profile.h. */
#include "frontend/cli/profile.h"

static void print_step(FILE *to, const fp8c_program *program, int function, const fp8c_step *s,
                       double runs)
{
    const fp8c_collective *c = &s->collective;
    fprintf(to, "profile %s %s %s %.6f s %.3f GB/s%s%s",
            fp8c_program_function_name(program, function), s->kind, s->name, s->seconds / runs,
            (double)(s->bytes_read + s->bytes_written) * runs / s->seconds / 1e9,
            s->algorithm ? " " : "", s->algorithm ? s->algorithm : "");
    if (c->goes_on)
        fprintf(to, ", beside %d steps; queued %.6f s, waited for %.6f s", c->beside,
                c->queued / runs, c->waited / runs);
    fprintf(to, "\n");
}

void cli_profile_print(FILE *to, const fp8c_program *program, f8_profile_runs runs,
                       const void *user)
{
    fp8c_step s;
    for (int f = 0; fp8c_program_function_name(program, f); f++)
        for (int i = 0; fp8c_program_step(program, f, i, &s) == FP8C_OK; i++)
            if (s.seconds > 0)
                print_step(to, program, f, &s, runs(user, f));
}
