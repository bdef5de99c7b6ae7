/* page.c - writes the frame, the style and the values of an HTML page. */
#include "report/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/quote.h"

static const char style[] =
    ":root{--ink:#1d2733;--soft:#5d6b7a;--line:#d9e0e7;--back:#fff;--tile:#f5f7f9;--bar:#3867b8;--"
    "warn:#b3541e;"
    "--observe:#3867b8;--solve:#c98a1b;--propagate:#3f8f6b;--load:#7b6bb0;--write:#b3541e;--round:#"
    "c98a1b;"
    "--copy:#5b9bb5;--seal:#8a6d3b;--tune:#b04a7a;--plan:#9aa5b1;--other:#c5ccd3}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6ebf0;--soft:#9fb0c0;--line:#36414d;--back:#"
    "14191f;--tile:#1d242c;"
    "--bar:#7ba4e8;--warn:#e89a66;--observe:#7ba4e8;--solve:#e0b25a;--propagate:#6cc49b;--load:#"
    "a99ae0;--write:#e89a66}}"
    "body{font:15px/1.5 "
    "system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:960px;margin:2rem auto;"
    "padding:0 "
    "1rem}h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2.2rem}table{border-collapse:collapse;"
    "width:100%;"
    "font-size:.9rem}th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid "
    "var(--line)}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.tiles{display:grid;"
    "grid-template-columns:repeat(auto-fill,minmax(min(12.5rem,46%),1fr));gap:.8rem}"
    ".tiles div{background:var(--tile);border-radius:6px;padding:.6rem 1rem}.tiles b{display:block;"
    "font-size:1.2rem}.soft,.tiles "
    "span{color:var(--soft);font-size:.85rem}.warn{color:var(--warn)}svg{width:100%;"
    "height:auto;display:block}svg "
    "text{font-size:11px;fill:var(--soft)}.grid{stroke:var(--line)}details{margin:.6rem 0}"
    ".key i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .3em 0 "
    "1em}th{vertical-align:bottom}td.n{white-space:nowrap}"
    ".wide{overflow-x:auto}svg.dash{display:inline-block;width:28px;height:8px}.tiles{margin-top:"
    "1rem}"
    ":root{color-scheme:light dark}#profiles td:nth-child(-n+3){min-width:8em}"
    "#about{margin-top:1rem}#about th{font-weight:normal;color:var(--soft);vertical-align:top}"
    "#about td{width:100%}"
    "#verdict{border-left:4px solid var(--bar);background:var(--tile);padding:.6rem 1rem;"
    "margin:1rem 0}"
    "#verdict p{margin:.3rem 0}#verdict b{font-size:1.1rem}#options td+td{overflow-wrap:anywhere}"
    ".copy{background:var(--tile);border-radius:6px;padding:.5rem .8rem;margin:.4rem 0;overflow-x:"
    "auto;"
    "white-space:pre-wrap;user-select:all;font:13px/1.5 ui-monospace,monospace}.copy "
    "span{white-space:nowrap}"
    "@media(max-width:600px){.more{display:none}th,td{padding:.25rem .35rem}.wide "
    "svg:not(.bar){min-width:900px}}";

void osh_page_bare(osh_page *pg, osh_ctx *cx)
{
    *pg = (osh_page){.cx = cx, .bare = true};
    osh_buf_init(&pg->b, 0);
}

void osh_page_style(osh_page *pg) { OSH_PUT(pg, "%s", style); }

void osh_page_begin(osh_page *pg, osh_ctx *cx, const char *title)
{
    osh_page_bare(pg, cx);
    pg->bare = false;
    OSH_PUT(pg,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
            "'unsafe-inline'\">\n"
            "<meta name=\"viewport\" "
            "content=\"width=device-width\"><title>%s</title>\n<style>%s</style>"
            "</head><body>\n<h1>%s</h1>\n",
            title, style, title);
}

void osh_page_end(osh_page *pg, char **html)
{
    if (!pg->bare) OSH_PUT(pg, "</body></html>\n");
    if (!pg->rc) *html = pg->b.data, pg->b.data = NULL; // give
    osh_buf_deinit(pg->cx, &pg->b);
}

/* Appends text with HTML's special characters escaped. Control characters are escaped as in
 * osh_show, because some of them reverse the direction of a text. If `name` is true, a line may
 * break after each dot. */
