#include "worker/shapes/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace regatta {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

size_t BytesOf(const std::string& dtype) {
  static const std::map<std::string, size_t> sizes = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

[[noreturn]] void Fail(const std::string& sentence) { throw std::runtime_error(sentence); }

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)) {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) Fail(path_ + " cannot be read: " + std::strerror(errno));
  struct stat info {};
  const bool known = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  size_ = known ? static_cast<size_t>(info.st_size) : 0;
  void* map =
      size_ >= kLengthBytes ? mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  close(fd);
  if (map == MAP_FAILED) {
    Fail(path_ + " is no safetensors file: " + std::to_string(size_) + " bytes");
  }
  map_ = static_cast<const std::byte*>(map);
  try {
    ReadHeader();
  } catch (...) {
    munmap(map, size_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { munmap(const_cast<std::byte*>(map_), size_); }

void SafetensorsFile::ReadHeader() {
  uint64_t length = 0;
  std::memcpy(&length, map_, kLengthBytes);
  if (length > kMaxHeaderBytes || length > size_ - kLengthBytes) {
    Fail(path_ + " is no safetensors file, or cut off: its header would have " +
         std::to_string(length) + " bytes of " + std::to_string(size_));
  }
  const auto* text = reinterpret_cast<const char*>(map_ + kLengthBytes);
  const nlohmann::json header = nlohmann::json::parse(text, text + length, nullptr, false);
  if (!header.is_object()) {
    Fail(path_ + " is no safetensors file: its header is not a JSON object");
  }
  const std::byte* data = map_ + kLengthBytes + length;
  const uint64_t data_size = size_ - kLengthBytes - length;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, note] : value.items()) {
        if (note.is_string()) metadata_[key] = note;
      }
      continue;
    }
    const auto bad = [&, &tensor = name](const std::string& why) {
      Fail(path_ + ": tensor '" + tensor + "' " + why);
    };
    if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
        !value.contains("shape") || !value["shape"].is_array() || !value.contains("data_offsets") ||
        !value["data_offsets"].is_array() || value["data_offsets"].size() != 2) {
      bad("lacks dtype, shape or data_offsets");
    }
    Entry entry;
    entry.dtype = value["dtype"];
    uint64_t count = BytesOf(entry.dtype);
    if (count == 0) bad("has the unknown dtype " + entry.dtype);
    for (const auto& dimension : value["shape"]) {
      if (!dimension.is_number_unsigned()) bad("has a shape that is not made of sizes");
      const auto extent = dimension.get<uint64_t>();
      if (extent != 0 && count > size_ / extent) bad("is larger than the file");
      count *= extent;
      entry.shape.push_back(static_cast<int64_t>(extent));
    }
    for (const auto& offset : value["data_offsets"]) {
      if (!offset.is_number_unsigned()) bad("has offsets that are not numbers");
    }
    const auto begin = value["data_offsets"][0].get<uint64_t>();
    const auto end = value["data_offsets"][1].get<uint64_t>();
    if (end < begin || end - begin != count) bad("has offsets that do not match its shape");
    if (end > data_size) {
      bad("ends at byte " + std::to_string(end) + " of " + std::to_string(data_size) +
          ": the file is cut off");
    }
    entry.data = data + begin;
    entry.bytes = count;
    entries_[name] = std::move(entry);
  }
}

const SafetensorsFile::Entry& SafetensorsFile::Get(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    Fail(path_ + " has no tensor '" + name + "'; it holds " + std::to_string(entries_.size()) +
         (entries_.empty() ? "" : ", the first is '" + entries_.begin()->first + "'"));
  }
  return found->second;
}

void SafetensorsFile::Release(const Entry& entry) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(entry.data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(entry.data) + entry.bytes) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace regatta
