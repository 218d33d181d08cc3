#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regatta {

// The known name nearest to `name` by edit distance, or an empty string where none is near enough
// to be a likely slip of the fingers (more than a third of the longer name differs).
[[nodiscard]] std::string NearestName(std::string_view name,
                                      const std::vector<std::string>& known_names);

// "; did you mean 'zero1'?" where a known name is near, else "; known: a, b, c".
[[nodiscard]] std::string SuggestName(std::string_view name,
                                      const std::vector<std::string>& known_names);

}  // namespace regatta
