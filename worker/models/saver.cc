#include "worker/models/saver.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "worker/shapes/model_shapes.h"

namespace regatta {
namespace {

// A file that is on disk when Close returns.
class DurableFile {
 public:
  explicit DurableFile(std::string path)
      : path_(std::move(path)),
        fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (fd_ < 0) Fail();
  }
  ~DurableFile() {
    if (fd_ >= 0) close(fd_);
  }
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void Write(const void* data, size_t bytes) {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = write(fd_, from, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) Fail();
      from += written;
      bytes -= static_cast<size_t>(written);
    }
  }
  void Close() {
    if (fsync(fd_) != 0) Fail();
    close(fd_);
    fd_ = -1;
  }

 private:
  [[noreturn]] void Fail() {
    throw std::runtime_error("the model cannot be saved: " + path_ + ": " + std::strerror(errno));
  }

  const std::string path_;
  int fd_;
};

void WriteText(const std::string& path, const std::string& text) {
  DurableFile file(path);
  file.Write(text.data(), text.size());
  file.Close();
}

void WriteWeights(const std::string& path, const std::vector<NamedTensor>& parameters) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t end = 0;
  for (const NamedTensor& parameter : parameters) {
    const int64_t begin = end;
    end += static_cast<int64_t>(parameter.tensor.nbytes());
    header[parameter.name] = {{"dtype", "F32"},
                              {"shape", parameter.tensor.sizes().vec()},
                              {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // data begins at a multiple of 8
  const uint64_t length = text.size();
  DurableFile file(path);
  file.Write(&length, sizeof(length));
  file.Write(text.data(), text.size());
  for (const NamedTensor& parameter : parameters) {
    const at::Tensor flat = parameter.tensor.detach().cpu().contiguous();
    TORCH_CHECK(flat.scalar_type() == at::kFloat, "parameter ", parameter.name, " is not fp32");
    file.Write(flat.data_ptr(), flat.nbytes());
  }
  file.Close();
}

// What transformers needs beside the keys that an experiment may set inline.
nlohmann::json CompleteConfig(nlohmann::json config) {
  config["architectures"] = {config["model_type"] == "llama"
                                 ? "LlamaForSequenceClassification"
                                 : "DistilBertForSequenceClassification"};
  config["torch_dtype"] = "float32";
  config["problem_type"] = "single_label_classification";
  if (config.contains("id2label")) return config;
  const int64_t labels = config.value("num_labels", int64_t{2});
  for (int64_t i = 0; i < labels; ++i) {
    const std::string name = "LABEL_" + std::to_string(i);
    config["id2label"][std::to_string(i)] = name;
    config["label2id"][name] = i;
  }
  config.erase("num_labels");  // transformers takes it from id2label
  return config;
}

}  // namespace

void SaveModel(const std::string& folder, const decltype(RunSpec::model)& spec,
               const std::vector<NamedTensor>& parameters) {
  namespace fs = std::filesystem;
  const std::string part = folder + ".part";
  fs::remove_all(part);
  fs::create_directories(part);
  try {
    WriteWeights(part + "/model.safetensors", parameters);
    WriteText(part + "/config.json",
              CompleteConfig(nlohmann::json::parse(spec.config_json)).dump(2) + "\n");
    for (const char* name :
         {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
      const std::string from = spec.folder + "/" + name;
      if (!spec.folder.empty() && fs::exists(from)) fs::copy_file(from, part + "/" + name);
    }
    fs::rename(part, folder);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(part, ignored);
    throw;
  }
}

}  // namespace regatta
