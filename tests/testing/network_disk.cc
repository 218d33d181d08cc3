#include <sys/vfs.h>

#include <cstring>

// To be preloaded into a program: every file system says that it is NFS.
extern "C" int statfs(const char*, struct statfs* to) noexcept {
  std::memset(to, 0, sizeof(*to));
  to->f_type = 0x6969;
  return 0;
}
