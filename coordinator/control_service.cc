#include "coordinator/control_service.h"

#include <unistd.h>

#include <algorithm>

#include "coordinator/grpc_status.h"
#include "coordinator/log_file.h"
#include "coordinator/store/reader.h"
#include "coordinator/utf8.h"
#include "coordinator/version.h"

namespace regatta {
namespace {

constexpr double kMaxAwaitSeconds = 60;

void PutCell(const Cell& from, v1::Cell* to) {
  if (const auto* integer = std::get_if<int64_t>(&from)) to->set_integer(*integer);
  if (const auto* real = std::get_if<double>(&from)) to->set_real(*real);
  if (const auto* text = std::get_if<std::string>(&from)) to->set_text(ReplaceInvalidUtf8(*text));
}

}  // namespace

grpc::ServerUnaryReactor* ControlService::Describe(grpc::CallbackServerContext* context,
                                                   const v1::DescribeRequest*,
                                                   v1::DescribeReply* reply) {
  reply->set_version(kVersion);
  reply->set_state_folder(options_.state_folder);
  reply->set_status_page(options_.status_page);
  reply->set_slots(options_.slots);
  reply->set_pid(getpid());
  return Answer(context, absl::OkStatus());
}

// Before anything is queued: a run that cannot have its GPUs would fail in every rank.
absl::Status ControlService::CheckGpus(const Experiment& experiment) const {
  int granted = 0;  // each check takes seconds; who can have so many can have fewer
  for (const PlannedRun& run : experiment.runs) {
    if (run.gpus <= granted || !run.skipped.empty()) continue;
    const std::string wrong = options_.check_gpus(run.gpus);
    if (!wrong.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("run '", run.name, "' asks for device cuda: ", wrong));
    }
    granted = run.gpus;
  }
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* ControlService::Submit(grpc::CallbackServerContext* context,
                                                 const v1::SubmitRequest* request,
                                                 v1::SubmitReply* reply) {
  if (request->token().empty())
    return Answer(context, absl::InvalidArgumentError("the submission lacks its token"));
  absl::StatusOr<Experiment> experiment = ParseExperiment(
      {.text = request->text(),
       .sets = {request->sets().begin(), request->sets().end()},
       .strict = request->strict()},
      {.file_name = request->file_name(),
       .folder = request->folder(),
       .material = options_.material_folder,
       .cores = options_.cores,
       .environment = {request->environment().begin(), request->environment().end()}});
  if (!experiment.ok()) return Answer(context, experiment.status());
  if (const absl::Status gpus = CheckGpus(*experiment); !gpus.ok()) return Answer(context, gpus);
  for (const std::string& warning : experiment->warnings) reply->add_warnings(warning);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  events_.Post(Submitted{*std::move(experiment), request->token(),
                         [reactor, reply](absl::StatusOr<Submitted::Ids> ids) {
                           if (ids.ok()) {
                             reply->set_experiment(ids->experiment);
                             for (const int64_t run : ids->runs) reply->add_runs(run);
                           }
                           reactor->Finish(ToGrpc(ids.status()));
                         }});
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Cancel(grpc::CallbackServerContext* context,
                                                 const v1::CancelRequest* request,
                                                 v1::CancelReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  events_.Post(CancelWanted{{request->runs().begin(), request->runs().end()},
                            {request->experiments().begin(), request->experiments().end()},
                            [reactor, reply](absl::StatusOr<CancelWanted::Counts> counts) {
                              if (counts.ok()) {
                                reply->set_cancelled(counts->cancelled);
                                reply->set_already_ended(counts->already_ended);
                              }
                              reactor->Finish(ToGrpc(counts.status()));
                            }});
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Query(grpc::CallbackServerContext* context,
                                                const v1::QueryRequest* request,
                                                v1::QueryReply* reply) {
  absl::StatusOr<std::unique_ptr<Reader>> reader = Reader::Open(options_.state_folder);
  if (!reader.ok()) return Answer(context, reader.status());
  const absl::StatusOr<Table> table = (*reader)->Query(
      request->sql(), {request->parameters().begin(), request->parameters().end()});
  if (!table.ok()) return Answer(context, table.status());
  for (const std::string& column : table->columns) reply->add_columns(column);
  for (const auto& row : table->rows) {
    v1::Row* to = reply->add_rows();
    for (const Cell& cell : row) PutCell(cell, to->add_cells());
  }
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ControlService::Await(grpc::CallbackServerContext* context,
                                                const v1::AwaitRequest* request,
                                                v1::AwaitReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const double seconds =
      std::clamp(static_cast<double>(request->timeout_ms()) / 1000, 0.0, kMaxAwaitSeconds);
  events_.Post(AwaitWanted{request->after_commit(), seconds, [reactor, reply](int64_t commit) {
                             reply->set_commit(commit);
                             reactor->Finish(grpc::Status::OK);
                           }});
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::ReadLog(grpc::CallbackServerContext* context,
                                                  const v1::ReadLogRequest* request,
                                                  v1::ReadLogReply* reply) {
  const absl::StatusOr<LogChunk> chunk =
      ReadLogChunk(options_.state_folder, {.run = request->run(),
                                           .attempt = request->attempt(),
                                           .rank = request->rank(),
                                           .offset = request->offset(),
                                           .since_us = request->since_us()});
  if (chunk.ok()) {
    reply->set_data(chunk->data);
    reply->set_next_offset(chunk->next_offset);
    reply->set_size(chunk->size);
  }
  return Answer(context, chunk.status());
}

}  // namespace regatta
