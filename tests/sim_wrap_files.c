/* SPDX-License-Identifier: MIT */
/* sim_wrap_files.c - see sim_wrap.c: files, memory, and the engine that is part of the suite. */
#include "sim_wrap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "util/memory_room.h"

/* ---- Files and memory ------------------------------------------------------------ */

WRAP(int, eventfd, unsigned value, int flags)
{
    if (!sim_on())
        return __real_eventfd(value, flags);
    sim_call("eventfd");
    return sim_eventfd(value);
}

WRAP(int, eventfd_write, int fd, uint64_t value)
{
    if (!sim_is_fd(fd))
        return __real_eventfd_write(fd, value);
    sim_call("write");
    return sim_write(fd, &value, sizeof(value)) < 0 ? -1 : 0;
}

WRAP(int, memfd_create, const char *name, unsigned flags)
{
    if (!sim_on())
        return __real_memfd_create(name, flags);
    sim_call("memfd_create");
    if (sim_lacks())
        return -1;
    return sim_memfd(__real_memfd_create(name, flags));
}

WRAP(int, ftruncate, int fd, off_t bytes)
{
    return __real_ftruncate(sim_is_fd(fd) ? sim_real_of(fd) : fd, bytes);
}

/* What runs must not depend on what the machine has. */
WRAP(bool, symm__memory_fits, size_t bytes, uint64_t *available)
{
    if (!sim_on())
        return __real_symm__memory_fits(bytes, available);
    return true;
}

/* Pages are allocated when they are used: most never are. */
WRAP(int, posix_fallocate, int fd, off_t at, off_t bytes)
{
    if (!sim_is_fd(fd))
        return __real_posix_fallocate(fd, at, bytes);
    sim_call("posix_fallocate");
    return sim_lacks() ? ENOSPC : 0;
}

WRAP(void *, mmap, void *at, size_t bytes, int protection, int flags, int fd,
     off_t offset)
{
    void *made;

    if (!sim_on() ||
        (flags & MAP_STACK)) /* a kernel's stacks are nothing of the rank */
        return __real_mmap(at, bytes, protection, flags, fd, offset);
    sim_call("mmap");
    if (sim_lacks())
        return MAP_FAILED;
    made = __real_mmap(at, bytes, protection, flags,
                       sim_is_fd(fd) ? sim_real_of(fd) : fd, offset);
    if (made != MAP_FAILED && fd >= 0) /* without reading ahead: most is never used */
        (void)madvise(made, bytes, MADV_RANDOM);
    if (made != MAP_FAILED)
        sim_mapped(made, bytes, fd, offset, flags & MAP_FIXED);
    return made;
}

WRAP(int, munmap, void *at, size_t bytes)
{
    if (sim_on()) {
        sim_call("munmap");
        sim_unmapped(at, bytes);
    }
    return __real_munmap(at, bytes);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list args;
    long argument;
    int *seals;

    va_start(args, command);
    argument = va_arg(args, long);
    va_end(args);
    if (!sim_is_fd(fd))
        return __real_fcntl(fd, command, argument);
    if (command == F_DUPFD_CLOEXEC)
        return sim_duplicate(fd);
    seals = sim_seals_of(fd);
    if (!seals) {
        errno = EINVAL;
        return -1;
    }
    if (command == F_ADD_SEALS)
        *seals |= (int)argument;
    return command == F_GET_SEALS ? *seals : 0;
}

WRAP(int, fstat, int fd, struct stat *is)
{
    return __real_fstat(sim_is_fd(fd) ? sim_real_of(fd) : fd, is);
}

WRAP(off_t, lseek, int fd, off_t offset, int from)
{
    return __real_lseek(sim_is_fd(fd) ? sim_real_of(fd) : fd, offset, from);
}

/* Of a memfd: its name. */
WRAP(ssize_t, readlink, const char *path, char *to, size_t bytes)
{
    char real[64];
    int fd, used = 0;

    if (sscanf(path, "/proc/self/fd/%d%n", &fd, &used) != 1 || path[used] ||
        !sim_is_fd(fd))
        return __real_readlink(path, to, bytes);
    snprintf(real, sizeof(real), "/proc/self/fd/%d", sim_real_of(fd));
    return __real_readlink(real, to, bytes);
}

/* /proc of simulated processes; false: another file. */
static bool open_proc(const char *path, int *fd)
{
    char text[128];
    int number, used = 0;

    if (sscanf(path, "/proc/self/fdinfo/%d%n", &number, &used) == 1 && !path[used] &&
        sim_is_fd(number)) {
        snprintf(text, sizeof(text), "pos:\t0\nPid:\t%d\n", sim_pid_of(number));
    } else if (sscanf(path, "/proc/%d/stat%n", &number, &used) == 1 && used > 0 &&
               number >= SIM_PID) {
        const struct sim_rank *rank = &sim.rank[(number - SIM_PID) / 100];

        snprintf(text, sizeof(text), "%d (sim) %c 1 1 1 0 -1 %u 0 0 0 0", number,
                 rank->zombie ? 'Z' : 'S', rank->exiting ? 4u : 0u);
    } else {
        return false;
    }
    *fd = sim_text_file(text);
    return true;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    mode_t mode;
    int fd;

    va_start(args, flags);
    mode = va_arg(args, mode_t);
    va_end(args);
    if (!sim_on())
        return __real_open(path, flags, mode);
    sim_call("open");
    if (open_proc(path, &fd))
        return fd;
    fd = __real_open(path, flags, mode);
    sim_real_opened(fd);
    return fd;
}

