/* Variables that ranks share (`zero` of fp8c.h), as files have them: whole. Internal to frontend/.
 *
 * A file has no trace of how many ranks wrote it, so any number of ranks can read it, at any stage
 * of ZeRO. To save, all ranks call f8_shared_write together: rank 0 writes, and asks the others for
 * their parts, one variable at a time. To load, each reads the file and keeps its part. */
#ifndef F8_CHECKPOINT_SHARED_H
#define F8_CHECKPOINT_SHARED_H

#include "frontend/checkpoint/safetensors.h"
#include "frontend/fp8c.h"

/* How many variables files have: these come first, and behind them codes of weights that the
 * program keeps (frontend/codes.c), which `prepare` makes. */
int f8_file_variables(const fp8c_program *program);
/* Whether any variable is shared. */
bool f8_shares(fp8c_program *program);
/* Bytes of the whole of a variable. */
size_t f8_shared_bytes(const fp8c_variable *v);
/* Read the whole of a variable. Where it is shared, all ranks call this together. */
f8_status f8_shared_read(fp8c_program *program, int variable, void *to, f8_diag *diag);
/* This rank's part of a whole value, in `memory`. */
f8_status f8_shared_part(fp8c_program *program, int variable, const void *whole, f8_arena *memory,
                         void **out, f8_diag *diag);
/* f8_st_write of tensors that are the program's variables in order, whole; it sets `fill`. Where
 * variables are shared, all ranks call this together, and all fail if rank 0 does. */
f8_status f8_shared_write(fp8c_program *program, const char *path, f8_st_contents *contents,
                          const f8_allocator *allocator, f8_diag *diag);
/* Write the bytes of all variables, whole, one after the other, without names. Where variables are
 * shared, all ranks call this together; those whose path is NULL give their parts. */
f8_status f8_shared_write_bytes(fp8c_program *program, const char *path, f8_temporaries *list,
                                f8_diag *diag);

#endif
