// A drawing as inline SVG: shapes in pixels, y downwards. Colours are CSS classes of the page, so
// that one drawing serves light, dark and paper.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace divisi {

struct Spot {
  double x = 0, y = 0;
};

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

class Svg {
 public:
  // id: unique on the page. title, description: what it is and what it shows, for those who do not
  // see it.
  struct Options {
    std::string id;
    std::string title, description;
    double width = 0, height = 0;
  };
  explicit Svg(Options options) : options_(std::move(options)) {}

  // style: CSS classes. hint: shown under a pointer. Texts are escaped here.
  void Rect(const Box& box, std::string_view style, std::string_view hint = {});
  void Text(Spot at, std::string_view text, std::string_view style);
  void Line(Spot from, Spot to, std::string_view style);
  void Polyline(const std::vector<Spot>& spots, std::string_view style);
  void Arrow(Spot from, Spot to, std::string_view style);  // Horizontal.
  // Many boxes of one style, in little text.
  void Boxes(const std::vector<Box>& boxes, std::string_view style);
  // What is drawn between the two shows only within the box.
  void StartClip(const Box& box);
  void EndClip();

  std::string Html() const;

 private:
  Options options_;
  std::string body_;
};

// Round numbers from 0 up to `most`, about `count` of them. Requires: most > 0.
std::vector<double> RoundTicks(double most, int count);

}  // namespace divisi
