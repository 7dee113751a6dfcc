/* Preloaded into a process, makes its calls to files below HUNG_DISK_FOLDER block, as those to a disk that has gone do, for as long as the
   file HUNG_DISK_FILE holds the letter of the call: o (open and unlink), w (write), r (read). All other files stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static const volatile char *calls;
static const char *folder;

__attribute__((constructor)) static void prepare(void) {
  const char *path = getenv("HUNG_DISK_FILE");
  folder = getenv("HUNG_DISK_FOLDER");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, 4, PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) calls = page;
  close(file);
}

static int hangs(char call) {
  return calls && (calls[0] == call || calls[1] == call || calls[2] == call);
}

static void wait_for_path(char call, const char *path) {
  if (!folder || strncmp(path, folder, strlen(folder))) return;
  while (hangs(call)) usleep(5000);
}

static void wait_for_file(char call, int file) {
  char link[64], path[PATH_MAX];
  if (!hangs(call)) return;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return;
  path[length] = 0;
  wait_for_path(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  wait_for_path('o', path);
  return REAL(open64)(path, flags, mode);
}

int unlink(const char *path) {
  wait_for_path('o', path);
  return REAL(unlink)(path);
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t at) {
  wait_for_file('w', file);
  return REAL(pwrite64)(file, bytes, length, at);
}

ssize_t pwritev64(int file, const struct iovec *pieces, int count, off64_t at) {
  wait_for_file('w', file);
  return REAL(pwritev64)(file, pieces, count, at);
}

ssize_t pread64(int file, void *bytes, size_t length, off64_t at) {
  wait_for_file('r', file);
  return REAL(pread64)(file, bytes, length, at);
}
