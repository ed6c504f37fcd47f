/* Splits a text into items: preprocessor lines, and what stands between braces or before a
 * semicolon at the top level. An item uses another where it has the name that the other defines. So
 * a kernel's key holds the kernel, what it names, what that names, and so on. Where this is not
 * sure, a key holds more than it must:
 *
 * - All lines of the preprocessor are in each key, and what they name. A line may change what any
 * text means.
 * - An item of which the name is not found is in each key.
 * - Two definitions of one name, as of functions for several types, belong together. */
#include "tests/emulator/text.h"

#include "tests/emulator/common.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct item {
    const char *begin, *end;
    bool is_line, is_kernel, is_everywhere, is_used;
    uint64_t hash;
    size_t first_word, end_word; /* of words.v: the hashes of all names in it */
    size_t first_name, end_name; /* of names.v: the hashes of those that it defines */
} item;

typedef struct list {
    uint64_t *v;
    size_t n, room;
} list;

typedef struct splitting {
    item *item;
    size_t n, room;
    list words, names;
    bool failed;
} splitting;

static void push(splitting *s, list *l, uint64_t x)
{
    if (l->n == l->room) {
        const size_t room = 2 * l->room + 256;
        uint64_t *v = realloc(l->v, room * sizeof *v);
        s->failed = s->failed || !v;
        if (!v)
            return;
        l->v = v;
        l->room = room;
    }
    l->v[l->n++] = x;
}

/* ---- words ---- */

