#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "coordinator/daemon.h"
#include "coordinator/experiment/values.h"
#include "coordinator/launcher/supervise.h"
#include "coordinator/state_folder.h"
#include "coordinator/version.h"

// regattad: the coordinator daemon. `regattad supervise FOLDER` is what it starts for itself, once
// a gang.
int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "supervise") == 0) return regatta::Supervise(argv[2]);

  regatta::DaemonOptions options;
  options.state_folder = regatta::DefaultStateFolder();
  options.material_folder = regatta::DefaultMaterialFolder();
  options.worker_program =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "regatta-worker").string();
  CLI::App app(
      "regattad: queues runs, starts their ranks, and records what they did.\n"
      "Submit experiments to it with: regatta submit FILE");
  app.set_version_flag("--version", regatta::kVersion);
  app.add_option("--state", options.state_folder, "Folder of the database and the logs")
      ->capture_default_str();
  app.add_option("--material", options.material_folder, "Folder of prepared models and data")
      ->capture_default_str();
  app.add_option("--slots", options.slots, "Ranks that may run at once (default: the cores)")
      ->check(CLI::Range(1, 1000000));
  app.add_option_function<std::string>(
      "--keep-logs",
      [&options](const std::string& text) {
        if (!regatta::ParseDuration(text, &options.keep_logs.max_age_seconds))
          throw CLI::ValidationError("--keep-logs", "'" + text + "'; 12h or 30d is right");
      },
      "Remove logs of attempts that ended longer ago, such as 30d (default: keep all)");
  app.add_option_function<std::string>(
      "--keep-log-bytes",
      [&options](const std::string& text) {
        if (!regatta::ParseSize(text, &options.keep_logs.max_bytes))
          throw CLI::ValidationError("--keep-log-bytes", "'" + text + "'; 500MiB or 20GB is right");
      },
      "Remove the oldest logs of ended attempts beyond this size, such as 20GB (default: keep all)");
  app.add_option("--worker", options.worker_program, "Program that a rank runs")
      ->capture_default_str();
  app.add_option("--http", options.http_port,
                 "Port of the status page on 127.0.0.1; 0: any free one, -1: none")
      ->check(CLI::Range(-1, 65535))
      ->capture_default_str();
  app.add_flag("--with-parent", options.with_parent,
               "End when the process that started this one ends");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  const absl::Status status = regatta::RunDaemon(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "regattad: %s\n", std::string(status.message()).c_str());
  return 1;
}
