/* sha.c - computes hashes with OpenSSL's libcrypto, which uses the CPU's instructions for hashes.
 * This adds no dependency, because libcurl needs libcrypto, too. libcrypto is opened when the first
 * file is checked. */
#include "hub/sha.h"

#include <openssl/evp.h>
#include <stdio.h>

#include "base/library.h"

#define FUNCTIONS(X)                                                                               \
    X(EVP_MD_CTX_new) X(EVP_MD_CTX_free) X(EVP_sha1) X(EVP_sha256) X(EVP_DigestInit_ex)            \
    X(EVP_DigestUpdate) X(EVP_DigestFinal_ex)
#define MEMBER(name) __typeof__(&(name)) name;
static struct crypto { FUNCTIONS(MEMBER) } crypto;
#define SYMBOL(name) {#name, offsetof(struct crypto, name)},
static const osh_symbol symbols[] = {FUNCTIONS(SYMBOL)};
static const osh_library library = {.sonames = {"libcrypto.so.3", "libcrypto.so.1.1"},
                                    .use = "checksums of downloads",
                                    .package = "libssl3",
                                    .symbols = symbols,
                                    .n = sizeof symbols / sizeof *symbols};
static osh_once_state once = OSH_ONCE;

struct osh_sha {
    EVP_MD_CTX *md; // own
    bool failed;
};

static osh_status open_crypto(osh_ctx *cx)
{
    void *handle;
    return osh_library_open(cx, &handle, &crypto, &library);
}

osh_status osh_sha_new(osh_ctx *cx, osh_sha **out, int bits)
{
    osh_status rc = OSH_OK;
    osh_sha *s = NULL; // own
    OSH_TRY(osh_once(cx, &once, open_crypto));
    OSH_NEW(cx, s, 1);
    if (!(s->md = crypto.EVP_MD_CTX_new())) OSH_FAIL(cx, OSH_E_NOMEM, "libcrypto has no memory");
    if (crypto.EVP_DigestInit_ex(s->md, bits == 256 ? crypto.EVP_sha256() : crypto.EVP_sha1(),
                                 NULL) != 1)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "libcrypto here has no SHA-%d", bits == 256 ? 256 : 1);
    *out = s, s = NULL; // give
done:
    osh_sha_free(cx, s);
    return rc;
}

void osh_sha_free(osh_ctx *cx, osh_sha *s)
{
    if (!s) return;
    if (s->md) crypto.EVP_MD_CTX_free(s->md);
    osh_free(cx, s);
}

void osh_sha_feed(osh_sha *s, const void *p, size_t n)
{
    s->failed |= crypto.EVP_DigestUpdate(s->md, p, n) != 1;
}

osh_status osh_sha_end(osh_ctx *cx, osh_sha *s, char hex[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    if (s->failed || crypto.EVP_DigestFinal_ex(s->md, digest, &n) != 1 || n > 32)
        return osh_fail(cx, OSH_E_INTERNAL, "libcrypto made no checksum");
    for (unsigned int i = 0; i < n; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return OSH_OK;
}
