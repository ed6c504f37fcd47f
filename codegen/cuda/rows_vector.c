/* Row kernels as CUDA C, one vector of columns at a time: loads, the elements' arithmetic, stores.
 * See rows.h. */
#include "codegen/cuda/rows.h"
#include "codegen/cuda/rows_registers.h"

#include <stdio.h>
#include <string.h>

/* Registers for loads in flight; rows of a staged kernel have 128 registers a thread in all. */
enum { EARLY_WORDS = 48, EARLY_WORDS_STAGED = 32 };

static int words_of(const f8_cuda_printer *p, f8_dtype t)
{
    return f8_cuda_words(t, p->l.vector);
}

void f8_cuda_rows_u(f8_cuda_printer *p)
{
    if (p->l.sets == 1) {
        f8_cuda_scope(p);
        f8_cuda_line(p, "const int u = 0;");
    } else {
        f8_cuda_open(p, "F8_UNROLL for (int u = 0; u < %d; u++)", p->l.sets);
    }
}

bool f8_cuda_rows_ragged(const f8_cuda_printer *p)
{
    return !p->inside && p->k->cols % (f8_cuda_rows_step(p) * p->l.sets) != 0;
}

void f8_cuda_rows_column(f8_cuda_printer *p)
{
    const f8_cuda_layout *l = &p->l;
    const int v = l->vector;
    if (p->k->flat) {
        f8_cuda_line(p, "const f8_i64 c = ((task * %d + u) * %d + f8_thread()) * %d;", l->sets,
                     l->threads, v);
        f8_cuda_line(p, "const int n = (int)(a.i0 - c < %d ? a.i0 - c : %d);", v, v);
        return;
    }
    if (l->points)
        f8_cuda_line(p, "const int c = begin;");
    else
        f8_cuda_line(p, "const int c = %s%s(u * %d + lane) * %d;", l->split ? "begin + " : "",
                     l->whole ? "" : "at + ", l->group, v);
    if (l->points ? p->k->cols % v : f8_cuda_rows_ragged(p))
        f8_cuda_line(p, "const int n = %lld - c;", (long long)p->k->cols);
    else
        f8_cuda_line(p, "const int n = %d;", v);
}

/* Whether addresses are spelled from the thread's first vector on. With c alone, the 64-bit address
 * of each vector was computed anew. Kernels that test addresses have no registers for these
 * pointers, nor have those with a ring from which several stages load; and where a ring brings one
 * vector there is nothing to save. */
static bool has_pointers(const f8_cuda_printer *p)
{
    return p->aligned && !p->l.points &&
           (!p->l.ring.chunks || (!p->l.whole && f8_cuda_ring_unrolls(p)));
}

/* Whether these pointers move on with a ring's loop over columns. Column sums have others there. */
static bool pointers_move(const f8_cuda_printer *p)
{
    return p->l.ring.chunks && !f8_cuda_rows_count(p->k, F8_K_COLSUM) && has_pointers(p);
}

/* Where buffer `buffer` has the vector at column c. */
static f8_cuda_name place_of(const f8_cuda_printer *p, int32_t buffer)
{
    const int step = f8_cuda_rows_step(p);
    f8_cuda_name name;
    if (!has_pointers(p) && p->inside)
        snprintf(name.s, sizeof name.s, "q%d + at + lane * %d + u * %d", buffer, p->l.vector, step);
    else if (!has_pointers(p))
        snprintf(name.s, sizeof name.s, "q%d + c", buffer);
    else if (pointers_move(p))
        snprintf(name.s, sizeof name.s, "o%d + part * %d", buffer, step);
    else
        snprintf(name.s, sizeof name.s, "o%d + (%su * %d)", buffer, p->l.whole ? "" : "at + ",
                 step);
    return name;
}

/* Whether this kernel has whole vectors of columns of buffer `buffer`, in stage `stage` if that is
 * not negative: those of a LOAD that no ring brings, or of a STORE along rows. */
static bool has_vectors(const f8_cuda_printer *p, uint32_t buffer, int32_t stage)
{
    const f8_kbuffer *b = &p->k->buffer[buffer];
    for (uint32_t n = 0; n < p->k->n_instrs && !b->transposed; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (i->buffer == (int32_t)buffer && (i->op == F8_K_LOAD || i->op == F8_K_STORE) &&
            (i->ext & F8_EXT_COL) && (stage < 0 || (p->needed[n] && !f8_cuda_ring_brings(p, n))))
            return true;
    }
    return false;
}

