#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace regatta {

// A safetensors file, mapped read-only: 8 bytes little-endian header length, a JSON header of
// {name: {"dtype", "shape", "data_offsets": [begin, end]}}, then the data (huggingface/safetensors,
// format). Everything is checked when it is opened: sizes, bounds, overlaps with the end, known
// types. Throws std::runtime_error with a sentence naming the file and the tensor.
class SafetensorsFile {
 public:
  struct Entry {
    std::string dtype;  // F32, BF16, F16, I64, I32, ...
    std::vector<int64_t> shape;
    const std::byte* data = nullptr;
    size_t bytes = 0;
  };

  explicit SafetensorsFile(std::string path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  [[nodiscard]] const std::string& Path() const { return path_; }
  // Throws where the tensor is missing.
  [[nodiscard]] const Entry& Get(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, Entry>& Entries() const { return entries_; }
  // Gives the whole pages of a tensor that has been copied back to the system, so that loading a
  // model never holds two copies of it. They are read again from the file if they are needed again.
  void Release(const Entry& entry) const;
  // The header's free texts.
  [[nodiscard]] const std::map<std::string, std::string>& Metadata() const { return metadata_; }

 private:
  void ReadHeader();

  const std::string path_;
  const std::byte* map_ = nullptr;
  size_t size_ = 0;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace regatta
