//! Text that came from outside, made fit to stand inside a prompt.

/// One line of at most `max` characters: white space folded, control characters gone.
///
/// Servers write descriptions; a model reads them inside our own text. A line break would let a
/// server start a paragraph that looks like ours.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    let mut length = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control() || is_invisible(c)) {
        if word.is_empty() {
            continue;
        }
        let gap = usize::from(!line.is_empty());
        let size = word.chars().count();
        if length + gap + size > max {
            let room = max.saturating_sub(length + gap + 1);
            if room > 0 {
                if gap == 1 {
                    line.push(' ');
                }
                line.extend(word.chars().take(room));
            }
            line.push('…');
            return line;
        }
        if gap == 1 {
            line.push(' ');
        }
        line.push_str(word);
        length += gap + size;
    }
    line
}

/// Zero-width and direction-changing characters, which hide text from a person but not a model.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{fe00}'..='\u{fe0e}'
        | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

/// The first sentence of a description, as one line of at most `max` characters, without the
/// marks of a Markdown heading, list or quotation before it.
pub(crate) fn first_sentence(text: &str, max: usize) -> String {
    let line = one_line(text, max.max(1) * 4);
    let is_mark = |word: &str| word.chars().all(|c| matches!(c, '#' | '*' | '-' | '>'));
    let mut line = line.as_str();
    while let Some((mark, rest)) = line.split_once(' ')
        && is_mark(mark)
    {
        line = rest;
    }
    let end = line.find(". ").map_or(line.len(), |at| at + 1);
    one_line(&line[..end], max)
}

/// `a, b, c`, or `a, b, … 7 more` where only `most` may be shown; on one line.
pub(crate) fn list<S: AsRef<str>>(items: &[S], most: usize) -> String {
    let shown: Vec<String> =
        items.iter().take(most).map(|item| one_line(item.as_ref(), 300)).collect();
    match items.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{}, … {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_text_becomes_one_line() {
        assert_eq!(one_line("a\r\n\tb\u{0}c \u{202e} d", 80), "a b c d");
        assert_eq!(one_line("", 80), "");
        assert_eq!(one_line(" \n ", 80), "");
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(one_line("héllo wörld", 8), "héllo w…");
        assert_eq!(one_line("𝔘𝔫𝔦𝔠𝔬𝔡𝔢", 4), "𝔘𝔫𝔦…");
        assert!(one_line(&"x".repeat(100_000), 50).chars().count() <= 50);
    }

    #[test]
    fn the_first_sentence_is_kept_whole_when_it_fits() {
        assert_eq!(first_sentence("Reads a file. Use with care.", 80), "Reads a file.");
        assert_eq!(first_sentence("No full stop", 80), "No full stop");
        assert_eq!(first_sentence("v1.2 of the API", 80), "v1.2 of the API");
        assert_eq!(first_sentence("## Reads a file\n\n- fast", 80), "Reads a file - fast");
        assert_eq!(first_sentence("> - -x is a flag.", 80), "-x is a flag.");
        assert_eq!(first_sentence("#", 80), "#");
    }

    #[test]
    fn a_long_list_says_how_much_it_leaves_out() {
        assert_eq!(list(&["a", "b", "c"], 3), "a, b, c");
        assert_eq!(list(&["a", "b", "c"], 1), "a, … 2 more");
        assert_eq!(list(&["a\nb"], 1), "a b");
    }
}
