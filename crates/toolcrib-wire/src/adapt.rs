//! Results and errors in the words of an era, for a client whose server speaks the other.

use memchr::memmem;

use crate::{Era, Fields, RpcError, code};

/// The member that says what kind of a result it is.
const KIND: &str = "resultType";

/// What it says of a result that is whole.
const COMPLETE: &str = "complete";

/// What a result that may be kept for a while says, and what is said for a server that doesn't:
/// that it may not be.
const KEPT: [(&str, &str); 2] = [("ttlMs", "0"), ("cacheScope", "\"private\"")];

/// A method's result as an era wants it. In one, a result says whether it is complete and, where
/// it is a list or a resource, for how long it holds; the other knows nothing of that.
///
/// Fails where a client of the session era would take for a result what is none.
///
/// ```
/// use toolcrib_wire::{Era, result_in_era};
///
/// let result = r#"{"messages":[]}"#.to_owned();
/// let result = result_in_era("prompts/get", result, Era::Stateless)?;
/// assert_eq!(result, r#"{"resultType":"complete","messages":[]}"#);
/// # Ok::<_, toolcrib_wire::RpcError>(())
/// ```
pub fn result_in_era(method: &str, json: String, era: Era) -> Result<String, RpcError> {
    let mentions = |name: &str| memmem::find(json.as_bytes(), name.as_bytes()).is_some();
    let kind = || Fields::parse(&json).and_then(|fields| fields.read::<String>(KIND));
    let kind = if mentions(KIND) { kind() } else { None };
    match (era, kind.as_deref()) {
        (Era::Sessions, None) => Ok(json),
        (Era::Sessions, Some(COMPLETE)) => Ok(without_kind(json)),
        (Era::Sessions, Some(other)) => {
            let text = format!(
                "The server answered with something other than a result (`{other}`), which \
                 clients with sessions can't be given"
            );
            Err(RpcError::new(code::INTERNAL_ERROR, text))
        }
        (Era::Stateless, Some(COMPLETE)) | (Era::Stateless, None) => {
            let mut front = String::new();
            if kind.is_none() {
                front.push_str(r#""resultType":"complete","#);
            }
            if holds_for_a_while(method) {
                let may_say = KEPT.iter().any(|(name, _)| mentions(name));
                let fields = if may_say { Fields::parse(&json) } else { None }.unwrap_or_default();
                for (name, value) in KEPT.iter().filter(|(name, _)| fields.get(name).is_none()) {
                    front.push_str(&format!(r#""{name}":{value},"#));
                }
            }
            Ok(with_first(json, &front))
        }
        (Era::Stateless, Some(_)) => Ok(json),
    }
}

/// An error of a method as an era wants it: what is no resource has a code of its own in one.
pub fn error_in_era(method: &str, mut error: RpcError, era: Era) -> RpcError {
    if method == "resources/read" {
        // Only what names the resource is about it: parameters may be wrong otherwise.
        let about = error.data.as_ref().and_then(|data| Fields::parse(data.get()));
        let names_it = about.is_some_and(|about| about.get("uri").is_some());
        error.code = match (era, error.code) {
            (Era::Stateless, code::RESOURCE_NOT_FOUND) => code::INVALID_PARAMS,
            (Era::Sessions, code::INVALID_PARAMS) if names_it => code::RESOURCE_NOT_FOUND,
            (_, other) => other,
        };
    }
    error
}

/// Whether the stateless era wants to be told how long the result of a method holds.
fn holds_for_a_while(method: &str) -> bool {
    method.ends_with("/list") && !method.starts_with("tasks/")
        || matches!(method, "resources/read" | "server/discover")
}

fn without_kind(json: String) -> String {
    let Some(mut fields) = Fields::parse(&json) else { return json };
    fields.remove(KIND);
    fields.to_text()
}

/// Puts members (each with its comma) at the front, so that the rest is moved and not read.
fn with_first(mut json: String, members: &str) -> String {
    if let Some(rest) = json.trim_start().strip_prefix('{') {
        let is_empty = rest.trim_start().starts_with('}');
        let members = if is_empty { members.trim_end_matches(',') } else { members };
        let at = json.len() - rest.len();
        // Its room is not doubled: it may be long.
        json.reserve_exact(members.len());
        json.insert_str(at, members);
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OLD: Era = Era::Sessions;
    const NEW: Era = Era::Stateless;

    #[test]
    fn a_result_says_that_it_is_complete_where_that_is_said() {
        for (json, era, expected) in [
            (r#"{"content":[]}"#, NEW, r#"{"resultType":"complete","content":[]}"#),
            (r#" { } "#, NEW, r#" {"resultType":"complete" } "#),
            (r#"{"resultType":"task","x":1.0}"#, NEW, r#"{"resultType":"task","x":1.0}"#),
            (
                r#"{"content":["resultType"]}"#,
                NEW,
                r#"{"resultType":"complete","content":["resultType"]}"#,
            ),
            ("null", NEW, "null"),
            (r#"{ "content":[] }"#, OLD, r#"{ "content":[] }"#),
            (r#"{"resultType":"complete","x":1.0}"#, OLD, r#"{"x":1.0}"#),
            (r#"{"content":["resultType"]}"#, OLD, r#"{"content":["resultType"]}"#),
            ("7", OLD, "7"),
        ] {
            assert_eq!(result_in_era("tools/call", json.to_owned(), era).as_deref(), Ok(expected));
        }
        let asks = r#"{"resultType":"input_required"}"#;
        assert!(result_in_era("tools/call", asks.to_owned(), OLD).is_err());
    }

    #[test]
    fn what_may_be_kept_says_for_how_long_in_one_era() {
        let kept = |method, json: &str| result_in_era(method, json.to_owned(), NEW).unwrap();
        let hints = r#""ttlMs":0,"cacheScope":"private""#;
        for method in ["resources/list", "resources/templates/list", "prompts/list"] {
            let expected = format!(r#"{{"resultType":"complete",{hints},"x":[1.0]}}"#);
            assert_eq!(kept(method, r#"{"x":[1.0]}"#), expected, "{method}");
        }
        assert_eq!(
            kept("resources/read", r#"{"ttlMs":7,"contents":[]}"#),
            r#"{"resultType":"complete","cacheScope":"private","ttlMs":7,"contents":[]}"#
        );
        let whole = r#"{"resultType":"complete","ttlMs":7,"cacheScope":"public","x":"ttlMs"}"#;
        assert_eq!(kept("prompts/list", whole), whole);
        let asks = r#"{"resultType":"input_required"}"#;
        assert_eq!(kept("resources/read", asks), asks);
        let got = r#"{"resultType":"complete","messages":[]}"#;
        assert_eq!(kept("prompts/get", r#"{"messages":[]}"#), got);
        let plain = r#"{"resources":[]}"#;
        assert_eq!(result_in_era("resources/list", plain.to_owned(), OLD).as_deref(), Ok(plain));
    }

    #[test]
    fn a_resource_that_is_not_there_has_the_code_of_the_era() {
        let (gone, wrong) = (code::RESOURCE_NOT_FOUND, code::INVALID_PARAMS);
        let named = |code| RpcError::new(code, "no").with_data(&json!({"uri": "a:b"}));
        let code = |method: &str, error, era| error_in_era(method, error, era).code;
        assert_eq!(code("resources/read", named(gone), NEW), wrong);
        assert_eq!(code("resources/read", named(wrong), OLD), gone);
        assert_eq!(code("resources/read", RpcError::new(wrong, "no uri"), OLD), wrong);
        assert_eq!(code("resources/read", named(gone), OLD), gone);
        assert_eq!(code("prompts/get", named(gone), NEW), gone);
        assert_eq!(
            error_in_era("resources/read", named(gone), NEW).data.unwrap().get(),
            r#"{"uri":"a:b"}"#
        );
    }
}
