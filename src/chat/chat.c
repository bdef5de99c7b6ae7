/* chat.c - reads chat templates from a model directory, and renders rows of a data set.
 *
 * The variables of a template are messages, tools (the row's column, or none), documents (always
 * none), add_generation_prompt (false by default), and the special tokens of tokenizer_config.json.
 * A token that is null in that file is undefined in the template. */
#include <string.h>

#include "base/file.h"
#include "chat/chat_impl.h"
#include "text/json.h"

enum { CONFIG_BYTES = 64 << 20 };

static const char no_template[] =
    "{% for m in messages %}{% if m['role'] in ['user', 'system', 'assistant'] %}"
    "{{ '<|' + m['role'] + '|>\\n' + m['content'] ~ eos_token ~ '\\n' }}{% endif %}{% endfor %}";

/* Reads a JSON file of the directory to *out (own). If the file does not exist, *out is not
 * changed. */
static osh_status read_optional_json(osh_ctx *cx, cJSON **out, const char *dir, const char *name)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, dir, name); // own
    if (!path) return OSH_E_NOMEM;
    if (osh_file_exists(path)) rc = osh_json_read(cx, out, path, CONFIG_BYTES, OSH_JSON_NAN);
    osh_free(cx, path);
    return rc;
}

/* Returns the text of a token, which is a string or an object with "content". Returns NULL if v is
 * neither. */
static const char *token_text(const cJSON *v)
{
    const cJSON *content = cJSON_IsObject(v) ? cJSON_GetObjectItemCaseSensitive(v, "content") : v;
    return cJSON_IsString(content) ? content->valuestring : NULL;
}

static bool is_token_key(const char *key)
{
    size_t n = strlen(key);
    return n > 6 && !strcmp(key + n - 6, "_token");
}

/* Appends the special tokens that are members of the JSON object o. If `all` is false, uses only
 * members whose key ends in _token. Members whose key is also in `but` are skipped. */
static osh_status special_add_tokens(osh_ctx *cx, osh_buf *b, const cJSON *o, bool all,
                                     const cJSON *but)
{
    osh_status rc = OSH_OK;
    for (const cJSON *c = cJSON_IsObject(o) ? o->child : NULL; c; c = c->next) {
        const char *text = token_text(c);
        if (!text || !(all || is_token_key(c->string)) ||
            cJSON_GetObjectItemCaseSensitive(but, c->string))
            continue;
        OSH_TRY(osh_buf_append(cx, b, ", ", 2));
        OSH_TRY(osh_json_put_string(cx, b, c->string));
        OSH_TRY(osh_buf_append(cx, b, ": ", 2));
        OSH_TRY(osh_json_put_string(cx, b, text));
    }
done:
    return rc;
}

static osh_status chat_find_special(osh_ctx *cx, osh_chat *c, const cJSON *config, const cJSON *map)
{
    static const char begin[] =
        "{\"tools\": null, \"documents\": null, \"add_generation_prompt\": false";
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_append(cx, &b, begin, sizeof begin - 1));
    OSH_TRY(special_add_tokens(cx, &b, map, false, config));
    OSH_TRY(special_add_tokens(cx, &b, config, false, NULL));
    OSH_TRY(special_add_tokens(
        cx, &b, cJSON_GetObjectItemCaseSensitive(config, "extra_special_tokens"), true, NULL));
    OSH_TRY(osh_buf_append(cx, &b, "}", 1));
    c->special = osh_strdup(cx, b.data);
    if (!c->special) rc = OSH_E_NOMEM;
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Sets *text to the chat_template of a tokenizer_config.json: a string, or the template named
 * "default" in a list of {name, template}. *text is NULL if the config has none. */
