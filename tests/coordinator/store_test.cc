#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <future>
#include <limits>
#include <thread>

#include "coordinator/store/reader.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/stored_state.h"
#include "coordinator/store/writer.h"
#include "tests/testing/stored_run.h"
#include "tests/testing/temporary_folder.h"

namespace regatta {
namespace {

using testing::HasSubstr;

class StoreTest : public testing::Test {
 protected:
  // Writes and waits for the disk.
  absl::Status Write(std::vector<Change> changes) {
    if (writer_ == nullptr) {
      auto writer = Writer::Open(folder_.Path());
      if (!writer.ok()) return writer.status();
      writer_ = *std::move(writer);
      writer_->Start([this](int64_t, const absl::Status& status) { answers_.set_value(status); });
    }
    answers_ = {};
    writer_->Submit(++batch_, std::move(changes));
    return answers_.get_future().get();
  }
  absl::StatusOr<Table> Query(const std::string& sql,
                              const std::vector<std::string>& parameters = {}) {
    auto reader = Reader::Open(folder_.Path());
    if (!reader.ok()) return reader.status();
    return (*reader)->Query(sql, parameters);
  }
  std::vector<Change> OneRun() {
    return {NewExperiment{1, "token", "e", "", "text", "{}", 1, 60, 0, 0, 5},
            StoredRunOf(1, "PENDING"), NewAttempt{1, 1, "/folder", 1, 6}};
  }

