/* Names: the strings that a module interns, and which of them its variables have. See ir.h. */
#include "ir/internal.h"

#include <string.h>

#include "ir/base/hash.h"

typedef struct interned {
    const char *s;
    int32_t var; /* index of the variable of that name, or -1 */
} interned;

struct f8_interner {
    interned *entry;
    uint32_t n;
    size_t room;
    f8_table table; /* of the entries, by their strings */
};

struct f8_interner *f8_interner_create(f8_arena *arena)
{
    return F8_NEW(arena, struct f8_interner);
}

/* The entry of `s`, whose hash is given. NULL: there is none. */
static interned *find_entry(const struct f8_interner *t, const char *s, size_t n, uint64_t hash)
{
    f8_table_walk walk = f8_table_find(hash);
    for (uint32_t i; f8_table_next(&t->table, &walk, &i);)
        if (!strncmp(t->entry[i].s, s, n) && !t->entry[i].s[n])
            return &t->entry[i];
    return NULL;
}

/* NULL: out of memory. */
static interned *intern_entry(f8_module *m, const char *s, size_t n)
{
    struct f8_interner *t = m->strings;
    const uint64_t hash = f8_hash_bytes(s, n).lo;
    interned *e = find_entry(t, s, n, hash);
    if (e)
        return e;
    const char *copy = f8_arena_strndup(m->arena, s, n);
    e = f8_arena_grow(m->arena, t->entry, t->n, &t->room, (size_t)t->n + 1, sizeof *e);
    if (!copy || !e || f8_table_add(&t->table, m->arena, hash, t->n, NULL) != F8_OK)
        return NULL;
    t->entry = e;
    e[t->n] = (interned){copy, -1};
    return &e[t->n++];
}

const char *f8_intern_n(f8_module *m, const char *s, size_t n)
{
    const char *end = memchr(s, 0, n); /* a string ends at its first NUL */
    interned *e = intern_entry(m, s, end ? (size_t)(end - s) : n);
    return e ? e->s : NULL;
}

const char *f8_intern(f8_module *m, const char *s)
{
    return f8_intern_n(m, s, strlen(s));
}

const char *f8_intern_find(const f8_module *m, const char *s, size_t n)
{
    const interned *e = find_entry(m->strings, s, n, f8_hash_bytes(s, n).lo);
    return e ? e->s : NULL;
}

/* ---- names of variables ---- */

bool f8_name_ok(const char *name)
{
    if (!name || !*name || (*name >= '0' && *name <= '9') || *name == '.')
        return false;
    for (const char *p = name; *p; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
        if (!letter && !(*p >= '0' && *p <= '9') && *p != '_' && *p != '.')
            return false;
    }
    return true;
}

const char *f8_intern_var(f8_module *m, const char *name, int32_t var)
{
    interned *e = intern_entry(m, name, strlen(name));
    if (!e)
        return NULL;
    e->var = var;
    return e->s;
}

int32_t f8_module_find_var(const f8_module *m, const char *name)
{
    const size_t n = strlen(name);
    const interned *e = find_entry(m->strings, name, n, f8_hash_bytes(name, n).lo);
    return e ? e->var : -1;
}
