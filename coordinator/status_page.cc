#include "coordinator/status_page.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_replace.h>
#include <httplib.h>

#include <thread>

#include "coordinator/log_file.h"
#include "coordinator/store/reader.h"
#include "coordinator/utf8.h"

namespace regatta {
namespace {

constexpr int64_t kLogTailBytes = 8192;

constexpr const char* kHead = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>regatta</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1a2733; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .3rem .8rem .3rem 0; }
th { border-bottom: 2px solid #c8d2dc; font-weight: 600; } td { border-bottom: 1px solid #e4e9ee; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: #f2f5f8; padding: 1rem; overflow-x: auto; } a { color: #0b5cad; }
.SUCCEEDED { color: #17742f; } .FAILED, .TIMED_OUT { color: #b3261e; } .CANCELLED, .SKIPPED { color: #7a5b00; }
.RUNNING, .STARTING, .STOPPING { color: #0b5cad; }
</style></head><body><h1><a href="/">regatta</a></h1>
)html";
constexpr const char* kTail = "</body></html>\n";

std::string Escape(const std::string& text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string ShowCell(const std::string& column, const Cell& cell) {
  const std::string text = Escape(CellText(cell));
  if (column == "run") return absl::StrCat("<td><a href=\"/run/", text, "\">", text, "</a></td>");
  if (column == "experiment")
    return absl::StrCat("<td><a href=\"/experiment/", text, "\">e", text, "</a></td>");
  if (column == "state") return absl::StrCat("<td class=\"", text, "\">", text, "</td>");
  if (const double* real = std::get_if<double>(&cell)) {
    return absl::StrFormat("<td class=number>%.6g</td>", *real);
  }
  if (std::holds_alternative<int64_t>(cell))
    return absl::StrCat("<td class=number>", text, "</td>");
  return absl::StrCat("<td>", text, "</td>");
}

std::string ShowTable(const std::string& title, const Table& table) {
  std::string html = absl::StrCat("<h2>", Escape(title), "</h2>\n");
  if (table.rows.empty()) return html + "<p>none yet</p>\n";
  absl::StrAppend(&html, "<table><tr>");
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const bool number = !std::holds_alternative<std::string>(table.rows[0][i]) &&
                        table.columns[i] != "run" && table.columns[i] != "experiment";
    absl::StrAppend(&html, number ? "<th class=number>" : "<th>",
                    Escape(absl::StrReplaceAll(table.columns[i], {{"_", " "}})), "</th>");
  }
  absl::StrAppend(&html, "</tr>\n");
  for (const auto& row : table.rows) {
    absl::StrAppend(&html, "<tr>");
    for (size_t i = 0; i < row.size(); ++i)
      absl::StrAppend(&html, ShowCell(table.columns[i], row[i]));
    absl::StrAppend(&html, "</tr>\n");
  }
  return absl::StrCat(html, "</table>\n");
}

// The tables of a page: title and query; ?1 is the id in the path.
struct Section {
  const char* title;
  const char* sql;
};
constexpr Section kHome[] = {
    {"Experiments",
     "select experiment, max(experiment_name) as name, count(*) as runs, "
     "sum(state in ('STARTING', 'RUNNING', 'STOPPING')) as under_way, "
     "sum(state = 'SUCCEEDED') as succeeded, sum(state in ('FAILED', 'TIMED_OUT')) as failed, "
     "sum(state = 'CANCELLED') as cancelled, "
     "datetime(max(submitted_us) / 1000000, 'unixepoch') || ' UTC' as submitted "
     "from results group by experiment order by experiment desc limit 200"},
    {"Runs under way",
     "select run, experiment, name, state, step, planned_steps as of_steps from progress "
     "where state in ('STARTING', 'RUNNING', 'STOPPING') order by run"},
};
constexpr Section kExperiment[] = {
    {"Runs",
     "select run, name, ranks, state, steps, loss, accuracy, tokens_per_second, "
     "step_seconds_median, peak_rss_bytes, sentence "
     "from results where experiment = ?1 order by run limit 1000"},
};
constexpr Section kRun[] = {
    {"Run",
     "select run, experiment, name, ranks, state, step, planned_steps as of_steps, reason, "
     "sentence from progress where run = ?1"},
    {"Ranks",
     "select k.rank as rank, k.pid as pid, k.exit_code as exit_code, k.signal as signal, "
     "k.killed_by_coordinator as killed_by_coordinator, k.sentence as sentence, k.log as log "
     "from ranks k join progress p on p.run = k.run and p.attempt = k.attempt "
     "where k.run = ?1 order by k.rank"},
    {"Metrics of the last step",
     "select rank, step, name, value from steps where run = ?1 "
     "and step = (select max(step) from steps where run = ?1) order by name, rank limit 500"},
    {"Summary", "select name, value from summaries where run = ?1 and rank = -1 order by name"},
    {"Events",
     "select datetime(at_us / 1000000, 'unixepoch') || ' UTC' as at, what "
     "from events where run = ?1 order by id"},
};

template <size_t kCount>
absl::StatusOr<std::string> RenderSections(Reader& reader, const Section (&sections)[kCount],
                                           const std::string& id) {
  std::string html;
  for (const Section& section : sections) {
    const bool with_id = std::string_view(section.sql).find("?1") != std::string_view::npos;
    const absl::StatusOr<Table> table =
        with_id ? reader.Query(section.sql, {id}) : reader.Query(section.sql);
    if (!table.ok()) return table.status();
    if (&section == &sections[0] && with_id && table->rows.empty()) {
      return absl::NotFoundError(absl::StrCat("there is no ", section.title, " ", id));
    }
    absl::StrAppend(&html, ShowTable(section.title, *table));
  }
  return html;
}

std::string RenderLog(const std::string& state_folder, int64_t run) {
  const absl::StatusOr<LogChunk> chunk =
      ReadLogChunk(state_folder, {.run = run, .offset = -kLogTailBytes});
  return absl::StrCat(
      "<h2>Log of rank 0, the end</h2>\n<pre>",
      Escape(chunk.ok() ? ReplaceInvalidUtf8(chunk->data) : std::string(chunk.status().message())),
      "</pre>\n");
}

// DNS rebinding: a page of another site must not read this one through a name of its own.
bool IsLoopbackHost(const std::string& host) {
  const std::string name = host.substr(0, host.rfind(':'));
  return name == "127.0.0.1" || name == "localhost" || name == "[::1]";
}

}  // namespace

absl::StatusOr<std::string> RenderPage(const std::string& state_folder, const std::string& path) {
  absl::StatusOr<std::unique_ptr<Reader>> reader = Reader::Open(state_folder);
  if (!reader.ok()) return reader.status();
  absl::StatusOr<std::string> body = absl::NotFoundError(absl::StrCat("there is no page ", path));
  const std::string id = path.substr(path.rfind('/') + 1);
  int64_t number = 0;
  if (path == "/") {
    body = RenderSections(**reader, kHome, "");
  } else if (absl::SimpleAtoi(id, &number) && path == absl::StrCat("/experiment/", number)) {
    body = RenderSections(**reader, kExperiment, id);
  } else if (absl::SimpleAtoi(id, &number) && path == absl::StrCat("/run/", number)) {
    body = RenderSections(**reader, kRun, id);
    if (body.ok()) absl::StrAppend(&*body, RenderLog(state_folder, number));
  }
  if (!body.ok()) return body.status();
  return absl::StrCat(kHead, *body, kTail);
}

struct StatusPage::Body {
  httplib::Server server;
  int port = 0;
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<StatusPage>> StatusPage::Serve(const std::string& state_folder,
                                                              int port) {
  auto body = std::make_unique<Body>();
  body->server.new_task_queue = [] { return new httplib::ThreadPool(2); };
  body->server.Get(
      ".*", [state_folder](const httplib::Request& request, httplib::Response& response) {
        if (!IsLoopbackHost(request.get_header_value("Host"))) {
          response.status = 403;
          response.set_content("this page answers to 127.0.0.1 and localhost only\n", "text/plain");
          return;
        }
        const absl::StatusOr<std::string> html = RenderPage(state_folder, request.path);
        response.status = html.ok() ? 200 : absl::IsNotFound(html.status()) ? 404 : 500;
        response.set_content(html.ok() ? *html : std::string(html.status().message()) + "\n",
                             html.ok() ? "text/html; charset=utf-8" : "text/plain; charset=utf-8");
      });
  constexpr const char* kLoopback = "127.0.0.1";
  if (port == 0) {
    body->port = body->server.bind_to_any_port(kLoopback);
  } else {
    body->port = body->server.bind_to_port(kLoopback, port) ? port : -1;
  }
  if (body->port < 0) {
    return absl::FailedPreconditionError(absl::StrCat("the status page cannot listen on ",
                                                      kLoopback, ":", port,
                                                      "; name a free port with --http"));
  }
  body->thread = std::thread([raw = body.get()] { raw->server.listen_after_bind(); });
  while (!body->server.is_running()) std::this_thread::yield();  // stop() before that would be lost
  return std::unique_ptr<StatusPage>(new StatusPage(std::move(body)));
}

StatusPage::StatusPage(std::unique_ptr<Body> body) : body_(std::move(body)) {}

StatusPage::~StatusPage() {
  body_->server.stop();
  body_->thread.join();
}

std::string StatusPage::Url() const { return absl::StrCat("http://127.0.0.1:", body_->port, "/"); }

}  // namespace regatta
