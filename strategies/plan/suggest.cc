#include "strategies/plan/suggest.h"

#include <algorithm>
#include <numeric>

namespace regatta {
namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above + 1, row[j - 1] + 1});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string NearestName(std::string_view name, const std::vector<std::string>& known_names) {
  std::string best;
  size_t best_distance = 0;
  for (const std::string& known : known_names) {
    const size_t distance = EditDistance(name, known);
    const size_t allowed = (std::max(name.size(), known.size()) + 2) / 3;
    if (distance <= allowed && (best.empty() || distance < best_distance)) {
      best = known;
      best_distance = distance;
    }
  }
  return best;
}

std::string SuggestName(std::string_view name, const std::vector<std::string>& known_names) {
  const std::string nearest = NearestName(name, known_names);
  if (!nearest.empty()) return "; did you mean '" + nearest + "'?";
  std::string list;
  for (const std::string& known : known_names) list += (list.empty() ? "" : ", ") + known;
  return "; known: " + list;
}

}  // namespace regatta
