/* What the emitters are: part of the key of every kernel that they emit. */
#ifndef F8_CODEGEN_CODE_ID_H
#define F8_CODEGEN_CODE_ID_H

/* The version, and a hash of the sources from which a description becomes code (the Makefile's
 * CODE): the same wherever they are built, another when one of them was edited. */
extern const char f8_code_id[];

#endif
