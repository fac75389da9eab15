/* Makes system calls one by one, each in a child of its own, and prints `name<TAB>result`: ok, an errno's name, or
   `signal N`. Static, no libc in the way of the calls. Nothing is ever connected to. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

static char buffer[4096];

static void report(const char *name, long result) {
  int error = errno;
  printf("%s\t%s\n", name, result >= 0 ? "ok" : strerrorname_np(error));
  fflush(stdout);
  _exit(0);
}

/* Runs in a child what follows it; the parent tells of a signal. */
#define TRY(name, call)                                                        \
  do {                                                                         \
    pid_t child = fork();                                                      \
    if (child == 0) {                                                          \
      report(name, (long)(call));                                              \
    }                                                                          \
    int status;                                                                \
    waitpid(child, &status, 0);                                                \
    if (WIFSIGNALED(status)) printf("%s\tsignal %d\n", name, WTERMSIG(status)); \
    fflush(stdout);                                                            \
  } while (0)

#define CALL(name, ...) TRY(#name, syscall(SYS_##name, ##__VA_ARGS__))

static void sockets(void) {
  char name[96];
  static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, 10 /* SOCK_PACKET */};
  static const int protocols[] = {0, 1, 2, 6, 16, 17, 58, 132, 136, 255, 262};
  static const long high = 1L << 32;
  for (long family = 0; family <= 46; family++)
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
      snprintf(name, sizeof name, "socket %ld %d 0", family, kinds[k]);
      TRY(name, syscall(SYS_socket, family, kinds[k], 0));
      snprintf(name, sizeof name, "socket high|%ld %d 0", family, kinds[k]);
      TRY(name, syscall(SYS_socket, family | high, kinds[k], 0));
    }
  for (int family = 1; family <= 16; family++)
    if (family == 1 || family == 2 || family == 10 || family == 16)
      for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t p = 1; p < sizeof protocols / sizeof *protocols; p++) {
          snprintf(name, sizeof name, "socket %d %d %d", family, kinds[k], protocols[p]);
          TRY(name, syscall(SYS_socket, family, kinds[k], protocols[p]));
        }
  for (int family = 0; family <= 46; family++) {
    int pair[2];
    snprintf(name, sizeof name, "socketpair %d", family);
    TRY(name, syscall(SYS_socketpair, family, SOCK_STREAM, 0, pair));
  }
}

#ifdef __x86_64__
static long int80(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
  if (result < 0) errno = (int)-result, result = -1;
  return result;
}

static void other_architectures(void) {
  unsigned *arguments = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  arguments[0] = 40, arguments[1] = SOCK_STREAM, arguments[2] = 0;
  TRY("i386 socketcall", int80(102, 1, (long)arguments, 0));
  TRY("i386 socket", int80(359, 40, SOCK_STREAM, 0));
  TRY("i386 getpid", int80(20, 0, 0, 0));
  TRY("x32 socket", syscall(0x40000000 | SYS_socket, 40, SOCK_STREAM, 0));
  TRY("x32 getpid", syscall(0x40000000 | SYS_getpid));
  CALL(iopl, 3);
  CALL(ioperm, 0x70, 1, 1);
  CALL(modify_ldt, 0, buffer, 16);
  CALL(mknod, "/tmp/null", S_IFCHR | 0600, 0x103);
  TRY("open set-id", syscall(SYS_open, "/tmp/o", O_CREAT | O_WRONLY, 04755));
  TRY("open", syscall(SYS_open, "/tmp/o", O_CREAT | O_WRONLY, 0755));
  TRY("creat set-id", syscall(SYS_creat, "/tmp/c", 04755));
  TRY("chmod set-id", syscall(SYS_chmod, "/tmp/o", 04755));
  TRY("chmod set-gid", syscall(SYS_chmod, "/tmp/o", 02755));
  TRY("chmod high set-id", syscall(SYS_chmod, "/tmp/o", 0x10000 | 04755));
  TRY("chmod", syscall(SYS_chmod, "/tmp/o", 0755));
}
#else
static void other_architectures(void) {}
#endif

static void namespaces(void) {
  static const struct { const char *name; unsigned long flag; } flags[] = {
      {"NEWTIME", 0x80}, {"NEWNS", CLONE_NEWNS}, {"NEWCGROUP", CLONE_NEWCGROUP}, {"NEWUTS", CLONE_NEWUTS},
      {"NEWIPC", CLONE_NEWIPC}, {"NEWUSER", CLONE_NEWUSER}, {"NEWPID", CLONE_NEWPID}, {"NEWNET", CLONE_NEWNET}};
  char name[64];
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
    snprintf(name, sizeof name, "unshare %s", flags[i].name);
    TRY(name, syscall(SYS_unshare, flags[i].flag));
    if (!i) continue; /* clone has no room for it: the bit is part of the exit signal */
    snprintf(name, sizeof name, "clone %s", flags[i].name);
    TRY(name, syscall(SYS_clone, flags[i].flag | SIGCHLD, 0, 0, 0, 0));
    snprintf(name, sizeof name, "clone high|%s", flags[i].name);
    TRY(name, syscall(SYS_clone, 1L << 32 | flags[i].flag | SIGCHLD, 0, 0, 0, 0));
  }
  TRY("clone", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  TRY("clone3", syscall(SYS_clone3, buffer, 64));
  TRY("setns", syscall(SYS_setns, open("/proc/self/ns/net", O_RDONLY), CLONE_NEWNET));
}

