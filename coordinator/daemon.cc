#include "coordinator/daemon.h"

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "coordinator/control_service.h"
#include "coordinator/coordinator.h"
#include "coordinator/launcher/local.h"
#include "coordinator/rank_service.h"
#include "coordinator/state_folder.h"
#include "coordinator/status_page.h"
#include "coordinator/version.h"

namespace regatta {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
constexpr int kLeftoverSeconds = 20;

LaunchListener MakeListener(EventQueue& events) {
  return {.spawned =
              [&events](int64_t run, int attempt, int rank, int64_t pid) {
                events.Post(RankSpawned{{run, attempt}, rank, pid});
              },
          .exited =
              [&events](int64_t run, int attempt, int rank, int wait_status, bool killed,
                        std::string last_words) {
                events.Post(
                    RankExited{{run, attempt}, rank, wait_status, killed, std::move(last_words)});
              },
          .gone =
              [&events](int64_t run, int attempt) {
                events.Post(GangGone{{run, attempt}, absl::OkStatus()});
              }};
}

// Gangs that a crashed daemon left behind have no one to report to.
absl::Status EndLeftovers(const StoredState& stored) {
  for (const StoredRun& run : stored.runs) {
    if (run.ended || run.folder.empty()) continue;  // ended, or never started
    spdlog::warn("event=leftover run={} attempt={} folder={}", run.id, run.attempt, run.folder);
    const absl::Status status = LocalLauncher::EndLeftover(run.folder, kLeftoverSeconds);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Blocks the signals that end the daemon in every thread started from now on; the thread below
// takes them.
sigset_t BlockEndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

}  // namespace

absl::Status RunDaemon(const DaemonOptions& options) {
  const sigset_t signals = BlockEndSignals();
  if (options.with_parent) {
    const pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
      return absl::AbortedError("the process that started this one has ended");
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("regattad"));
  absl::StatusOr<std::unique_ptr<StateFolder>> state = StateFolder::Claim(options.state_folder);
  if (!state.ok()) return state.status();
  const std::string& folder = (*state)->Path();
  absl::StatusOr<std::unique_ptr<Writer>> writer = Writer::Open(folder);
  if (!writer.ok()) return writer.status();
  absl::StatusOr<std::unique_ptr<Reader>> reader = Reader::Open(folder);
  if (!reader.ok()) return reader.status();
  const absl::StatusOr<StoredState> stored = ReadStoredState(**reader);
  if (!stored.ok()) return stored.status();
  reader->reset();
  if (absl::Status status = EndLeftovers(*stored); !status.ok()) return status;

  SystemClock clock;
  EventQueue events;
  Rendezvous rendezvous([&events](AttemptKey key) { events.Post(AllJoined{key}); });
  Coordinator coordinator({.state_folder = folder, .slots = options.slots}, clock, events, **writer,
                          rendezvous);
  if (absl::Status status = coordinator.Load(*stored); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<LocalLauncher>> launcher = LocalLauncher::Make(
      {.supervisor_program = std::filesystem::read_symlink("/proc/self/exe").string(),
       .worker_program = options.worker_program,
       .coordinator_address = (*state)->SocketAddress()},
      MakeListener(events));
  if (!launcher.ok()) return launcher.status();
  coordinator.SetLauncher(**launcher);
  ProcessPreparer preparer(folder, std::filesystem::absolute(options.material_folder).string(),
                           [&events](const std::string& word, const absl::Status& status) {
                             if (!status.ok()) {
                               spdlog::warn("event=preparation_failed word={} sentence=\"{}\"",
                                            word, std::string(status.message()));
                             }
                             events.Post(Prepared{word, status});
                           });
  coordinator.SetPreparer(preparer);
  (*writer)->Start([&events](int64_t batch, const absl::Status& status) {
    events.Post(Committed{batch, status});
  });

  std::unique_ptr<StatusPage> page;
  if (options.http_port >= 0) {
    absl::StatusOr<std::unique_ptr<StatusPage>> served =
        StatusPage::Serve(folder, options.http_port);
    if (!served.ok()) return served.status();
    page = *std::move(served);
  }
  const std::string page_url = page == nullptr ? "" : page->Url();
  ControlService control(
      {.state_folder = folder,
       .material_folder = std::filesystem::absolute(options.material_folder).string(),
       .status_page = page_url,
       .slots = options.slots,
       .cores = options.cores},
      events);
  RankServer ranks(coordinator, rendezvous, events);
  grpc::ServerBuilder builder;
  builder.AddListeningPort((*state)->SocketAddress(), grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.RegisterService(&control);
  builder.RegisterService(&ranks);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on ", (*state)->SocketAddress()));
  }
  if (absl::Status status = (*state)->PublishAddress(); !status.ok()) return status;

  std::thread([signals, &events] {
    int signal = 0;
    while (sigwait(&signals, &signal) == 0) events.Post(ShutdownWanted{});
  }).detach();

  spdlog::info("event=ready version={} state={} slots={} page={}", kVersion, folder, options.slots,
               page_url);
  std::printf("ready %s %s\n", (*state)->SocketAddress().c_str(), page_url.c_str());
  std::fflush(stdout);
  const absl::Status status = coordinator.Run();
  if (status.ok()) {
    spdlog::info("event=stopped");
  } else {
    spdlog::error("event=stopped error=\"{}\"", std::string(status.message()));
  }
  // What is decided is on disk. Waiting calls of clients end with the process; unwinding gRPC would
  // wait for them.
  writer->reset();
  page.reset();
  state->reset();
  std::fflush(nullptr);
  _exit(status.ok() ? 0 : 1);
}

}  // namespace regatta