static bool starts_word(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

static size_t word_length(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n;
}

static bool is_word(const char *s, const char *word)
{
    const size_t n = strlen(word);
    return strncmp(s, word, n) == 0 && !isalnum((unsigned char)s[n]) && s[n] != '_';
}

static uint64_t hash_word(const char *s, size_t n)
{
    return f8_emu_hash(0, s, n);
}

/* The end of what starts at `s` and has no names in it: a comment, a string, a character; else `s`.
 */
static const char *skip_quoted(const char *s)
{
    if (s[0] == '/' && s[1] == '*') {
        const char *end = strstr(s + 2, "*/");
        return end ? end + 2 : s + strlen(s);
    }
    if (s[0] == '/' && s[1] == '/')
        return s + strcspn(s, "\n");
    if (*s != '"' && *s != '\'')
        return s;
    const char quote = *s++;
    while (*s && *s != quote)
        s += 1 + (*s == '\\' && s[1]);
    return *s ? s + 1 : s;
}

/* Spaces and comments. */
static const char *skip_space(const char *s)
{
    for (;;) {
        if (isspace((unsigned char)*s))
            s++;
        else if (s[0] == '/' && (s[1] == '*' || s[1] == '/'))
            s = skip_quoted(s);
        else
            return s;
    }
}

/* ---- items ---- */

static const char *end_of_line(const char *s)
{
    while (*s && (*s != '\n' || s[-1] == '\\')) {
        const char *next = *s == '"' || *s == '\'' ? s : skip_quoted(s);
        s = next > s ? next : s + 1;
    }
    return s;
}

static const char *end_of_item(const char *s)
{
    if (*s == '#')
        return end_of_line(s);
    int depth = 0;
    while (*s) {
        const char *next = skip_quoted(s);
        if (next > s) {
            s = next;
            continue;
        }
        const char c = *s++;
        depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
        if (depth == 0 && c == ';')
            return s;
        if (depth == 0 && c == '}') {
            const char *after = skip_space(s);
            return *after == ';' ? after + 1 : s;
        }
    }
    return s;
}

/* After the parameters of a template, whose < is at `s`. */
static const char *skip_angles(const char *s)
{
    int depth = 0;
    do {
        const char *next = skip_quoted(s);
        if (next > s) {
            s = next;
            continue;
        }
        depth += (*s == '<') - (*s == '>');
        s++;
    } while (*s && depth > 0);
    return s;
}

static void define(splitting *s, item *it, const char *name, size_t n)
{
    push(s, &s->names, hash_word(name, n));
    it->end_name = s->names.n;
}

/* All words from `at` to `end`. */
static void define_all(splitting *s, item *it, const char *at, const char *end)
{
    while (at < end) {
        const char *next = skip_quoted(at);
        const size_t n = next > at ? (size_t)(next - at) : word_length(at);
        if (next == at && n && starts_word(*at))
            define(s, it, at, n);
        at += n ? n : 1;
    }
}

/* The names that an item defines: what stands before its first parenthesis, bracket, brace or sign;
 * a type's name, the names of an enum's values, and what a typedef names. */
static void find_names(splitting *s, item *it)
{
    const char *at = skip_space(it->begin), *last = NULL;
    it->first_name = it->end_name = s->names.n;
    bool is_type = false;
    if (is_word(at, "typedef") || is_word(at, "enum")) {
        define_all(s, it, at, it->end);
        return;
    }
    if (is_word(at, "extern") || is_word(at, "namespace")) {
        it->is_everywhere = true;
        return;
    }
    if (is_word(at, "template"))
        at = skip_angles(skip_space(at + strlen("template")));
    for (at = skip_space(at); at < it->end; at = skip_space(at)) {
        const size_t n = word_length(at);
        if (!n || !starts_word(*at)) {
            if (strchr("([={;:,", *at))
                break;
            at++;
            continue;
        }
        is_type = is_type || is_word(at, "struct") || is_word(at, "class") || is_word(at, "union");
        last = at;
        at += n;
    }
    if (!last || is_word(last, "__attribute__") || is_word(last, "alignas") ||
        is_word(last, "operator") || is_word(last, "decltype") || *at == ',' ||
        (*at == ':' && !is_type)) {
        it->is_everywhere = true;
        return;
    }
    define(s, it, last, word_length(last));
}

/* Its words, and the hash of the item without comments, each run of spaces being one. */
static void read_words(splitting *s, item *it)
{
    char *plain = malloc((size_t)(it->end - it->begin) + 2), *to = plain;
    it->first_word = s->words.n;
    if (!plain) {
        s->failed = true;
        return;
    }
    for (const char *at = it->begin; at < it->end;) {
        const char *next = skip_space(at);
        if (next > at) {
            *to++ = ' ';
        } else if ((next = skip_quoted(at)) == at) {
            const size_t n = word_length(at);
            if (n && starts_word(*at))
                push(s, &s->words, hash_word(at, n));
            next = at + (n ? n : 1);
            to = (char *)memcpy(to, at, (size_t)(next - at)) + (next - at);
        } else {
            to = (char *)memcpy(to, at, (size_t)(next - at)) + (next - at);
        }
        at = next;
    }
    it->hash = f8_emu_hash(0, plain, (size_t)(to - plain));
    it->end_word = s->words.n;
    free(plain);
}

static const char *kernel_name(const item *it)
{
    return it->begin + strlen("F8_KERNEL(");
}

static void add_item(splitting *s, const char *begin, const char *end)
{
    if (s->n == s->room) {
        const size_t room = 2 * s->room + 64;
        item *v = realloc(s->item, room * sizeof *v);
        s->failed = s->failed || !v;
        if (!v)
            return;
        s->item = v;
        s->room = room;
    }
    item *it = &s->item[s->n++];
    *it = (item){.begin = begin, .end = end, .is_line = *begin == '#'};
    it->is_kernel = strncmp(begin, "F8_KERNEL(", strlen("F8_KERNEL(")) == 0;
    read_words(s, it);
    it->first_name = it->end_name = s->names.n;
    if (it->is_kernel) { /* the macro makes the name of its parameters */
        char params[160];
        const size_t n = word_length(kernel_name(it));
        snprintf(params, sizeof params, "%.*s_params", (int)n, kernel_name(it));
        push(s, &s->words, hash_word(params, strlen(params)));
        it->end_word = s->words.n;
    } else if (!it->is_line) {
        find_names(s, it);
    }
}

/* ---- what uses what ---- */

/* Which items define a name: chains in a table. */
typedef struct table {
    size_t *head, *next, *owner, mask;
} table;

static bool make_table(const splitting *s, table *t)
{
    size_t room = 64;
    while (room < 2 * s->names.n)
        room *= 2;
    t->mask = room - 1;
    t->head = calloc(room, sizeof *t->head);
    t->next = calloc(s->names.n + 1, sizeof *t->next);
    t->owner = calloc(s->names.n + 1, sizeof *t->owner);
    if (!t->head || !t->next || !t->owner)
        return false;
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = s->item[i].first_name; k < s->item[i].end_name; k++) {
            size_t *head = &t->head[s->names.v[k] & t->mask];
            t->owner[k] = i;
            t->next[k] = *head;
            *head = k + 1;
        }
    return true;
}

