#include "coordinator/secrets.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace regatta {
namespace {

std::string FileOf(const std::string& state_folder, int64_t experiment) {
  return absl::StrCat(state_folder, "/secrets/e", experiment, ".json");
}

}  // namespace

absl::Status WriteSecrets(const std::string& state_folder, int64_t experiment,
                          const std::map<std::string, std::string>& values) {
  const std::string folder = state_folder + "/secrets";
  const std::string path = FileOf(state_folder, experiment);
  const std::string text =
      nlohmann::json(values).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  (void)mkdir(folder.c_str(), 0700);  // open says what is wrong
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool ok = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
            fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (ok) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(path, ": ", std::strerror(error)));
}

absl::StatusOr<std::map<std::string, std::string>> ReadSecrets(const std::string& state_folder,
                                                               int64_t experiment) {
  std::map<std::string, std::string> values;
  const std::string path = FileOf(state_folder, experiment);
  if (!std::filesystem::exists(path)) return values;
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object()) {
    return absl::DataLossError(absl::StrCat(path, " cannot be read; submit the experiment again"));
  }
  for (const auto& [name, value] : json.items()) {
    if (value.is_string()) values[name] = value;
  }
  return values;
}

void RemoveSecrets(const std::string& state_folder, int64_t experiment) {
  std::error_code ignored;
  std::filesystem::remove(FileOf(state_folder, experiment), ignored);
}

}  // namespace regatta
