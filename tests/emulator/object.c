/* See object.h. A piece has the sections that the kernel's description refers to, what those refer
 * to, and so on. So the compiler must give each function and each variable a section
 * (-ffunction-sections -fdata-sections). */
#include "tests/emulator/object.h"

#include <elf.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ARRAYS = 64, MOST_FUNCTIONS = 32, STUB = 16 };

typedef struct object {
    const char *p;
    const Elf64_Shdr *section;
    size_t n_sections;
    const Elf64_Sym *symbol;
    size_t n_symbols;
    const char *names, *section_names;
} object;

/* A place in a section. */
typedef struct place {
    size_t section;
    int64_t at;
} place;

typedef struct cutting {
    const object *o;
    size_t *queue, n_queue;
    int64_t *offset; /* of each section in the piece's memory; -1: not in it */
    place array[MOST_ARRAYS];
    f8_emu_function function[MOST_FUNCTIONS];
    size_t symbol[MOST_FUNCTIONS]; /* of function[i] */
    unsigned *address;
    char *memory;
    f8_emu_piece head;
} cutting;

/* ---- the object ---- */

static bool open_object(const f8_emu_bytes *b, object *o)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)b->p;
    if (b->n < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_type != ET_REL || head->e_machine != EM_X86_64 ||
        head->e_shoff + head->e_shnum * sizeof(Elf64_Shdr) > b->n)
        return false;
    *o = (object){.p = b->p,
                  .section = (const Elf64_Shdr *)(b->p + head->e_shoff),
                  .n_sections = head->e_shnum};
    for (size_t i = 0; i < o->n_sections; i++) {
        const Elf64_Shdr *s = &o->section[i];
        if (s->sh_type != SHT_NOBITS && s->sh_offset + s->sh_size > b->n)
            return false;
        if (s->sh_type == SHT_SYMTAB) {
            o->symbol = (const Elf64_Sym *)(b->p + s->sh_offset);
            o->n_symbols = s->sh_size / sizeof *o->symbol;
            o->names = b->p + o->section[s->sh_link].sh_offset;
        }
    }
    o->section_names = b->p + o->section[head->e_shstrndx].sh_offset;
    return o->symbol != NULL;
}

static size_t find_section(const object *o, const char *name)
{
    for (size_t i = 1; i < o->n_sections; i++)
        if (strcmp(o->section_names + o->section[i].sh_name, name) == 0 &&
            o->section[i].sh_type == SHT_PROGBITS)
            return i;
    return 0;
}

static const Elf64_Rela *relocations(const object *o, size_t section, size_t *n)
{
    for (size_t i = 1; i < o->n_sections; i++)
        if (o->section[i].sh_type == SHT_RELA && o->section[i].sh_info == section) {
            *n = o->section[i].sh_size / sizeof(Elf64_Rela);
            return (const Elf64_Rela *)(o->p + o->section[i].sh_offset);
        }
    *n = 0;
    return NULL;
}

static const Elf64_Sym *symbol_of(const object *o, const Elf64_Rela *r)
{
    return &o->symbol[ELF64_R_SYM(r->r_info)];
}

/* What the pointer at a place points to; section 0: nothing. */
static place target(const object *o, place from)
{
    size_t n;
    const Elf64_Rela *r = relocations(o, from.section, &n);
    for (size_t i = 0; i < n; i++)
        if ((int64_t)r[i].r_offset == from.at && ELF64_R_TYPE(r[i].r_info) == R_X86_64_64) {
            const Elf64_Sym *s = symbol_of(o, &r[i]);
            return (place){s->st_shndx, (int64_t)s->st_value + r[i].r_addend};
        }
    return (place){0, 0};
}

static const char *text_at(const object *o, place from)
{
    const place at = target(o, from);
    return at.section ? o->p + o->section[at.section].sh_offset + at.at : "";
}

static const char *body_of_kernel(const object *o, place kernel)
{
    kernel.at += (int64_t)offsetof(f8_emu_kernel, body);
    return text_at(o, kernel);
}

/* ---- what belongs to the kernel ---- */

static bool add_section(cutting *c, size_t section)
{
    if (section == SHN_UNDEF || section >= SHN_LORESERVE || section >= c->o->n_sections) {
        f8_emu_note("a kernel refers to section %zu", section);
        return false;
    }
    if (c->offset[section] < 0) {
        c->offset[section] = 0;
        c->queue[c->n_queue++] = section;
    }
    return true;
}

