//! A tool's result as a model reads it.

use data_encoding::BASE64;
use serde_json::Value;
use toolcrib_runtime::{Content, ToolResult};

use crate::message::{Part, picture_type};

/// The most bytes of the pictures in a result, in base64; providers take about as much.
const MOST_IMAGE_BYTES: usize = 5 << 20;

/// The parts of a result. Text beyond `most` bytes is cut out of the middle, and the model is
/// told how much is missing.
pub(crate) fn parts(result: &ToolResult, most: Option<usize>) -> Vec<Part> {
    let mut room = MOST_IMAGE_BYTES;
    let parts = result.content().into_iter().map(|content| part(content, &mut room));
    let mut parts: Vec<Part> = parts.collect();
    if parts.iter().all(|part| matches!(part, Part::Text { text } if text.is_empty())) {
        let data = result.structured().map(|data| data.to_string());
        parts = vec![Part::text(data.unwrap_or_else(|| "(no output)".to_owned()))];
    }
    match most {
        Some(most) => within(parts, most),
        None => parts,
    }
}

/// As many of the parts as fit, the last of them cut.
fn within(parts: Vec<Part>, most: usize) -> Vec<Part> {
    let (mut kept, mut left, mut dropped) = (Vec::new(), most, 0);
    for part in parts {
        match part {
            Part::Text { .. } if left == 0 => dropped += 1,
            Part::Text { mut text } => {
                let length = text.len();
                shorten(&mut text, left);
                left = left.saturating_sub(length);
                kept.push(Part::Text { text });
            }
            Part::Image { .. } => kept.push(part),
        }
    }
    if dropped > 0 {
        kept.push(Part::text(format!("[{dropped} more parts are left out. Ask for less.]")));
    }
    kept
}

