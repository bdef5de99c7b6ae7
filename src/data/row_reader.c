/* row_reader.c - opens the rows of a data set: decides from the options how a row becomes text, and
 * opens the template that renders rows. */
#include "data/dataset_row.h"
#include "base/file.h"
#include "chat/chat.h"
#include "data/folder.h"
#include "data/shape.h"
#include <string.h>

static bool is_conversation_column(const char *column)
{
    return !strcmp(column, "messages") || !strcmp(column, "conversations");
}

osh_status osh_row_reader_chat(osh_ctx *cx, osh_row_reader *r)
{
    osh_status rc = OSH_OK;
    if (!r->opt->model_dir)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: rows hold conversations, and there is no chat template",
                 r->opt->path);
    OSH_TRY(osh_chat_open(cx, &r->chat, r->opt->model_dir, r->opt->chat_date));
    r->kind = OSH_ROW_CHAT;
    osh_log(cx, OSH_LOG_INFO, "%s: conversations, rendered by the chat template of %s",
            r->opt->path, r->opt->model_dir);
done:
    return rc;
}

static osh_status reader_open_columns(osh_ctx *cx, osh_row_reader *r)
{
    osh_status rc = OSH_OK;
    if (!r->json)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: lines of text have no columns for a text template",
                 r->opt->path);
    if (r->opt->text_column)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "a text template and the text column '%s' were given, want one of them",
                 r->opt->text_column);
    OSH_TRY(osh_chat_of_columns(cx, &r->chat, r->opt->text_template, r->opt->chat_date));
    r->kind = OSH_ROW_COLUMNS;
done:
    return rc;
}

osh_status osh_row_lines_open(osh_ctx *cx, osh_lines **out, const osh_dataset_options *opt)
{
    const char *column = opt->text_template ? osh_all_columns : opt->text_column;
    return osh_lines_open_rows(cx, out, opt->path, column, opt->split);
}

osh_status osh_row_reader_init(osh_ctx *cx, osh_row_reader *r, const osh_dataset_options *opt,
                               osh_tokenizer *tok)
{
    osh_status rc = OSH_OK;
    const char *kind = NULL;
    char **files = NULL; // own
    size_t n_files = 0;

    *r = (osh_row_reader){.opt = opt, .tok = tok, .cut_ids = true};
    OSH_TRY(osh_folder_files(cx, &files, &n_files, &kind, opt->path, opt->split));
    if (n_files > 1 || strcmp(files[0], opt->path))
        osh_log(cx, OSH_LOG_INFO, "%s: %zu files are read, the first is %s", opt->path, n_files,
                files[0]);
    r->json = strcmp(kind, "txt") != 0; // true for a .csv, too: shape.c converts rows to JSON
    if (opt->text_template) OSH_TRY(reader_open_columns(cx, r));
    else if (!r->json) r->kind = OSH_ROW_TEXT;
    else if (opt->text_column && is_conversation_column(opt->text_column))
        OSH_TRY(osh_row_reader_chat(cx, r));
    else if (opt->text_column && strcmp(opt->text_column, "input_ids")) r->kind = OSH_ROW_TEXT;
    if (tok) OSH_TRY(osh_tokenizer_special(cx, tok, &r->special, false));
    r->n_before = r->special.n;
    if (tok) OSH_TRY(osh_tokenizer_special(cx, tok, &r->special, true));
done:
    osh_strings_free(cx, files, n_files);
    return rc;
}

void osh_row_reader_deinit(osh_ctx *cx, osh_row_reader *r)
{
    osh_ids_deinit(cx, &r->special);
    osh_chat_free(cx, r->chat);
}
