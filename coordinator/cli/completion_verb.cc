#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <cstdio>

#include "coordinator/cli/verbs.h"

namespace regatta {
namespace {

// "run submit ..." or "--set --strict ...": what may follow an app on the command line.
std::string Words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    words.push_back(verb->get_name());
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    for (const std::string& name : option->get_snames()) words.push_back("-" + name);
  }
  return absl::StrJoin(words, " ");
}

// Made from the command line's own table, so that it never lags behind.
std::string BashCompletion(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    absl::StrAppend(&cases, "    ", verb->get_name(), ") words='", Words(*verb), "' ;;\n");
  }
  return absl::StrCat(
      "# Bash completion of regatta. To switch it on: source <(regatta completion bash)\n"
      "_regatta() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} words=''\n"
      "  case ${COMP_WORDS[1]} in\n",
      cases, "    *) words='", Words(app),
      "' ;;\n"
      "  esac\n"
      "  [ \"$COMP_CWORD\" -eq 1 ] && words='",
      Words(app),
      "'\n"
      "  if [[ $word == -* || $COMP_CWORD -eq 1 ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\") $(compgen -f -- \"$word\"))\n"
      "  fi\n"
      "}\n"
      "complete -o filenames -F _regatta regatta\n");
}

}  // namespace

void AddCompletionVerb(CLI::App& app) {
  CLI::App* completion = app.add_subcommand(
      "completion", "Print completion for a shell: source <(regatta completion bash)");
  auto shell = std::make_shared<std::string>("bash");
  completion->add_option("shell", *shell, "Which shell")->check(CLI::IsMember({"bash"}));
  completion->callback([&app] {
    const std::string text = BashCompletion(app);
    std::fwrite(text.data(), 1, text.size(), stdout);
  });
}

}  // namespace regatta
