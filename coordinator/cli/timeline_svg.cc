#include "coordinator/cli/timeline_svg.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>

namespace regatta {
namespace {

constexpr double kLeft = 70;  // where time 0 is
constexpr double kTop = 34;
constexpr double kRowHeight = 26;
constexpr double kCellHeight = 22;

// By kind; the second where a rank's stage is not its first.
const char* ColorOf(const Action& action, const PipelineShape& shape) {
  const bool later = action.stage >= shape.ranks;
  switch (action.kind) {
    case ActionKind::kForward:
      return later ? "#4a86c5" : "#9cc3ec";
    case ActionKind::kBackwardWeight:
      return later ? "#d9a514" : "#f3d36b";
    default:
      return later ? "#3f9a72" : "#94d4b5";
  }
}

double PixelsPerUnit(const Timeline& timeline) {
  size_t cells = 1;
  for (const RankTimeline& rank : timeline.ranks) cells = std::max(cells, rank.spans.size());
  // A cell has room for its number, on average; the picture stays within a wide screen.
  return std::clamp(26.0 * static_cast<double>(cells), 500.0, 3000.0) / timeline.end;
}

}  // namespace

std::string DrawTimeline(const std::string& title, const PipelineShape& shape,
                         const Timeline& timeline) {
  const double scale = PixelsPerUnit(timeline);
  const double width = timeline.end * scale;
  const double height = kRowHeight * static_cast<double>(timeline.ranks.size());
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<defs><pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f4f4f4\"/>"
      "<line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#c4c4c4\" stroke-width=\"2\"/>"
      "</pattern></defs>\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
      "<text x=\"8\" y=\"20\" font-size=\"13\">%s</text>\n",
      kLeft + width + 10, kTop + height + 10, kLeft + width + 10, title);
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const double y = kTop + kRowHeight * static_cast<double>(rank);
    absl::StrAppendFormat(&svg,
                          "<text x=\"8\" y=\"%.1f\">rank %d</text>\n"
                          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" "
                          "fill=\"url(#idle)\"/>\n",
                          y + 15, static_cast<int>(rank), kLeft, y, width, kCellHeight);
    for (const Span& span : timeline.ranks[rank].spans) {
      const double x = kLeft + span.start * scale;
      const double cell = (span.end - span.start) * scale;
      absl::StrAppendFormat(&svg,
                            "<g><title>%s, %g to %g</title><rect x=\"%.2f\" y=\"%.1f\" "
                            "width=\"%.2f\" height=\"%.1f\" fill=\"%s\" stroke=\"#ffffff\"/>",
                            ActionText(span.action), span.start, span.end, x, y, cell, kCellHeight,
                            ColorOf(span.action, shape));
      if (cell >= 12) {
        absl::StrAppendFormat(&svg, "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>",
                              x + cell / 2, y + 15, span.action.micro_batch);
      }
      absl::StrAppend(&svg, "</g>\n");
    }
  }
  absl::StrAppend(&svg, "</svg>\n");
  return svg;
}

}  // namespace regatta