static bool add_function(cutting *c, size_t symbol)
{
    const char *name = c->o->names + c->o->symbol[symbol].st_name;
    for (unsigned i = 0; i < c->head.n_functions; i++)
        if (c->symbol[i] == symbol)
            return true;
    f8_emu_function *f = &c->function[c->head.n_functions];
    if (c->head.n_functions == MOST_FUNCTIONS || strlen(name) >= sizeof f->name) {
        f8_emu_note("a kernel calls too many functions, or '%s'", name);
        return false;
    }
    strcpy(f->name, name);
    c->symbol[c->head.n_functions++] = symbol;
    return true;
}

/* All sections that those of the queue refer to. */
static bool follow(cutting *c)
{
    for (size_t q = 0; q < c->n_queue; q++) {
        size_t n;
        const Elf64_Rela *r = relocations(c->o, c->queue[q], &n);
        for (size_t i = 0; i < n; i++) {
            const Elf64_Sym *s = symbol_of(c->o, &r[i]);
            if (s->st_shndx == SHN_UNDEF ? !add_function(c, ELF64_R_SYM(r[i].r_info))
                                         : !add_section(c, s->st_shndx))
                return false;
        }
    }
    return true;
}

/* The kernel's arrays, in the order in which the text declares them. */
static bool find_arrays(cutting *c, place kernel)
{
    const object *o = c->o;
    const size_t list = find_section(o, "f8_arrays"), kernels = find_section(o, "f8_kernels");
    for (size_t at = 0; list && at < o->section[list].sh_size; at += 8) {
        const place array = target(o, (place){list, (int64_t)at});
        const char *body = text_at(o, array);
        bool found = false;
        for (size_t k = 0; k < o->section[kernels].sh_size && !found; k += 8)
            found = strcmp(body_of_kernel(o, target(o, (place){kernels, (int64_t)k})), body) == 0;
        if (!found)
            snprintf(c->head.orphan, sizeof c->head.orphan, "%s", body);
        if (strcmp(body, body_of_kernel(o, kernel)) != 0)
            continue;
        if (c->head.n_arrays == MOST_ARRAYS || !add_section(c, array.section))
            return false;
        c->array[c->head.n_arrays++] = array;
    }
    return true;
}

static bool find_kernel(const object *o, const char *name, place *kernel)
{
    const size_t list = find_section(o, "f8_kernels");
    for (size_t at = 0; list && at < o->section[list].sh_size; at += 8) {
        *kernel = target(o, (place){list, (int64_t)at});
        if (strcmp(text_at(o, *kernel), name) == 0)
            return true;
    }
    f8_emu_note("the compiled text has no kernel '%s'", name);
    return false;
}

static bool find_context(const object *o, place *context)
{
    for (size_t i = 0; i < o->n_symbols; i++)
        if (o->symbol[i].st_shndx && strcmp(o->names + o->symbol[i].st_name, "f8_emu_self") == 0) {
            *context = (place){o->symbol[i].st_shndx, (int64_t)o->symbol[i].st_value};
            return true;
        }
    return false;
}

/* ---- its memory ---- */

static int64_t aligned(int64_t n, uint64_t to)
{
    return to > 1 ? (n + (int64_t)to - 1) / (int64_t)to * (int64_t)to : n;
}

static unsigned at_of(const cutting *c, place p)
{
    return (unsigned)(c->offset[p.section] + p.at);
}

/* Code, the functions' stubs behind it, data. */
static bool lay_out(cutting *c)
{
    int64_t end = 0;
    for (int data = 0; data < 2; data++) {
        const int64_t start = end;
        for (size_t q = 0; q < c->n_queue; q++) {
            const Elf64_Shdr *s = &c->o->section[c->queue[q]];
            if (((s->sh_flags & SHF_EXECINSTR) == 0) != data)
                continue;
            end = aligned(end, s->sh_addralign);
            c->offset[c->queue[q]] = end;
            end += (int64_t)s->sh_size;
        }
        if (data) {
            c->head.data = (unsigned)(end - start);
        } else {
            end = aligned(end, STUB);
            for (unsigned i = 0; i < c->head.n_functions; i++, end += STUB)
                c->function[i].at = (unsigned)end + STUB / 2;
            c->head.code = (unsigned)end;
            end = aligned(end, F8_EMU_PAGE);
        }
    }
    c->memory = calloc(1, (size_t)end + 1);
    if (!c->memory)
        return false;
    for (size_t q = 0; q < c->n_queue; q++) {
        const Elf64_Shdr *s = &c->o->section[c->queue[q]];
        if (s->sh_type != SHT_NOBITS)
            memcpy(c->memory + c->offset[c->queue[q]], c->o->p + s->sh_offset, s->sh_size);
    }
    for (unsigned i = 0; i < c->head.n_functions; i++) /* jmp *2(%rip): the address is behind it */
        memcpy(c->memory + c->function[i].at - STUB / 2, "\xff\x25\x02\x00\x00\x00", 6);
    return true;
}