fn part(content: Content, room: &mut usize) -> Part {
    let block = match content {
        Content::Text(text) => return Part::Text { text },
        Content::Block(block) => block,
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let kind = block["type"].as_str().unwrap_or_default();
    let media_type = text(&block["mimeType"]).unwrap_or_else(|| "unknown type".to_owned());
    match (kind, &block["data"], &block["resource"]) {
        ("image", Value::String(data), _) if is_picture(&media_type, data, *room) => {
            *room -= data.len();
            Part::Image { media_type, data: data.clone() }
        }
        ("image" | "audio", Value::String(data), _) => {
            let size = data.len() * 3 / 4 / 1000;
            Part::text(format!("[{kind}, {media_type}, {size} kB, not shown]"))
        }
        ("resource", _, resource) => match (text(&resource["text"]), text(&resource["uri"])) {
            (Some(body), Some(uri)) => Part::text(format!("{uri}:\n{body}")),
            (Some(body), None) => Part::text(body),
            (None, uri) => Part::text(format!(
                "[{}, {}, not shown]",
                uri.unwrap_or_default(),
                text(&resource["mimeType"]).unwrap_or_else(|| "binary".to_owned())
            )),
        },
        _ => Part::text(block.to_string()),
    }
}

/// Whether a provider would take it: one that doesn't would refuse the conversation ever after.
fn is_picture(media_type: &str, data: &str, room: usize) -> bool {
    let has_size = (1..=room).contains(&data.len());
    has_size && picture_type(media_type).is_some() && BASE64.decode(data.as_bytes()).is_ok()
}

fn shorten(text: &mut String, most: usize) {
    if text.len() <= most {
        return;
    }
    let note = |left_out: usize| {
        format!(
            "\n[{left_out} bytes are left out here. Ask for less: a filter, a range, a shorter \
             list.]\n"
        )
    };
    let room = most.saturating_sub(note(text.len()).len());
    let head = text.floor_char_boundary(room / 4 * 3);
    let tail = text.ceil_char_boundary(text.len() - room / 4);
    text.replace_range(head..tail, &note(tail - head));
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    fn result(value: Value) -> ToolResult {
        ToolResult::from_json(to_raw_value(&value).unwrap())
    }

    #[test]
    fn each_kind_of_content_has_a_form() {
        let content = json!([
            {"type": "text", "text": "a"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "b"}},
            {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAAA"}},
            {"type": "resource_link", "uri": "file:///d", "name": "d"},
            7,
        ]);
        assert_eq!(
            parts(&result(json!({"content": content})), None),
            [
                Part::text("a"),
                Part::Image { media_type: "image/png".into(), data: "AAAA".into() },
                Part::text("[audio, audio/wav, 0 kB, not shown]"),
                Part::text("file:///a:\nb"),
                Part::text("[file:///c, binary, not shown]"),
                Part::text(r#"{"type":"resource_link","uri":"file:///d","name":"d"}"#),
                Part::text("7"),
            ]
        );
    }

    #[test]
    fn data_alone_is_shown_and_nothing_is_said_to_be_nothing() {
        for content in [json!([]), json!([{"type": "text", "text": ""}])] {
            let data = json!({"content": content, "structuredContent": {"n": 1}});
            assert_eq!(parts(&result(data), None), [Part::text(r#"{"n":1}"#)]);
        }
        for nothing in
            [json!({}), json!({"content": []}), json!({"content": [{"type": "text", "text": ""}]})]
        {
            assert_eq!(parts(&result(nothing), None), [Part::text("(no output)")]);
        }
    }

    #[test]
    fn long_text_loses_its_middle_and_says_so() {
        let long = format!("begin{}end", "é".repeat(10_000));
        let [Part::Text { text }] = &parts(&ToolResult::text(long.clone()), Some(1000))[..] else {
            panic!()
        };
        assert!(text.len() <= 1000, "{}", text.len());
        assert!(text.starts_with("beginéé") && text.ends_with("ééend"), "{text}");
        let note = text.split('[').nth(1).unwrap();
        let left_out: usize = note.split(' ').next().unwrap().parse().unwrap();
        let kept = text.len() - "\n[".len() - note.split(']').next().unwrap().len() - "]\n".len();
        assert_eq!(left_out + kept, long.len());
    }

    #[test]
    fn pictures_no_provider_takes_are_described() {
        for (media_type, data) in [
            ("image/svg+xml", "AAAA".to_owned()),
            ("image/png", "not base64".to_owned()),
            ("image/png", String::new()),
            ("image/png", "AAAA".repeat(MOST_IMAGE_BYTES / 4 + 1)),
        ] {
            let image = json!({"type": "image", "data": data, "mimeType": media_type});
            let parts = parts(&result(json!({"content": [image]})), None);
            assert!(matches!(&parts[..], [Part::Text { .. }]), "{parts:?}");
        }
        let half = json!({"type": "image", "mimeType": "image/png",
            "data": "AAAA".repeat(MOST_IMAGE_BYTES / 12)});
        let four = parts(&result(json!({"content": [half, half, half, half]})), None);
        let images = four.iter().filter(|part| matches!(part, Part::Image { .. })).count();
        assert_eq!((four.len(), images), (4, 3));
    }

    #[test]
    fn very_many_parts_are_counted_and_not_told() {
        let many = json!({"content": vec![json!({"type": "text", "text": "ten bytes."}); 1000]});
        let parts = parts(&result(many), Some(100));
        assert_eq!(parts.len(), 11);
        assert_eq!(parts[10], Part::text("[990 more parts are left out. Ask for less.]"));
    }

    #[test]
    fn the_limit_is_for_all_parts_together() {
        let two = json!({"content": [{"type": "text", "text": "a".repeat(900)},
            {"type": "text", "text": "b".repeat(900)}]});
        let parts = parts(&result(two), Some(1000));
        assert_eq!(parts[0], Part::text("a".repeat(900)));
        assert!(parts[1].described().contains("left out"), "{parts:?}");
    }
}
