/* The records of `fp8c plan`, which the folder of a run has too. */
#ifndef F8_CMD_PLAN_H
#define F8_CMD_PLAN_H

#include "frontend/cli/cmd.h"

/* The memory of a function at its peak, as the record `memory`; NULL in *record: out of memory.
 * false: the target has no plan. */
bool cli_memory_record(const fp8c_program *program, int function, const char *recipe,
                       int64_t parameters, json_t **record);
/* One of the tensors that are in memory there, the largest first, as the record `tensor`. false
 * ends a loop. */
bool cli_tensor_record(const fp8c_program *program, int function, int index, json_t **record);

#endif
