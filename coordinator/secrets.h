#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <string>

namespace regatta {

// Values of an experiment's {secret: true} variables. They live in STATE/secrets/ in a file that
// only its owner reads, until the experiment's last run has ended; nothing else keeps them.
[[nodiscard]] absl::Status WriteSecrets(const std::string& state_folder, int64_t experiment,
                                        const std::map<std::string, std::string>& values);
// Empty where the experiment has none.
[[nodiscard]] absl::StatusOr<std::map<std::string, std::string>> ReadSecrets(
    const std::string& state_folder, int64_t experiment);
void RemoveSecrets(const std::string& state_folder, int64_t experiment);

}  // namespace regatta
