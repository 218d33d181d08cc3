#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "coordinator/cli/verbs.h"
#include "coordinator/state_folder.h"

#ifndef REGATTA_SOURCE_FOLDER
#error "the build must say where scripts/prepare is"
#endif

namespace regatta {
namespace {

// Becomes the preparation's own program: Python, because tokenizers and wheels are Python's.
void PrepareVerb(CommonOptions& common, const std::string& material,
                 const std::vector<std::string>& names) {
  const std::string source = REGATTA_SOURCE_FOLDER;
  const std::string python = source + "/.venv/bin/python";
  if (!std::filesystem::exists(python)) {
    return Fail(common, absl::FailedPreconditionError(absl::StrCat(
                            python, " is missing; install the preparation's packages: ", source,
                            "/scripts/setup.sh")));
  }
  std::vector<std::string> words = {python, source + "/scripts/prepare", "--to", material};
  words.insert(words.end(), names.begin(), names.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  Fail(common,
       absl::InternalError(absl::StrCat("cannot start ", python, ": ", std::strerror(errno))));
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
