use super::*;

fn read(html: &str) -> Document {
    Document::read(html, &Url::parse("https://example.org/dir/page").unwrap())
}

fn text(html: &str) -> String {
    read(html).text
}

#[test]
fn a_page_becomes_markdown() {
    let html = "<!doctype html><html><head><title>A &amp; B</title><style>p{}</style></head><body>
        <h1>Head <em>line</em></h1><p>Some <b>bold</b> text with <code>code</code>,<br>a break
        and a <a href='../x?a=1&amp;b=2'>link</a>.</p><script>alert('<p>')</script><hr>
        <blockquote><p>One</p><p>Two</p></blockquote><img src=a.png alt='A picture'></body></html>";
    let page = read(html);
    assert_eq!(page.title.as_deref(), Some("A & B"));
    let expected = "# Head *line*\n\nSome **bold** text with `code`,\na break and a \
        [link](https://example.org/x?a=1&b=2).\n\n---\n\n> One\n>\n> Two\n\n\
        ![A picture](https://example.org/dir/a.png)";
    assert_eq!(page.text, expected);
    let link = Link { text: "link".to_owned(), url: "https://example.org/x?a=1&b=2".to_owned() };
    assert_eq!(page.links, [link]);
}

#[test]
fn lists_nest_and_count() {
    let html =
        "<ul><li>One<ul><li>Inner</li></ul></li><li><p>Two</p></li></ul><ol><li>A<li>B</ol><p>End";
    assert_eq!(text(html), "- One\n  - Inner\n- Two\n\n1. A\n2. B\n\nEnd");
}

#[test]
fn code_keeps_its_lines() {
    let html = "<p>Run</p><pre><code>fn main() {\n    a &lt; b;\n}</code></pre><p>Done</p>";
    assert_eq!(text(html), "Run\n\n```\nfn main() {\n    a < b;\n}\n```\n\nDone");
}

#[test]
fn tables_get_a_header_line() {
    let html = "<table><thead><tr><th>A</th><th>B</th></tr></thead><tbody><tr><td>1<p>x</p></td><td></td></tr>
        <tr><td>2<td>3</table><p>End</p>";
    assert_eq!(text(html), "| A | B |\n| --- | --- |\n| 1 x |  |\n| 2 | 3 |\n\nEnd");
}

#[test]
fn empty_marks_leave_nothing() {
    assert_eq!(text("<p>a <b> </b><a href='/x'></a><h2></h2><em></em>b</p>"), "a\n\nb");
    assert_eq!(text("<p>a<b> bold </b>c</p>"), "a **bold** c");
}

#[test]
fn a_marked_main_part_is_the_text_but_links_come_from_everywhere() {
    let body = "word ".repeat(100);
    let page = read(&format!(
        "<nav><a href=/home>Home</a></nav><main><p>{body}</p></main><footer>Foot</footer>"
    ));
    assert_eq!(page.text, body.trim());
    assert_eq!(page.links.len(), 1);
    assert_eq!(text("<p>Before<main><p>Short</p></main>After"), "Before\n\nShort\n\nAfter");
}

#[test]
fn what_is_not_for_reading_is_left_out() {
    let html = "a<script/>alert(1)</script><svg/> b <svg><title>icon</title><svg></svg>x</svg>c<template>t</template>";
    assert_eq!(text(html), "a b c");
    assert_eq!(read(html).title, None);
}

#[test]
fn links_that_run_code_are_no_links() {
    let page =
        read("<a href='javascript:alert(1)'>x</a> <a href='data:text/html,x'>y</a> <a>z</a>");
    assert_eq!(page.text, "x y z");
    assert!(page.links.is_empty());
}

#[test]
fn hostile_pages_cost_no_more_than_their_length() {
    let deep = 20_000;
    for tag in
        ["div", "blockquote", "ul", "ul><li", "b", "a href=x", "table><tr><td", "svg", "pre", "h1"]
    {
        let page = text(&format!("{}x", format!("<{tag}>").repeat(deep)));
        assert!(page.len() <= MOST_TEXT + 1_000, "{tag}: {}", page.len());
    }
    for tag in ["div", "b", "a", "table", "svg", "pre", "blockquote", "ul", "td"] {
        text(&format!("x{}", format!("</{tag}>").repeat(deep)));
    }
    for broken in [
        "<",
        "<a",
        "<a href=",
        "<!--",
        "<![CDATA[",
        "&",
        "&#x110000;",
        "<script>",
        "<title>",
        "</",
        "\0<p\0>",
    ] {
        text(&broken.repeat(1_000));
        text(broken);
    }
    let links = text(&"<a href=x>y</a>".repeat(deep));
    assert!(links.len() <= MOST_TEXT + 1_000);
}
