#pragma once

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/testing/temporary_folder.h"
#include "worker/shapes/model_shapes.h"

namespace regatta {

// A safetensors file of zeros with all parameters of the config, as a folder of a model holds it.
inline std::string ZeroWeights(const nlohmann::json& config) {
  nlohmann::json header;
  uint64_t bytes = 0;
  for (const ParameterShape& shape : FindModelKind(config)->shapes(config)) {
    const auto size = static_cast<uint64_t>(4 * shape.Elements());
    header[shape.name] = {
        {"dtype", "F32"}, {"shape", shape.shape}, {"data_offsets", {bytes, bytes + size}}};
    bytes += size;
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  file.append(text);
  file.append(bytes, '\0');
  return file;
}

inline void WriteModelFolder(const TemporaryFolder& folder, const std::string& name,
                             const nlohmann::json& config) {
  folder.Write(name + "/config.json", config.dump());
  folder.Write(name + "/model.safetensors", ZeroWeights(config));
}

}  // namespace regatta
