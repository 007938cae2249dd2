#include "divisi/cli/html.h"

#include "divisi/core/format.h"
#include "divisi/core/utf8.h"

namespace divisi {

std::string HtmlText(std::string_view text) {
  std::string html;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&') {
      html += "&amp;";
    } else if (c == '<') {
      html += "&lt;";
    } else if (c == '>') {
      html += "&gt;";
    } else if (c == '"') {
      html += "&quot;";
    } else if (c == '\'') {
      html += "&#39;";
    } else if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) {
      html += "\xEF\xBF\xBD";
    } else {
      html += c;
    }
  }
  return html;
}

std::string Shortened(std::string_view text, size_t most) {
  size_t characters = 0;
  size_t end = 0;  // Of the characters that stay beside an ellipsis.
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsUtf8Continuation(text[i])) continue;
    if (++characters == most) end = i;
    if (characters > most) return std::string(text.substr(0, end)) + "\xE2\x80\xA6";
  }
  return std::string(text);
}

std::string HtmlOf(const HtmlTable& table) {
  const auto marked = [&](size_t i) {
    return i > 0 && i == table.marked_column ? " class=\"marked\"" : "";
  };
  std::string html =
      Format("<div class=\"scroll\"><table{}>\n<thead><tr>", table.prose ? " class=\"prose\"" : "");
  for (size_t i = 0; i < table.head.size(); ++i) {
    html += Format("<th scope=\"col\"{}>{}</th>", marked(i), HtmlText(table.head[i]));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      html += i == 0 ? Format("<th scope=\"row\">{}</th>", HtmlText(row[i]))
                     : Format("<td{}>{}</td>", marked(i), HtmlText(row[i]));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace divisi
