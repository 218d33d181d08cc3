#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "strategies/collectives/collectives.h"
#include "strategies/model.h"

namespace regatta {

// What all ranks must have alike: names with what this rank has.
using AgreementItems = std::vector<std::pair<std::string, std::string>>;

// Refuses ranks that differ, on every rank with the same sentence: the first item in which one
// differs from rank 0, and both values. One small collective where all agree.
void CheckAgreement(const AgreementItems& items, Collectives& world);

// Not cryptographic: eight bytes a turn, four turns side by side, so that a model's weights take
// about as long as reading them.
[[nodiscard]] uint64_t HashBytes(const void* data, size_t bytes);

// Each parameter with its shape, type and a hash of its initial values, which are read part by
// part: no rank needs memory for all of them.
[[nodiscard]] AgreementItems DescribeParameters(const Model& model);

}  // namespace regatta
