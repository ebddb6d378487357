/* SPDX-License-Identifier: MIT */
/*
 * library.c - see library.h.
 */
#include "util/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "util/forked.h"
#include "util/status.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A library that was being loaded is loaded again. */
static void renew_lock(void)
{
    symm__lock_renew(&lock);
}
SYMM_IN_FORKED_CHILD(renew_lock)

static const char *fill(const struct symm_library *library, void *handle)
{
    for (size_t i = 0; i < library->count; i++) {
        void *found = dlsym(handle, library->functions[i].name);

        if (!found)
            return library->functions[i].name;
        /* dlsym returns void *; POSIX allows copying it into a function pointer. */
        memcpy((char *)library->table + library->functions[i].member, &found,
               sizeof(found));
    }
    return NULL;
}

static symm_status refuse(const struct symm_library *library, const char *user,
                          const char *what, const char *reason)
{
    return user ? symm__fail(SYMM_ERR_UNSUPPORTED, "%s: %s %s %s; install %s", user,
                             library->soname, what, reason, library->package)
                : SYMM_ERR_UNSUPPORTED;
}

static symm_status load(struct symm_library *library, const char *user)
{
    void *handle = dlopen(library->soname, RTLD_NOW | RTLD_LOCAL);
    const char *missing, *reason;

    if (!handle) {
        reason = dlerror();
        return refuse(library, user, "does not load:", reason ? reason : "no reason");
    }
    missing = fill(library, handle);
    if (missing) {
        dlclose(handle);
        return refuse(library, user, "lacks", missing);
    }
    /* release: with the acquire in symm__library_load; the table is filled */
    __atomic_store_n(&library->loaded, true, __ATOMIC_RELEASE);
    return SYMM_OK;
}

symm_status symm__library_load(struct symm_library *library, const char *user)
{
    symm_status status = SYMM_OK;

    if (__atomic_load_n(&library->loaded, __ATOMIC_ACQUIRE))
        return SYMM_OK;
    pthread_mutex_lock(&lock);
    if (!library->loaded)
        status = load(library, user);
    pthread_mutex_unlock(&lock);
    return status;
}
