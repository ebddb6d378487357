/* SPDX-License-Identifier: MIT */
/*
 * socket_path.c - see socket_path.h.
 */
#include "bootstrap/socket_path.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/options.h"
#include "util/random.h"
#include "util/status.h"
#include "util/text.h"

/* A process that is killed closes its connections before its listener, which so seems alive for a
 * moment after a peer has seen the hang-up. */
#define PLACE_TIDY_SECONDS    0.2
#define PLACE_TEMPORARY       "t-" /* and 16 hex digits */
#define PLACE_TEMPORARY_BYTES 19   /* with its NUL */
#define PLACE_SWEEP_MAX       256  /* names looked at in one sweep */
#define PLACE_BACKLOG         128

/* ---- Where ----------------------------------------------------------------------- */

static uint64_t place_hash(uint64_t hash, const void *bytes, size_t count)
{
    /* The last bytes spread over the whole word. */
    return symm__mix(symm__fnv(hash, bytes, count));
}

static bool place_set(struct symm_socket_path *place, const char *base)
{
    int dir = snprintf(place->dir, sizeof(place->dir), "%s/symm-%u", base,
                       (unsigned)geteuid());
    if (dir < 0 || (size_t)dir >= sizeof(place->dir))
        return false;
    size_t name = strlen(place->name);
    if ((size_t)dir + 1 + name >= sizeof(place->path))
        return false;
    memcpy(place->path, place->dir, (size_t)dir);
    place->path[dir] = '/';
    memcpy(place->path + dir + 1, place->name, name + 1);
    return true;
}

/* A variable inherited from a login of another user, or of one that has ended, is
 * common. */
static bool place_usable(const char *base)
{
    struct stat is;
    return base != NULL && base[0] == '/' && stat(base, &is) == 0 &&
           S_ISDIR(is.st_mode) && is.st_uid == geteuid() &&
           access(base, W_OK | X_OK) == 0;
}

symm_status symm__socket_path_find(struct symm_socket_path *place, const char *key)
{
    unsigned uid = (unsigned)geteuid();
    uint64_t high = SYMM_FNV_BASIS;
    uint64_t low = UINT64_C(0x9ae16a3b2f90404f);
    high = place_hash(place_hash(high, &uid, sizeof(uid)), key, strlen(key));
    low = place_hash(place_hash(low, key, strlen(key)), &uid, sizeof(uid));
    (void)snprintf(place->name, sizeof(place->name), "%016" PRIx64 "%016" PRIx64, high,
                   low);

    const char *base = symm__option(SYMM_OPTION_RUNTIME_DIR);
    if (base != NULL && base[0] != '\0') {
        if (base[0] != '/')
            return symm__fail(
                SYMM_ERR_INVALID,
                "SYMM_RUNTIME_DIR is \"%.200s\", which is no absolute path: "
                "give one that begins with /",
                base);
        if (!place_set(place, base))
            return symm__fail(SYMM_ERR_INVALID,
                              "SYMM_RUNTIME_DIR has %zu characters, too many for the "
                              "address of a socket: give a shorter one (\"%.200s\")",
                              strlen(base), base);
        return SYMM_OK;
    }
    base = secure_getenv("XDG_RUNTIME_DIR");
    if (place_usable(base) && place_set(place, base))
        return SYMM_OK;
    (void)place_set(place, "/tmp"); /* fits: 5 + 15 + 1 + 32 characters at most */
    return SYMM_OK;
}

static struct sockaddr_un place_address(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static_assert(sizeof(address.sun_path) >= SYMM_BOOTSTRAP_PATH,
                  "a path fits an address");
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return address;
}

static int place_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* ---- The directory --------------------------------------------------------------- */

static symm_status place_refuse(const struct symm_socket_path *place, const char *why)
{
    return symm__fail(
        SYMM_ERR_REFUSED,
        "%s %s, so the job's bootstrap is not held in it: remove it, or set "
        "SYMM_RUNTIME_DIR to a directory of your own",
        place->dir, why);
}

