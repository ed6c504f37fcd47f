/* Lays ELF sections out in one image and resolves their relocations: see link.h. */
#include "codegen/cpu/link.h"

#include "runtime/base/blob.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

/* A section of an object, and where its bytes go if they are kept. */
typedef struct section {
    Elf64_Shdr header;
    bool kept, code;
    uint64_t at; /* offset in the image */
} section;

typedef struct object {
    const uint8_t *bytes;
    size_t size;
    size_t section_count;
    section *sections;
    size_t symbol_count;
    const uint8_t *symbols; /* Elf64_Sym[symbol_count], perhaps unaligned */
    const char *names;      /* the symbols' string table, NUL-terminated */
    size_t names_size;
} object;

typedef struct linker {
    f8_arena *arena;
    f8_diag *d;
    object *objects;
    size_t count;
    f8_link_image *out;
} linker;

static f8_status malformed(linker *k, const char *what)
{
    return f8_fail(k->d, F8_ERR_INTERNAL, F8_NOWHERE, "linking a kernel: malformed object: %s",
                   what);
}

/* ---- reading ---- */

static bool inside(const object *o, uint64_t offset, uint64_t size)
{
    return offset <= o->size && size <= o->size - offset;
}

static Elf64_Sym symbol_at(const object *o, size_t i)
{
    Elf64_Sym s;
    memcpy(&s, o->symbols + i * sizeof s, sizeof s);
    return s;
}

static const char *symbol_name(const object *o, const Elf64_Sym *s)
{
    return s->st_name < o->names_size ? o->names + s->st_name : "?";
}

static f8_status classify(linker *k, section *s)
{
    const Elf64_Shdr *h = &s->header;
    /* nothing unwinds through a blob, so unwind tables are dropped */
    if (!(h->sh_flags & SHF_ALLOC) || h->sh_type == SHT_X86_64_UNWIND || h->sh_size == 0)
        return F8_OK;
    if (h->sh_flags & (SHF_WRITE | SHF_TLS))
        return f8_fail(k->d, F8_ERR_INTERNAL, F8_NOWHERE,
                       "linking a kernel: it has writable data, but kernels keep no state");
    if (h->sh_type != SHT_PROGBITS)
        return malformed(k, "a loaded section that is not PROGBITS");
    if (h->sh_addralign > F8_BLOB_PAGE || (h->sh_addralign & (h->sh_addralign - 1)))
        return malformed(k, "a section's alignment");
    s->kept = true;
    s->code = h->sh_flags & SHF_EXECINSTR;
    return F8_OK;
}

static f8_status read_symbols(linker *k, object *o, const section *s)
{
    const Elf64_Shdr *h = &s->header;
    if (h->sh_link >= o->section_count || h->sh_entsize != sizeof(Elf64_Sym))
        return malformed(k, "symbol table");
    const Elf64_Shdr *strings = &o->sections[h->sh_link].header;
    if (!inside(o, strings->sh_offset, strings->sh_size) || strings->sh_size == 0 ||
        o->bytes[strings->sh_offset + strings->sh_size - 1] != 0)
        return malformed(k, "string table");
    o->symbols = o->bytes + h->sh_offset;
    o->symbol_count = h->sh_size / sizeof(Elf64_Sym);
    o->names = (const char *)o->bytes + strings->sh_offset;
    o->names_size = strings->sh_size;
    return F8_OK;
}