static void mark(const splitting *s, const table *t, size_t root, bool *in, size_t *stack)
{
    size_t depth = 0;
    in[root] = true;
    stack[depth++] = root;
    while (depth) {
        const item *it = &s->item[stack[--depth]];
        for (size_t w = it->first_word; w < it->end_word; w++)
            for (size_t k = t->head[s->words.v[w] & t->mask]; k; k = t->next[k - 1]) {
                const size_t owner = t->owner[k - 1];
                if (s->names.v[k - 1] == s->words.v[w] && !in[owner]) {
                    in[owner] = true;
                    stack[depth++] = owner;
                }
            }
    }
}

/* The key of what is marked, in the text's order. */
static uint64_t key_of(const splitting *s, const bool *in)
{
    uint64_t key = 0;
    for (size_t i = 0; i < s->n; i++)
        if (in[i])
            key = f8_emu_hash(key, &s->item[i].hash, sizeof s->item[i].hash);
    return key;
}

/* The roots: kernels, then what none of them uses, or all else. The first is that of the
 * preprocessor's lines. */
static f8_emu_root *find_roots(splitting *s, const table *t, bool all, size_t *n)
{
    f8_emu_root *root = calloc(s->n + 1, sizeof *root);
    bool *base = calloc(2 * s->n + 2, sizeof *base), *in = base + s->n + 1;
    size_t *stack = calloc(s->n + 1, sizeof *stack);
    *n = 0;
    s->failed = s->failed || !root || !base || !stack;
    for (size_t i = 0; i < s->n && !s->failed; i++)
        if (s->item[i].is_line || s->item[i].is_everywhere)
            mark(s, t, i, base, stack);
    if (!s->failed)
        root[(*n)++].key = key_of(s, base);
    for (int others = 0; others < 2; others++)
        for (size_t i = 0; i < s->n && !s->failed; i++) {
            item *it = &s->item[i];
            if (others ? it->is_kernel || (it->is_used && !all) || base[i] : !it->is_kernel)
                continue;
            memcpy(in, base, s->n * sizeof *in);
            mark(s, t, i, in, stack);
            for (size_t k = 0; k < s->n; k++)
                s->item[k].is_used = s->item[k].is_used || in[k];
            f8_emu_root *r = &root[(*n)++];
            *r = (f8_emu_root){it->begin, it->end, it->is_kernel, "", key_of(s, in)};
            if (it->is_kernel)
                snprintf(r->name, sizeof r->name, "%.*s", (int)word_length(kernel_name(it)),
                         kernel_name(it));
        }
    free(base);
    free(stack);
    return root;
}

f8_emu_root *f8_emu_roots(const char *text, bool all, size_t *n)
{
    splitting s = {0};
    table t = {0};
    f8_emu_root *root = NULL;
    for (const char *at = skip_space(text); *at && !s.failed; at = skip_space(at)) {
        const char *end = end_of_item(at);
        add_item(&s, at, end);
        at = end;
    }
    if (!s.failed && make_table(&s, &t))
        root = find_roots(&s, &t, all, n);
    free(t.head);
    free(t.next);
    free(t.owner);
    free(s.words.v);
    free(s.names.v);
    free(s.item);
    if (s.failed) {
        free(root);
        return NULL;
    }
    return root;
}
