/* jinja_impl.h - declares values, nodes and runs, which the files of the Jinja interpreter share.
 *
 *   source -- jinja_lex.c --> tokens -- jinja_parse.c, jinja_stmt.c --> nodes
 *                                    -- jinja_exec.c, jinja_eval.c --> text
 *
 * A run renders a template once. All memory of a template, or of a run, is in an arena and is freed
 * at once. Most functions return no status. A failure sets run->rc (osh_jrun_fail), and from then
 * on every function returns immediately, with an arbitrary value. The caller checks rc at the end.
 * An allocation that fails returns NULL and sets rc, too. */
#ifndef OSH_JINJA_IMPL_H
#define OSH_JINJA_IMPL_H
#include "chat/jinja.h"

enum {
    OSH_JINJA_MAX_DEPTH = 400,        // largest depth of nested nodes, including calls of macros
    /* Largest number of nodes, and of steps that osh_jrun_step counts. */
    OSH_JINJA_MAX_STEPS = 20000000,
    OSH_JINJA_MAX_BYTES = 256 << 20,  // largest size of the values of one run, in bytes
    OSH_JINJA_MAX_TEMPLATE = 4 << 20, // largest size of the source, in bytes
};

typedef struct osh_jarena {
    struct osh_jblock *blocks; // own
    size_t used, n_bytes;      // used: bytes used in the newest block; n_bytes: size of all blocks
} osh_jarena;
void *osh_jarena_get(osh_ctx *cx, osh_jarena *a, size_t n); // returns zeroed memory
/* Frees all memory that osh_jarena_get returned. */
void osh_jarena_deinit(osh_ctx *cx, osh_jarena *a);

/* ---- values ---- */

typedef enum {
    OSH_JV_UNDEF, // s, n: the name of the undefined variable
    OSH_JV_NONE,
    OSH_JV_BOOL,
    OSH_JV_INT,
    OSH_JV_FLOAT,
    OSH_JV_STR,   // s, n: the text, always valid UTF-8
    OSH_JV_LIST,
    OSH_JV_TUPLE,
    OSH_JV_ITER,  // result of a filter such as map: an iterator, which has no length and no index
    OSH_JV_VIEW,  // a range (n is 1), which has an index, or the items, keys or values of a dict
    OSH_JV_DICT,
    OSH_JV_NS,    // namespace(): a dict whose entries may be set
    OSH_JV_LOOP,
    OSH_JV_MACRO,
    OSH_JV_METHOD,
    OSH_JV_GLOBAL,
} osh_jv_kind;

typedef struct osh_jv {
    osh_jv_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        const char *s;
        struct osh_jlist *list; // for kinds LIST to VIEW: the items
        struct osh_jdict *dict; // for kinds DICT and NS: the entries
        struct osh_jloop *loop;
        struct osh_jmacro *macro;
        struct osh_jbound *bound; // for kinds METHOD and GLOBAL: the function
    } u;
    size_t n;
} osh_jv;

typedef struct osh_jlist {
    osh_jv *at;
    size_t n, cap;
} osh_jlist;
typedef struct osh_jpair {
    osh_jv key, value;
} osh_jpair;
typedef struct osh_jdict { // entries in the order of insertion
    osh_jpair *at;
    size_t n, cap;
} osh_jdict;
typedef struct osh_jloop {
    osh_jlist *items;
    size_t at; // index of the current item, from 0
    int depth; // number of enclosing loops
} osh_jloop;
typedef struct osh_jmacro {
    const struct osh_jnode *def; // node of the macro or the call
    struct osh_jscope *scope;    // scope in which the macro was defined
} osh_jmacro;
typedef struct osh_jbound {
    osh_jv self; // the object whose method this is
    const struct osh_jbuiltin *fn;
} osh_jbound;

/* ---- nodes ---- */