static bool relocate(cutting *c, size_t section, const Elf64_Rela *r)
{
    const Elf64_Sym *s = symbol_of(c->o, r);
    const int64_t at = c->offset[section] + (int64_t)r->r_offset;
    int64_t to = r->r_addend;
    const unsigned type = ELF64_R_TYPE(r->r_info);
    const bool by_slot =
        type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX;
    if (s->st_shndx == SHN_UNDEF) {
        unsigned i = 0;
        while (c->symbol[i] != ELF64_R_SYM(r->r_info))
            i++;
        to += c->function[i].at - (by_slot ? 0 : STUB / 2);
    } else {
        to += c->offset[s->st_shndx] + (int64_t)s->st_value;
    }
    if (type == R_X86_64_PC32 || type == R_X86_64_PLT32 || (by_slot && s->st_shndx == SHN_UNDEF)) {
        const int32_t distance = (int32_t)(to - at);
        memcpy(c->memory + at, &distance, sizeof distance);
    } else if (type == R_X86_64_64) {
        memcpy(c->memory + at, &to, sizeof to);
        c->address[c->head.n_addresses++] = (unsigned)at;
    } else {
        f8_emu_note("a kernel has a relocation of type %u", type);
        return false;
    }
    return true;
}

static bool relocate_all(cutting *c)
{
    size_t n, all = 0;
    for (size_t q = 0; q < c->n_queue; q++, all += n)
        relocations(c->o, c->queue[q], &n);
    c->address = calloc(all + 1, sizeof *c->address);
    if (!c->address)
        return false;
    for (size_t q = 0; q < c->n_queue; q++) {
        const Elf64_Rela *r = relocations(c->o, c->queue[q], &n);
        for (size_t i = 0; i < n; i++)
            if (!relocate(c, c->queue[q], &r[i]))
                return false;
    }
    return true;
}

/* ---- the piece ---- */

static bool write_piece(cutting *c, f8_emu_bytes *piece)
{
    const char *data = c->memory + aligned(c->head.code, F8_EMU_PAGE);
    FILE *f = open_memstream(&piece->p, &piece->n);
    if (!f)
        return false;
    c->head.version = F8_EMU_PIECE_VERSION;
    const size_t bytes =
        sizeof c->head + c->head.code + c->head.data + c->head.n_arrays * sizeof(unsigned) +
        c->head.n_addresses * sizeof *c->address + c->head.n_functions * sizeof *c->function;
    c->head.bytes = (unsigned)aligned((int64_t)bytes, 16);
    fwrite(&c->head, sizeof c->head, 1, f);
    fwrite(c->memory, 1, c->head.code, f);
    fwrite(data, 1, c->head.data, f);
    for (unsigned i = 0; i < c->head.n_arrays; i++) {
        const unsigned at = at_of(c, c->array[i]);
        fwrite(&at, sizeof at, 1, f);
    }
    fwrite(c->address, sizeof *c->address, c->head.n_addresses, f);
    fwrite(c->function, sizeof *c->function, c->head.n_functions, f);
    fwrite("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 1, c->head.bytes - bytes, f);
    return fclose(f) == 0 && piece->n == c->head.bytes;
}

static bool cut(cutting *c, const char *name, f8_emu_bytes *piece)
{
    place kernel, context;
    if (!find_kernel(c->o, name, &kernel) || !find_context(c->o, &context) ||
        !add_section(c, kernel.section) || !add_section(c, context.section) ||
        !find_arrays(c, kernel) || !follow(c) || !lay_out(c) || !relocate_all(c))
        return false;
    c->head.kernel = at_of(c, kernel);
    c->head.context = at_of(c, context);
    return write_piece(c, piece);
}

bool f8_emu_cut(const f8_emu_bytes *bytes, const char *name, f8_emu_bytes *piece)
{
    object o;
    if (!open_object(bytes, &o)) {
        f8_emu_note("the compiler's object can't be read");
        return false;
    }
    cutting c = {.o = &o,
                 .queue = calloc(o.n_sections, sizeof *c.queue),
                 .offset = malloc(o.n_sections * sizeof *c.offset)};
    bool good = c.queue && c.offset;
    for (size_t i = 0; i < o.n_sections && good; i++)
        c.offset[i] = -1;
    good = good && cut(&c, name, piece);
    free(c.queue);
    free(c.offset);
    free(c.address);
    free(c.memory);
    return good;
}
