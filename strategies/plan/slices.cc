#include "strategies/plan/slices.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace regatta {
namespace {

constexpr int64_t kFp32Bytes = 4;

SlicePlan SliceByElements(const std::vector<ParameterSize>& members, int ranks) {
  int64_t total = 0;
  for (const ParameterSize& member : members) total += member.elements;
  SlicePlan plan;
  plan.slice_elements = (total + ranks - 1) / ranks;
  plan.of_rank.resize(static_cast<size_t>(ranks));
  int64_t start = 0;  // of the parameter, in the unit
  for (size_t p = 0; p < members.size(); ++p) {
    int64_t begin = 0;
    while (begin < members[p].elements) {
      const int64_t rank = (start + begin) / plan.slice_elements;
      const int64_t offset = (start + begin) % plan.slice_elements;
      const int64_t elements = std::min(members[p].elements - begin, plan.slice_elements - offset);
      plan.of_rank[static_cast<size_t>(rank)].push_back({p, begin, elements, offset});
      begin += elements;
    }
    start += members[p].elements;
  }
  return plan;
}

SlicePlan SliceByRows(const std::vector<ParameterSize>& members, int ranks) {
  SlicePlan plan;
  plan.of_rank.resize(static_cast<size_t>(ranks));
  for (size_t p = 0; p < members.size(); ++p) {
    const int64_t row_elements = members[p].elements / std::max<int64_t>(1, members[p].rows);
    const int64_t rows_each = (members[p].rows + ranks - 1) / ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t first = std::min(members[p].rows, rank * rows_each);
      const int64_t rows = std::min(members[p].rows - first, rows_each);
      if (rows == 0) continue;
      plan.of_rank[static_cast<size_t>(rank)].push_back(
          {p, first * row_elements, rows * row_elements, plan.slice_elements});
    }
    plan.slice_elements += rows_each * row_elements;
  }
  return plan;
}

}  // namespace

std::vector<UnitMembers> MakeUnits(UnitKind kind, const std::vector<ParameterSize>& parameters) {
  size_t blocks = 0;
  for (const ParameterSize& parameter : parameters) {
    for (const size_t block : parameter.blocks) blocks = std::max(blocks, block + 1);
  }
  std::vector<size_t> unit_of(blocks);  // by its first block
  std::iota(unit_of.begin(), unit_of.end(), size_t{0});
  const auto join = [&unit_of](size_t a, size_t b) {
    const auto [from, to] = std::minmax(unit_of[a], unit_of[b], std::greater<>());
    std::replace(unit_of.begin(), unit_of.end(), size_t{from}, size_t{to});
  };
  if (kind == UnitKind::kModel) std::fill(unit_of.begin(), unit_of.end(), size_t{0});
  if (kind == UnitKind::kRootAndLayers && blocks > 0) join(0, blocks - 1);
  for (const ParameterSize& parameter : parameters) {
    for (const size_t block : parameter.blocks) join(parameter.blocks[0], block);
  }
  std::vector<UnitMembers> units(blocks);
  for (size_t p = 0; p < parameters.size(); ++p) {
    UnitMembers& unit = units[unit_of[parameters[p].blocks[0]]];
    unit.parameters.push_back(p);
    unit.blocks.insert(unit.blocks.end(), parameters[p].blocks.begin(), parameters[p].blocks.end());
  }
  std::erase_if(units, [](const UnitMembers& unit) { return unit.parameters.empty(); });
  for (UnitMembers& unit : units) {
    std::sort(unit.blocks.begin(), unit.blocks.end());
    unit.blocks.erase(std::unique(unit.blocks.begin(), unit.blocks.end()), unit.blocks.end());
  }
  return units;
}

SlicePlan PlanSlices(SliceKind kind, const std::vector<ParameterSize>& members, int ranks) {
  return kind == SliceKind::kRows ? SliceByRows(members, ranks) : SliceByElements(members, ranks);
}

std::vector<UnitBytes> MeasureUnits(UnitKind kind, SliceKind slices,
                                    const std::vector<ParameterSize>& parameters, int ranks) {
  std::vector<UnitBytes> units;
  for (UnitMembers& unit : MakeUnits(kind, parameters)) {
    std::vector<ParameterSize> members;
    UnitBytes bytes;
    for (const size_t p : unit.parameters) {
      members.push_back(parameters[p]);
      bytes.flat += kFp32Bytes * parameters[p].elements;
      bytes.largest_parameter =
          std::max(bytes.largest_parameter, kFp32Bytes * parameters[p].elements);
    }
    const SlicePlan plan = PlanSlices(slices, members, ranks);
    bytes.blocks = std::move(unit.blocks);
    bytes.slice = kFp32Bytes * plan.slice_elements;
    if (slices == SliceKind::kElements) bytes.flat = bytes.slice * ranks;
    for (const std::vector<Segment>& segments : plan.of_rank) {
      int64_t owned = 0;
      for (const Segment& segment : segments) owned += kFp32Bytes * segment.elements;
      bytes.of_rank.push_back(slices == SliceKind::kElements ? bytes.slice : owned);
    }
    units.push_back(std::move(bytes));
  }
  return units;
}

namespace {

std::vector<int> OwnersInRuns(size_t parameters, int ranks) {
  const size_t each = parameters / static_cast<size_t>(ranks);
  const size_t more = parameters % static_cast<size_t>(ranks);
  std::vector<int> owners;
  for (int rank = 0; rank < ranks; ++rank) {
    owners.insert(owners.end(), each + (static_cast<size_t>(rank) < more ? 1 : 0), rank);
  }
  return owners;
}

std::vector<int> OwnersBySize(const std::vector<int64_t>& elements, int ranks) {
  std::vector<size_t> largest_first(elements.size());
  std::iota(largest_first.begin(), largest_first.end(), size_t{0});
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [&](size_t a, size_t b) { return elements[a] > elements[b]; });
  std::vector<int64_t> load(static_cast<size_t>(ranks));
  std::vector<int> owners(elements.size());
  for (const size_t p : largest_first) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += elements[p];
    owners[p] = static_cast<int>(least - load.begin());
  }
  return owners;
}

}  // namespace

std::vector<int> AssignOwners(Owners how, const std::vector<int64_t>& elements, int ranks) {
  if (how == Owners::kNone) return {};
  return how == Owners::kRuns ? OwnersInRuns(elements.size(), ranks)
                              : OwnersBySize(elements, ranks);
}

}  // namespace regatta
