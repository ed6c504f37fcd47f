/* What the files of adapters share. */
#ifndef F8_ADAPTERS_PARTS_H
#define F8_ADAPTERS_PARTS_H

#include "frontend/formats/adapters.h"

/* Those of the folder a->path. (adapters_peft.c) */
f8_status f8_adapters_of_folder(f8_adapters *a, const f8_model_folder *from,
                                const f8_model_folder *model, f8_diag *diag);
/* Sorts the adapters and reads their factors. */
f8_status f8_adapters_finish(f8_adapters *a, f8_diag *diag);

#endif
