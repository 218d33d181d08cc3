#include "coordinator/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <future>
#include <limits>

#include "coordinator/store/writer.h"
#include "tests/testing/stored_run.h"
#include "tests/testing/temporary_folder.h"

namespace regatta {
namespace {

using testing::HasSubstr;
using testing::Not;

class StatusPageTest : public testing::Test {
 protected:
  void SetUp() override {
    auto writer = Writer::Open(folder_.Path());
    ASSERT_TRUE(writer.ok());
    std::promise<void> done;
    (*writer)->Start([&](int64_t, const absl::Status&) { done.set_value(); });
    (*writer)->Submit(
        1, {NewExperiment{1, "t", "<script>alert(1)</script>", "", "", "{}", 1, 60, 0, 0, 5},
            StoredRunOf(1, "RUNNING", "r & s"), NewAttempt{1, 1, "/folder", 1, 6},
            Samples{1, 1, 0, 3, {{"loss_sum", std::numeric_limits<double>::quiet_NaN()}}}});
    done.get_future().wait();
    folder_.Write("runs/1/attempt_1/rank_0.log", "<b>last words</b>\n");
  }
  TemporaryFolder folder_;
};

TEST_F(StatusPageTest, ShowsWhatIsThereAndNoMarkupOfOthers) {
  const auto home = RenderPage(folder_.Path(), "/");
  ASSERT_TRUE(home.ok()) << home.status();
  EXPECT_THAT(*home, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(*home, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(*home, HasSubstr("http-equiv=\"refresh\""));
  const auto run = RenderPage(folder_.Path(), "/run/1");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(*run, HasSubstr("r &amp; s"));
  EXPECT_THAT(*run, HasSubstr("NaN"));
  EXPECT_THAT(*run, HasSubstr("&lt;b&gt;last words&lt;/b&gt;"));
  EXPECT_THAT(*RenderPage(folder_.Path(), "/experiment/1"), HasSubstr("<a href=\"/run/1\">1</a>"));
}

TEST_F(StatusPageTest, UnknownPagesAreNotFound) {
  for (const char* path :
       {"/run/9", "/experiment/2", "/run/x", "/run/1;drop", "/../etc/passwd", "/run/01"}) {
    EXPECT_TRUE(absl::IsNotFound(RenderPage(folder_.Path(), path).status())) << path;
  }
}

TEST_F(StatusPageTest, AnswersOverHttpToLoopbackNamesOnly) {
  const auto page = StatusPage::Serve(folder_.Path(), 0);
  ASSERT_TRUE(page.ok()) << page.status();
  httplib::Client client((*page)->Url().substr(0, (*page)->Url().size() - 1));
  EXPECT_EQ(client.Get("/")->status, 200);
  EXPECT_EQ(client.Get("/run/9")->status, 404);
  EXPECT_EQ(client.Get("/", {{"Host", "evil.example"}})->status, 403);
  EXPECT_EQ(client.Post("/")->status, 404);
}

}  // namespace
}  // namespace regatta
