//! HTML as Markdown, in one pass over its tags.
//!
//! No tree is built and nothing recurses: a page nested a million deep, or one that is broken all
//! over, costs no more than its length.

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use reqwest::Url;

/// Links repeat the page's address, so the text may grow far beyond the page.
const MOST_TEXT: usize = 8 * 1024 * 1024;
const MOST_LINKS: usize = 10_000;
const DEEPEST: usize = 12;
/// A `main` part shorter than this is taken for an empty frame.
const LEAST_MAIN: usize = 200;

/// What a page says.
pub(super) struct Document {
    pub(super) title: Option<String>,
    pub(super) text: String,
    pub(super) links: Vec<Link>,
}

/// A link on a page.
#[derive(Debug, PartialEq)]
pub(super) struct Link {
    pub(super) text: String,
    pub(super) url: String,
}

impl Document {
    /// Reads a page. If it marks its main part, the text is that part.
    pub(super) fn read(html: &str, url: &Url) -> Self {
        let mut emitter = DefaultEmitter::default();
        emitter.naively_switch_states(true);
        let mut writer = Writer::new(url);
        for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
            match token {
                Token::StartTag(tag) => writer.open(&tag),
                Token::EndTag(tag) => writer.close(&tag.name),
                Token::String(text) => writer.text(&String::from_utf8_lossy(&text.value)),
                _ => {}
            }
            if writer.out.len() > MOST_TEXT {
                break;
            }
        }
        writer.finish()
    }
}

struct Writer<'a> {
    page: &'a Url,
    out: String,
    title: String,
    links: Vec<Link>,
    /// An element that is left out with all it holds, and how many of its kind are open.
    skipped: Option<(Vec<u8>, usize)>,
    in_title: bool,
    in_pre: bool,
    in_cell: bool,
    /// Line ends that stand before the next text.
    gap: usize,
    space: bool,
    /// What opens with the next text: a heading's marks, a list item's, emphasis, a link.
    marker: String,
    opening: String,
    /// Emphasis that is open.
    emphasis: Vec<&'static str>,
    link: Option<Link>,
    /// For each open list the number of its next item, if it is numbered.
    lists: Vec<Option<u32>>,
    quotes: usize,
    /// How deep in quotes the last line stands: an empty line after it goes no deeper.
    quoted: usize,
    /// Cells in the current row, and whether it is the table's first.
    cells: usize,
    is_first_row: bool,
    main: (Option<usize>, Option<usize>),
}

impl<'a> Writer<'a> {
    fn new(page: &'a Url) -> Self {
        Self {
            page,
            out: String::new(),
            title: String::new(),
            links: Vec::new(),
            skipped: None,
            in_title: false,
            in_pre: false,
            in_cell: false,
            gap: 0,
            space: false,
            marker: String::new(),
            opening: String::new(),
            emphasis: Vec::new(),
            link: None,
            lists: Vec::new(),
            quotes: 0,
            quoted: 0,
            cells: 0,
            is_first_row: false,
            main: (None, None),
        }
    }

