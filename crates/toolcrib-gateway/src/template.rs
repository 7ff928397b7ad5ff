//! Which resources a template stands for: enough of RFC 6570 to see whose a resource is.

/// A template of uris. What it stands for is up to its server; this only says what may be it.
#[derive(Debug)]
pub(crate) struct Template(Vec<Part>);

#[derive(Debug)]
enum Part {
    Literal(String),
    /// `{name}`: something, within one segment.
    Segment,
    /// `{+name}`: something.
    Anything,
    /// `{?name}`, `{/name}`, `{#name}` and the like: nothing, or something that begins so.
    Optional(char),
}

/// Longer uris match no template.
const LONGEST: usize = 2 << 10;

/// Templates of more parts match nothing.
const MOST_PARTS: usize = 32;

impl Template {
    pub(crate) fn parse(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((literal, (inside, after))) =
            rest.split_once('{').and_then(|(before, after)| Some((before, after.split_once('}')?)))
        {
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            parts.push(match inside.chars().next() {
                Some('+') => Part::Anything,
                Some(first @ ('?' | '&' | '/' | '#' | '.' | ';')) => Part::Optional(first),
                _ => Part::Segment,
            });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Self(parts)
    }

    pub(crate) fn matches(&self, uri: &str) -> bool {
        let bytes = uri.as_bytes();
        if bytes.len() > LONGEST || self.0.len() > MOST_PARTS {
            return false;
        }
        // Every place that the parts so far may end at: the time is the product of both lengths,
        // whatever they are.
        let mut ends = vec![false; bytes.len() + 1];
        ends[0] = true;
        for part in &self.0 {
            ends = part.step(bytes, &ends);
            if !ends.contains(&true) {
                return false;
            }
        }
        ends[bytes.len()]
    }
}

impl Part {
    /// Where this part may end, by where it may begin.
    fn step(&self, bytes: &[u8], begins: &[bool]) -> Vec<bool> {
        let mut ends = vec![false; begins.len()];
        match self {
            Self::Literal(text) => {
                for (at, _) in begins.iter().enumerate().filter(|(_, begins)| **begins) {
                    if bytes[at..].starts_with(text.as_bytes()) {
                        ends[at + text.len()] = true;
                    }
                }
            }
            Self::Segment => spread(bytes, begins, &mut ends, |byte| !b"/?#".contains(&byte)),
            Self::Anything => spread(bytes, begins, &mut ends, |_| true),
            Self::Optional(first) => {
                let first = *first as u8;
                let at_first = |at: usize| begins[at] && bytes.get(at) == Some(&first);
                let begun: Vec<bool> = (0..begins.len()).map(at_first).collect();
                spread(bytes, &begun, &mut ends, |_| true);
                ends.iter_mut().zip(begins).for_each(|(end, begin)| *end |= *begin);
            }
        }
        ends
    }
}

/// Marks every place that one or more fitting bytes lead to.
fn spread(bytes: &[u8], begins: &[bool], ends: &mut [bool], fits: impl Fn(u8) -> bool) {
    let mut under_way = false;
    for (at, byte) in bytes.iter().enumerate() {
        under_way = (under_way || begins[at]) && fits(*byte);
        ends[at + 1] |= under_way;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_stands_for_what_it_can_expand_to() {
        for (template, fitting, others) in [
            (
                "test://template/{id}/data",
                &["test://template/7/data", "test://template/a%2Fb/data"][..],
                &["test://template//data", "test://template/a/b/data", "test://template/7"][..],
            ),
            ("file:///{+path}", &["file:///a/b.txt", "file:///x"], &["file:///", "file://a"]),
            ("db://t{?q,r}", &["db://t", "db://t?q=1"], &["db://tq=1", "db://u?q=1"]),
            (
                "repo://{o}/{r}{/path*}",
                &["repo://a/b", "repo://a/b/c/d"],
                &["repo://a", "repo:///b"],
            ),
            ("plain:x", &["plain:x"], &["plain:xy", "plain:", ""]),
            ("odd:{x", &["odd:{x"], &["odd:1"]),
            ("{+all}", &["a:b", "é"], &[""]),
        ] {
            let parsed = Template::parse(template);
            fitting.iter().for_each(|uri| assert!(parsed.matches(uri), "{template} {uri}"));
            others.iter().for_each(|uri| assert!(!parsed.matches(uri), "{template} {uri}"));
        }
    }

    #[test]
    fn no_template_takes_long() {
        let template = Template::parse(&"{+a}x".repeat(MOST_PARTS / 2));
        assert!(template.matches(&"x".repeat(LONGEST)) && !template.matches(&"y".repeat(LONGEST)));
        assert!(!template.matches(&"x".repeat(LONGEST + 1)));
        assert!(!Template::parse(&"{+a}x".repeat(MOST_PARTS)).matches("axaxax"));
    }
}