static void modes(void) {
  TRY("openat set-id", syscall(SYS_openat, AT_FDCWD, "/tmp/a", O_CREAT | O_WRONLY, 04755));
  TRY("openat tmpfile set-id", syscall(SYS_openat, AT_FDCWD, "/tmp", O_TMPFILE | O_WRONLY, 04755));
  TRY("openat", syscall(SYS_openat, AT_FDCWD, "/tmp/a", O_CREAT | O_RDWR, 0755));
  TRY("openat stray mode", syscall(SYS_openat, AT_FDCWD, "/tmp/a", O_RDONLY, 04755));
  TRY("fchmod set-id", syscall(SYS_fchmod, open("/tmp/a", O_RDONLY), 06755));
  TRY("fchmodat set-id", syscall(SYS_fchmodat, AT_FDCWD, "/tmp/a", 04755));
  TRY("fchmodat", syscall(SYS_fchmodat, AT_FDCWD, "/tmp/a", 0755));
  TRY("fchmodat2", syscall(SYS_fchmodat2, AT_FDCWD, "/tmp/a", 04755, 0));
  TRY("mknodat device", syscall(SYS_mknodat, AT_FDCWD, "/tmp/null", S_IFCHR | 0600, 0x103));
  TRY("mknodat fifo set-id", syscall(SYS_mknodat, AT_FDCWD, "/tmp/fifo", S_IFIFO | 04600, 0));
  TRY("mknodat fifo", syscall(SYS_mknodat, AT_FDCWD, "/tmp/fifo", S_IFIFO | 0600, 0));
  memset(buffer, 0, 24);
  TRY("openat2", syscall(SYS_openat2, AT_FDCWD, "/tmp/a", buffer, 24));
}

static void filters(void) {
  static const long high = 1L << 32;
  struct sock_filter all = {BPF_RET | BPF_K, 0, 0, 0x7fff0000};
  struct sock_fprog filter = {1, &all};
  int on = 1, sock = socket(AF_INET6, SOCK_DGRAM, 0);
  TRY("attach filter", syscall(SYS_setsockopt, sock, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter));
  TRY("attach filter high", syscall(SYS_setsockopt, sock, SOL_SOCKET | high, SO_ATTACH_FILTER | high, &filter, 16));
  TRY("attach reuseport filter", syscall(SYS_setsockopt, sock, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter, 16));
  TRY("reuse address", syscall(SYS_setsockopt, sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
  TRY("detach filter", syscall(SYS_setsockopt, sock, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on));
  TRY("only IPv6", syscall(SYS_setsockopt, sock, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on)); /* 26 too */
  TRY("prctl seccomp", syscall(SYS_prctl, PR_SET_SECCOMP, 2, &filter, 0, 0));
  TRY("prctl seccomp high", syscall(SYS_prctl, PR_SET_SECCOMP | high, 2, &filter, 0, 0));
  TRY("prctl name", syscall(SYS_prctl, PR_SET_NAME, "x", 0, 0, 0));
  CALL(seccomp, 1, 0, &filter);
}

static void calls(void) {
  CALL(io_uring_setup, 8, buffer);
  CALL(io_uring_enter, -1, 0, 0, 0, 0, 0);
  CALL(io_uring_register, -1, 0, 0, 0);
  CALL(ptrace, 0 /* TRACEME */, 0, 0, 0);
  CALL(process_vm_readv, 1, buffer, 0, buffer, 0, 0);
  CALL(process_vm_writev, 1, buffer, 0, buffer, 0, 0);
  CALL(kcmp, 1, 1, 0, 0, 0);
  CALL(pidfd_getfd, -1, 0, 0);
  CALL(bpf, 0, buffer, 64);
  CALL(keyctl, 0, -3, 0);
  CALL(add_key, "user", "k", "v", 1, -3);
  CALL(request_key, "user", "k", 0, -3);
  CALL(memfd_secret, 0);
  CALL(name_to_handle_at, AT_FDCWD, "/", buffer, buffer, 0);
  CALL(open_by_handle_at, AT_FDCWD, buffer, 0);
  CALL(userfaultfd, 0);
  CALL(perf_event_open, buffer, 0, -1, -1, 0);
  CALL(mount, "none", "/tmp", "tmpfs", 0, 0);
  CALL(umount2, "/tmp", 0);
  CALL(pivot_root, "/", "/");
  CALL(chroot, "/");
  CALL(open_tree, AT_FDCWD, "/", 1);
  CALL(move_mount, -1, "", -1, "", 0);
  CALL(fsopen, "tmpfs", 0);
  CALL(mount_setattr, -1, "", 0, buffer, 32);
  CALL(init_module, buffer, 0, "");
  CALL(finit_module, -1, "", 0);
  CALL(delete_module, "x", 0);
  CALL(kexec_load, 0, 0, 0, 0);
  CALL(reboot, 0, 0, 0, 0);
  CALL(swapon, "/x", 0);
  CALL(acct, 0);
  CALL(settimeofday, 0, 0);
  CALL(clock_settime, 0, buffer);
  CALL(clock_adjtime, 0, buffer);
  CALL(fanotify_init, 0, 0);
  CALL(quotactl, 0, "", 0, 0);
  CALL(syslog, 10, 0, 0);
  CALL(vhangup);
  CALL(sethostname, "x", 1);
  CALL(io_setup, 1, buffer);
  TRY("personality no-randomize", syscall(SYS_personality, 0x0040000));
  TRY("personality ask", syscall(SYS_personality, 0xffffffff));
  TRY("call 600", syscall(600));
  CALL(memfd_create, "m", 0);
  CALL(getpid);
  CALL(pidfd_open, getpid(), 0);
  CALL(inotify_init1, 0);
  CALL(epoll_create1, 0);
  CALL(membarrier, 0, 0, 0);
}

int main(void) {
  umask(0);
  namespaces();
  calls();
  other_architectures();
  modes();
  filters();
  sockets();
  return 0;
}