static osh_status choose_template(osh_ctx *cx, const char **text, const cJSON *config,
                                  const char *what)
{
    osh_status rc = OSH_OK;
    const cJSON *t = cJSON_GetObjectItemCaseSensitive(config, "chat_template"), *c;
    osh_buf names; // own
    osh_buf_init(&names, 0);
    *text = NULL;
    if (!t || cJSON_IsNull(t)) goto done;
    if (cJSON_IsString(t)) {
        *text = t->valuestring;
        goto done;
    }
    if (!cJSON_IsArray(t))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: chat_template has the wrong type, want a string or a list",
                 what);
    cJSON_ArrayForEach(c, t) {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(c, "name");
        const cJSON *body = cJSON_GetObjectItemCaseSensitive(c, "template");
        if (!cJSON_IsString(name) || !cJSON_IsString(body))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: an item of chat_template has no name and template",
                     what);
        if (!strcmp(name->valuestring, "default")) *text = body->valuestring;
        OSH_TRY(osh_buf_line(cx, &names, "%s%.40s", names.len ? ", " : "", name->valuestring));
    }
    if (!*text)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: no chat_template has the name 'default', found %s", what,
                 names.len ? names.data : "none");
done:
    osh_buf_deinit(cx, &names);
    return rc;
}

static osh_status chat_new(osh_ctx *cx, osh_chat **out, const char *date)
{
    osh_status rc = OSH_OK;
    osh_chat *c = NULL; // own
    OSH_NEW(cx, c, 1);
    OSH_TRY(osh_jinja_check_date(cx, date ? date : OSH_JINJA_DATE));
    c->date = osh_strdup(cx, date ? date : OSH_JINJA_DATE);
    if (!c->date) rc = OSH_E_NOMEM;
    else *out = c, c = NULL; // give
done:
    osh_chat_free(cx, c);
    return rc;
}

/* Reads chat_template.jinja to *text (own). *text is NULL if the file does not exist. */
static osh_status chat_read_file(osh_ctx *cx, char **text, size_t *n, char *path)
{
    *text = NULL;
    return osh_file_exists(path) ? osh_file_read_all(cx, text, n, path, OSH_JINJA_MAX_TEMPLATE)
                                 : OSH_OK;
}

osh_status osh_chat_open(osh_ctx *cx, osh_chat **out, const char *model_dir, const char *date)
{
    osh_status rc = OSH_OK;
    osh_chat *c = NULL;                                                  // own
    cJSON *config = NULL, *map = NULL;                                   // own
    char *path = osh_path_join(cx, model_dir, "chat_template.jinja"), *text = NULL; // own
    char *what = osh_path_join(cx, model_dir, "tokenizer_config.json");  // own
    const char *chosen = NULL;                                           // view
    size_t n = 0;

    if (!path || !what) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(chat_new(cx, &c, date));
    OSH_TRY(read_optional_json(cx, &config, model_dir, "tokenizer_config.json"));
    OSH_TRY(read_optional_json(cx, &map, model_dir, "special_tokens_map.json"));
    OSH_TRY(chat_find_special(cx, c, config, map));
    OSH_TRY(chat_read_file(cx, &text, &n, path));
    if (!text) OSH_TRY(choose_template(cx, &chosen, config, what));
    if (!text && !chosen) {
        osh_log(cx, OSH_LOG_WARN,
                "%s: no chat template: conversations become <|role|>, the text and eos_token",
                model_dir);
        chosen = no_template, c->made_up = true;
    }
    if (!text) OSH_TRY(osh_jinja_new(cx, &c->template, chosen, strlen(chosen), "chat template"));
    else OSH_TRY(osh_jinja_new(cx, &c->template, text, n, "chat template"));
    *out = c, c = NULL; // give
done:
    if (rc) osh_note(cx, "reading the chat template of %s", model_dir);
    osh_chat_free(cx, c);
    osh_free(cx, path);
    osh_free(cx, what);
    osh_free(cx, text);
    cJSON_Delete(config);
    cJSON_Delete(map);
    return rc;
}