    fn open(&mut self, tag: &StartTag<()>) {
        let name = tag.name.as_slice();
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth += usize::from(skipped == name && !tag.self_closing);
            return;
        }
        match name {
            // Of these two an empty element may be written as one tag.
            b"svg" | b"math" if tag.self_closing => {}
            b"script" | b"style" | b"noscript" | b"template" | b"svg" | b"math" | b"iframe"
            | b"select" | b"textarea" | b"canvas" => self.skipped = Some((name.to_vec(), 1)),
            b"title" => self.in_title = self.title.is_empty(),
            b"main" => {
                self.block(2);
                self.main.0.get_or_insert(self.out.len());
            }
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.block(2);
                let level = usize::from(name[1] - b'0');
                self.marker = format!("{} ", "#".repeat(level));
            }
            b"ul" | b"ol" => {
                self.block(if self.lists.is_empty() { 2 } else { 1 });
                if self.lists.len() < DEEPEST {
                    self.lists.push((name == b"ol").then_some(1));
                }
            }
            b"li" => {
                self.block(1);
                self.marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let marker = format!("{number}. ");
                        *number = number.saturating_add(1);
                        marker
                    }
                    _ => "- ".to_owned(),
                };
            }
            b"blockquote" => {
                self.block(2);
                self.quotes = (self.quotes + 1).min(DEEPEST);
            }
            b"pre" => {
                self.block(2);
                self.begin();
                self.out.push_str("```\n");
                self.in_pre = true;
            }
            b"table" => {
                self.block(2);
                self.is_first_row = true;
            }
            b"tr" => {
                self.end_row();
                self.block(1);
            }
            b"td" | b"th" => self.open_cell(),
            b"br" => self.block(1),
            b"hr" => {
                self.block(2);
                self.begin();
                self.out.push_str("---");
                self.block(2);
            }
            b"strong" | b"b" => self.emphasise("**"),
            b"em" | b"i" => self.emphasise("*"),
            b"del" | b"s" => self.emphasise("~~"),
            b"code" | b"kbd" | b"samp" if !self.in_pre => self.emphasise("`"),
            b"a" => self.open_link(attribute(tag, b"href")),
            b"img" => self.image(attribute(tag, b"alt"), attribute(tag, b"src")),
            b"dt" | b"dd" | b"summary" | b"caption" | b"figcaption" => self.block(1),
            name if is_block(name) => self.block(2),
            _ => {}
        }
    }

    fn close(&mut self, name: &[u8]) {
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth -= usize::from(skipped == name);
            if *depth == 0 {
                self.skipped = None;
            }
            return;
        }
        match name {
            b"title" => self.in_title = false,
            b"main" => {
                self.main.1 = Some(self.out.len());
                self.block(2);
            }
            b"ul" | b"ol" => {
                self.lists.pop();
                self.block(if self.lists.is_empty() { 2 } else { 1 });
            }
            b"blockquote" => {
                self.quotes = self.quotes.saturating_sub(1);
                self.block(2);
            }
            b"pre" if self.in_pre => {
                self.in_pre = false;
                if !self.out.ends_with('\n') {
                    self.out.push('\n');
                }
                self.out.push_str("```");
                self.block(2);
            }
            b"td" | b"th" => self.in_cell = false,
            b"tr" => self.end_row(),
            b"table" => {
                self.end_row();
                self.block(2);
            }
            b"strong" | b"b" => self.relax("**"),
            b"em" | b"i" => self.relax("*"),
            b"del" | b"s" => self.relax("~~"),
            b"code" | b"kbd" | b"samp" if !self.in_pre => self.relax("`"),
            b"a" => self.close_link(),
            b"li" | b"dt" | b"dd" | b"summary" | b"caption" | b"figcaption" => self.block(1),
            name if is_heading(name) => {
                self.marker.clear();
                self.block(2);
            }
            name if is_block(name) => self.block(2),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            self.title.push_str(text);
            return;
        }
        if self.in_pre {
            self.out.push_str(text);
            return;
        }
        self.space |= text.starts_with(char::is_whitespace);
        for word in text.split_whitespace() {
            self.begin();
            self.out.push_str(word);
            if let Some(link) = &mut self.link {
                if !link.text.is_empty() {
                    link.text.push(' ');
                }
                link.text.push_str(word);
            }
            self.space = true;
        }
        self.space = text.ends_with(char::is_whitespace);
    }

    /// Asks for line ends before the next text. Within a cell or a link there are none, as they
    /// would break it.
    fn block(&mut self, gap: usize) {
        if self.in_pre {
            return;
        }
        if self.in_cell || self.link.is_some() {
            self.space = true;
        } else {
            let most = if self.marker.is_empty() { 2 } else { 1 };
            self.gap = self.gap.max(gap).min(most);
            self.space = false;
        }
    }

    /// Writes what stands before the next text.
    fn begin(&mut self) {
        if self.gap > 0 || self.out.is_empty() {
            let quote = "> ".repeat(self.quotes);
            if !self.out.is_empty() {
                self.out.push('\n');
                if self.gap > 1 {
                    let between = "> ".repeat(self.quotes.min(self.quoted));
                    self.out.push_str(between.trim_end());
                    self.out.push('\n');
                }
            }
            self.out.push_str(&quote);
            self.quoted = self.quotes;
            let is_item =
                self.marker.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
            let depth = self.lists.len().saturating_sub(usize::from(is_item));
            self.out.push_str(&"  ".repeat(depth));
        } else if self.space && !self.out.ends_with([' ', '\n']) {
            self.out.push(' ');
        }
        self.out.push_str(&self.marker);
        self.out.push_str(&self.opening);
        self.marker.clear();
        self.opening.clear();
        self.gap = 0;
        self.space = false;
    }

    fn emphasise(&mut self, mark: &'static str) {
        if self.emphasis.contains(&mark) {
            return;
        }
        self.emphasis.push(mark);
        self.opening.push_str(mark);
    }

    fn relax(&mut self, mark: &'static str) {
        let Some(at) = self.emphasis.iter().rposition(|open| *open == mark) else { return };
        self.emphasis.remove(at);
        match self.opening.strip_suffix(mark) {
            // Nothing was emphasised.
            Some(before) => self.opening.truncate(before.len()),
            None => self.out.push_str(mark),
        }
    }

    fn open_link(&mut self, href: Option<String>) {
        self.close_link();
        let target = href.and_then(|href| self.page.join(href.trim()).ok());
        let target = target.filter(|url| matches!(url.scheme(), "http" | "https" | "mailto"));
        if let Some(url) = target {
            self.link = Some(Link { text: String::new(), url: url.into() });
            self.opening.push('[');
        }
    }

    fn close_link(&mut self) {
        let Some(link) = self.link.take() else { return };
        if let Some(before) = self.opening.strip_suffix('[') {
            self.opening.truncate(before.len());
            return;
        }
        self.out.push_str(&format!("]({})", link.url));
        if self.links.len() < MOST_LINKS && !link.url.starts_with("mailto:") {
            self.links.push(link);
        }
    }

    fn image(&mut self, alt: Option<String>, source: Option<String>) {
        let alt = alt.unwrap_or_default().split_whitespace().collect::<Vec<&str>>().join(" ");
        let url = source.and_then(|source| self.page.join(source.trim()).ok());
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        if let (Some(url), false) = (url, alt.is_empty()) {
            self.begin();
            self.out.push_str(&format!("![{alt}]({url})"));
        }
    }

    fn open_cell(&mut self) {
        self.in_cell = false;
        if self.cells == 0 {
            self.block(1);
            self.begin();
            self.out.push_str("| ");
        } else {
            self.out.push_str(" | ");
        }
        self.cells += 1;
        self.in_cell = true;
        self.space = false;
    }

    fn end_row(&mut self) {
        self.in_cell = false;
        if self.cells == 0 {
            return;
        }
        self.out.push_str(" |");
        if std::mem::take(&mut self.is_first_row) {
            self.block(1);
            self.begin();
            self.out.push_str(&format!("|{}", " --- |".repeat(self.cells.min(1_000))));
        }
        self.cells = 0;
        self.block(1);
    }

    fn finish(mut self) -> Document {
        self.close_link();
        if self.in_pre {
            self.out.push_str("\n```");
        }
        let main = match self.main {
            (Some(start), end) => self.out.get(start..end.unwrap_or(self.out.len())),
            _ => None,
        };
        let main = main.map(str::trim).filter(|main| main.len() >= LEAST_MAIN);
        let text = main.unwrap_or(self.out.trim()).to_owned();
        let title = self.title.split_whitespace().collect::<Vec<&str>>().join(" ");
        let title = (!title.is_empty()).then_some(title);
        Document { title, text, links: self.links }
    }
}

fn attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    tag.attributes.get(name).map(|value| String::from_utf8_lossy(&value.value).into_owned())
}

fn is_heading(name: &[u8]) -> bool {
    matches!(name, [b'h', b'1'..=b'6'])
}

fn is_block(name: &[u8]) -> bool {
    const BLOCKS: [&[u8]; 16] = [
        b"p",
        b"div",
        b"section",
        b"article",
        b"header",
        b"footer",
        b"aside",
        b"nav",
        b"figure",
        b"dl",
        b"form",
        b"fieldset",
        b"address",
        b"details",
        b"body",
        b"center",
    ];
    BLOCKS.contains(&name)
}

#[cfg(test)]
mod tests;
