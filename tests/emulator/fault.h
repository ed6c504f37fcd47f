/* Turns a kernel's faults into errors. The fiber that faulted is abandoned, and the launch fails.
 * One launch at a time, under the driver's lock. */
#ifndef F8_EMU_FAULT_H
#define F8_EMU_FAULT_H

/* From now on a fault of this thread calls report (CUDA_ERROR_*, what it did, the address), in the
 * signal's handler, and then goes on at the place that f8_emu_switch has saved in *resume. */
void f8_emu_faults_catch(void *const *resume,
                         void (*report)(int error, const char *what, const void *address));
void f8_emu_faults_release(void);

#endif