int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...)
{
    va_list args;
    mode_t mode;
    int fd;

    va_start(args, flags);
    mode = va_arg(args, mode_t);
    va_end(args);
    fd = __real_openat(folder, path, flags, mode);
    if (sim_on())
        sim_real_opened(fd);
    return fd;
}

WRAP(ssize_t, read, int fd, void *bytes, size_t count)
{
    if (!sim_is_fd(fd))
        return __real_read(fd, bytes, count);
    sim_call("read");
    return sim_interrupted() ? -1 : sim_read(fd, bytes, count);
}

WRAP(ssize_t, __read_chk, int fd, void *bytes, size_t count, size_t room)
{
    if (!sim_is_fd(fd))
        return __real___read_chk(fd, bytes, count, room);
    return __wrap_read(fd, bytes, count);
}

WRAP(ssize_t, write, int fd, const void *bytes, size_t count)
{
    if (!sim_is_fd(fd))
        return __real_write(fd, bytes, count);
    sim_call("write");
    return sim_write(fd, bytes, count);
}

WRAP(int, close, int fd)
{
    if (sim_on())
        sim_call("close");
    if (sim_is_fd(fd))
        return sim_close(fd);
    sim_real_closed(fd);
    return __real_close(fd);
}

WRAP(DIR *, fdopendir, int fd)
{
    return __real_fdopendir(fd);
}

WRAP(int, closedir, DIR *folder)
{
    sim_real_closed(dirfd(folder));
    return __real_closedir(folder);
}

/* ---- The engine, which is part of the suite -------------------------------------- */

extern const char symm_engine
    __attribute__((weak)); /* fake_engine.c, if the suite has it */

WRAP(void *, dlopen, const char *path, int flags)
{
    if (sim_on() && path && strcmp(path, "/sim/engine") == 0)
        return (void *)(uintptr_t)&symm_engine;
    return __real_dlopen(path, flags);
}

WRAP(void *, dlsym, void *library, const char *name)
{
    if (library == (const void *)&symm_engine)
        return (void *)(uintptr_t)&symm_engine;
    return __real_dlsym(library, name);
}

WRAP(int, dlclose, void *library)
{
    return library == (const void *)&symm_engine ? 0 : __real_dlclose(library);
}

/* ---- Blocks of memory, by rank --------------------------------------------------- */

#define BLOCKS ((size_t)1 << 13) /* more than a job's ranks hold at a time */

static struct block {
    void *at;
    const void *by; /* the caller's address, for a trace */
    int rank;
} blocks[BLOCKS]; /* a hash table with linear probing */
static size_t block_count;

static size_t place_of(const void *at)
{
    return (size_t)(((uintptr_t)at >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 48) % BLOCKS;
}

static void *keep(void *at, const void *by)
{
    size_t i = place_of(at);

    if (!at || !sim_on())
        return at;
    if (++block_count > BLOCKS / 2)
        abort();
    while (blocks[i].at)
        i = (i + 1) % BLOCKS;
    blocks[i] = (struct block){at, by, sim_rank()};
    return at;
}

static void forget(const void *at)
{
    size_t i = place_of(at), hole;

    if (!at || !sim.config)
        return;
    while (blocks[i].at && blocks[i].at != at)
        i = (i + 1) % BLOCKS;
    if (!blocks[i].at)
        return;
    hole = i;
    for (;;) { /* entries behind it that belong before it move up */
        size_t home;

        i = (i + 1) % BLOCKS;
        if (!blocks[i].at)
            break;
        home = place_of(blocks[i].at);
        if ((i - home) % BLOCKS < (i - hole) % BLOCKS)
            continue;
        blocks[hole] = blocks[i];
        hole = i;
    }
    blocks[hole].at = NULL;
    block_count--;
}

int sim_blocks_left(int rank)
{
    int left = 0;

    for (size_t i = 0; i < BLOCKS; i++) {
        if (!blocks[i].at || blocks[i].rank != rank)
            continue;
        sim_note("rank %d leaves a block that %p has made", rank, blocks[i].by);
        left++;
    }
    return left;
}

WRAP(void *, malloc, size_t bytes)
{
    return sim_lacks() ? NULL : keep(__real_malloc(bytes), __builtin_return_address(0));
}

void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return sim_lacks() ? NULL
                       : keep(__real_calloc(count, bytes), __builtin_return_address(0));
}

WRAP(void *, aligned_alloc, size_t to, size_t bytes)
{
    return sim_lacks()
               ? NULL
               : keep(__real_aligned_alloc(to, bytes), __builtin_return_address(0));
}

char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    return sim_lacks() ? NULL : keep(__real_strdup(text), __builtin_return_address(0));
}

WRAP(void *, realloc, void *block, size_t bytes)
{
    void *made = sim_lacks() ? NULL : __real_realloc(block, bytes);

    if (made) {
        forget(block);
        keep(made, __builtin_return_address(0));
    }
    return made;
}

WRAP(void *, reallocarray, void *block, size_t count, size_t bytes)
{
    void *made = sim_lacks() ? NULL : __real_reallocarray(block, count, bytes);

    if (made) {
        forget(block);
        keep(made, __builtin_return_address(0));
    }
    return made;
}

void __wrap_free(void *block);
void __wrap_free(void *block)
{
    forget(block);
    __real_free(block);
}
