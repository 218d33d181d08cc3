#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
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
  CLI::App* prepare = app.add_subcommand("prepare", "Fetch and convert models and data sets");
  prepare->footer(
      "Words (default: minilm-distil reviews reviews-subset):\n"
      "  minilm-distil, smollm2-135m        models that need no hub\n"
      "  org/name, org/name@revision, DIR   a model of a hub, or of a folder, with a 5-label head\n"
      "  reviews:smollm2-135m               a data set for a model (without one: minilm-distil)\n"
      "  reviews, reviews-subset, reviews-long, yelp, yelp-subset, org/data\n"
      "  NAME:MODEL --from rows.csv         texts of your own: parquet, csv, tsv or jsonl\n"
      "HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE and HF_TOKEN count as for every program of that hub.");
  auto material = std::make_shared<std::string>(DefaultMaterialFolder());
  auto words = std::make_shared<std::vector<std::string>>();
  auto verify = std::make_shared<bool>(false);
  // Passed on as they are: the preparation's program checks them.
  constexpr std::pair<const char*, const char*> kPassedOn[] = {
      {"--from", "File of texts and labels, with a column of each"},
      {"--eval-from", "File of the rows to evaluate on; default: a tenth of the texts, by hash"},
      {"--text", "Column of the texts; default: text, sentence, content or review"},
      {"--label", "Column of the labels; default: label, labels, stars or rating"}};
  auto passed = std::make_shared<std::map<std::string, std::string>>();
  prepare->add_option("word", *words, "What to prepare");
  prepare->add_option("--material", *material, "Folder to put it in")->capture_default_str();
  prepare->add_flag("--verify", *verify, "Check the hashes of what is there already");
  for (const auto& [name, help] : kPassedOn) prepare->add_option(name, (*passed)[name], help);
  prepare->callback([&common, material, words, verify, passed] {
    std::vector<std::string> arguments;
    for (const std::string& word : *words) {
      // As an experiment names a folder; the preparation knows absolute paths alone.
      const bool is_path = word.starts_with(".");
      arguments.push_back(is_path ? std::filesystem::absolute(word).lexically_normal().string()
                                  : word);
    }
    if (*verify) arguments.emplace_back("--verify");
    for (const auto& [name, value] : *passed) {
      if (!value.empty()) arguments.insert(arguments.end(), {name, value});
    }
    PrepareVerb(common, *material, arguments);
  });
}

}  // namespace regatta
