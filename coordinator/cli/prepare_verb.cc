#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "coordinator/cli/verbs.h"
#include "coordinator/preparation.h"
#include "coordinator/state_folder.h"

namespace regatta {
namespace {

// Becomes the preparation's own program: Python, because tokenizers and wheels are Python's.
void PrepareVerb(CommonOptions& common, const std::string& material,
                 const std::vector<std::string>& arguments) {
  absl::StatusOr<std::vector<std::string>> words = PrepareCommand(material);
  if (!words.ok()) return Fail(common, words.status());
  words->insert(words->end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : *words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  Fail(common,
       absl::InternalError(absl::StrCat("cannot start ", argv[0], ": ", std::strerror(errno))));
}

}  // namespace

void AddPrepareVerb(CLI::App& app, CommonOptions& common) {
  CLI::App* prepare = app.add_subcommand("prepare",
                                         "Fetch and convert models and data sets: minilm-distil, "
                                         "reviews, reviews-subset (default: all)");
  auto material = std::make_shared<std::string>(DefaultMaterialFolder());
  auto names = std::make_shared<std::vector<std::string>>();
  prepare->add_option("name", *names, "What to prepare");
  prepare->add_option("--material", *material, "Folder to put it in")->capture_default_str();
  prepare->callback([&common, material, names] { PrepareVerb(common, *material, *names); });
}

}  // namespace regatta
