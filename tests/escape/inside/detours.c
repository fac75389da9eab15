/* Ways around a seccomp rule that says "not AF_VSOCK" by comparing socket(2)'s first argument. Each attempt makes a
   socket and closes it; none is ever connected or bound. Prints how it ended: "opened", or the error's number. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VSOCK 40

static int report(long fd) {
  if (fd < 0) {
    printf("%s\n", fd == -EPERM ? "EPERM" : fd == -ENOSYS ? "ENOSYS" : fd == -EAFNOSUPPORT ? "EAFNOSUPPORT" : "error");
    return 1;
  }
  printf("opened\n");
  close((int)fd);
  return 0;
}

static long plain(void) { return syscall(SYS_socket, VSOCK, SOCK_STREAM, 0) < 0 ? -errno : 0; }

/* The kernel takes an int; a filter that compares 64 bits sees another number. */
static long truncated(void) { return syscall(SYS_socket, (1L << 32) | VSOCK, SOCK_STREAM, 0) < 0 ? -errno : 0; }

static long pair(void) {
  int ends[2];
  return syscall(SYS_socketpair, VSOCK, SOCK_STREAM, 0, ends) < 0 ? -errno : 0;
}

/* The 32-bit entry: int 0x80 with i386 numbers, arguments below 4 GiB. */
static long entry32(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
  return (int)result;
}

static long socketcall(void) {
  uint32_t *arguments = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  if (arguments == MAP_FAILED) return -errno;
  arguments[0] = VSOCK, arguments[1] = SOCK_STREAM, arguments[2] = 0;
  return entry32(102, 1, (long)arguments, 0);
}

static long socket32(void) { return entry32(359, VSOCK, SOCK_STREAM, 0); }

/* x32 numbers of the 64-bit entry. */
static long x32(void) { return syscall(0x40000000 + SYS_socket, VSOCK, SOCK_STREAM, 0) < 0 ? -errno : 0; }

/* io_uring has a socket operation of its own; without a ring there is none to submit. */
static long uring(void) {
  char parameters[120] = {0};
  return syscall(SYS_io_uring_setup, 4, parameters) < 0 ? -errno : 0;
}

int main(int argc, char **argv) {
  static const struct { const char *name; long (*attempt)(void); } attempts[] = {
      {"plain", plain}, {"truncated", truncated}, {"pair", pair},     {"socketcall", socketcall},
      {"socket32", socket32}, {"x32", x32},       {"io_uring", uring},
  };
  for (unsigned i = 0; argc == 2 && i < sizeof attempts / sizeof *attempts; i++)
    if (!strcmp(argv[1], attempts[i].name)) return report(attempts[i].attempt());
  fprintf(stderr, "detours: name one of the attempts\n");
  return 2;
}