typedef enum {
    /* Kinds of expressions. */
    OSH_JN_CONST, OSH_JN_NAME, OSH_JN_LIST, OSH_JN_TUPLE, OSH_JN_DICT, OSH_JN_ATTR, OSH_JN_ITEM,
    OSH_JN_SLICE, OSH_JN_CALL, OSH_JN_FILTER, OSH_JN_TEST, OSH_JN_NOT, OSH_JN_NEG, OSH_JN_POS,
    OSH_JN_BINARY, OSH_JN_CONCAT, OSH_JN_COMPARE, OSH_JN_AND, OSH_JN_OR, OSH_JN_COND,
    /* Kinds of statements. */
    OSH_JN_TEXT, OSH_JN_PRINT, OSH_JN_FOR, OSH_JN_IF, OSH_JN_SET, OSH_JN_SET_BLOCK, OSH_JN_MACRO,
    OSH_JN_CALL_BLOCK, OSH_JN_FILTER_BLOCK, OSH_JN_SCOPE, OSH_JN_WITH, OSH_JN_BREAK,
    OSH_JN_CONTINUE, OSH_JN_NS_SET, OSH_JN_GENERATION,
} osh_jnode_kind;

/* Children of a node form a list, which begins with `first` and continues with `next`. The children
 * of each kind are:
 *
 *   LIST TUPLE CONCAT AND OR   the operands
 *   DICT                       key, value, key, value, ...
 *   ATTR                       the object (`value` has the name)
 *   ITEM                       the object, the index
 *   SLICE                      start, stop, step; CONST none for each that is absent
 *   CALL                       the function, then the arguments
 *   FILTER TEST                the operand, then the arguments (`fn` is the function)
 *   BINARY                     left, right (`op` is the operator)
 *   COND                       the condition, the value if true, and if present the value if false
 *   COMPARE                    an operand, then nodes with an operator (`op`) and an operand
 *   PRINT SET_BLOCK ...        see jinja_stmt.c
 *
 * A named argument is a node with its name in `keyword`. */
typedef struct osh_jnode {
    osh_jnode_kind kind;
    int line;
    struct osh_jnode *first, *last, *next;
    struct osh_jnode *target, *body, *other; // used by statements
    osh_jv value; // value of CONST, text of TEXT, name of NAME, ATTR, ...
    osh_jv keyword; // STR: name of a named argument or of a macro's parameter
    int op;                                  // operator (see OSH_JOP); TEST: 1 if negated (is not)
    const struct osh_jbuiltin *fn;
} osh_jnode;

struct osh_jinja {
    osh_jarena arena; // own
    const char *what; // view of the arena: name of the template in messages
    osh_jnode *body;
    bool marks; // true: the template has `generation` blocks
};

/* ---- tokens ---- */

typedef enum {
    OSH_JT_END, OSH_JT_TEXT, OSH_JT_PRINT, OSH_JT_PRINT_END, OSH_JT_BLOCK, OSH_JT_BLOCK_END,
    OSH_JT_NAME, OSH_JT_STR, OSH_JT_INT, OSH_JT_FLOAT, OSH_JT_OP,
} osh_jtoken_kind;
typedef struct osh_jtoken {
    osh_jtoken_kind kind;
    int line;
    int op;       // for kind OP: first character + 256 * second character of the operator
    osh_jv value; // value of a token: text, name or number
} osh_jtoken;
#define OSH_JOP(a, b) ((int)(a) + 256 * (int)(b))
enum { OSH_JOP_IN = 1, OSH_JOP_NOT_IN = 2 };

/* ---- a run of a template; also the state of the parser ---- */

typedef struct osh_jscope {
    struct osh_jscope *up;
    osh_jdict vars;
} osh_jscope;
typedef enum { OSH_JFLOW_ON, OSH_JFLOW_BREAK, OSH_JFLOW_CONTINUE } osh_jflow;

