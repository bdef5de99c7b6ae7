/* jinja_date.c - implements strftime_now. It prints one fixed date with the time 00:00, so that the
 * text does not change from day to day. */
#include <stdio.h>
#include <string.h>

#include "chat/jinja_impl.h"

typedef struct date {
    int year, month, day; // month and day count from 1
} date;

static bool is_leap(int y) { return y % 4 == 0 && (y % 100 != 0 || y % 400 == 0); }

static int days_in(int y, int m)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return days[m - 1] + (m == 2 && is_leap(y));
}

static bool parse_date(const char *s, date *d)
{
    char rest;
    if (strlen(s) != 10 || s[4] != '-' || s[7] != '-' || strspn(s, "0123456789-") != 10)
        return false;
    if (sscanf(s, "%4d-%2d-%2d%c", &d->year, &d->month, &d->day, &rest) != 3) return false;
    return d->year >= 1 && d->month >= 1 && d->month <= 12 && d->day >= 1 &&
           d->day <= days_in(d->year, d->month);
}

osh_status osh_jinja_check_date(osh_ctx *cx, const char *text)
{
    date d;
    if (parse_date(text, &d)) return OSH_OK;
    return osh_fail(cx, OSH_E_USAGE, "the date is '%s', want one such as " OSH_JINJA_DATE, text);
}

static int date_day_of_year(const date *d)
{
    int n = d->day;
    for (int m = 1; m < d->month; m++) n += days_in(d->year, m);
    return n;
}

/* Returns the day of the week; 0 is Monday. */
static int date_weekday(const date *d)
{
    int y = d->year - 1;
    return (y * 365 + y / 4 - y / 100 + y / 400 + date_day_of_year(d) - 1) % 7;
}

static bool date_format_one(char *to, size_t n, const date *d, char c)
{
    static const char *const months[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
    static const char *const days[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                       "Friday", "Saturday", "Sunday"};
    switch (c) {
    case 'Y': snprintf(to, n, "%d", d->year); break;
    case 'y': snprintf(to, n, "%02d", d->year % 100); break;
    case 'm': snprintf(to, n, "%02d", d->month); break;
    case 'd': snprintf(to, n, "%02d", d->day); break;
    case 'j': snprintf(to, n, "%03d", date_day_of_year(d)); break;
    case 'B': snprintf(to, n, "%s", months[d->month - 1]); break;
    case 'b': snprintf(to, n, "%.3s", months[d->month - 1]); break;
    case 'A': snprintf(to, n, "%s", days[date_weekday(d)]); break;
    case 'a': snprintf(to, n, "%.3s", days[date_weekday(d)]); break;
    case 'H':
    case 'M':
    case 'S': snprintf(to, n, "00"); break;
    case 'I': snprintf(to, n, "12"); break;
    case 'p': snprintf(to, n, "AM"); break;
    case '%': snprintf(to, n, "%%"); break;
    default: return false;
    }
    return true;
}

osh_jv osh_jinja_strftime(osh_jrun *r, osh_jv format)
{
    date d;
    osh_buf out;
    char text[32];
    if (!parse_date(r->date, &d))
        return osh_jrun_fail(r, OSH_E_USAGE, "the date is '%s', want one such as " OSH_JINJA_DATE,
                             r->date);
    osh_buf_init(&out, 0);
    for (size_t i = 0; i < format.n && osh_jrun_step(r, 0); i++) {
        char c = format.u.s[i], what = i + 1 < format.n ? format.u.s[i + 1] : 0;
        if (c != '%') {
            r->rc = osh_buf_append(r->cx, &out, &c, 1);
        } else if (!date_format_one(text, sizeof text, &d, what)) {
            osh_jrun_fail(r, OSH_E_UNSUPPORTED, "strftime_now: '%%%c' is not supported",
                          what ? what : ' ');
        } else {
            r->rc = osh_buf_append(r->cx, &out, text, strlen(text));
            i++;
        }
    }
    return osh_jv_take(r, &out);
}