void f8_cuda_rows_vector_pointers(f8_cuda_printer *p, bool of_row)
{
    if (!has_pointers(p) || of_row == pointers_move(p))
        return;
    for (uint32_t i = 0; i < p->k->n_buffers; i++) {
        const f8_kbuffer *b = &p->k->buffer[i];
        if (has_vectors(p, i, of_row ? -1 : p->stage))
            f8_cuda_line(p, "%s%s *%so%u = q%u + %slane * %d;", b->write ? "" : "const ",
                         f8_cuda_element(b->dtype), of_row ? "const " : "", i, i,
                         p->l.split ? "begin + " : "", p->l.vector);
    }
}

void f8_cuda_rows_vectors_move(f8_cuda_printer *p, int columns)
{
    for (uint32_t i = 0; i < p->k->n_buffers && pointers_move(p); i++)
        if (has_vectors(p, i, p->stage))
            f8_cuda_line(p, "o%u += %d;", i, columns);
}

static bool is_column_load(const f8_kinstr *i)
{
    return i->op == F8_K_LOAD && (i->ext & F8_EXT_COL);
}

/* Rows whose columns are no multiple of the vector are often loaded and stored in parts. */
static const char *in_parts(const f8_cuda_printer *p)
{
    return !p->k->flat && p->k->cols % p->l.vector ? "ragged" : "some";
}

/* Elements of a rolled load whose vectors don't stay whole come one by one. */
static bool is_scattered(const f8_cuda_printer *p, const f8_kinstr *i)
{
    return i->group && (i->group % p->l.vector || i->shift % p->l.vector);
}

/* Which vectors are not whole, or not aligned: none; those past their row's end, and no part of
 * these is there; any. */
typedef enum others {
    NO_OTHERS,
    EMPTY_OTHERS,
    ANY_OTHERS
} others;

static others others_of(const f8_cuda_printer *p)
{
    if (p->inside)
        return NO_OTHERS;
    if (!p->aligned || p->k->flat || p->k->cols % p->l.vector)
        return ANY_OTHERS;
    return p->l.points || !f8_cuda_rows_ragged(p) ? NO_OTHERS : EMPTY_OTHERS;
}

/* Opens the block of those vectors that are whole and aligned. */
static void open_whole(f8_cuda_printer *p)
{
    if (others_of(p) == NO_OTHERS)
        f8_cuda_scope(p);
    else
        f8_cuda_open(p, p->aligned ? "if (n >= %d)" : "if (wide && n >= %d)", p->l.vector);
}

static void print_load(f8_cuda_printer *p, uint32_t n, others of)
{
    const f8_kinstr *i = &p->k->instr[n];
    const int bytes = f8_cuda_bytes(p->k->buffer[i->buffer].dtype), v = p->l.vector;
    const long long shift = (long long)i->shift, group = (long long)i->group;
    f8_cuda_name at = place_of(p, i->buffer);
    if (is_scattered(p, i)) {
        f8_cuda_line(p, "f8_get_rolled<%d, %d>(w%u[u], q%d, (int)c, n, %lld, %lld);", bytes, v, n,
                     i->buffer, shift, group);
        return;
    }
    if (i->group)
        snprintf(at.s, sizeof at.s, "q%d + f8_rolled((int)c, %lld, %lld)", i->buffer, shift, group);
    if (of == NO_OTHERS && f8_cuda_ring_brings(p, n)) {
        f8_cuda_ring_load(p, n);
        return;
    }
    if (of == EMPTY_OTHERS)
        f8_cuda_line(p, "f8_get_nothing<%d, %d>(w%u[u]);", bytes, v, n);
    else if (of == ANY_OTHERS)
        f8_cuda_line(p, "f8_get_%s<%d, %d>(w%u[u], %s, n);", in_parts(p), bytes, v, n, at.s);
    else
        f8_cuda_line(p, "f8_get<%d, %d>(w%u[u], %s);", bytes, v, n, at.s);
}

/* Whether this stage has to do LOAD n. */
static bool is_due(const f8_cuda_printer *p, uint32_t n)
{
    return p->needed[n] && is_column_load(&p->k->instr[n]) && !f8_cuda_is_kept(p, n) &&
           p->raw[n] != F8_CUDA_RAW_LOADED;
}