static f8_status read_object(linker *k, object *o, const f8_object *in)
{
    Elf64_Ehdr e;
    *o = (object){.bytes = in->bytes, .size = in->size};
    if (in->size < sizeof e)
        return malformed(k, "too short");
    memcpy(&e, in->bytes, sizeof e);
    if (memcmp(e.e_ident, ELFMAG, SELFMAG) || e.e_ident[EI_CLASS] != ELFCLASS64 ||
        e.e_ident[EI_DATA] != ELFDATA2LSB || e.e_type != ET_REL || e.e_machine != EM_X86_64 ||
        e.e_shentsize != sizeof(Elf64_Shdr))
        return malformed(k, "not an x86-64 relocatable");
    if (!inside(o, e.e_shoff, (uint64_t)e.e_shnum * sizeof(Elf64_Shdr)))
        return malformed(k, "section headers");
    o->section_count = e.e_shnum;
    o->sections = F8_NEW_ARRAY(k->arena, section, e.e_shnum + 1u);
    if (!o->sections)
        return f8_arena_status(k->arena, k->d);
    for (size_t i = 0; i < o->section_count; i++) {
        section *s = &o->sections[i];
        memcpy(&s->header, o->bytes + e.e_shoff + i * sizeof s->header, sizeof s->header);
        if (s->header.sh_type != SHT_NOBITS && !inside(o, s->header.sh_offset, s->header.sh_size))
            return malformed(k, "a section's bounds");
        F8_TRY(classify(k, s));
    }
    for (size_t i = 0; i < o->section_count; i++)
        if (o->sections[i].header.sh_type == SHT_SYMTAB)
            F8_TRY(read_symbols(k, o, &o->sections[i]));
    return F8_OK;
}

/* ---- layout ---- */

static uint64_t align_up(uint64_t x, uint64_t a)
{
    return a > 1 ? (x + a - 1) / a * a : x;
}

static uint64_t place(linker *k, bool code, uint64_t at)
{
    for (size_t i = 0; i < k->count; i++)
        for (size_t j = 0; j < k->objects[i].section_count; j++) {
            section *s = &k->objects[i].sections[j];
            if (!s->kept || s->code != code)
                continue;
            s->at = align_up(at, s->header.sh_addralign);
            at = s->at + s->header.sh_size;
        }
    return at;
}

static f8_status lay_out(linker *k)
{
    f8_link_image *out = k->out;
    out->code_size = align_up(place(k, true, 0), F8_BLOB_PAGE);
    out->size = align_up(place(k, false, out->code_size), F8_BLOB_PAGE);
    if (out->size > INT32_MAX)
        return f8_fail(k->d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "linking kernels: the image has %zu bytes, more than 2 GiB", out->size);
    out->bytes = f8_arena_array(k->arena, out->size ? out->size : 1, 1);
    if (!out->bytes)
        return f8_arena_status(k->arena, k->d);
    memset(out->bytes, 0xcc, out->code_size); /* int3 between functions */
    for (size_t i = 0; i < k->count; i++)
        for (size_t j = 0; j < k->objects[i].section_count; j++) {
            const section *s = &k->objects[i].sections[j];
            if (s->kept)
                memcpy(out->bytes + s->at, k->objects[i].bytes + s->header.sh_offset,
                       s->header.sh_size);
        }
    return F8_OK;
}

/* ---- symbols ---- */

static bool defined(const object *o, const Elf64_Sym *s)
{
    return s->st_shndx != SHN_UNDEF && s->st_shndx < o->section_count &&
           o->sections[s->st_shndx].kept && s->st_value <= o->sections[s->st_shndx].header.sh_size;
}

static uint64_t address(const object *o, const Elf64_Sym *s)
{
    return o->sections[s->st_shndx].at + s->st_value;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const f8_link_symbol *)a)->name, ((const f8_link_symbol *)b)->name);
}

static f8_status collect_symbols(linker *k)
{
    f8_link_image *out = k->out;
    size_t room = 1;
    for (size_t i = 0; i < k->count; i++)
        room += k->objects[i].symbol_count;
    out->symbols = F8_NEW_ARRAY(k->arena, f8_link_symbol, room);
    if (!out->symbols)
        return f8_arena_status(k->arena, k->d);
    for (size_t i = 0; i < k->count; i++) {
        const object *o = &k->objects[i];
        for (size_t j = 0; j < o->symbol_count; j++) {
            Elf64_Sym s = symbol_at(o, j);
            if (ELF64_ST_BIND(s.st_info) == STB_LOCAL || ELF64_ST_TYPE(s.st_info) != STT_FUNC ||
                !defined(o, &s) || !o->sections[s.st_shndx].code)
                continue;
            char *name = f8_arena_strdup(k->arena, symbol_name(o, &s));
            if (!name)
                return f8_arena_status(k->arena, k->d);
            out->symbols[out->symbol_count++] = (f8_link_symbol){name, address(o, &s)};
        }
    }
    qsort(out->symbols, out->symbol_count, sizeof *out->symbols, by_name);
    for (size_t i = 1; i < out->symbol_count; i++)
        if (!strcmp(out->symbols[i - 1].name, out->symbols[i].name))
            return f8_fail(k->d, F8_ERR_INTERNAL, F8_NOWHERE,
                           "linking kernels: two functions are called '%s'", out->symbols[i].name);
    return F8_OK;
}

