/* SPDX-License-Identifier: MIT */
/*
 * status.c - names of statuses, and the thread's last error.
 *
 * The sentence lies in thread-local memory of fixed size: setting it allocates nothing,
 * takes no lock and cannot fail. A sentence that does not fit is cut and ends in "...";
 * control characters (a peer or a variable may hold any bytes) become '?', so that a
 * sentence is always one printable line. errno is as before after every function here.
 */
#include "util/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "util/log.h"
#include "util/text.h"

static _Thread_local char last_error[SYMM_ERROR_BYTES];

const char *symm_status_name(symm_status status)
{
    switch (status) {
#define SYMM_STATUS_CASE(name, value, text)                                            \
    case SYMM_##name:                                                                  \
        return "SYMM_" #name;
        SYMM_STATUS_MAP(SYMM_STATUS_CASE)
#undef SYMM_STATUS_CASE
    }
    return "SYMM_ERR_UNKNOWN";
}

const char *symm_status_text(symm_status status)
{
    switch (status) {
#define SYMM_STATUS_CASE(name, value, text)                                            \
    case SYMM_##name:                                                                  \
        return text;
        SYMM_STATUS_MAP(SYMM_STATUS_CASE)
#undef SYMM_STATUS_CASE
    }
    return "not a status of this version";
}

const char *symm_last_error(void)
{
    return last_error;
}

const char *symm_version(void)
{
    return SYMM_VERSION_STRING;
}

/* "<description> (<ENAME>)": never translated, so that all logs read the same. */
static void errno_text(int error, char *text, size_t bytes)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 32)
    const char *description = strerrordesc_np(error);
    const char *name = strerrorname_np(error);

    if (description && name) {
        snprintf(text, bytes, "%s (%s)", description, name);
        return;
    }
#elif !defined(__GLIBC__)
    if (strerror_r(error, text, bytes) == 0)
        return;
#endif
    snprintf(text, bytes, "error %d", error);
}

/* The sentence with its tail: the tail is kept whole, the sentence is made shorter for it. */
__attribute__((format(printf, 3, 0))) static void
format_sentence(char *sentence, const char *tail, const char *format, va_list args)
{
    char whole[2 * SYMM_ERROR_BYTES];
    int length = vsnprintf(whole, sizeof(whole), format, args);

    (void)symm__fit(sentence, SYMM_ERROR_BYTES - strlen(tail),
                    length < 0 ? format : whole);
    memcpy(sentence + strlen(sentence), tail, strlen(tail) + 1);
}

static void set_sentence(const char *sentence)
{
    size_t length = strnlen(sentence, SYMM_ERROR_BYTES - 1);

    memmove(last_error, sentence, length);
    last_error[length] = '\0';
    symm__one_line(last_error);
}

symm_status symm__fail(symm_status status, const char *format, ...)
{
    int saved = errno;
    char sentence[SYMM_ERROR_BYTES]; /* the arguments may point into last_error */
    va_list args;

    va_start(args, format);
    format_sentence(sentence, "", format, args);
    va_end(args);
    set_sentence(sentence);
    symm__log(SYMM_LOG_INFO, "%s: %s", symm_status_name(status), last_error);
    errno = saved;
    return status;
}

symm_status symm__fail_errno(symm_status status, int error, const char *format, ...)
{
    int saved = errno;
    char sentence[SYMM_ERROR_BYTES];
    char text[96];
    char tail[160];
    const char *advice = "";
    va_list args;

    errno_text(error, text, sizeof(text));
    /* Any descriptor may be the one too many, so the advice is not each caller's. */
    if (error == EMFILE && !strstr(format, "ulimit -n"))
        advice = "; raise the process's limit (ulimit -n)";
    else if (error == ENFILE)
        advice = "; raise the system's limit (/proc/sys/fs/file-max)";
    snprintf(tail, sizeof(tail), ": %s%s", text, advice);
    va_start(args, format);
    format_sentence(sentence, tail, format, args);
    va_end(args);
    set_sentence(sentence);
    symm__log(SYMM_LOG_INFO, "%s: %s", symm_status_name(status), last_error);
    errno = saved;
    return status;
}

symm_status symm__fail_null(const char *function, const char *argument)
{
    return symm__fail(SYMM_ERR_INVALID, "%s: %s is NULL", function, argument);
}

symm_status symm__fail_quiet(symm_status status, const char *sentence)
{
    set_sentence(sentence[0] || status == SYMM_OK
                     ? sentence
                     : "another process failed, and gave no reason");
    return status;
}

void symm__error_save(char sentence[SYMM_ERROR_BYTES])
{
    memcpy(sentence, last_error, SYMM_ERROR_BYTES);
}

void symm__error_restore(const char sentence[SYMM_ERROR_BYTES])
{
    memcpy(last_error, sentence, SYMM_ERROR_BYTES);
}
