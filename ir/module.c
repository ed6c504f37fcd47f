/* Modules: variables, functions and their ports. See ir.h; names are in names.c, rewriting is in
 * rewrite.c. */
#include "ir/internal.h"

#include <math.h>
#include <string.h>

#include "ir/lowered.h"

/* ---- module ---- */

f8_module *f8_module_create(f8_arena *arena, f8_diag *diag, const char *name, const char *file)
{
    f8_module *m = F8_NEW(arena, f8_module);
    struct f8_interner *strings = f8_interner_create(arena);
    if (!m || !strings) {
        f8_arena_status(arena, diag);
        return NULL;
    }
    *m = (f8_module){.arena = arena, .diag = diag, .strings = strings, .accumulate = 1};
    m->name = f8_intern(m, name ? name : "module");
    m->file = f8_intern(m, file ? file : "");
    m->optimizer.schedule = f8_intern(m, "constant");
    if (!m->name || !m->file || !m->optimizer.schedule) {
        f8_arena_status(arena, diag);
        return NULL;
    }
    return m;
}

/* ---- variables ---- */

const char *const f8_init_name[F8_INITS] = {
    [F8_INIT_ZEROS] = "zeros",   [F8_INIT_ONES] = "ones",       [F8_INIT_CONST] = "const",
    [F8_INIT_NORMAL] = "normal", [F8_INIT_UNIFORM] = "uniform",
};

bool f8_init_has_number(f8_init_kind kind, double number)
{
    return kind < F8_INIT_NORMAL || (number >= 0 && isfinite(number));
}

static f8_status check_var(const f8_module *m, const f8_var *v)
{
    if (!f8_name_ok(v->name))
        return f8_fail(m->diag, F8_ERR_INPUT, v->loc,
                       "'%s' is not a name: a letter or '_', then letters, digits, '_' and '.'",
                       v->name ? v->name : "");
    int32_t other = f8_module_find_var(m, v->name);
    if (other >= 0)
        return f8_fail(m->diag, F8_ERR_INPUT, v->loc, "'%s' is already declared, at %u:%u", v->name,
                       m->var[other].loc.line, m->var[other].loc.column);
    if ((unsigned)v->type.dtype >= F8_DTYPE_COUNT || v->type.rank > F8_MAX_RANK)
        return f8_fail(m->diag, F8_ERR_INPUT, v->loc, "'%s': at most %d axes", v->name,
                       F8_MAX_RANK);
    for (int i = 0; i < v->type.rank; i++)
        if (v->type.dim[i] < 1)
            return f8_fail(m->diag, F8_ERR_INPUT, v->loc,
                           "'%s': size %lld of axis %d is not positive", v->name,
                           (long long)v->type.dim[i], i);
    if (f8_type_bytes(&v->type) < 0)
        return f8_fail(m->diag, F8_ERR_INPUT, v->loc, "'%s': it has more than 2^47 bytes", v->name);
    bool random = v->init == F8_INIT_NORMAL || v->init == F8_INIT_UNIFORM;
    if (random && v->type.dtype != F8_F32 && v->type.dtype != F8_BF16)
        return f8_fail(m->diag, F8_ERR_INPUT, v->loc,
                       "'%s': only f32 and bf16 can be initialized at random, not %s", v->name,
                       f8_dtype_name(v->type.dtype));
    if (!f8_init_has_number(v->init, v->init_arg))
        return f8_fail(m->diag, F8_ERR_INPUT, v->loc,
                       "'%s': %s(%g): the width must be finite and not negative", v->name,
                       f8_init_name[v->init], v->init_arg);
    return F8_OK;
}

int32_t f8_module_var(f8_module *m, const f8_var *var)
{
    if (check_var(m, var) != F8_OK)
        return -1;
    f8_var *grown =
        f8_arena_grow(m->arena, m->var, m->n_vars, &m->var_room, m->n_vars + 1, sizeof *m->var);
    if (grown)
        m->var = grown;
    const int32_t at = (int32_t)m->n_vars;
    const char *name = grown ? f8_intern_var(m, var->name, at) : NULL;
    if (!name) {
        f8_arena_status(m->arena, m->diag);
        return -1;
    }
    m->var[at] = *var;
    m->var[at].name = name;
    m->n_vars++;
    return at;
}

/* ---- functions ---- */