const f8_link_symbol *f8_link_find(const f8_link_image *image, const char *name)
{
    f8_link_symbol key = {name, 0};
    if (!image->symbol_count)
        return NULL;
    return bsearch(&key, image->symbols, image->symbol_count, sizeof key, by_name);
}

/* ---- relocation ---- */

static f8_status resolve(linker *k, const object *o, uint64_t index, uint64_t *value)
{
    if (index >= o->symbol_count)
        return malformed(k, "a relocation's symbol");
    Elf64_Sym s = symbol_at(o, index);
    if (defined(o, &s)) {
        *value = address(o, &s);
        return F8_OK;
    }
    const f8_link_symbol *found = f8_link_find(k->out, symbol_name(o, &s));
    if (!found || s.st_shndx != SHN_UNDEF)
        return f8_fail(k->d, F8_ERR_INTERNAL, F8_NOWHERE,
                       "linking a kernel: undefined symbol '%s' (kernels may call no library)",
                       symbol_name(o, &s));
    *value = found->offset;
    return F8_OK;
}

static f8_status relocate_one(linker *k, const object *o, const section *s, const Elf64_Rela *r)
{
    uint64_t value = 0, type = ELF64_R_TYPE(r->r_info);
    if (type == R_X86_64_NONE)
        return F8_OK;
    F8_TRY(resolve(k, o, ELF64_R_SYM(r->r_info), &value));
    size_t width = type == R_X86_64_PC64 ? 8 : 4;
    if (r->r_offset > s->header.sh_size || width > s->header.sh_size - r->r_offset)
        return malformed(k, "a relocation's offset");
    uint64_t place_at = s->at + r->r_offset;
    uint64_t delta = value + (uint64_t)r->r_addend - place_at;
    switch (type) {
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
        if ((int64_t)delta != (int32_t)delta)
            return malformed(k, "a relocation out of range");
        break;
    case R_X86_64_PC64:
        break;
    default: {
        Elf64_Sym sym = symbol_at(o, ELF64_R_SYM(r->r_info));
        return f8_fail(k->d, F8_ERR_INTERNAL, F8_NOWHERE,
                       "linking a kernel: relocation type %d against '%s' is not position-"
                       "independent", (int)type, symbol_name(o, &sym));
    }
    }
    memcpy(k->out->bytes + place_at, &delta, width); /* little-endian: the low bytes come first */
    return F8_OK;
}

static f8_status relocate(linker *k, const object *o)
{
    for (size_t i = 0; i < o->section_count; i++) {
        const Elf64_Shdr *h = &o->sections[i].header;
        if (h->sh_type != SHT_RELA || h->sh_info >= o->section_count ||
            !o->sections[h->sh_info].kept)
            continue;
        if (h->sh_entsize != sizeof(Elf64_Rela))
            return malformed(k, "relocations");
        for (uint64_t j = 0; j < h->sh_size / sizeof(Elf64_Rela); j++) {
            Elf64_Rela r;
            memcpy(&r, o->bytes + h->sh_offset + j * sizeof r, sizeof r);
            F8_TRY(relocate_one(k, o, &o->sections[h->sh_info], &r));
        }
    }
    return F8_OK;
}

f8_status f8_link(const f8_object *objects, size_t count, f8_arena *arena, f8_link_image *out,
                  f8_diag *d)
{
    *out = (f8_link_image){0};
    linker k = {.arena = arena, .d = d, .count = count, .out = out};
    k.objects = F8_NEW_ARRAY(arena, object, count + 1);
    if (!k.objects)
        return f8_arena_status(arena, d);
    for (size_t i = 0; i < count; i++)
        F8_TRY(read_object(&k, &k.objects[i], &objects[i]));
    F8_TRY(lay_out(&k));
    F8_TRY(collect_symbols(&k));
    for (size_t i = 0; i < count; i++)
        F8_TRY(relocate(&k, &k.objects[i]));
    return F8_OK;
}
