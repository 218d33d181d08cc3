#include "coordinator/rank_service.h"

#include <grpcpp/alarm.h>

#include <chrono>
#include <memory>

#include "coordinator/grpc_status.h"

namespace regatta {
namespace {

RankCaller Caller(const v1::RankId& id) {
  return {{id.run(), id.attempt()}, id.rank(), id.token()};
}

NamedNumbers ReadValues(const google::protobuf::RepeatedPtrField<v1::Value>& values) {
  NamedNumbers numbers;
  for (const v1::Value& value : values) numbers.emplace_back(value.name(), value.number());
  return numbers;
}

NamedTexts ReadFacts(const google::protobuf::RepeatedPtrField<v1::Fact>& facts) {
  NamedTexts texts;
  for (const v1::Fact& fact : facts) texts.emplace_back(fact.name(), fact.text());
  return texts;
}

// The deadline of a waiting Get; shared by the alarm's callback and the answer, whichever comes
// last frees it.
struct Deadline {
  grpc::Alarm alarm;
};

}  // namespace

grpc::ServerUnaryReactor* RankServer::Join(grpc::CallbackServerContext* context,
                                           const v1::JoinRequest* request, v1::JoinReply* reply) {
  const RankCaller caller = Caller(request->id());
  if (absl::Status status = rendezvous_.Check(caller); !status.ok()) return Answer(context, status);
  const std::shared_ptr<const v1::RunSpec> spec = coordinator_.FindSpec(caller.key);
  if (spec == nullptr) return Answer(context, absl::FailedPreconditionError("the run has ended"));
  // Posted first: the loop must hear of a rank before it hears that all are there.
  events_.Post(RankJoined{caller.key, caller.rank, ReadFacts(request->facts())});
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status status =
      rendezvous_.Join(caller, [reactor, reply, spec](const absl::Status& joined) {
        if (joined.ok()) *reply->mutable_spec() = *spec;
        reactor->Finish(ToGrpc(joined));
      });
  if (!status.ok()) reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* RankServer::Set(grpc::CallbackServerContext* context,
                                          const v1::SetRequest* request, v1::SetReply*) {
  return Answer(context, rendezvous_.Set(Caller(request->id()),
                                         {request->keys().begin(), request->keys().end()},
                                         {request->values().begin(), request->values().end()}));
}

grpc::ServerUnaryReactor* RankServer::Get(grpc::CallbackServerContext* context,
                                          const v1::GetRequest* request, v1::GetReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto deadline = std::make_shared<Deadline>();
  const absl::StatusOr<uint64_t> waiting =
      rendezvous_.Get(Caller(request->id()), {request->keys().begin(), request->keys().end()},
                      [reactor, reply, deadline, wanted = request->values_wanted()](
                          absl::StatusOr<Rendezvous::Values> values) {
                        deadline->alarm.Cancel();
                        if (values.ok() && wanted) {
                          for (std::string& value : *values) reply->add_values(std::move(value));
                        }
                        reactor->Finish(ToGrpc(values.status()));
                      });
  if (!waiting.ok()) {
    reactor->Finish(ToGrpc(waiting.status()));
  } else if (*waiting != 0) {
    const auto at =
        std::chrono::system_clock::now() + std::chrono::milliseconds(request->timeout_ms());
    // Where the answer came in between, Expire finds nothing to end.
    deadline->alarm.Set(at, [this, deadline, number = *waiting](bool expired) {
      if (expired) rendezvous_.Expire(number);
    });
  }
  return reactor;
}

grpc::ServerUnaryReactor* RankServer::Add(grpc::CallbackServerContext* context,
                                          const v1::AddRequest* request, v1::AddReply* reply) {
  const absl::StatusOr<int64_t> sum =
      rendezvous_.Add(Caller(request->id()), request->key(), request->amount());
  if (sum.ok()) reply->set_sum(*sum);
  return Answer(context, sum.status());
}

grpc::ServerUnaryReactor* RankServer::CompareSet(grpc::CallbackServerContext* context,
                                                 const v1::CompareSetRequest* request,
                                                 v1::CompareSetReply* reply) {
  const absl::StatusOr<std::string> value = rendezvous_.CompareSet(
      Caller(request->id()), request->key(), request->expected(), request->desired());
  if (value.ok()) reply->set_value(*value);
  return Answer(context, value.status());
}

grpc::ServerUnaryReactor* RankServer::Append(grpc::CallbackServerContext* context,
                                             const v1::AppendRequest* request, v1::AppendReply*) {
  return Answer(context,
                rendezvous_.Append(Caller(request->id()), request->key(), request->value()));
}

grpc::ServerUnaryReactor* RankServer::Delete(grpc::CallbackServerContext* context,
                                             const v1::DeleteRequest* request,
                                             v1::DeleteReply* reply) {
  const absl::StatusOr<bool> existed = rendezvous_.Delete(Caller(request->id()), request->key());
  if (existed.ok()) reply->set_existed(*existed);
  return Answer(context, existed.status());
}

grpc::ServerUnaryReactor* RankServer::Check(grpc::CallbackServerContext* context,
                                            const v1::CheckRequest* request,
                                            v1::CheckReply* reply) {
  const absl::StatusOr<bool> all =
      rendezvous_.HasAll(Caller(request->id()), {request->keys().begin(), request->keys().end()});
  if (all.ok()) reply->set_all_exist(*all);
  return Answer(context, all.status());
}

grpc::ServerUnaryReactor* RankServer::ListKeys(grpc::CallbackServerContext* context,
                                               const v1::ListKeysRequest* request,
                                               v1::ListKeysReply* reply) {
  absl::StatusOr<Rendezvous::Values> keys = rendezvous_.ListKeys(Caller(request->id()));
  if (keys.ok()) {
    for (std::string& key : *keys) reply->add_keys(std::move(key));
  }
  return Answer(context, keys.status());
}

grpc::ServerUnaryReactor* RankServer::Report(grpc::CallbackServerContext* context,
                                             const v1::ReportRequest* request, v1::ReportReply*) {
  const RankCaller caller = Caller(request->id());
  const absl::Status status = rendezvous_.Check(caller);
  if (status.ok()) {
    RankReported event{caller.key, caller.rank, request->planned_steps(), {}, {}};
    for (const v1::Trace& trace : request->traces()) {
      event.traces.push_back({caller.key.run, caller.key.attempt, caller.rank, trace.path(),
                              trace.bytes(), trace.first_step(), trace.steps()});
    }
    for (const v1::StepValues& step : request->steps())
      event.steps.emplace_back(step.step(), ReadValues(step.values()));
    events_.Post(std::move(event));
  }
  return Answer(context, status);  // samples may lag: not kept waiting for the disk
}

grpc::ServerUnaryReactor* RankServer::Finish(grpc::CallbackServerContext* context,
                                             const v1::FinishRequest* request, v1::FinishReply*) {
  const RankCaller caller = Caller(request->id());
  if (absl::Status status = rendezvous_.Check(caller); !status.ok()) return Answer(context, status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  events_.Post(RankFinished{caller.key, caller.rank, request->ok(), request->sentence(),
                            request->exit_code(), ReadValues(request->values()),
                            ReadFacts(request->facts()),
                            [reactor] { reactor->Finish(grpc::Status::OK); }});
  return reactor;
}

}  // namespace regatta
