/* Sits between a program and libc (LD_PRELOAD) and makes one chosen file operation go wrong.
 *
 * Operations that change files below `root` are counted over all processes of a command, in a
 * struct that they share through a file. The operation with the chosen number fails, is cut short,
 * or is the last thing that its process does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, FULL, BROKEN, SHORT, TORN, KILL, KILL_HALFWAY };

struct plan {
    int64_t count;    /* operations so far */
    int64_t at;       /* number of the operation that goes wrong, from 1 */
    int64_t lasting;  /* how many from there on do */
    int64_t kind;
    int64_t fired;    /* how many did */
    char root[1024];
    char only[64];    /* paths without this text do not count */
    char ignored[64]; /* nor do paths with this one, if there is one */
    char where[1024]; /* the first that did */
};

static struct plan *plan;

void faults_begin(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    plan = NULL;
    if (fd < 0) return;
    void *memory = mmap(NULL, sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    plan = memory == MAP_FAILED ? NULL : memory;
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("FAULTS_PLAN");
    if (path != NULL) faults_begin(path);
}

#define REAL(result, name, ...)                                            \
    static result (*real)(__VA_ARGS__);                                    \
    if (real == NULL) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static int below_root(const char *path) {
    size_t length = strlen(plan->root);
    return strncmp(path, plan->root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

/* What is to happen to an operation on `path`, relative to the folder `folder`. */
static int fault_at(int folder, const char *path, const char *operation) {
    char whole[2 * PATH_MAX], base[PATH_MAX], link[64];
    int before = errno;
    if (plan == NULL || path == NULL) return NONE;
    if (path[0] == '/') {
        snprintf(whole, sizeof whole, "%s", path);
    } else if (folder == AT_FDCWD) {
        if (getcwd(base, sizeof base) == NULL) return NONE;
        snprintf(whole, sizeof whole, "%s/%s", base, path);
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t n = readlink(link, base, sizeof base - 1);
        errno = before;
        if (n < 0) return NONE;
        base[n] = 0;
        snprintf(whole, sizeof whole, path[0] ? "%s/%s" : "%s%s", base, path);
    }
    if (!below_root(whole) || !strstr(whole, plan->only)) return NONE;
    if (plan->ignored[0] && strstr(whole, plan->ignored)) return NONE;
    int64_t number = __atomic_add_fetch(&plan->count, 1, __ATOMIC_SEQ_CST);
    if (plan->kind == NONE || number < plan->at || number >= plan->at + plan->lasting) return NONE;
    if (__atomic_fetch_add(&plan->fired, 1, __ATOMIC_SEQ_CST) == 0)
        snprintf(plan->where, sizeof plan->where, "%s %.900s", operation, whole);
    if (plan->kind == KILL) kill(getpid(), SIGKILL);
    return (int)plan->kind;
}

static int fault_on(int fd, const char *operation) { return fault_at(fd, "", operation); }

/* For operations that have no halves. */
static int refused(int fault) {
    if (fault == NONE || fault == SHORT) return 0;
    if (fault == KILL_HALFWAY) kill(getpid(), SIGKILL);
    errno = fault == BROKEN ? EIO : ENOSPC;
    return 1;
}

/* How many of `count` bytes to write; -1: none, with errno. */
static ssize_t granted(int fault, size_t count) {
    if (fault == FULL || fault == BROKEN) {
        errno = fault == FULL ? ENOSPC : EIO;
        return -1;
    }
    return fault == NONE || count < 2 ? (ssize_t)count : (ssize_t)(count / 2);
}

static void after_half(int fault) {
    if (fault == KILL_HALFWAY) kill(getpid(), SIGKILL);
    /* The rest of a torn write meets a full disk. */
    if (fault == TORN) plan->kind = FULL, plan->at = plan->count + 1;
}

ssize_t write(int fd, const void *data, size_t count) {
    REAL(ssize_t, write, int, const void *, size_t);
    int fault = fault_on(fd, "write");
    ssize_t part = granted(fault, count);
    if (part < 0) return -1;
    ssize_t done = real(fd, data, (size_t)part);
    after_half(fault);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t offset) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    int fault = fault_on(fd, "pwrite");
    ssize_t part = granted(fault, count);
    if (part < 0) return -1;
    ssize_t done = real(fd, data, (size_t)part, offset);
    after_half(fault);
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    return refused(fault_on(fd, "writev")) ? -1 : real(fd, parts, count);
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *file) {
    REAL(size_t, fwrite, const void *, size_t, size_t, FILE *);
    return refused(fault_on(fileno(file), "fwrite")) ? 0 : real(data, size, count, file);
}

int fsync(int fd) {
    REAL(int, fsync, int);
    return refused(fault_on(fd, "fsync")) ? -1 : real(fd);
}

int fdatasync(int fd) {
    REAL(int, fdatasync, int);
    return refused(fault_on(fd, "fdatasync")) ? -1 : real(fd);
}

int ftruncate64(int fd, off64_t length) {
    REAL(int, ftruncate64, int, off64_t);
    return refused(fault_on(fd, "ftruncate")) ? -1 : real(fd, length);
}

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    return refused(fault_at(AT_FDCWD, to, "rename")) ? -1 : real(from, to);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    return refused(fault_at(AT_FDCWD, path, "mkdir")) ? -1 : real(path, mode);
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    return refused(fault_at(AT_FDCWD, path, "unlink")) ? -1 : real(path);
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    return refused(fault_at(folder, path, "unlink")) ? -1 : real(folder, path, flags);
}

int rmdir(const char *path) {
    REAL(int, rmdir, const char *);
    return refused(fault_at(AT_FDCWD, path, "rmdir")) ? -1 : real(path);
}

#define OPEN(name)                                                                 \
    int name(const char *path, int flags, ...) {                                   \
        REAL(int, name, const char *, int, ...);                                   \
        va_list rest;                                                              \
        va_start(rest, flags);                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;    \
        va_end(rest);                                                              \
        int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);         \
        if (writes && refused(fault_at(AT_FDCWD, path, "open"))) return -1;        \
        return real(path, flags, mode);                                            \
    }

OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                               \
    int name(int folder, const char *path, int flags, ...) {                       \
        REAL(int, name, int, const char *, int, ...);                              \
        va_list rest;                                                              \
        va_start(rest, flags);                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;    \
        va_end(rest);                                                              \
        int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);         \
        if (writes && refused(fault_at(folder, path, "open"))) return -1;          \
        return real(folder, path, flags, mode);                                    \
    }

OPENAT(openat)
OPENAT(openat64)
