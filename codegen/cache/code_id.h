/* The identity of the emitters, which is part of the key of every kernel that they emit. */
#ifndef F8_CODEGEN_CODE_ID_H
#define F8_CODEGEN_CODE_ID_H

/* The version, and a hash of the sources that turn a description into code (CODE in the Makefile).
 * It does not depend on where they are built, and changes when one of them is edited. */
extern const char f8_code_id[];

#endif