static bool place_private(const struct stat *is)
{
    return is->st_uid == geteuid() && (is->st_mode & 0777) == 0700;
}

/* *dir = -1 with SYMM_OK: there is none. */
static symm_status place_open(const struct symm_socket_path *place, int *dir)
{
    struct stat is;
    *dir = -1;
    int fd = open(place->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return SYMM_OK;
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return place_refuse(place, "is no directory");
    if (fd < 0 && errno == EACCES)
        return place_refuse(place, "may not be opened by this user");
    if (fd < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "opening the directory %s",
                                place->dir);
    symm_status status = SYMM_OK;
    if (fstat(fd, &is) != 0)
        status = symm__fail_errno(SYMM_ERR_SYSTEM, errno, "fstat of the directory %s",
                                  place->dir);
    else if (is.st_uid != geteuid())
        status = place_refuse(place, "belongs to another user");
    else if (!place_private(&is))
        status = place_refuse(place, "has not mode 0700");
    if (status != SYMM_OK) {
        (void)close(fd);
        return status;
    }
    *dir = fd;
    return SYMM_OK;
}

/* Ends within the deadline even if the holder of the lock is stopped. */
static symm_status place_lock(const struct symm_socket_path *place, int dir,
                              double until)
{
    while (flock(dir, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "flock of the directory %s",
                                    place->dir);
        if (symm__now() > until)
            return symm__fail(
                SYMM_ERR_TIMEOUT,
                "another process holds the lock of the directory %s and does "
                "not let go: is one of your jobs stopped?",
                place->dir);
        symm__sleep(0.0003);
    }
    return SYMM_OK;
}

/* The last process succeeds; for all others the directory isn't empty, or is gone. */
static void place_remove_directory(const struct symm_socket_path *place)
{
    (void)rmdir(place->dir);
}

/* ---- Names ----------------------------------------------------------------------- */

enum place_owner { OWNER_NONE, OWNER_DEAD, OWNER_ALIVE, OWNER_UNKNOWN };

/* Does a process listen on dir/name? A stray connection does no harm to a listener. */
static enum place_owner place_owner_of(const struct symm_socket_path *place, int dir,
                                       const char *name)
{
    char path[SYMM_BOOTSTRAP_PATH];
    struct stat is;
    if (fstatat(dir, name, &is, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? OWNER_NONE : OWNER_UNKNOWN;
    int length = snprintf(path, sizeof(path), "%s/%s", place->dir, name);
    if (!S_ISSOCK(is.st_mode) || length < 0 || (size_t)length >= sizeof(path))
        return OWNER_UNKNOWN;
    int fd = place_socket();
    if (fd < 0)
        return OWNER_UNKNOWN;
    struct sockaddr_un address = place_address(path);
    enum place_owner owner = OWNER_UNKNOWN;
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ||
        errno == EAGAIN)
        owner = OWNER_ALIVE; /* EAGAIN: its queue is full */
    else if (errno == ECONNREFUSED)
        owner = OWNER_DEAD;
    else if (errno == ENOENT)
        owner = OWNER_NONE;
    (void)close(fd);
    return owner;
}

static bool place_is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

/* Has the name a form that this library makes? A temporary name found under the lock has no
 * living owner. */
static bool place_may_sweep(const char *name)
{
    size_t prefix = strlen(PLACE_TEMPORARY);
    return place_is_hex(name, SYMM_BOOTSTRAP_NAME - 1) ||
           (strncmp(name, PLACE_TEMPORARY, prefix) == 0 &&
            place_is_hex(name + prefix, PLACE_TEMPORARY_BYTES - 1 - prefix));
}

/* Removes what killed jobs of this user have left. The lock is held. */
static void place_sweep(const struct symm_socket_path *place, int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (list == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return; /* the next job tries again */
    }
    for (int i = 0; i < PLACE_SWEEP_MAX; i++) {
        const struct dirent *entry = readdir(list);
        if (entry == NULL)
            break;
        if (!place_may_sweep(entry->d_name) ||
            strcmp(entry->d_name, place->name) == 0 ||
            place_owner_of(place, dir, entry->d_name) != OWNER_DEAD)
            continue;
        if (unlinkat(dir, entry->d_name, 0) == 0)
            symm__log(SYMM_LOG_INFO, "removed %s/%s, left by a job that was killed",
                      place->dir, entry->d_name);
    }
    (void)closedir(list);
}

/* Gives the name without replacing an existing one: 0, or -1 with errno EEXIST and
 * others. */
static int place_name(int dir, const char *temporary, const char *name)
{
    if (renameat2(dir, temporary, dir, name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    /* A file system without RENAME_NOREPLACE: two steps; a kill between them leaves both
     * names. */
    if (linkat(dir, temporary, dir, name, 0) != 0)
        return -1;
    (void)unlinkat(dir, temporary, 0);
    return 0;
}

/* Does a live process have the final name? A dead one loses it. The lock is held. */
static bool place_taken(const struct symm_socket_path *place, int dir)
{
    enum place_owner owner = place_owner_of(place, dir, place->name);
    if (owner == OWNER_DEAD && unlinkat(dir, place->name, 0) == 0)
        symm__log(SYMM_LOG_INFO, "removed %s, left by a job that was killed",
                  place->path);
    return owner == OWNER_ALIVE || owner == OWNER_UNKNOWN;
}

/* ---- The root's listener ---------------------------------------------------------- */

struct place_claim {
    const struct symm_socket_path *place;
    double until;
    int dir, listener;
    bool odd; /* the umask */
    char temporary[PLACE_TEMPORARY_BYTES];
};

/*
 * How a try ends that is no error. TAKEN: a live process has the name. GONE:
 * the directory has been removed since this process opened it.
 */
enum claim_end { CLAIM_DONE, CLAIM_TAKEN, CLAIM_GONE };

/* Does the umask keep the owner out of what is made? umask(2) would change it for a moment, for the
 * other threads, too. */
static bool umask_is_odd(void)
{
    char text[256];
    const char *at = symm__read_text(text, sizeof(text), "/proc/self/status") < 0
                         ? NULL
                         : strstr(text, "\nUmask:");
    unsigned mask = 0;

    return at != NULL && sscanf(at, "\nUmask: %o", &mask) == 1 && (mask & 0700) != 0;
}

/* mkdir(2) of mode 0700, whatever the umask: 0, or -1 with errno. */
static int place_make(const struct place_claim *claim)
{
    const char *dir = claim->place->dir;
    char beside[SYMM_BOOTSTRAP_PATH + PLACE_TEMPORARY_BYTES];
    struct stat is;
    if (!claim->odd)
        return mkdir(dir, 0700);
    if (lstat(dir, &is) == 0) {
        errno = EEXIST;
        return -1;
    }
    /* By another name until its mode is right: other ranks refuse one that is not. */
    (void)snprintf(beside, sizeof(beside), "%s%s", dir, claim->temporary);
    if (mkdir(beside, 0700) != 0)
        return -1;
    if (chmod(beside, 0700) == 0 && place_name(AT_FDCWD, beside, dir) == 0)
        return 0;
    int error = errno;
    (void)rmdir(beside);
    errno = error;
    return -1;
}

/* Opens the directory, makes it if there is none, and locks it. */
static symm_status claim_open(struct place_claim *claim, enum claim_end *end)
{
    const struct symm_socket_path *place = claim->place;
    *end = CLAIM_GONE;
    bool made = place_make(claim) == 0;
    if (!made && errno != EEXIST)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                "making the directory %s for the job's bootstrap (set "
                                "SYMM_RUNTIME_DIR to one that may be written to)",
                                place->dir);
    symm_status status = place_open(place, &claim->dir);
    if (status == SYMM_OK && claim->dir >= 0)
        status = place_lock(place, claim->dir, claim->until);
    if (status == SYMM_OK && claim->dir >= 0)
        *end = CLAIM_DONE;
    if (status == SYMM_OK)
        return SYMM_OK;
    if (claim->dir >= 0)
        (void)close(claim->dir);
    claim->dir = -1;
    if (made)
        place_remove_directory(place);
    return status;
}

/* A listening socket under the temporary name. The lock is held. */
static symm_status claim_listen(struct place_claim *claim, enum claim_end *end)
{
    char path[SYMM_BOOTSTRAP_PATH];
    struct stat is;
    symm_status status = SYMM_OK;
    claim->listener = place_socket();
    if (claim->listener < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                "making the bootstrap's socket");
    /* Shorter than the final name, whose path fits. */
    (void)snprintf(path, sizeof(path), "%.*s/%s",
                   SYMM_BOOTSTRAP_PATH - PLACE_TEMPORARY_BYTES - 1, claim->place->dir,
                   claim->temporary);
    struct sockaddr_un address = place_address(path);
    if (bind(claim->listener, (const struct sockaddr *)&address, sizeof(address)) !=
        0) {
        if (errno == ENOENT)
            *end = CLAIM_GONE;
        else
            status =
                symm__fail_errno(SYMM_ERR_SYSTEM, errno, "binding the socket %s", path);
        goto err_listener;
    }
    if (fstatat(claim->dir, claim->temporary, &is, AT_SYMLINK_NOFOLLOW) != 0) {
        /* The name was bound in a directory made anew, whose lock this process does not hold. */
        *end = CLAIM_GONE;
        goto err_name;
    }
    if (claim->odd && fchmodat(claim->dir, claim->temporary, 0700, 0) != 0)
        status =
            symm__fail_errno(SYMM_ERR_SYSTEM, errno, "chmod of the socket %s", path);
    else if (listen(claim->listener, PLACE_BACKLOG) == 0)
        return SYMM_OK;
    else
        status = symm__fail_errno(SYMM_ERR_SYSTEM, errno, "listening on the socket %s",
                                  path);
err_name:
    (void)unlink(path);
    place_remove_directory(claim->place);
err_listener:
    (void)close(claim->listener);
    claim->listener = -1;
    return status;
}

/* The final name instead of the temporary one. The lock is held. */
static symm_status claim_name(struct place_claim *claim, enum claim_end *end)
{
    if (place_name(claim->dir, claim->temporary, claim->place->name) == 0)
        return SYMM_OK;
    int error = errno;
    (void)unlinkat(claim->dir, claim->temporary, 0);
    (void)close(claim->listener);
    claim->listener = -1;
    if (error != EEXIST)
        return symm__fail_errno(SYMM_ERR_SYSTEM, error, "naming the socket %s",
                                claim->place->path);
    *end = CLAIM_TAKEN; /* a dead owner's name that can't be removed */
    return SYMM_OK;
}

/*
 * One try. The temporary name lives only while the lock is held: one that another process
 * finds under the lock was left by a process that was killed. Without CLAIM_DONE nothing
 * is held.
 */
static symm_status claim_try(struct place_claim *claim, enum claim_end *end)
{
    const struct symm_socket_path *place = claim->place;
    symm_status status = claim_open(claim, end);
    if (status != SYMM_OK || *end == CLAIM_GONE)
        return status;
    if (place_taken(place, claim->dir))
        *end = CLAIM_TAKEN;
    else
        status = claim_listen(claim, end);
    if (status == SYMM_OK && *end == CLAIM_DONE)
        status = claim_name(claim, end);
    if (status == SYMM_OK && *end == CLAIM_DONE)
        place_sweep(place, claim->dir);
    /* Unlocks before it closes: a child that was forked meanwhile keeps the directory open, and
     * so the lock. */
    (void)flock(claim->dir, LOCK_UN);
    (void)close(claim->dir);
    claim->dir = -1;
    /* The directory's last user may have left while this process's name was still in it. */
    if (status != SYMM_OK || *end == CLAIM_TAKEN)
        place_remove_directory(place);
    return status;
}

symm_status symm__socket_path_claim(const struct symm_socket_path *place, double until,
                                    int *listener)
{
    struct place_claim claim = {.place = place,
                                .until = until,
                                .dir = -1,
                                .listener = -1,
                                .odd = umask_is_odd()};
    double start = symm__now(), pause = 0.001;
    uint64_t random;
    symm_status status = symm__random(&random, sizeof(random));
    if (status != SYMM_OK)
        return status;
    (void)snprintf(claim.temporary, sizeof(claim.temporary),
                   PLACE_TEMPORARY "%016" PRIx64, random);
    for (;;) {
        enum claim_end end;
        status = claim_try(&claim, &end);
        if (status != SYMM_OK)
            return status;
        if (end == CLAIM_DONE)
            break;
        if (end == CLAIM_GONE && symm__now() > until)
            return symm__fail(SYMM_ERR_TIMEOUT,
                              "the directory %s was removed each time it was made",
                              place->dir);
        if (end == CLAIM_GONE)
            continue; /* jobs that end remove it while others begin */
        if (symm__now() + pause > until)
            return symm__fail(
                SYMM_ERR_TIMEOUT,
                "another bootstrap of the same job key holds %s, after %.3g s "
                "still: does another job run with this SYMM_JOB_ID, or has an "
                "earlier start of this one not ended?",
                place->path, symm__now() - start);
        symm__sleep(pause);
        pause = pause < 0.01 ? pause * 1.5 : pause;
    }
    *listener = claim.listener;
    return SYMM_OK;
}

void symm__socket_path_leave(const struct symm_socket_path *place)
{
    (void)unlink(place->path);
    place_remove_directory(place);
}

/* Returns the owner that was found; OWNER_UNKNOWN, too, while another process tidies. */
static enum place_owner tidy_once(const struct symm_socket_path *place)
{
    enum place_owner owner = OWNER_UNKNOWN;
    int dir = open(place->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return OWNER_NONE;
    struct stat is;
    bool ours = fstat(dir, &is) == 0 && place_private(&is);
    if (ours && flock(dir, LOCK_EX | LOCK_NB) == 0) {
        owner = place_owner_of(place, dir, place->name);
        if (owner == OWNER_DEAD)
            (void)unlinkat(dir, place->name, 0);
        (void)flock(dir, LOCK_UN);
    }
    (void)close(dir);
    if (ours)
        place_remove_directory(place);
    return owner;
}

void symm__socket_path_tidy(const struct symm_socket_path *place)
{
    double until = symm__now() + PLACE_TIDY_SECONDS;
    while (tidy_once(place) == OWNER_ALIVE && symm__now() < until)
        symm__sleep(0.001);
}

/* ---- A joining rank's connection ------------------------------------------------- */

bool symm__bootstrap_same_user(int fd, unsigned *uid)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t bytes = sizeof(peer);
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
                 bytes == sizeof(peer);
    *uid = (unsigned)peer.uid;
    return known && peer.uid == geteuid();
}

symm_status symm__socket_path_connect(const struct symm_socket_path *place, int *fd)
{
    int dir, made;
    unsigned uid;
    *fd = -1;
    /* The secret must not go to another user's listener. */
    symm_status status = place_open(place, &dir);
    if (status != SYMM_OK || dir < 0)
        return status;
    (void)close(dir);
    made = place_socket();
    if (made < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                "making a socket for the bootstrap");
    struct sockaddr_un address = place_address(place->path);
    if (connect(made, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        int error = errno;
        (void)close(made);
        if (error == ENOENT || error == ECONNREFUSED || error == EAGAIN ||
            error == EINTR)
            return SYMM_OK;
        return symm__fail_errno(SYMM_ERR_SYSTEM, error,
                                "connecting to the bootstrap at %s", place->path);
    }
    if (!symm__bootstrap_same_user(made, &uid)) {
        (void)close(made);
        return symm__fail(
            SYMM_ERR_REFUSED,
            "the bootstrap at %s is held by user %u, not by this process's user "
            "%u: it was not joined",
            place->path, uid, (unsigned)geteuid());
    }
    *fd = made;
    return SYMM_OK;
}