void f8_cuda_rows_declare_words(f8_cuda_printer *p, uint32_t n)
{
    const int words = words_of(p, p->k->buffer[p->k->instr[n].buffer].dtype);
    f8_cuda_line(p, "f8_u32 w%u[%d][%d];", n, p->l.sets, words);
}

/* Whether LOAD n may be in flight with those of the thread's other vectors. Other loads find their
 * line in a near cache and would only take registers; in wide rows they do not. */
static bool is_first_touch(const f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    return i->ext == F8_EXT_FULL && !i->group &&
           (!p->loaded[n] || f8_cuda_rows_in_turns(p) || !(p->l.whole || p->l.staged));
}

/* Whether LOAD n is done for all vectors before anything else: what stays for the row, what reads
 * other columns, and first accesses while there are registers. */
static bool is_early(const f8_cuda_printer *p, uint32_t n)
{
    int words = 0;
    if (p->l.points || p->raw[n] || p->k->instr[n].group)
        return true;
    for (uint32_t i = 0; i <= n; i++)
        if (is_due(p, i) && (p->raw[i] || is_first_touch(p, i)))
            words += p->l.sets * words_of(p, p->k->buffer[p->k->instr[i].buffer].dtype);
    return is_first_touch(p, n) && words <= (p->l.staged ? EARLY_WORDS_STAGED : EARLY_WORDS);
}

/* The loads of one vector that `chosen` says: scattered ones, or the others, as loads of those
 * vectors that `of` says. Closes the block. */
static void print_kind(f8_cuda_printer *p, const bool *chosen, bool scattered, others of)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (chosen[n] && is_scattered(p, &p->k->instr[n]) == scattered)
            print_load(p, n, of);
    f8_cuda_close(p);
}

/* The loads of one vector that `chosen` says. */
static void print_chosen(f8_cuda_printer *p, const bool *chosen)
{
    bool due[2] = {false, false};
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (chosen[n])
            due[is_scattered(p, &p->k->instr[n])] = true;
    if (due[0]) {
        open_whole(p);
        print_kind(p, chosen, false, NO_OTHERS);
        if (others_of(p) != NO_OTHERS) {
            f8_cuda_open(p, "else");
            print_kind(p, chosen, false, others_of(p));
        }
    }
    if (due[1]) {
        f8_cuda_scope(p);
        print_kind(p, chosen, true, NO_OTHERS);
    }
}

/* Declares the early loads of this stage, and notes them. */
void f8_cuda_rows_declare_loads(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        p->ahead[n] = is_due(p, n) && is_early(p, n) && !f8_cuda_ring_brings(p, n);
        if (p->ahead[n] && !p->raw[n])
            f8_cuda_rows_declare_words(p, n);
    }
}

static bool any_ahead(const f8_cuda_printer *p)
{
    bool any = false;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        any |= p->ahead[n];
    return any;
}

/* Loads of this stage's vectors, before anything is stored. */
void f8_cuda_rows_loads(f8_cuda_printer *p)
{
    if (!any_ahead(p))
        return;
    f8_cuda_rows_u(p);
    f8_cuda_rows_column(p);
    print_chosen(p, p->ahead);
    f8_cuda_close(p);
}

bool f8_cuda_rows_in_turns(const f8_cuda_printer *p)
{
    return p->l.staged && !p->l.whole && !p->multi && !p->l.ring.chunks;
}

void f8_cuda_rows_loads_first(f8_cuda_printer *p)
{
    f8_cuda_rows_declare_loads(p);
    if (!any_ahead(p))
        return;
    f8_cuda_scope(p);
    f8_cuda_line(p, "const int at = 0;");
    f8_cuda_rows_loads(p);
    f8_cuda_close(p);
}

/* The words of vector u have been used, so those of its next round take their place. */
void f8_cuda_rows_loads_next(f8_cuda_printer *p)
{
    if (!any_ahead(p))
        return;
    f8_cuda_line(p, "const int after = at + %d;", f8_cuda_rows_step(p) * p->l.sets);
    f8_cuda_open(p, "if (after < %lld)", (long long)p->l.cols);
    f8_cuda_line(p, "const int at = after;");
    f8_cuda_rows_column(p);
    print_chosen(p, p->ahead);
    f8_cuda_close(p);
}

