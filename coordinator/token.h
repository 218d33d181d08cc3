#pragma once

#include <string>

namespace regatta {

// 128 random bits as hexadecimal text: names a submission, or lets a rank in.
[[nodiscard]] std::string MakeToken();

}  // namespace regatta
