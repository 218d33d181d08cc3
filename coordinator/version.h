#pragma once

namespace regatta {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace regatta