f8_func *f8_module_func(f8_module *m, const char *name)
{
    if (!f8_name_ok(name) || f8_module_find_func(m, name)) {
        f8_fail(m->diag, F8_ERR_INPUT, F8_NOWHERE,
                f8_name_ok(name) ? "function '%s' is already defined"
                                 : "'%s' is not a name for a function",
                name ? name : "");
        return NULL;
    }
    f8_func *grown = f8_arena_grow(m->arena, m->func, m->n_funcs, &m->func_room, m->n_funcs + 1,
                                   sizeof *m->func);
    const char *own = f8_intern(m, name);
    if (grown)
        m->func = grown;
    if (!grown || !own) {
        f8_arena_status(m->arena, m->diag);
        return NULL;
    }
    f8_graph *g = f8_graph_create(m, m->diag);
    if (!g)
        return NULL;
    f8_func *f = &m->func[m->n_funcs++];
    *f = (f8_func){.name = own, .graph = g};
    return f;
}

f8_func *f8_module_find_func(const f8_module *m, const char *name)
{
    for (size_t i = 0; i < m->n_funcs; i++)
        if (!strcmp(m->func[i].name, name))
            return &m->func[i];
    return NULL;
}

bool f8_is_first_form(const char *first, const char *of)
{
    static const char step[] = "micro_step", mark[] = ".first";
    const size_t n = sizeof step - 1;
    return !strncmp(of, step, n) && !strncmp(first, step, n) &&
           !strncmp(first + n, mark, sizeof mark - 1) &&
           !strcmp(first + n + sizeof mark - 1, of + n);
}

bool f8_is_first_name(const char *name)
{
    return strstr(name, ".first") != NULL;
}

bool f8_is_form(const f8_module *m, const f8_func *f)
{
    bool found = false;
    for (size_t i = 0; i < m->n_funcs && !found; i++)
        found = f8_is_first_form(f->name, m->func[i].name);
    return found;
}

/* ---- ports ---- */

/* The port of that (interned) name among the caller's, or of that variable. */
static f8_port *find_port(f8_port *port, size_t n, const char *name, int32_t var)
{
    for (size_t i = 0; i < n; i++)
        if (port[i].var == var && (var >= 0 || port[i].name == name))
            return &port[i];
    return NULL;
}

/* The same for a variable. Copies of a function share the array of an index, so an entry may be
 * another copy's; but what this function has is never missing. */
static f8_port *find_var_port(const f8_func *f, f8_port *port, size_t n, f8_port_index *x,
                              int32_t var)
{
    f8_module *m = f->graph->module;
    if (x->n_ports > n) /* ports were taken away */
        *x = (f8_port_index){0};
    uint32_t *at = f8_arena_grow(m->arena, x->at, x->room, &x->room, m->n_vars, sizeof *at);
    if (!at)
        return find_port(port, n, NULL, var);
    x->at = at;
    for (; x->n_ports < n; x->n_ports++)
        if (port[x->n_ports].var >= 0)
            at[port[x->n_ports].var] = (uint32_t)x->n_ports + 1;
    const uint32_t i = at[var];
    if (i == 0)
        return NULL;
    return i <= n && port[i - 1].var == var ? &port[i - 1] : find_port(port, n, NULL, var);
}

static f8_port *find_in(f8_func *f, const char *name, int32_t var)
{
    return var >= 0 ? find_var_port(f, f->in, f->n_in, &f->in_index, var)
                    : find_port(f->in, f->n_in, name, var);
}

static f8_port *find_out(f8_func *f, const char *name, int32_t var)
{
    return var >= 0 ? find_var_port(f, f->out, f->n_out, &f->out_index, var)
                    : find_port(f->out, f->n_out, name, var);
}

/* The name a port gets: the variable's own, or `name` interned; NULL with the diag filled. */
static const char *port_name(f8_func *f, const char *name, int32_t var)
{
    f8_graph *g = f->graph;
    f8_module *m = g->module;
    if (var >= 0 && (size_t)var >= m->n_vars) {
        f8_fail(g->diag, F8_ERR_INTERNAL, g->at, "%s: there is no variable %d", f->name, (int)var);
        return NULL;
    }
    if (var >= 0)
        return m->var[var].name;
    if (!f8_name_ok(name)) {
        f8_fail(g->diag, F8_ERR_INPUT, g->at, "%s: '%s' is not a name for an input or a result",
                f->name, name ? name : "");
        return NULL;
    }
    const char *own = f8_intern(m, name);
    if (!own)
        f8_arena_status(m->arena, g->diag);
    return own;
}

