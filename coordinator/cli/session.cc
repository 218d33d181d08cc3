#include "coordinator/cli/session.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "coordinator/grpc_status.h"
#include "coordinator/launcher/child.h"
#include "coordinator/state_folder.h"
#include "coordinator/token.h"
#include "regatta/v1/control.grpc.pb.h"

extern char** environ;

namespace regatta {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
constexpr auto kCallTime = std::chrono::seconds(90);

Cell ReadCell(const v1::Cell& cell) {
  switch (cell.value_case()) {
    case v1::Cell::kInteger:
      return cell.integer();
    case v1::Cell::kReal:
      return cell.real();
    case v1::Cell::kText:
      return cell.text();
    default:
      return std::monostate();
  }
}

}  // namespace

struct Session::Body {
  std::string state_folder;
  std::unique_ptr<v1::Control::Stub> stub;  // null: no daemon
  std::unique_ptr<Reader> reader;           // without a daemon

  template <typename Request, typename Reply>
  absl::Status Call(grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Reply*),
                    const Request& request, Reply* reply) {
    if (stub == nullptr) return FindDaemon(state_folder).status();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTime);
    const grpc::Status status = (stub.get()->*method)(&context, request, reply);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      return absl::UnavailableError(absl::StrCat("the coordinator on state folder '", state_folder,
                                                 "' does not answer (", status.error_message(),
                                                 "); start one: regattad --state ", state_folder));
    }
    return FromGrpc(status);
  }
};

Session::Session(std::unique_ptr<Body> body) : body_(std::move(body)) {}
Session::~Session() = default;

absl::StatusOr<std::unique_ptr<Session>> Session::Connect(const std::string& state_folder) {
  const absl::StatusOr<std::string> address = FindDaemon(state_folder);
  if (!address.ok()) return address.status();
  auto body = std::make_unique<Body>();
  body->state_folder = state_folder;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  body->stub = v1::Control::NewStub(
      grpc::CreateCustomChannel(*address, grpc::InsecureChannelCredentials(), arguments));
  v1::DescribeReply reply;
  if (absl::Status status = body->Call(&v1::Control::Stub::Describe, v1::DescribeRequest(), &reply);
      !status.ok()) {
    return status;
  }
  return std::unique_ptr<Session>(new Session(std::move(body)));
}

absl::StatusOr<std::unique_ptr<Session>> Session::ConnectOrRead(const std::string& state_folder) {
  absl::StatusOr<std::unique_ptr<Session>> connected = Connect(state_folder);
  if (connected.ok() || !absl::IsUnavailable(connected.status())) return connected;
  absl::StatusOr<std::unique_ptr<Reader>> reader = Reader::Open(state_folder);
  if (absl::IsNotFound(reader.status()))
    return connected.status();  // nothing there: say how to start
  if (!reader.ok()) return reader.status();
  auto body = std::make_unique<Body>();
  body->state_folder = state_folder;
  body->reader = *std::move(reader);
  return std::unique_ptr<Session>(new Session(std::move(body)));
}

bool Session::HasDaemon() const { return body_->stub != nullptr; }

absl::StatusOr<Session::Ids> Session::Submit(const ExperimentFile& file) {
  v1::SubmitRequest request;
  request.set_text(file.source.text);
  request.set_file_name(file.name);
  request.set_folder(file.folder);
  for (const std::string& set : file.source.sets) request.add_sets(set);
  request.set_strict(file.source.strict);
  request.mutable_environment()->insert(file.environment.begin(), file.environment.end());
  request.set_token(MakeToken());
  v1::SubmitReply reply;
  if (absl::Status status = body_->Call(&v1::Control::Stub::Submit, request, &reply); !status.ok())
    return status;
  return Ids{reply.experiment(),
             {reply.runs().begin(), reply.runs().end()},
             {reply.warnings().begin(), reply.warnings().end()}};
}

absl::StatusOr<std::pair<int64_t, int64_t>> Session::Cancel(
    const std::vector<int64_t>& runs, const std::vector<int64_t>& experiments) {
  v1::CancelRequest request;
  for (const int64_t run : runs) request.add_runs(run);
  for (const int64_t experiment : experiments) request.add_experiments(experiment);
  v1::CancelReply reply;
  if (absl::Status status = body_->Call(&v1::Control::Stub::Cancel, request, &reply); !status.ok())
    return status;
  return std::make_pair(reply.cancelled(), reply.already_ended());
}

absl::StatusOr<int64_t> Session::Await(int64_t after, int64_t timeout_ms) {
  v1::AwaitRequest request;
  request.set_after_commit(after);
  request.set_timeout_ms(timeout_ms);
  v1::AwaitReply reply;
  if (absl::Status status = body_->Call(&v1::Control::Stub::Await, request, &reply); !status.ok())
    return status;
  return reply.commit();
}

absl::StatusOr<Table> Session::Query(const std::string& sql,
                                     const std::vector<std::string>& parameters) {
  if (body_->reader != nullptr) return body_->reader->Query(sql, parameters);
  v1::QueryRequest request;
  request.set_sql(sql);
  for (const std::string& parameter : parameters) request.add_parameters(parameter);
  v1::QueryReply reply;
  if (absl::Status status = body_->Call(&v1::Control::Stub::Query, request, &reply); !status.ok())
    return status;
  Table table;
  table.columns.assign(reply.columns().begin(), reply.columns().end());
  for (const v1::Row& row : reply.rows()) {
    std::vector<Cell>& cells = table.rows.emplace_back();
    for (const v1::Cell& cell : row.cells()) cells.push_back(ReadCell(cell));
  }
  return table;
}

absl::StatusOr<LogChunk> Session::ReadLog(const LogPlace& place) {
  if (body_->reader != nullptr) return ReadLogChunk(body_->state_folder, place);
  v1::ReadLogRequest request;
  request.set_run(place.run);
  request.set_attempt(place.attempt);
  request.set_rank(place.rank);
  request.set_offset(place.offset);
  request.set_since_us(place.since_us);
  v1::ReadLogReply reply;
  if (absl::Status status = body_->Call(&v1::Control::Stub::ReadLog, request, &reply); !status.ok())
    return status;
  return LogChunk{reply.data(), reply.next_offset(), reply.size()};
}

absl::StatusOr<std::unique_ptr<PrivateDaemon>> PrivateDaemon::Start(const Options& options) {
  const std::string program =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "regattad").string();
  std::error_code error;
  std::filesystem::create_directories(options.state_folder, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("state folder '", options.state_folder, "': ", error.message()));
  }
  const std::string log = options.state_folder + "/regattad.log";
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0)
    return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ready[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Ctrl-C is for this process: it cancels first, and the daemon must live to do so.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  std::vector<std::string> words = {program, "--with-parent", "--state", options.state_folder};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int failed =
      posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(ready[1]);
  std::string line;
  char c = 0;
  while (failed == 0 && line.find('\n') == std::string::npos && read(ready[0], &c, 1) == 1)
    line += c;
  close(ready[0]);
  if (failed != 0)
    return absl::InternalError(absl::StrCat("cannot start ", program, ": ", std::strerror(failed)));
  std::istringstream words_of_line(line);
  std::string word;
  std::string address;
  std::string page;
  words_of_line >> word >> address >> page;
  if (word == "ready") return std::unique_ptr<PrivateDaemon>(new PrivateDaemon(pid, page));
  waitpid(pid, nullptr, 0);
  return absl::FailedPreconditionError(
      absl::StrCat("the private coordinator did not start: ", LastLines(log, 1)));
}

PrivateDaemon::~PrivateDaemon() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

}  // namespace regatta