typedef struct osh_jrun {
    osh_ctx *cx;
    osh_status rc;
    osh_jarena *arena; // view
    const char *what;  // view
    int line;          // line of the template that is being executed; 0: none
    int depth, n_loops;
    int64_t steps, max_steps; // number so far, and its limit (0: OSH_JINJA_MAX_STEPS)
    osh_buf *out;      // view: output
    osh_jscope *scope;
    osh_jflow flow;
    const char *date;  // view: date that strftime_now prints
    bool strict;
    /* view: gets the positions (in `out`) of the texts of `generation` blocks; NULL: not wanted */
    struct osh_chat_spans *marks;
    osh_buf *marked; // view: the text of the whole template. Some blocks write to another `out`
    bool generates;  // result of the parser: the template has `generation` blocks
} osh_jrun;

/* Fails the run with `code` and a message, unless it has failed already. The message begins with
 * the source's name and, if it is known, the current line. Returns NONE. */
osh_jv osh_jrun_fail(osh_jrun *r, osh_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns zeroed memory of the arena; the bytes count as steps. */
void *osh_jrun_get(osh_jrun *r, size_t n);
/* Adds a scope whose variables are the entries of `dict`. A variable of `dict` hides variables of
 * outer scopes with the same name. */
void osh_jrun_vars(osh_jrun *r, osh_jv dict);
/* osh_jrun_step and osh_jrun_step_chars count steps. The number of steps is limited, to limit the
 * time for a row. Every function that reads n bytes or n items must call one of these functions.
 * Decoding a character counts more steps than copying a byte. Both functions return false if the
 * run has failed. */
bool osh_jrun_step(osh_jrun *r, size_t n);       // counts 1 step, and 1 more for each 64 bytes
bool osh_jrun_step_chars(osh_jrun *r, size_t n); // counts the steps for decoding n bytes

/* Returns the tokens of a source. The last token has the kind END. */
osh_jtoken *osh_jinja_lex(osh_jrun *r, const char *text, size_t n);
/* Parses the tokens of a template into a list of nodes in the arena. */
osh_jnode *osh_jinja_parse(osh_jrun *r, osh_jtoken *tokens);
/* Runs a list of nodes and appends their text to r->out. */
void osh_jinja_exec(osh_jrun *r, const osh_jnode *list);
/* Returns the value of an expression. */
osh_jv osh_jinja_eval(osh_jrun *r, const osh_jnode *n);
/* Evaluates a call. `caller` is the body of a `call` block as a macro, or NONE. */
osh_jv osh_jinja_eval_call(osh_jrun *r, const osh_jnode *n, osh_jv caller);
/* Calls a macro with positional and named arguments. Returns its text. */
osh_jv osh_jinja_call_macro(osh_jrun *r, const osh_jmacro *m, osh_jv list, osh_jv named);

/* State of two parsers: the parser of expressions and the parser of statements. */
typedef struct osh_jparser {
    osh_jrun *r;
    osh_jtoken *at;
    int n_loops; // number of loops that enclose the current position
} osh_jparser;
/* Returns a new node at the line of the current token. */
osh_jnode *osh_jparse_new(osh_jparser *p, osh_jnode_kind kind);
/* Appends a child to a node. */
void osh_jparse_add(osh_jnode *to, osh_jnode *child);
/* True if the current token is the operator `op`, or the name `name`. osh_jparse_take_op and
 * osh_jparse_take_name also skip such a token. osh_jparse_want_op fails unless the current token is
 * `op`. osh_jparse_want_name fails unless the current token is a name. */
bool osh_jparse_is_op(const osh_jparser *p, const char *op);
bool osh_jparse_is_name(const osh_jparser *p, const char *name);
bool osh_jparse_take_op(osh_jparser *p, const char *op);
bool osh_jparse_take_name(osh_jparser *p, const char *name);
void osh_jparse_want_op(osh_jparser *p, const char *op);
osh_jv osh_jparse_want_name(osh_jparser *p);
/* Fails; the message has the current token and `wanted`. */
void osh_jparse_fail(osh_jparser *p, const char *wanted);
/* Parses one expression. */
osh_jnode *osh_jparse_expr(osh_jparser *p);
/* Parses an expression, or several expressions with commas. */
osh_jnode *osh_jparse_tuple(osh_jparser *p, bool cond);
/* Parses the filters and tests after an operand: "| name(...)", "is name". */
osh_jnode *osh_jparse_filters(osh_jparser *p, osh_jnode *operand);
/* Parses "name(...)" after a |. If `operand` is NULL, the operand of the filter is the text of a
 * block. */
osh_jnode *osh_jparse_filter(osh_jparser *p, osh_jnode *operand);

/* ---- values: jinja_value.c ---- */

/* The names of the next functions end with the kind of their result. Memory comes from the arena of
 * r. If there is no memory, the run fails and they return NONE. `name` [n] of osh_jv_undef is a
 * view. */
osh_jv osh_jv_undef(const char *name, size_t n);
osh_jv osh_jv_none(void);
osh_jv osh_jv_bool(bool b);
osh_jv osh_jv_int(int64_t i);
osh_jv osh_jv_float(double f);
osh_jv osh_jv_view(const char *s, size_t n); // returns a string; s must live as long as the run
/* Returns a string with a copy of s. */
osh_jv osh_jv_str(osh_jrun *r, const char *s, size_t n);
osh_jv osh_jv_word(const char *s); // returns a string; s is a constant of the program
/* Returns an empty list of `kind`, such as OSH_JV_LIST. */
osh_jv osh_jv_list(osh_jrun *r, osh_jv_kind kind);
/* Appends an item to a list. Does nothing if the run has failed. */
void osh_jv_push(osh_jrun *r, osh_jv list, osh_jv item);
/* Returns an empty dict of `kind`, such as OSH_JV_DICT. */
osh_jv osh_jv_dict(osh_jrun *r, osh_jv_kind kind);
/* Sets the value of a key, or adds the key at the end. Does nothing if the run has failed. */
void osh_jdict_set(osh_jrun *r, osh_jdict *d, osh_jv key, osh_jv value);
/* Returns the value of a key, or NULL if the dict has no such key. */
const osh_jv *osh_jdict_get(osh_jrun *r, const osh_jdict *d, osh_jv key);
bool osh_jv_is(osh_jv v, const char *word); // true if v is the string `word`
/* True if v is true in Python. */
bool osh_jv_true(osh_jv v);
/* True if `a == b` in Python. */
bool osh_jv_equal(osh_jrun *r, osh_jv a, osh_jv b);
/* Compares two values like Python's `<`. Returns a number < 0 if `a` is less than `b`, 0 if both
 * are equal, and a number > 0 if `a` is greater. Fails if `<` fails in Python. */
int osh_jv_order(osh_jrun *r, osh_jv a, osh_jv b);
/* True if `item in all` in Python. Fails if Python fails. */
bool osh_jv_in(osh_jrun *r, osh_jv item, osh_jv all);
/* Returns the items for a `for` loop, or NULL if the run has failed. */
osh_jlist *osh_jv_walk(osh_jrun *r, osh_jv v);
/* Returns the name of the kind of v, for messages. */
const char *osh_jv_type(osh_jv v);
/* True if v is a range of Python. */
bool osh_jv_is_range(osh_jv v);
bool osh_jv_is_num(osh_jv v);  // true for a number or a bool
/* Returns the value of a number or a bool. */
double osh_jv_num(osh_jv v);
/* Returns the value of an int, or a bool as 0 or 1. Fails for other kinds; `what` names v in the
 * message. */
int64_t osh_jv_whole(osh_jrun *r, osh_jv v, const char *what);
/* Returns the number of items or of code points. Fails for values without a length. */
osh_jv osh_jv_length(osh_jrun *r, osh_jv v);
/* Returns the value of a JSON text [n]. */
osh_jv osh_jv_json(osh_jrun *r, const char *text, size_t n);
/* Adds the range [begin, end) of an answer's text to the list s (jinja_run.c). */
osh_status osh_chat_spans_add(osh_ctx *cx, struct osh_chat_spans *s, size_t begin, size_t end);

/* ---- text: jinja_text.c, jinja_string.c ---- */

// returns v; the run fails if v is no string. what: name of the function, for the message
osh_jv osh_jv_want_str(osh_jrun *r, osh_jv v, const char *what);
osh_jv osh_jv_to_str(osh_jrun *r, osh_jv v); // returns Python's str(v)
/* Converts v to JSON. opts: ensure_ascii, indent, separators, sort_keys. */
osh_jv osh_jv_to_json(osh_jrun *r, osh_jv v, const osh_jv opts[4]);
/* Returns the text of the buffer as a string, and frees the buffer. */
osh_jv osh_jv_take(osh_jrun *r, osh_buf *b);
int64_t osh_jstr_length(osh_jrun *r, osh_jv s); // returns the number of code points of the string
/* Slices a string. `from`, `to` and `step` count code points. */
osh_jv osh_jstr_slice(osh_jrun *r, osh_jv s, int64_t from, int64_t to, int64_t step);
/* Removes characters from the ends of s. `sides` is 1 for the left end, 2 for the right end, 3 for
 * both ends. If `chars` is NONE, removes white space. */
osh_jv osh_jstr_strip(osh_jrun *r, osh_jv s, osh_jv chars, int sides);
/* Changes the case of the letters of s. how: 'u' upper, 'l' lower, 'c' capitalize, 't' Jinja's
 * title, 'T' Python's str.title. */
osh_jv osh_jstr_map_case(osh_jrun *r, osh_jv s, char how);
/* Replaces the first `count` occurrences of `from` by `to`; count < 0: all of them. */
osh_jv osh_jstr_replace(osh_jrun *r, osh_jv s, osh_jv from, osh_jv to, int64_t count);
/* Returns the byte position of the first `part` in s at or after byte `from`, or SIZE_MAX if there
 * is none. */
size_t osh_jstr_find(osh_jrun *r, osh_jv s, osh_jv part, size_t from);
bool osh_jcp_is_space(uint32_t cp); // true for the characters of Python's str.isspace

/* ---- functions that are called by name: jinja_filter.c, jinja_is.c, jinja_method.c ---- */

enum { OSH_J_MAX_ARGS = 8 };
typedef struct osh_jargs {
    osh_jv self;                 // operand of a filter or a test; object of a method
    /* Value of each parameter. If its kind is UNDEF and its `s` is NULL, no argument was given. */
    osh_jv at[OSH_J_MAX_ARGS];
    osh_jv more;                 // LIST: further positional arguments, if the parameters end in "*"
    osh_jv named;                // DICT: further named arguments, if the parameters end in "*"
} osh_jargs;
typedef struct osh_jbuiltin {
    const char *name;
    osh_jv (*call)(osh_jrun *r, const osh_jargs *a);
    /* Names of the parameters, separated by spaces. A "?" after a name marks an optional parameter.
     * A "*" at the end allows any further arguments. */
    const char *params;
    unsigned of;        // bits 1 << osh_jv_kind: kinds of objects that have the method
} osh_jbuiltin;
/* True if v is an argument that the call gave. */
bool osh_jarg_given(osh_jv v);
/* Each function returns the filter, test or global function with this name, or NULL if there is
 * none. */
const osh_jbuiltin *osh_jfilter_find(osh_jv name);
const osh_jbuiltin *osh_jtest_find(osh_jv name);
const osh_jbuiltin *osh_jglobal_find(osh_jv name);
/* Sets the members of `a` to the arguments of a call: `list` has the positional arguments, `named`
 * has the named arguments, and fn->params lists the parameters. Fails if a required argument is
 * missing, or if an argument is given twice or is not supported. */
void osh_jargs_bind(osh_jrun *r, osh_jargs *a, const osh_jbuiltin *fn, osh_jv list, osh_jv named);
osh_jv osh_jinja_attr(osh_jrun *r, osh_jv object, osh_jv name); // evaluates object.name
osh_jv osh_jinja_item(osh_jrun *r, osh_jv object, osh_jv key);  // evaluates object[key]
/* Prints r->date by a format of strftime. Fails if the date is invalid or if a conversion is not
 * supported. */
osh_jv osh_jinja_strftime(osh_jrun *r, osh_jv format);
#endif
