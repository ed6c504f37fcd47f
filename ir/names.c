/* Names: the strings that a module interns, and which of them its variables have. See ir.h. */
#include "ir/internal.h"

#include <string.h>

#include "ir/base/hash.h"

typedef struct interned {
    const char *s;
    int32_t var; /* index of the variable of that name, or -1 */
} interned;

struct f8_interner {
    interned *entry; /* open addressing, at most half full */
    uint32_t size, used;
};

enum { STRINGS_FIRST = 256 };

struct f8_interner *f8_interner_create(f8_arena *arena)
{
    struct f8_interner *t = F8_NEW(arena, struct f8_interner);
    interned *entry = F8_NEW_ARRAY(arena, interned, STRINGS_FIRST);
    if (!t || !entry)
        return NULL;
    *t = (struct f8_interner){entry, STRINGS_FIRST, 0};
    return t;
}

/* The entry of `s`, or the free one where it belongs. */
static interned *find_entry(const struct f8_interner *t, const char *s, size_t n)
{
    for (uint64_t i = f8_hash_bytes(s, n).lo;; i++) {
        interned *e = &t->entry[i & (t->size - 1)];
        if (!e->s || (!strncmp(e->s, s, n) && !e->s[n]))
            return e;
    }
}

static bool grow_strings(f8_module *m)
{
    struct f8_interner *t = m->strings;
    struct f8_interner bigger = {.size = t->size * 2, .used = t->used};
    bigger.entry = F8_NEW_ARRAY(m->arena, interned, bigger.size);
    if (!bigger.entry)
        return false;
    for (uint32_t i = 0; i < t->size; i++)
        if (t->entry[i].s)
            *find_entry(&bigger, t->entry[i].s, strlen(t->entry[i].s)) = t->entry[i];
    *t = bigger;
    return true;
}

static interned *intern_entry(f8_module *m, const char *s, size_t n)
{
    struct f8_interner *t = m->strings;
    if (2 * t->used >= t->size && !grow_strings(m))
        return NULL;
    interned *e = find_entry(t, s, n);
    if (e->s)
        return e;
    const char *copy = f8_arena_strndup(m->arena, s, n);
    if (!copy)
        return NULL;
    *e = (interned){copy, -1};
    t->used++;
    return e;
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
    return find_entry(m->strings, s, n)->s;
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
    const interned *e = find_entry(m->strings, name, strlen(name));
    return e->s ? e->var : -1;
}
