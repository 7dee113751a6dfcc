/* Preloaded into a process, lets its wall clock be stepped from outside: the file STEP_CLOCK_FILE holds milliseconds to be added.
   Clocks that never step (CLOCK_MONOTONIC and its kin) stay as they are, as they would in life. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *offset_ms;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void prepare(void) {
  const char *path = getenv("STEP_CLOCK_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file >= 0) {
    void *page = mmap(NULL, sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset_ms = page;
    close(file);
  }
  real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t id, struct timespec *time) {
  int failed = real_clock_gettime ? real_clock_gettime(id, time) : (int)syscall(SYS_clock_gettime, id, time);
  if (failed || !offset_ms || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return failed;
  long long ms = *offset_ms;
  time->tv_sec += ms / 1000;
  time->tv_nsec += ms % 1000 * 1000000;
  if (time->tv_nsec < 0) { time->tv_sec--; time->tv_nsec += 1000000000; }
  if (time->tv_nsec >= 1000000000) { time->tv_sec++; time->tv_nsec -= 1000000000; }
  return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds) *seconds = now.tv_sec;
  return now.tv_sec;
}
