/* What would be there after a loss of power: preloaded into a node, this keeps a copy of what the node has synced.
 *
 * Below POWER_ROOT every fsync and fdatasync of a file copies the file to POWER_SYNCED/files/<inode>, and every fsync of a
 * directory writes its names to POWER_SYNCED/names/<inode>, one "inode type name" a line. Nothing else counts: a write that
 * no sync of its file followed is not there, and a file created, renamed or removed is so only when its directory was synced
 * afterwards. That is what POSIX promises; most file systems keep more.
 *
 * Where a file was written is noted, so that a sync copies no more than that. What writes past these functions (a system call
 * of its own, a mapping) is found at the first sync of a file only, so a file that is written so seems to lose what it has: the
 * error is on the safe side. The real sync is left out, as only the process ends and not the system.
 *
 * POWER_DELAY_US: a sync takes up to this long, by chance, before it has its effect; more processes die in the middle of one.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define BUCKETS 4096
#define BLOCK 65536

/* An inode below the root. It is kept open, so that its number is not given to another file. */
struct inode {
    ino_t number;
    /* Bytes written since the last sync: [from, to). */
    off_t from, to;
    struct inode *next;
};

static struct inode *inodes[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX], synced[PATH_MAX];
static dev_t device;
static long delay_us;

static void give_up(const char *what)
{
    dprintf(2, "losing power: %s: %s\n", what, strerror(errno));
    abort();
}

static struct inode *find(ino_t number)
{
    struct inode *inode = inodes[number % BUCKETS];
    while (inode && inode->number != number)
        inode = inode->next;
    return inode;
}

/* Holds on to an inode for as long as the process runs. */
static struct inode *add(ino_t number, int pin)
{
    struct inode *inode = calloc(1, sizeof *inode);
    if (!inode || pin < 0)
        give_up("holding on to a file");
    *inode = (struct inode){ .number = number, .next = inodes[number % BUCKETS] };
    inodes[number % BUCKETS] = inode;
    return inode;
}

/* The inode behind a descriptor if it is a file or a directory below the root. */
static struct inode *tracked(int fd, struct stat *facts)
{
    char link[64], path[PATH_MAX];
    if (!root[0] || fstat(fd, facts) != 0 || facts->st_dev != device)
        return NULL;
    if (!S_ISREG(facts->st_mode) && !S_ISDIR(facts->st_mode))
        return NULL;
    struct inode *inode = find(facts->st_ino);
    if (inode)
        return inode;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t root_length = strlen(root);
    if (length < (ssize_t)root_length)
        return NULL;
    path[length] = 0;
    if (strncmp(path, root, root_length) != 0 || (path[root_length] && path[root_length] != '/'))
        return NULL;
    return add(facts->st_ino, open(link, O_PATH | O_CLOEXEC));
}

/* Holds on to all that lies in a directory. */
static void pin_below(int directory)
{
    int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = copy < 0 ? NULL : fdopendir(copy);
    if (!names)
        give_up("reading a directory");
    for (struct dirent *entry; (entry = readdir(names));) {
        struct stat facts;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        int pin = openat(directory, entry->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (pin < 0 || fstat(pin, &facts) != 0)
            continue;
        if (find(facts.st_ino))
            close(pin);
        else
            add(facts.st_ino, pin);
        if (S_ISDIR(facts.st_mode)) {
            int below = openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            pin_below(below);
            close(below);
        }
    }
    closedir(names);
}

__attribute__((constructor)) static void begin(void)
{
    const char *root_path = getenv("POWER_ROOT"), *synced_path = getenv("POWER_SYNCED"), *delay = getenv("POWER_DELAY_US");
    struct stat facts;
    if (!root_path || !synced_path)
        return;
    if (!realpath(root_path, root) || !realpath(synced_path, synced) || stat(root, &facts) != 0)
        give_up("the directories");
    device = facts.st_dev;
    delay_us = delay ? atol(delay) : 0;
    int top = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pin_below(top);
    add(facts.st_ino, top);
}

/* Bytes from `from` to `to` were written. Noted when the write is done: a sync that came before need not cover it. */
static void wrote(int fd, off_t from, off_t to)
{
    struct stat facts;
    pthread_mutex_lock(&lock);
    struct inode *inode = tracked(fd, &facts);
    if (inode && S_ISREG(facts.st_mode)) {
        inode->from = inode->to ? (from < inode->from ? from : inode->from) : from;
        inode->to = to > inode->to ? to : inode->to;
    }
    pthread_mutex_unlock(&lock);
}

static void wrote_at_cursor(int fd, ssize_t count)
{
    int error = errno;
    struct stat facts;
    if (count > 0 && fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode)) {
        off_t end = lseek(fd, 0, SEEK_CUR);
        wrote(fd, end - count, end);
    }
    errno = error;
}

