#include "divisi/cli/svg.h"

#include <cmath>

#include "divisi/cli/html.h"
#include "divisi/core/check.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

// A tenth of a pixel is as fine as anyone sees.
std::string Pixels(double value) {
  CHECK(std::isfinite(value), "a drawing at {}", value);
  const double tenths = std::round(value * 10);
  return Format("{}", (tenths == 0 ? 0 : tenths) / 10);
}

std::string Class(std::string_view style) { return Format("class=\"{}\"", style); }

}  // namespace

void Svg::Rect(const Box& box, std::string_view style, std::string_view hint) {
  body_ += Format("<rect {} x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", Class(style),
                  Pixels(box.x), Pixels(box.y), Pixels(box.width), Pixels(box.height));
  body_ += hint.empty() ? "/>\n" : Format("><title>{}</title></rect>\n", HtmlText(hint));
}

void Svg::Text(Spot at, std::string_view text, std::string_view style) {
  body_ += Format("<text {} x=\"{}\" y=\"{}\">{}</text>\n", Class(style), Pixels(at.x),
                  Pixels(at.y), HtmlText(text));
}

void Svg::Line(Spot from, Spot to, std::string_view style) {
  body_ += Format("<line {} x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", Class(style),
                  Pixels(from.x), Pixels(from.y), Pixels(to.x), Pixels(to.y));
}

void Svg::Polyline(const std::vector<Spot>& spots, std::string_view style) {
  std::string points;
  for (const Spot& spot : spots) {
    points += Format("{}{},{}", points.empty() ? "" : " ", Pixels(spot.x), Pixels(spot.y));
  }
  body_ += Format("<polyline {} points=\"{}\"/>\n", Class(style), points);
}

void Svg::Arrow(Spot from, Spot to, std::string_view style) {
  Line(from, to, style);
  const double back = to.x > from.x ? -7 : 7;
  Polyline({{to.x + back, to.y - 4}, to, {to.x + back, to.y + 4}}, style);
}

void Svg::Boxes(const std::vector<Box>& boxes, std::string_view style) {
  if (boxes.empty()) return;
  body_ += Format("<path {} d=\"", Class(style));
  for (const Box& box : boxes) {
    const std::string width = Pixels(box.width);
    body_ +=
        Format("M{} {}h{}v{}h-{}z", Pixels(box.x), Pixels(box.y), width, Pixels(box.height), width);
  }
  body_ += "\"/>\n";
}

void Svg::StartClip(const Box& box) {
  body_ += Format("<clipPath id=\"{}-clip\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                  options_.id, Pixels(box.x), Pixels(box.y), Pixels(box.width), Pixels(box.height));
  body_ += Format("</clipPath>\n<g clip-path=\"url(#{}-clip)\">\n", options_.id);
}

void Svg::EndClip() { body_ += "</g>\n"; }

std::string Svg::Html() const {
  const std::string& id = options_.id;
  return Format(
      "<svg role=\"img\" aria-labelledby=\"{0}-title {0}-desc\" viewBox=\"0 0 {1} {2}\" "
      "width=\"{1}\" height=\"{2}\">\n<title id=\"{0}-title\">{3}</title>\n"
      "<desc id=\"{0}-desc\">{4}</desc>\n{5}</svg>\n",
      id, Pixels(options_.width), Pixels(options_.height), HtmlText(options_.title),
      HtmlText(options_.description), body_);
}

std::vector<double> RoundTicks(double most, int count) {
  CHECK(most > 0 && std::isfinite(most), "an axis up to {}", most);
  const double rough = most / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (int i = 0; i * step <= most * (1 + 1e-9); ++i) ticks.push_back(i * step);
  return ticks;
}

}  // namespace divisi
