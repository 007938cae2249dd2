#include "divisi/model/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/core/file.h"

namespace divisi {
namespace {

// 2024-07-26 13:05:09 UTC.
constexpr double kNow = 1721999109;

// What the template makes of the variables, or "<code>: <message>".
std::string Shown(std::string_view source, std::string_view variables = "{}") {
  const auto parsed = ChatTemplate::Parse(source);
  const auto json = Json::Parse(variables);
  CHECK(json.ok(), "{}", variables);
  if (!parsed) return Format("{}: {}", CodeName(parsed.error().code), parsed.error().message);
  const auto text = parsed->Render(*json, kNow);
  return text ? *text : Format("{}: {}", CodeName(text.error().code), text.error().message);
}

struct Case {
  const char* source;
  const char* want;
};

void ExpectAll(std::initializer_list<Case> cases, std::string_view variables = "{}") {
  for (const Case& c : cases) EXPECT_EQ(Shown(c.source, variables), c.want) << c.source;
}

TEST(ChatTemplateTest, RendersTheGoldenConversations) {
  const std::string root = DIVISI_SOURCE_DIR;
  const auto config = ReadFile(root + "/models/tiny-qwen3/tokenizer_config.json", 1 << 20);
  const auto golden = ReadFile(root + "/tests/golden/tokenizer.json", 1 << 24);
  ASSERT_TRUE(config.ok() && golden.ok());
  const Json config_json = Json::Parse(*config).value();
  const Json golden_json = Json::Parse(*golden).value();
  const auto chat = ChatTemplate::Parse(config_json.Find("chat_template")->as_string());
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  size_t count = 0;
  for (const Json& c : golden_json.Find("chat_cases")->as_array()) {
    const auto text = chat->Render(c, kNow);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(*text, c.Find("text")->as_string());
    ++count;
  }
  EXPECT_EQ(count, 12u);
}

TEST(ChatTemplateTest, CutsWhiteSpaceAsHuggingFaceSetsJinja) {
  ExpectAll({{"a\n", "a"},
             {"a\n\n", "a\n"},
             {"a\r\nb\rc", "a\nb\nc"},
             {"{% if true %}\nx\n{% endif %}\ny", "x\ny"},
             {"  {% if true %}\nx\n  {% endif %}\ny", "x\ny"},
             {"a  {% if true %}x{% endif %}", "a  x"},
             {"a\n  {%+ if true %}x{% endif %}", "a\n  x"},
             {"{% if true +%}\nx{% endif %}", "\nx"},
             {"a \n {%- if true -%} \n x \n {%- endif -%} \n b", "axb"},
             {"a \n {{- 1 -}} \n b", "a1b"},
             {"{{ 1 }}\n{{ 2 }}", "1\n2"},
             {"a {# note #}\nb", "a b"},
             {"  {# note #}\nb", "b"},
             {"a {#- note -#} \n b", "ab"},
             {"{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
             {"{%- raw -%} {{ {%- endraw -%} b", "{{b"},
             {"{ % {", "{ % {"},
             {"{{ {'a': {'b': 1}}['a']['b'] }}", "1"}});
}

TEST(ChatTemplateTest, EvaluatesOperators) {
  ExpectAll({{"{{ 1 + 2 * 3 - 4 }}", "3"},
             {"{{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }}", "3.5 3 -4 2 -2"},
             {"{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 ** -1 }}", "64 4 0.5"},
             {"{{ 7.5 // 2 }} {{ -7.5 % 2 }}", "3.0 0.5"},
             {"{{ 1 ~ 'a' ~ none ~ 2.0 ~ true }}", "1aNone2.0True"},
             {"{{ 1 ~ 1 + 'a' }}", "11a"},
             {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }}", "True False True"},
             {"{{ 'a' in 'cab' }} {{ 1 not in [2] }} {{ 'k' in {'k': 1} }}", "True True True"},
             {"{{ not 1 == 2 and 3 or 4 }}", "3"},
             {"{{ '' or 'b' }} {{ [] and 1 }}", "b []"},
             {"{{ 'a' * 3 }} {{ [1] + [2] }} {{ (1,) + (2,) }}", "aaa [1, 2] (1, 2)"},
             {"{{ 'y' if false else 'n' }}{{ 'y' if false }}", "n"},
             {"{{ -1|abs }} {{ 'a' 'b' }}", "1 ab"},
             {"{{ 9223372036854775807 + 1 }}",
              "out_of_range: chat template, line 1, column 24: an integer beyond 64 bits"}});
}

TEST(ChatTemplateTest, PrintsValuesAsPythonDoes) {
  ExpectAll(
      {{"{{ none }} {{ true }} {{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 }} {{ 1e15 }}",
        "None True 1.0 1e+16 1e-05 0.1 1000000000000000.0"},
       {"{{ ['a', \"it's\", 1, none, {'k': (1,)}] }}", "['a', \"it's\", 1, None, {'k': (1,)}]"},
       {"{{ ['\\n\\t\\\\\\x01\\u00e9\\u200b'] }}", "['\\n\\t\\\\\\x01\xC3\xA9\\u200b']"},
       {"{{ undefined_name }}|{{ x.y is defined }}",
        "invalid_argument: chat template, line 1, column 27: 'x' is undefined"}});
}

TEST(ChatTemplateTest, SlicesAndIndexes) {
  ExpectAll({{"{{ [1,2,3,4][::-1] }}{{ [1,2,3,4][1:] }}{{ [1,2,3,4][:-1] }}{{ [1,2,3,4][::2] }}",
              "[4, 3, 2, 1][2, 3, 4][1, 2, 3][1, 3]"},
             {"{{ [1,2,3,4][3:0:-2] }}{{ [1,2,3][10:] }}{{ [1,2,3][-10:2] }}", "[4, 2][][1, 2]"},
             {"{{ 'h\xC3\xA9llo'[1] }}{{ 'h\xC3\xA9llo'[1:3] }}{{ 'h\xC3\xA9llo'[::-1] }}",
              "\xC3\xA9\xC3\xA9loll\xC3\xA9h"},
             {"{{ [1][5] }}|{{ [1][-1] }}|{{ 'a'['b'] }}|{{ (1, 2).1 }}", "|1||2"},
             {"{{ [1][::0] }}",
              "invalid_argument: chat template, line 1, column 8: the step of a slice is zero"}});
}

TEST(ChatTemplateTest, LooksUpMethodsBeforeKeysByDotAndKeysFirstByBracket) {
  ExpectAll({{"{{ m.items is callable }} {{ m['items'] }} {{ m.role }} {{ m.get('x', 'd') }}",
              "True k u d"},
             {"{{ m['get']('role') }} {{ m.nope is undefined }} {{ none.x is undefined }}",
              "u True True"},
             {"{{ m.nope.more }}",
              "invalid_argument: chat template, line 1, column 11: "
              "a value of type dict has no 'nope'"},
             {"{{ m.pop('role') }}",
              "unimplemented: chat template, line 1, column 6: method 'pop' of a dict is outside "
              "the supported part"}},
            R"({"m": {"role": "u", "items": "k"}})");
}

TEST(ChatTemplateTest, Loops) {
  ExpectAll(
      {{"{% for x in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}"
        "{{ loop.length }}{{ loop.revindex }} {% endfor %}",
        "10TrueFalse33 21FalseFalse32 32FalseTrue31 "},
       {"{% for x in 'abc' %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
        "<a>b a<b>c b<c> "},
       {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}", "a=1;b=2;"},
       {"{% for k in {'a': 1} %}{{ k }}{% endfor %}", "a"},
       {"{% for x in [1,2,3,4] if x is even %}{{ loop.index }}:{{ x }} {% endfor %}", "1:2 2:4 "},
       {"{% for x in [] %}x{% else %}none{% endfor %}", "none"},
       {"{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}"
        "{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
        "13"},
       {"{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
       {"{% for x in nothing %}x{% endfor %}ok", "ok"},
       {"{% for x in range(5, 0, -2) %}{{ x }}{% endfor %}", "531"},
       {"{% for x in 1 %}{% endfor %}",
        "invalid_argument: chat template, line 1, column 13: "
        "a value of type int cannot be iterated"},
       {"{% for x in [1, 2] %}{% for y in [3, 4] %}{{ loop.index }}{{ loop.depth }}{% endfor %}"
        "{{ loop.index }}{% endfor %}",
        "1121111212"}});
}

TEST(ChatTemplateTest, KeepsVariablesInTheirScopes) {
  ExpectAll(
      {{"{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "21"},
       {"{% for i in [1, 2] %}{{ x is defined }}{% set x = i %}{% endfor %}", "FalseFalse"},
       {"{% if true %}{% set x = 1 %}{% endif %}{{ x }}", "1"},
       {"{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}"
        "{{ ns.n }}",
        "3"},
       {"{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"},
       {"{% set x %}a{{ 1 }}{% endset %}[{{ x }}]", "[a1]"},
       {"{% set x | upper | trim %} a {% endset %}[{{ x }}]", "[A]"},
       {"{% with x = 1, y = 2 %}{{ x + y }}{% endwith %}{{ x is defined }}", "3False"},
       {"{% filter upper %}a{{ 'b' }}{% endfilter %}", "AB"},
       {"{% generation %}a{% endgeneration %}", "a"},
       // The condition sees what the body did before, as Jinja's generators do.
       {"{% set ns = namespace(stop=false) %}{% for i in [1, 2, 3] if not ns.stop %}{{ i }}"
        "{% set ns.stop = i == 2 %}{% endfor %}",
        "12"},
       {"{% set d = {} %}{% set d.x = 1 %}",
        "invalid_argument: chat template, line 1, column 24: "
        "only a namespace's attributes can be set, not a dict's"}});
}

TEST(ChatTemplateTest, CallsMacros) {
  ExpectAll(
      {{"{% macro f(a, b='x') %}[{{ a }}{{ b }}]{% endmacro %}{{ f(1) }}{{ f(1, b=2) }}{{ f() }}",
        "[1x][12][x]"},
       {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
        "3210"},
       {"{% macro f() %}{{ x }}{{ i is defined }}{% endmacro %}{% set x = 1 %}"
        "{% for i in [1] %}{{ f() }}{% endfor %}",
        "1False"},
       {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
        "invalid_argument: chat template, line 1, column 35: f: takes 1 arguments, got 2"},
       {"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "out_of_range: chat template, line 1, column 20: the template does more work or makes "
        "more text than is allowed"}});
}

TEST(ChatTemplateTest, HasPythonsMethods) {
  ExpectAll(
      {{"{{ ' a '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ '\\n\\na'.lstrip('\\n') }}", "a|a|a"},
       {"{{ 'a</t>b</t>c'.split('</t>') }}{{ 'a b  c '.split() }}{{ 'a,b,c'.split(',', 1) }}",
        "['a', 'b', 'c']['a', 'b', 'c']['a', 'b,c']"},
       {"{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a\\nb\\r\\nc'.splitlines() }}",
        "['a,b', 'c']['a', 'b', 'c']"},
       {"{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}", "TrueTrue"},
       {"{{ 'hello wORLD'.title() }} {{ 'hELLO'.capitalize() }} {{ '\xC3\xA9'.upper() }}",
        "Hello World Hello \xC3\x89"},
       {"{{ 'aaa'.replace('a', 'b', 2) }}{{ 'ab'.replace('', '-') }}", "bba-a-b-"},
       {"{{ ', '.join(['a', 'b']) }}{{ 'abcb'.find('b') }}{{ 'abcb'.rfind('b') }}", "a, b13"},
       {"{{ 'a{}c{x}{{'.format('b', x=1) }}", "abc1{"},
       {"{{ {'a': 1}.keys() | list }}{{ {'a': 1}.values() | list }}", "['a'][1]"}});
}

// -9223372036854775807 - 1 is the lowest 64-bit integer: a template can write what it likes.
TEST(ChatTemplateTest, TakesTheLowestAndHighestIntegers) {
  ExpectAll(
      {{"{{ 'a,b,c'.split(',', low) }}", "['a', 'b', 'c']"},
       {"{{ 'a b c'.split(none, low) }}", "['a', 'b', 'c']"},
       {"{{ 'a,b,c'.rsplit(',', low) }}", "['a', 'b', 'c']"},
       {"{{ 'a b c'.rsplit(none, low) }}", "['a', 'b', 'c']"},
       {"{{ 'aaa'.replace('a', 'b', low) }}", "bbb"},
       {"{{ 'aaa'|replace('a', 'b', low) }}", "bbb"},
       {"{{ 'aaa'|replace('', '-', low) }}", "-a-a-a-"},
       {"{{ 'a,b,c'.split(',', high) }}", "['a', 'b', 'c']"},
       {"{{ 'aaa'.replace('a', 'b', high) }}", "bbb"},
       {"{{ 'abc'[low:high] }}", "abc"},
       {"{{ 'abc'[high:low:low] }}", "c"},
       {"{{ 'abc'[::high] }}{{ 'abc'[low::high] }}", "aa"},
       {"{{ [1, 2][low:] }}{{ [1, 2][:low] }}{{ [1, 2][high:] }}", "[1, 2][][]"},
       {"{{ 'abc'[low] is defined }}{{ [1][low] is defined }}{{ [1][high] is defined }}",
        "FalseFalseFalse"},
       {"{{ range(low, low + 2)|list|length }}{{ range(high, low, low)|list|length }}", "22"},
       {"{{ range(low, high, high)|list|length }}{{ range(high - 1, high)|list|length }}", "31"},
       {"{{ 'ab' * low }}{{ [1] * low }}{{ '' * high }}{{ [] * high }}", "[][]"},
       {"{{ low % -1 }} {{ low // 1 }} {{ high % low }} {{ low % high }}",
        "0 -9223372036854775808 -1 9223372036854775806"},
       {"{{ low // high }} {{ high // low }} {{ low / -1 }}", "-2 -1 9.223372036854776e+18"},
       {"{{ (-1) ** high }} {{ 1 ** high }} {{ 0 ** high }} {{ 2 ** low }}", "-1 1 0 0.0"},
       {"{{ low is even }}{{ low is divisibleby(2) }}{{ low is divisibleby(-1) }}", "TrueTrueTrue"},
       {"{{ high is odd }}{{ low|int }}{{ low|float }}",
        "True-9223372036854775808-9.223372036854776e+18"},
       {"{{ 'a'|indent(low, true) }}{{ [1]|tojson(indent=low) }}", "a[\n1\n]"},
       {"{{ low|round }}{{ high|round(0, 'floor') }}",
        "-9.223372036854776e+189.223372036854776e+18"},
       {"{{ 1e300|int }} {{ 9223372036854775807.0|int }} {{ -9223372036854775808.0|int }}",
        "0 0 0"},
       {"{{ 'a.b'|list|map(attribute=low)|list|length }}", "3"},
       {"{{ [[1, 2]]|map(attribute='-9223372036854775808')|list|first is defined }}", "False"}},
      R"({"low": -9223372036854775808, "high": 9223372036854775807})");
  for (const char* beyond :
       {"{{ low - 1 }}", "{{ high + 1 }}", "{{ low * -1 }}", "{{ low // -1 }}", "{{ -low }}",
        "{{ low|abs }}", "{{ 2 ** 63 }}", "{{ 3 ** high }}", "{{ range(low, high)|list }}",
        "{{ 'ab' * high }}", "{{ [1] * high }}", "{{ 'a'|indent(high) }}",
        "{{ [1]|tojson(indent=high) }}", "{{ high + true }}"}) {
    EXPECT_THAT(Shown(beyond, R"({"low": -9223372036854775808, "high": 9223372036854775807})"),
                testing::HasSubstr(CodeName(Code::kOutOfRange)))
        << beyond;
  }
  EXPECT_EQ(Shown("{{ 'a,b'.split(',', -9223372036854775807 - 1) }}"), "['a', 'b']");
}

TEST(ChatTemplateTest, HasFilters) {
  ExpectAll(
      {{"{{ ' a ' | trim }}{{ [1,2] | length }}{{ x | default('d') }}{{ '' | d('e', true) }}",
        "a2de"},
       {"{{ [3,1,2] | sort | join('-') }}{{ ['b','A'] | sort }}", "1-2-3['A', 'b']"},
       {"{{ [1,2] | first }}{{ [1,2] | last }}{{ [1,2] | reverse | list }}", "12[2, 1]"},
       {"{{ ms | map(attribute='role') | join(',') }}", "u,a,u"},
       {"{{ ms | selectattr('role', 'equalto', 'u') | list | length }}", "2"},
       {"{{ ms | rejectattr('c') | map(attribute='role') | list }}", "['a']"},
       {"{{ [1, 2, 3] | select('odd') | list }}{{ ['a'] | map('upper') | list }}", "[1, 3]['A']"},
       {"{{ '12' | int + 1 }}{{ 'x' | int(7) }}{{ '2.5' | float }}{{ 2.5 | round }}", "1372.52.0"},
       {"{{ {'b': 1, 'a': 2} | dictsort }}{{ ['a', 'A', 'b'] | unique | list }}",
        "[('a', 2), ('b', 1)]['a', 'b']"},
       {"{{ 'a\\n\\nb' | indent(2) }}", "a\n\n  b"},
       {"{{ 1 | string + 'x' }}{{ 'a-b c' | title }}", "1xA-B C"}},
      R"({"ms": [{"role": "u", "c": 1}, {"role": "a"}, {"role": "u", "c": 2}]})");
}

TEST(ChatTemplateTest, WritesJsonAsHuggingFaceDoes) {
  ExpectAll({{"{{ v | tojson }}",
              "{\"b\": [1, 2.0, null, true], \"a\": \"<\xC3\xA9\\n\\\"\", \"e\": [], \"f\": {}}"},
             {"{{ v | tojson(indent=2) }}",
              "{\n  \"b\": [\n    1,\n    2.0,\n    null,\n    true\n  ],\n  \"a\": "
              "\"<\xC3\xA9\\n\\\"\",\n  \"e\": [],\n  \"f\": {}\n}"},
             {"{{ v.a | tojson(ensure_ascii=true) }}", "\"<\\u00e9\\n\\\"\""},
             {"{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}",
              "{\"a\":2,\"b\":1}"},
             {"{{ nope | tojson }}",
              "invalid_argument: chat template, line 1, column 11: tojson: a value of type "
              "undefined cannot be written as JSON"}},
            R"({"v": {"b": [1, 2.0, null, true], "a": "<é\n\"", "e": [], "f": {}}})");
}

TEST(ChatTemplateTest, HasTests) {
  ExpectAll({{"{{ 'a' is string }}{{ {} is mapping }}{{ [] is iterable }}{{ [] is sequence }}"
              "{{ none is none }}{{ 1 is number }}{{ true is boolean }}{{ 1 is integer }}",
              "TrueTrueTrueTrueTrueTrueTrueTrue"},
             {"{{ true is integer }}{{ 1 is true }}{{ none is defined }}{{ 1 is float }}",
              "FalseFalseTrueFalse"},
             {"{{ 3 is divisibleby 3 }}{{ 1 is in [1] }}{{ 2 is not odd }}{{ 'A' is upper }}",
              "TrueTrueTrueTrue"},
             {"{{ x is not defined and y is undefined }}", "True"}});
}

TEST(ChatTemplateTest, HasHuggingFacesFunctions) {
  ExpectAll(
      {{"{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%A %-d %B %H:%M:%S %j %I%p') }}",
        "26 Jul 2024|Friday 26 July 13:05:09 208 01PM"},
       {"{{ raise_exception('roles must alternate') }}", "invalid_argument: roles must alternate"},
       {"{{ strftime_now('%Q') }}",
        "unimplemented: chat template, line 1, column 16: strftime_now: strftime conversion "
        "'%Q'"}});
}

TEST(ChatTemplateTest, SaysWhereAndWhatItRefuses) {
  ExpectAll(
      {{"a\n{% if x %}",
        "invalid_argument: chat template, line 2, column 11: expected 'endif', "
        "found the end of the template"},
       {"{{ 1 +", "invalid_argument: chat template, line 1, column 7: {{ without its }}"},
       {"{{ 'a }}",
        "invalid_argument: chat template, line 1, column 4: a string without its "
        "closing quote"},
       {"{% include 'x' %}",
        "unimplemented: chat template, line 1, column 4: {% include %} is "
        "outside the supported part of Jinja"},
       {"\n  {{ x | xmlattr }}",
        "unimplemented: chat template, line 2, column 10: filter "
        "'xmlattr' is outside the supported part of Jinja"},
       {"{{ f(*a) }}",
        "unimplemented: chat template, line 1, column 6: an argument list that "
        "unpacks a value is outside the supported part of Jinja"},
       {"{{ [1) }}",
        "invalid_argument: chat template, line 1, column 6: a ')' that closes nothing"},
       {"{% break %}",
        "invalid_argument: chat template, line 1, column 10: {% break %} outside a "
        "loop"},
       {"{# x", "invalid_argument: chat template, line 1, column 1: a comment without its #}"},
       {"{{ '\xFF' }}", "invalid_argument: chat template: byte 4 is not UTF-8"}});
}

TEST(ChatTemplateTest, BoundsWorkAndOutput) {
  for (const char* source :
       {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
        "{% endfor %}",
        "{{ 'a' * 9999999999 }}", "{{ range(100001) }}",
        "{{ ('a' * 1000000).replace('', 'x' * 1000) }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor "
        "%}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(150) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% endfor %}{{ ns.l == ns.l[0] }}{{ ns.l | tojson | length }}",
        "{% set s = 'a' * 1000000 %}{% for i in range(99) %}{{ s }}{% endfor %}"}) {
    EXPECT_THAT(Shown(source), testing::StartsWith("out_of_range: ")) << source;
  }
  const std::string deep = "{{ " + std::string(500, '(') + "1" + std::string(500, ')') + " }}";
  EXPECT_THAT(Shown(deep), testing::StartsWith("out_of_range: "));
  std::string sum = "{{ 1";
  for (int i = 0; i < 500; ++i) sum += " + 1";
  EXPECT_THAT(Shown(sum + " }}"), testing::StartsWith("out_of_range: "));
  std::string blocks;
  for (int i = 0; i < 500; ++i) blocks += "{% if 1 %}";
  EXPECT_THAT(Shown(blocks), testing::StartsWith("out_of_range: "));
}

}  // namespace
}  // namespace divisi