static void page_put(osh_page *pg, const char *text, bool name)
{
    char shown[512]; // a part of the escaped text
    while (*text) {
        osh_show(shown, sizeof shown, text, &text);
        for (const char *s = shown; *s; s++) {
            const char *as = *s == '&'    ? "&amp;"
                             : *s == '<'  ? "&lt;"
                             : *s == '>'  ? "&gt;"
                             : *s == '"'  ? "&quot;"
                             : *s == '\'' ? "&#39;"
                                          : NULL;
            if (as) OSH_PUT(pg, "%s", as);
            else if (!pg->rc) pg->rc = osh_buf_append(pg->cx, &pg->b, s, 1);
            if (name && *s == '.') OSH_PUT(pg, "<wbr>");
        }
    }
}

void osh_page_escape(osh_page *pg, const char *text) { page_put(pg, text, false); }
void osh_page_name(osh_page *pg, const char *name) { page_put(pg, name, true); }

/* Browsers break words at hyphens, so each word is in an element that does not break. */
void osh_page_command(osh_page *pg, const char *command)
{
    char word[256];
    OSH_PUT(pg, "<div class=\"copy\">");
    while (*command) {
        size_t n = strcspn(command, " "), k = n;
        OSH_PUT(pg, "<span>");
        for (; k > 0; command += strlen(word), k -= strlen(word)) {
            size_t part = k < sizeof word ? k : sizeof word - 1;
            while (part < k && part > 1 && (command[part] & 0xc0) == 0x80) part--;
            memcpy(word, command, part), word[part] = 0;
            osh_page_escape(pg, word);
        }
        OSH_PUT(pg, "</span>");
        for (; *command == ' '; command++) OSH_PUT(pg, " ");
    }
    OSH_PUT(pg, "</div>\n");
}

void osh_page_percent(osh_page *pg, double share)
{
    double p = 100 * share;
    if (p > 0 && p < 0.0005) OSH_PUT(pg, "&lt;&nbsp;0.001&nbsp;%%");
    else OSH_PUT(pg, "%.*f&nbsp;%%", p >= 999.5 ? 0 : p >= 1 ? 1 : p >= 0.01 ? 2 : 3, p);
}

void osh_bytes_text(char to[32], double n)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int u = 0;
    while (n >= 999.5 && u < 4) n /= 1000, u++;
    snprintf(to, 32, u && n < 99.95 ? "%.1f %s" : "%.0f %s", n, units[u]);
}

void osh_page_bytes(osh_page *pg, double n)
{
    char text[32];
    osh_bytes_text(text, n);
    int digits = (int)strcspn(text, " ");
    /* A line may not break between number and unit. */
    OSH_PUT(pg, "%.*s&nbsp;%s", digits, text, text + digits + 1);
}

void osh_page_bytes_cell(osh_page *pg, int64_t n)
{
    OSH_PUT(pg, "<td class=\"n\">");
    if (n >= 0) osh_page_bytes(pg, (double)n);
    OSH_PUT(pg, "</td>");
}

void osh_seconds_text(char to[32], double s)
{
    if (s < 100) snprintf(to, 32, "%.2f s", s);
    else if (s < 6000) snprintf(to, 32, "%.0f min %02.0f s", floor(s / 60), fmod(s, 60));
    else snprintf(to, 32, "%.0f h %02.0f min", floor(s / 3600), floor(fmod(s, 3600) / 60));
}

void osh_page_seconds(osh_page *pg, double s)
{
    char text[32];
    osh_seconds_text(text, s);
    OSH_PUT(pg, "%s", text);
}

const char *osh_page_colour(const char *phase)
{
    static const char *const known[] = {"observe", "solve", "propagate", "load", "write", "round",
                                        "copy", "seal", "plan", "tune"};
    static const char *const quarks[][2] = {{"Pre-process", "plan"},   {"Calibration", "observe"},
                                            {"Quantization", "solve"}, {"Fast Finetune", "tune"},
                                            {"learn", "tune"},         {"Post-process", "copy"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i], phase)) return known[i];
    for (size_t i = 0; i < sizeof quarks / sizeof *quarks; i++)
        if (!strncmp(quarks[i][0], phase, strlen(quarks[i][0]))) return quarks[i][1];
    return "other";
}