static bool add_port(f8_graph *g, f8_port **port, size_t *n, size_t *room, f8_port p)
{
    f8_port *grown = f8_arena_grow(g->arena, *port, *n, room, *n + 1, sizeof p);
    if (!grown) {
        f8_arena_status(g->arena, g->diag);
        return false;
    }
    *port = grown;
    grown[(*n)++] = p;
    return true;
}

static bool input_type_ok(f8_func *f, const char *name, const f8_type *type, int32_t var)
{
    f8_graph *g = f->graph;
    if (var >= 0 && !f8_type_equal(&g->module->var[var].type, type)) {
        f8_fail(g->diag, F8_ERR_INTERNAL, g->at, "%s: input '%s' is not of its variable's type",
                f->name, name);
        return false;
    }
    if (f8_type_valid(type))
        return true;
    f8_fail(g->diag, F8_ERR_INPUT, g->at, "%s: input '%s' has no valid shape", f->name, name);
    return false;
}

/* A port that there is not yet. */
static f8_ref add_input(f8_func *f, const char *own, const f8_type *type, int32_t var)
{
    f8_graph *g = f->graph;
    f8_ref r = f8_input(g, (int64_t)f->n_in, type);
    f8_set_name(g, r, own);
    f8_port p = {.name = own, .type = *type, .var = var, .ref = r, .loc = g->at};
    if (!r || !add_port(g, &f->in, &f->n_in, &f->in_room, p))
        return 0;
    return r;
}

f8_ref f8_func_input(f8_func *f, const char *name, const f8_type *type, int32_t var)
{
    f8_graph *g = f->graph;
    const char *own = port_name(f, name, var);
    if (!own || !input_type_ok(f, own, type, var))
        return 0;
    if (!find_in(f, own, var))
        return add_input(f, own, type, var);
    f8_fail(g->diag, F8_ERR_INPUT, g->at, "%s: there already is an input '%s'", f->name, own);
    return 0;
}

f8_ref f8_func_var(f8_func *f, int32_t var)
{
    const char *name = port_name(f, NULL, var);
    const f8_port *p = name && var >= 0 ? find_in(f, NULL, var) : NULL;
    if (p)
        return p->ref;
    const f8_type *type = name ? &f->graph->module->var[var].type : NULL;
    return name && input_type_ok(f, name, type, var) ? add_input(f, name, type, var) : 0;
}

f8_status f8_func_result(f8_func *f, const char *name, f8_ref ref, int32_t var)
{
    f8_graph *g = f->graph;
    const char *own = port_name(f, name, var);
    if (!own)
        return g->diag->status;
    if (!ref && g->diag->status != F8_OK) /* there was no memory for the node */
        return g->diag->status;
    if (!ref || ref >= g->n_nodes)
        return f8_fail(g->diag, F8_ERR_INTERNAL, g->at, "%s: result '%s' is no node", f->name, own);
    if (find_out(f, own, var))
        return f8_fail(g->diag, F8_ERR_INPUT, g->at,
                       var >= 0 ? "%s: '%s' is replaced twice"
                                : "%s: there already is a result '%s'",
                       f->name, own);
    const f8_type *type = f8_type_of(g, ref);
    char was[160], is[160];
    if (var >= 0 && !f8_type_equal(type, &g->module->var[var].type))
        return f8_fail(g->diag, F8_ERR_INPUT, g->at, "%s: '%s' is %s and can't be replaced by %s",
                       f->name, own, f8_type_print(&g->module->var[var].type, was, sizeof was),
                       f8_type_print(type, is, sizeof is));
    f8_port p = {.name = own, .type = *type, .var = var, .ref = ref, .loc = g->at};
    return add_port(g, &f->out, &f->n_out, &f->out_room, p) ? F8_OK : g->diag->status;
}

/* ---- layout ---- */

int64_t f8_module_layout(const f8_module *m, int64_t *offsets)
{
    int64_t at = 0;
    for (size_t i = 0; i < m->n_vars; i++) {
        if (offsets)
            offsets[i] = at;
        at += f8_aligned(f8_type_bytes(&m->var[i].type), F8_ARENA_ALIGN);
    }
    return at;
}
