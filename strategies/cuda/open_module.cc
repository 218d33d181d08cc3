#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>

#include "strategies/cuda/gpu_module.h"

namespace regatta {
namespace {

using MakeModule = GpuModule* (*)();

GpuModule& Open() {
  const std::filesystem::path path =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libregatta_cuda.so";
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error("the GPU module is not built (" + path.string() +
                             " is missing): scripts/setup.sh --gpu, then build again");
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw std::runtime_error(std::string("the GPU module cannot be opened: ") + dlerror() +
                             "; scripts/setup.sh --gpu installs what it needs");
  }
  const auto make = reinterpret_cast<MakeModule>(dlsym(library, "RegattaMakeGpuModule"));
  if (make == nullptr) {
    throw std::runtime_error(path.string() + " is of another version of regatta; build again");
  }
  return *make();
}

}  // namespace

GpuModule& OpenGpuModule() {
  static GpuModule& module = Open();
  return module;
}

}  // namespace regatta