  TemporaryFolder folder_;
  std::unique_ptr<Writer> writer_;
  int64_t batch_ = 0;
  std::promise<absl::Status> answers_;
};

TEST_F(StoreTest, NanAndInfinitiesSurvive) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<Change> changes = OneRun();
  changes.push_back(
      Samples{1, 1, 0, 3, {{"loss", nan}, {"speed", inf}, {"slow", -inf}, {"small", 5e-324}}});
  ASSERT_TRUE(Write(changes).ok());
  const auto table = Query("select name, value from steps order by name");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(CellText(table->rows[0][1]), "NaN");
  EXPECT_EQ(CellText(table->rows[1][1]), "-Infinity");
  EXPECT_EQ(CellText(table->rows[2][1]), "5e-324");
  EXPECT_EQ(CellText(table->rows[3][1]), "Infinity");
}

TEST_F(StoreTest, ABatchThatFailsLeavesNothingAndNothingAfterItIsWritten) {
  ASSERT_TRUE(Write(OneRun()).ok());
  const absl::Status failed = Write(
      {EventNote{1, 1, 1, "half"}, NewExperiment{1, "other", "e", "", "", "{}", 1, 60, 0, 0, 5}});
  EXPECT_EQ(failed.code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(Write({EventNote{1, 1, 1, "later"}}).ok());
  EXPECT_TRUE(Query("select * from events")->rows.empty());
}

TEST_F(StoreTest, FullDiskIsAnAnswerNotACrash) {
  ASSERT_TRUE(Write(OneRun()).ok());
  writer_.reset();
  std::vector<Change> large;
  for (int i = 0; i < 200; ++i) large.push_back(EventNote{i, 1, 1, std::string(100000, 'x')});
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{1 << 20, old.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = Write(large);
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  writer_.reset();
  EXPECT_EQ(CellText(Query("select count(*) from events")->rows[0][0]), "0");
}

TEST_F(StoreTest, OnlyOneReadingStatementIsAllowed) {
  ASSERT_TRUE(Write(OneRun()).ok());
  EXPECT_THAT(std::string(Query("delete from runs").status().message()),
              HasSubstr("only a SELECT"));
  EXPECT_THAT(std::string(Query("attach 'x.db' as x").status().message()),
              HasSubstr("only a SELECT"));
  EXPECT_THAT(std::string(Query("select 1; select 2").status().message()),
              HasSubstr("one statement"));
  EXPECT_THAT(std::string(Query("select nosuch").status().message()),
              HasSubstr("no such column: nosuch"));
  EXPECT_THAT(std::string(Query("").status().message()), HasSubstr("SQL"));
  EXPECT_EQ(CellText(Query("select ?1 || ?2", {"a", "b"})->rows[0][0]), "ab");
  EXPECT_EQ(CellText(Query("select count(*) from runs;")->rows[0][0]), "1");
}

TEST_F(StoreTest, AnAnswerWithoutEndIsCut) {
  ASSERT_TRUE(Write(OneRun()).ok());
  EXPECT_EQ(Query("with recursive n(i) as (select 1 union all select i + 1 from n) select i from n")
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(StoreTest, AFolderWithoutDatabaseIsNotFound) {
  EXPECT_EQ(Query("select 1").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(StoreTest, ANewerSchemaIsRefusedByItsNumber) {
  ASSERT_TRUE(Write(OneRun()).ok());
  writer_.reset();
  SQLite::Database(folder_.Path() + "/regatta.db", SQLite::OPEN_READWRITE)
      .exec("pragma user_version = 99");
  EXPECT_THAT(std::string(Writer::Open(folder_.Path()).status().message()),
              HasSubstr("schema version 99; this program knows 4"));
}

TEST_F(StoreTest, AForeignFileIsRefused) {
  folder_.Write("regatta.db", std::string(4096, 'x'));
  EXPECT_THAT(std::string(Writer::Open(folder_.Path()).status().message()),
              HasSubstr("not a database"));
}

TEST_F(StoreTest, AnOpenReaderDoesNotStopTheWriter) {
  ASSERT_TRUE(Write(OneRun()).ok());
  SQLite::Database other(folder_.Path() + "/regatta.db", SQLite::OPEN_READONLY);
  SQLite::Statement reading(other, "select * from runs");
  ASSERT_TRUE(reading.executeStep());
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Write({EventNote{i, 1, 1, "x"}}).ok());
}

TEST_F(StoreTest, ManyBatchesComeBackInOrder) {
  auto writer = Writer::Open(folder_.Path());
  ASSERT_TRUE(writer.ok());
  std::promise<void> done;
  int64_t last = 0;
  (*writer)->Start([&](int64_t batch, const absl::Status& status) {
    EXPECT_TRUE(status.ok());
    EXPECT_GT(batch, last);
    last = batch;
    if (batch == 1000) done.set_value();
  });
  for (int64_t i = 1; i <= 1000; ++i) (*writer)->Submit(i, {EventNote{i, 1, 1, "x"}});
  done.get_future().wait();
  EXPECT_EQ(CellText(Query("select count(*) from events")->rows[0][0]), "1000");
}

// A state folder of version 1 with an ended run and a pending one, as SQL (a dump of an
// early `regatta run`).
TEST(MigrationTest, AStateOfVersion1IsTakenOver) {
  const TemporaryFolder folder;
  {
    std::ifstream file(std::string(REGATTA_TEST_DATA) + "/state_v1.sql");
    const std::string sql((std::istreambuf_iterator<char>(file)), {});
    SQLite::Database database(folder.Path() + "/regatta.db",
                              SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    database.exec(sql);
  }
  ASSERT_TRUE(Writer::Open(folder.Path()).ok());
  auto reader = Reader::Open(folder.Path());
  ASSERT_TRUE(reader.ok());
  const auto table =
      (*reader)->Query("select run, state, repeat, labels, predicted_state_bytes from results");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->rows.size(), 2u);
  EXPECT_EQ(CellText(table->rows[0][1]), "SUCCEEDED");
  EXPECT_EQ(CellText(table->rows[1][2]), "1");
  EXPECT_EQ(CellText(table->rows[1][3]), "{}");
  EXPECT_EQ(CellText(table->rows[1][4]), "");
  const auto stored = ReadStoredState(**reader);
  ASSERT_TRUE(stored.ok());
  EXPECT_TRUE(stored->runs[0].ended);
  EXPECT_TRUE(stored->runs[1].spec.starts_with("{")) << "JSON, which the coordinator still reads";
}

}  // namespace
}  // namespace regatta
