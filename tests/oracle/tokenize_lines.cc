// Tokenizes lines for a test that compares with another implementation: tokenize_lines DIR.
// In:  {"text": "...", "add_special_tokens": true}
// Out: {"ids": [...], "decoded": "...", "decoded_without_special": "..."}
#include <cstdio>
#include <iostream>
#include <string>

#include "divisi/core/json.h"
#include "divisi/model/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tokenize_lines DIR < lines\n");
    return 2;
  }
  const auto tokenizer = divisi::Tokenizer::Load(argv[1]);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    const divisi::Json request = divisi::Json::Parse(line).value();
    const auto ids = tokenizer->Encode(request.Find("text")->as_string(),
                                       request.Find("add_special_tokens")->as_bool());
    divisi::Json reply;
    divisi::Json list = divisi::Json::MakeArray();
    for (const divisi::TokenId id : ids) list.Append(id);
    reply.Set("ids", std::move(list));
    reply.Set("decoded", tokenizer->Decode(ids, false));
    reply.Set("decoded_without_special", tokenizer->Decode(ids, true));
    std::cout << reply.Dump() << '\n';
  }
}
