#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace regatta {

// The program that prepares models and data sets (scripts/prepare) and its first arguments.
// FAILED_PRECONDITION where its Python environment is missing.
[[nodiscard]] absl::StatusOr<std::vector<std::string>> PrepareCommand(
    const std::string& material_folder);

// Fetches material that runs wait for. Start returns at once.
class Preparer {
 public:
  virtual ~Preparer() = default;
  virtual void Start(const std::string& word) = 0;
};

// Prepares one word after the other in a process of its own, with its log in
// STATE/preparation.log; ends what is under way when it is destroyed.
class ProcessPreparer : public Preparer {
 public:
  // Called on the preparer's thread, once for each Start; the message is the program's last line.
  using Ended = std::function<void(const std::string& word, const absl::Status& status)>;

  ProcessPreparer(std::string state_folder, std::string material_folder, Ended ended);
  ~ProcessPreparer() override;
  void Start(const std::string& word) override;

 private:
  struct Body;
  const std::unique_ptr<Body> body_;
};

}  // namespace regatta