osh_status osh_chat_find(osh_ctx *cx, bool *has, const char *model_dir)
{
    osh_status rc = OSH_OK;
    cJSON *config = NULL; // own
    const char *chosen = NULL; // view
    char *path = osh_path_join(cx, model_dir, "chat_template.jinja"); // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    *has = osh_file_exists(path);
    if (*has) goto done;
    OSH_TRY(read_optional_json(cx, &config, model_dir, "tokenizer_config.json"));
    OSH_TRY(choose_template(cx, &chosen, config, model_dir));
    *has = chosen != NULL;
done:
    cJSON_Delete(config);
    osh_free(cx, path);
    return rc;
}

osh_status osh_chat_of_columns(osh_ctx *cx, osh_chat **out, const char *text, const char *date)
{
    osh_status rc = OSH_OK;
    osh_chat *c = NULL; // own
    OSH_TRY(chat_new(cx, &c, date));
    c->columns = true;
    OSH_TRY(osh_jinja_new(cx, &c->template, text, strlen(text), "text template"));
    *out = c, c = NULL; // give
done:
    osh_chat_free(cx, c);
    return rc;
}

void osh_chat_ask(osh_chat *c) { c->asks = true; }
bool osh_chat_has_template(const osh_chat *c) { return !c->made_up; }

void osh_chat_free(osh_ctx *cx, osh_chat *c)
{
    if (!c) return;
    osh_jinja_free(cx, c->template);
    osh_free(cx, c->special);
    osh_free(cx, c->date);
    osh_free(cx, c);
}

/* ---- rows ---- */

static osh_jv message_new(osh_jrun *r, osh_jv role, osh_jv content)
{
    osh_jv m = osh_jv_dict(r, OSH_JV_DICT);
    if (r->rc) return m;
    osh_jdict_set(r, m.u.dict, osh_jv_word("role"), role);
    osh_jdict_set(r, m.u.dict, osh_jv_word("content"), content);
    return m;
}

/* Converts a list of {from, value} to a list of {role, content}. */
static osh_jv messages_of_turns(osh_jrun *r, osh_jv list)
{
    osh_jv out = osh_jv_list(r, OSH_JV_LIST);
    for (size_t i = 0; i < list.u.list->n && !r->rc; i++) {
        osh_jv turn = list.u.list->at[i];
        const osh_jv *from =
            turn.kind == OSH_JV_DICT ? osh_jdict_get(r, turn.u.dict, osh_jv_word("from")) : NULL;
        const osh_jv *value = from ? osh_jdict_get(r, turn.u.dict, osh_jv_word("value")) : NULL;
        if (!value) {
            osh_jrun_fail(r, OSH_E_FORMAT, "item %zu of 'conversations' has no 'from' and 'value'",
                          i + 1);
            break;
        }
        osh_jv role = osh_jv_is(*from, "human") ? osh_jv_word("user") : *from;
        if (osh_jv_is(*from, "gpt")) role = osh_jv_word("assistant");
        osh_jv_push(r, out, message_new(r, role, *value));
    }
    return out;
}

static bool is_text(const osh_jv *v) { return v && v->kind == OSH_JV_STR; }

/* Appends the messages of a cell to `out`. A cell with a string gives one message of `role`; a cell
 * with a list gives the items of the list. */
static void messages_add_cell(osh_jrun *r, osh_jv out, const osh_jv *cell, const char *role,
                              const char *column)
{
    if (is_text(cell)) {
        osh_jv_push(r, out, message_new(r, osh_jv_word(role), *cell));
        return;
    }
    for (size_t i = 0; cell->kind == OSH_JV_LIST && i < cell->u.list->n && !r->rc; i++)
        osh_jv_push(r, out, cell->u.list->at[i]);
    if (cell->kind != OSH_JV_LIST)
        osh_jrun_fail(r, OSH_E_FORMAT, "the column '%s' is %s, want a string or a list of messages",
                      column, osh_jv_type(*cell));
}

