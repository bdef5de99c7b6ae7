/* curl.h - declares a table of the functions of libcurl that http.c calls. */
#ifndef OSH_HUB_CURL_H
#define OSH_HUB_CURL_H
/* Turns off macros of libcurl that check types: they have the names of members of osh_curl. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include "base/base.h"

#define OSH_CURL_FUNCTIONS(X)                                                                      \
    X(curl_global_init) X(curl_version) X(curl_easy_init) X(curl_easy_cleanup) X(curl_easy_reset)  \
    X(curl_easy_setopt) X(curl_easy_getinfo) X(curl_easy_strerror) X(curl_multi_init)              \
    X(curl_multi_cleanup) X(curl_multi_add_handle) X(curl_multi_remove_handle)                     \
    X(curl_multi_perform) X(curl_multi_poll) X(curl_multi_info_read) X(curl_multi_strerror)        \
    X(curl_slist_append) X(curl_slist_free_all)

#define OSH_CURL_MEMBER(name) __typeof__(&(name)) name;
typedef struct osh_curl {
    OSH_CURL_FUNCTIONS(OSH_CURL_MEMBER)
    /* Version of libcurl, such as "libcurl/7.88.1". It is stored because only one thread at a time
     * may call curl_version. */
    char version[40];
} osh_curl;
/* Opens libcurl on the first call in the process. The library stays open. */
osh_status osh_curl_open(osh_ctx *cx, const osh_curl **out);
#endif