void f8_cuda_rows_late_loads(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        p->late[n] = is_due(p, n) && !p->ahead[n];
        if (p->late[n])
            f8_cuda_rows_declare_words(p, n);
    }
    print_chosen(p, p->late);
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (is_due(p, n)) {
            p->loaded[n] = true;
            if (p->raw[n])
                p->raw[n] = F8_CUDA_RAW_LOADED;
        }
}

bool f8_cuda_rows_takes(const f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    return p->needed[n] &&
           (i->op == F8_K_STORE || (f8_kinstr_is_partial(i) && !f8_cuda_layout_holds(&p->l, i)));
}

/* Declares what stores and column sums gather over a vector's elements. */
void f8_cuda_rows_declare_taken(f8_cuda_printer *p)
{
    f8_cuda_name words;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (f8_cuda_rows_takes(p, n) && !f8_cuda_rows_words(p, n, &words)) {
            const bool word =
                p->k->instr[n].op == F8_K_STORE &&
                (p->put[n][0] == 'w' || p->put[n][0] == 'h' || !strcmp(p->put[n], "byte"));
            f8_cuda_line(p, "%s y%u[%d];", word ? "f8_u32" : "float", n, p->l.vector);
        }
}

void f8_cuda_rows_elements(f8_cuda_printer *p)
{
    f8_cuda_name words;
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (p->needed[n] && !f8_kinstr_is_root(&p->k->instr[n]))
            f8_cuda_print_element(p, n);
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (f8_cuda_rows_takes(p, n) && !f8_cuda_rows_words(p, n, &words))
            f8_cuda_line(p, "y%u[e] = %s;", n, f8_cuda_value(p, p->source[n]).s);
}

/* A store of this stage along rows: of values that all rows have in common, or of their own. */
static bool is_along_row(const f8_cuda_printer *p, uint32_t n, bool same)
{
    const f8_kinstr *i = &p->k->instr[n];
    return f8_cuda_rows_takes(p, n) && i->op == F8_K_STORE && !p->k->buffer[i->buffer].transposed &&
           (i->ext == F8_EXT_COL && !p->k->flat) == same;
}

static void print_puts(f8_cuda_printer *p, bool same, const char *parts)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (!is_along_row(p, n, same))
            continue;
        const int bytes = f8_cuda_bytes(p->k->buffer[i->buffer].dtype);
        f8_cuda_name words;
        if (!f8_cuda_rows_words(p, n, &words))
            snprintf(words.s, sizeof words.s, "x%u", n);
        if (parts)
            f8_cuda_line(p, "f8_put_%s<%d, %d>(%s, %s, n);", parts, bytes, p->l.vector,
                         place_of(p, i->buffer).s, words.s);
        else
            f8_cuda_line(p, "f8_put%s<%d, %d>(%s, %s);", p->l.ring.chunks ? "_far" : "", bytes,
                         p->l.vector, place_of(p, i->buffer).s, words.s);
    }
}

/* Stores of one vector along its row. */
void f8_cuda_rows_stores(f8_cuda_printer *p, const char *live)
{
    for (int same = 0; same < 2; same++) {
        bool any = false;
        f8_cuda_name words;
        for (uint32_t n = 0; n < p->k->n_instrs; n++) {
            if (!is_along_row(p, n, same))
                continue;
            any = true;
            if (f8_cuda_rows_words(p, n, &words))
                continue;
            f8_cuda_line(p, "f8_u32 x%u[%d];", n,
                         words_of(p, p->k->buffer[p->k->instr[n].buffer].dtype));
            f8_cuda_line(p, "f8_pack_%s<%d>(x%u, y%u);", p->put[n], p->l.vector, n, n);
        }
        if (!any)
            continue;
        if (live || same)
            f8_cuda_open(p, "if (%s%s%s)", live ? live : "", live && same ? " && " : "",
                         same ? "row == 0" : "");
        if (others_of(p) == NO_OTHERS) {
            print_puts(p, same, NULL);
        } else {
            open_whole(p);
            print_puts(p, same, NULL);
            f8_cuda_close(p);
        }
        if (others_of(p) == ANY_OTHERS) {
            f8_cuda_open(p, "else");
            print_puts(p, same, in_parts(p));
            f8_cuda_close(p);
        }
        if (live || same)
            f8_cuda_close(p);
    }
}
