#include "coordinator/token.h"

#include <absl/strings/str_cat.h>

#include <random>

namespace regatta {

std::string MakeToken() {
  std::random_device source;
  std::string token;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&token, absl::Hex(source(), absl::kZeroPad8));
  return token;
}

}  // namespace regatta