/* A set of columns in which a row can have a conversation. */
typedef struct shape {
    /* first: column in which the conversation begins; answer: column of the answer, or NULL if
     * `first` has the whole conversation. */
    const char *first, *answer;
    /* Column with more text of the question; a row need not have it. NULL: the shape has none. */
    const char *more;
    bool lists;                 // true: the cells may be lists of messages
} shape;
static const shape shapes[] = {
    {"messages", NULL, NULL, true},
    {"conversations", NULL, NULL, true},
    {"prompt", "response", NULL, false},
    {"prompt", "completion", NULL, true},
    {"instruction", "output", "input", false},
    {"question", "answer", NULL, false},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

bool osh_chat_is_shape(bool (*has)(const void *user, const char *column), const void *user)
{
    for (size_t i = 0; i < N_SHAPES; i++)
        if (has(user, shapes[i].first) && (!shapes[i].answer || has(user, shapes[i].answer)))
            return true;
    return false;
}

const char *osh_chat_column(size_t i)
{
    static const char *const columns[] = {"messages", "conversations", "prompt", "response",
                                          "completion", "instruction", "input", "output",
                                          "question", "answer", "tools"};
    return i < sizeof columns / sizeof *columns ? columns[i] : NULL;
}

/* Returns the cell of the row in this column. Returns NULL if the row has no such column, or if the
 * cell is null. */
static const osh_jv *row_cell(osh_jrun *r, osh_jv row, const char *column)
{
    const osh_jv *v = column ? osh_jdict_get(r, row.u.dict, osh_jv_word(column)) : NULL;
    return v && v->kind != OSH_JV_NONE ? v : NULL;
}

static osh_jv messages_of_pair(osh_jrun *r, osh_jv row, const shape *s)
{
    osh_jv out = osh_jv_list(r, OSH_JV_LIST);
    const osh_jv *ask = row_cell(r, row, s->first), *answer = row_cell(r, row, s->answer);
    const osh_jv *more = row_cell(r, row, s->more);
    osh_jv joined;
    if (!s->lists && (!is_text(ask) || !is_text(answer) || (more && !is_text(more))))
        return osh_jrun_fail(r, OSH_E_FORMAT, "want strings in the columns '%s'%s%s%s and '%s'",
                             s->first, more ? ", '" : "", more ? s->more : "", more ? "'" : "",
                             s->answer);
    if (more && more->n) {
        osh_buf b; // own until osh_jv_take
        osh_buf_init(&b, 0);
        r->rc = osh_buf_append(r->cx, &b, ask->u.s, ask->n);
        if (!r->rc) r->rc = osh_buf_append(r->cx, &b, "\n", 1);
        if (!r->rc) r->rc = osh_buf_append(r->cx, &b, more->u.s, more->n);
        joined = osh_jv_take(r, &b);
        ask = &joined;
    }
    if (r->rc) return out;
    messages_add_cell(r, out, ask, "user", s->first);
    messages_add_cell(r, out, answer, "assistant", s->answer);
    return out;
}

/* Returns the first shape (set of columns of a conversation) whose columns `first` and `answer` the
 * row has. If there is none, returns the first shape whose column `first` the row has, or NULL if
 * the row has no such column. If `column` is not NULL, searches only shapes whose column `first` is
 * `column`. */
static const shape *shape_find(osh_jrun *r, osh_jv row, const char *column)
{
    /* A shape that fits partly: the row has its column `first`, but not its column `answer`. */
    const shape *near = NULL;
    for (const shape *s = shapes; s < shapes + N_SHAPES; s++) {
        if ((column && strcmp(column, s->first)) || !row_cell(r, row, s->first)) continue;
        if (!s->answer || row_cell(r, row, s->answer)) return s;
        if (!near) near = s;
    }
    return near;
}

osh_jv osh_chat_messages(osh_jrun *r, osh_jv row, const char *column)
{
    const shape *s = shape_find(r, row, column);
    const osh_jv *v = s ? row_cell(r, row, s->first) : NULL;
    osh_jv out;
    if (!v)
        return osh_jrun_fail(r, OSH_E_FORMAT, "no column '%s' with a conversation",
                             column ? column : "messages");
    if (s->answer && !row_cell(r, row, s->answer))
        return osh_jrun_fail(r, OSH_E_FORMAT, "want strings in the columns '%s' and '%s'", s->first,
                             s->answer);
    if (!s->answer && (v->kind != OSH_JV_LIST || !v->u.list->n))
        return osh_jrun_fail(r, OSH_E_FORMAT, "the column '%s' is %s, want a list of messages",
                             s->first,
                             v->kind == OSH_JV_LIST ? "an empty list" : osh_jv_type(*v));
    if (!strcmp(s->first, "conversations")) return messages_of_turns(r, *v);
    out = s->answer ? messages_of_pair(r, row, s) : *v;
    for (size_t i = 0; !r->rc && i < out.u.list->n; i++)
        if (out.u.list->at[i].kind != OSH_JV_DICT)
            osh_jrun_fail(r, OSH_E_FORMAT, "message %zu is %s, want an object", i + 1,
                          osh_jv_type(out.u.list->at[i]));
    return out;
}

/* Sets the variable `tools` from the column of the row: a list, or a string with the JSON text of a
 * list. */
static void row_set_tools(osh_jrun *r, osh_jv top, osh_jv row)
{
    const osh_jv *cell = row_cell(r, row, "tools");
    if (!cell || (is_text(cell) && !cell->n)) return;
    osh_jv tools = is_text(cell) ? osh_jv_json(r, cell->u.s, cell->n) : *cell;
    if (r->rc) osh_note(r->cx, "reading the JSON text in the column 'tools'");
    else if (tools.kind == OSH_JV_NONE) return;
    else if (tools.kind != OSH_JV_LIST)
        osh_jrun_fail(r, OSH_E_FORMAT, "the column 'tools' is %s, want a list", osh_jv_type(tools));
    else osh_jdict_set(r, top.u.dict, osh_jv_word("tools"), tools);
}

/* Returns the first n messages of the list. */
static osh_jv messages_head(osh_jrun *r, osh_jv list, size_t n)
{
    if (r->rc || n >= list.u.list->n) return list;
    osh_jv head = osh_jv_list(r, OSH_JV_LIST);
    for (size_t i = 0; i < n && !r->rc; i++) osh_jv_push(r, head, list.u.list->at[i]);
    return head;
}

osh_status osh_chat_render_part(osh_ctx *cx, const osh_chat *c, osh_buf *out,
                                const osh_chat_row *row, const osh_chat_part *part)
{
    osh_jarena arena = {0}; // own
    osh_jrun r = {.cx = cx, .arena = &arena, .what = c->template->what, .out = out, .date = c->date,
                  .strict = c->columns, .marks = part->marks};
    r.marked = out;
    if (!c->columns) osh_jrun_vars(&r, osh_jv_json(&r, c->special, strlen(c->special)));
    osh_jv top = osh_jv_dict(&r, OSH_JV_DICT), of_row = osh_jv_json(&r, row->text, row->n);
    if (!r.rc && of_row.kind != OSH_JV_DICT)
        osh_jrun_fail(&r, OSH_E_FORMAT, "the row is not a JSON object");
    if (c->columns) {
        osh_jrun_vars(&r, of_row);
    } else if (!r.rc) {
        osh_jv messages = osh_chat_messages(&r, of_row, row->column);
        messages = messages_head(&r, messages, part->n_messages);
        if (!r.rc) osh_jdict_set(&r, top.u.dict, osh_jv_word("messages"), messages);
        if (!r.rc) row_set_tools(&r, top, of_row);
        if (!r.rc && part->asks)
            osh_jdict_set(&r, top.u.dict, osh_jv_word("add_generation_prompt"), osh_jv_bool(true));
    }
    osh_jrun_vars(&r, top);
    if (!r.rc) osh_jinja_exec(&r, c->template->body);
    osh_jarena_deinit(cx, &arena);
    return r.rc;
}

osh_status osh_chat_render(osh_ctx *cx, const osh_chat *c, osh_buf *out, const char *row, size_t n,
                           const char *column)
{
    return osh_chat_render_part(cx, c, out, &(osh_chat_row){row, n, column},
                                &(osh_chat_part){.n_messages = SIZE_MAX, .asks = c->asks});
}
