#include "coordinator/launcher/identity.h"

#include <fstream>
#include <sstream>
#include <vector>

namespace regatta {

std::string ProcessIdentity(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return "";
  // The command's name is in parentheses and may itself hold blanks and parentheses.
  const size_t end_of_name = line.rfind(')');
  if (end_of_name == std::string::npos) return "";
  std::istringstream fields(line.substr(end_of_name + 1));
  constexpr int kStartTimeField = 20;  // the 22nd of proc(5), counted after the name
  std::string field;
  for (int i = 0; i < kStartTimeField; ++i) fields >> field;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  boot >> boot_id;
  return std::to_string(pid) + " " + field + " " + boot_id;
}

}  // namespace regatta