static void wrote_at(int fd, ssize_t count, off_t offset)
{
    int error = errno;
    if (count > 0)
        wrote(fd, offset, offset + count);
    errno = error;
}

static int is_zero(const char *bytes, ssize_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

static void sync_file(int fd, struct inode *inode, off_t size)
{
    static char block[BLOCK];
    char path[PATH_MAX + 64], link[64];
    snprintf(path, sizeof path, "%s/files/%ju", synced, (uintmax_t)inode->number);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int is_new = access(path, F_OK) != 0;
    int from_fd = open(link, O_RDONLY | O_CLOEXEC), to_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (from_fd < 0 || to_fd < 0 || syscall(SYS_ftruncate, to_fd, size) != 0)
        give_up(path);
    off_t at = is_new ? 0 : inode->from, end = is_new || inode->to > size ? size : inode->to;
    while (at < end) {
        size_t wanted = end - at < BLOCK ? end - at : BLOCK;
        ssize_t count = pread(from_fd, block, wanted, at);
        if (count <= 0)
            break;
        if (!(is_new && is_zero(block, count)) && syscall(SYS_pwrite64, to_fd, block, count, at) != count)
            give_up(path);
        at += count;
    }
    inode->from = inode->to = 0;
    close(from_fd);
    close(to_fd);
}

static void sync_names(int fd, struct inode *inode)
{
    char path[PATH_MAX + 64], beside[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/names/%ju", synced, (uintmax_t)inode->number);
    snprintf(beside, sizeof beside, "%s/names/new", synced);
    int directory = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = directory < 0 ? NULL : fdopendir(directory);
    int out = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (!names || out < 0)
        give_up(path);
    for (struct dirent *entry; (entry = readdir(names));) {
        struct stat facts;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        int pin = openat(fd, entry->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (pin < 0 || fstat(pin, &facts) != 0)
            continue;
        if (find(facts.st_ino))
            close(pin);
        else
            add(facts.st_ino, pin);
        dprintf(out, "%ju %c %s\n", (uintmax_t)facts.st_ino, S_ISDIR(facts.st_mode) ? 'd' : 'f', entry->d_name);
    }
    closedir(names);
    close(out);
    if (rename(beside, path) != 0)
        give_up(path);
}

/* Whether the descriptor is one of ours; then all is done. */
static int sync_tracked(int fd)
{
    struct stat facts;
    pthread_mutex_lock(&lock);
    struct inode *inode = tracked(fd, &facts);
    pthread_mutex_unlock(&lock);
    if (!inode)
        return 0;
    if (delay_us > 0)
        usleep(random() % delay_us);
    pthread_mutex_lock(&lock);
    if (fstat(fd, &facts) != 0)
        give_up("a file to be synced");
    if (S_ISDIR(facts.st_mode))
        sync_names(fd, inode);
    else
        sync_file(fd, inode, facts.st_size);
    pthread_mutex_unlock(&lock);
    return 1;
}

int fsync(int fd)
{
    return sync_tracked(fd) ? 0 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return sync_tracked(fd) ? 0 : (int)syscall(SYS_fdatasync, fd);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    ssize_t written = syscall(SYS_write, fd, bytes, count);
    wrote_at_cursor(fd, written);
    return written;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    ssize_t written = syscall(SYS_writev, fd, parts, count);
    wrote_at_cursor(fd, written);
    return written;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    ssize_t written = syscall(SYS_pwrite64, fd, bytes, count, offset);
    wrote_at(fd, written, offset);
    return written;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    return pwrite64(fd, bytes, count, offset);
}

int ftruncate64(int fd, off64_t size)
{
    int result = syscall(SYS_ftruncate, fd, size);
    if (result == 0)
        wrote(fd, size, LLONG_MAX);
    return result;
}

int ftruncate(int fd, off_t size)
{
    return ftruncate64(fd, size);
}
