/* Installations that a test makes up in a folder of its own: shared libraries with the functions of
 * one of the tables of GPU libraries (runtime/cuda/api.h, cudnn_api.h), and files that are no
 * libraries. Needs a C compiler. */
#ifndef F8_TEST_STUB_LIBRARY_H
#define F8_TEST_STUB_LIBRARY_H

/* A fixture: the folder, emptied and removed at the end. */
void f8_stub_setup(void);
void f8_stub_teardown(void);
/* A path in it, in one of a few rotating buffers. */
const char *f8_stub_path(const char *name);

/* The status of a command that the shell runs. */
int f8_stub_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A file with this text; its folder is made. */
void f8_stub_file(const char *name, const char *text);
/* FOLDER/SONAME with all functions of `table` ("F8_NVRTC_SYMBOLS"), which answer 0, but for those
 * that the C text `extra` defines in their place. */
void f8_stub_library(const char *folder, const char *soname, const char *table, const char *extra);
/* FOLDER/SONAME of this C text alone, compiled with these further arguments ("" for none). */
void f8_stub_compile(const char *folder, const char *soname, const char *text,
                     const char *arguments);

/* FOLDER with the emulator's driver, but for what the text defines in its place, and with other
 * libraries of the emulator. Its folder is FP8C_CUDA_PATH, which becomes FOLDER. */
void f8_stub_over_emulator(const char *folder, const char *text);

/* NVRTC of this major version; a driver that serves CUDA `version` (12080) and whose cuInit gives
 * `init`. */
void f8_stub_nvrtc(const char *folder, const char *soname, int major);
void f8_stub_driver(const char *folder, int version, int init);

#endif
