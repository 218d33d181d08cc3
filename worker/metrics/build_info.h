#pragma once

namespace regatta {

// The commit that this program was built from, with a hash of what was not committed
// (cmake/BuildInfo.cmake makes it at each build).
extern const char* const kBuildCommit;

}  // namespace regatta
