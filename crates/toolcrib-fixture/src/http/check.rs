//! What headers have to say.

use axum::http::StatusCode;
use axum::http::header::{HOST, HeaderMap, ORIGIN};
use serde_json::Value;
use toolcrib_wire::version::{header, meta};
use toolcrib_wire::{RpcError, code};

use super::Refused;
use crate::server::Server;
use crate::tools;

/// Refuses what a web page may have sent under a name of its own.
pub(super) fn local(headers: &HeaderMap) -> Result<(), Refused> {
    for name in [HOST, ORIGIN] {
        if let Some(value) = headers.get(&name) {
            let value = value.to_str().unwrap_or_default();
            let host = value.split_once("://").map_or(value, |(_, host)| host);
            let bare = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
            let bare = bare.map_or(host, |(bare, _)| bare);
            if !matches!(bare, "localhost" | "127.0.0.1" | "[::1]") {
                let text = "Host and Origin must name this machine";
                return Err(Refused(StatusCode::FORBIDDEN, text));
            }
        }
    }
    Ok(())
}

/// The version in the header is the one in the request.
pub(super) fn version(headers: &HeaderMap, params: &Value) -> Result<(), RpcError> {
    let inside = params["_meta"][meta::PROTOCOL_VERSION].as_str();
    match (one(headers, header::PROTOCOL_VERSION), inside) {
        (Some(outside), Some(inside)) if outside == inside => Ok(()),
        // What is missing inside is told by the check of `_meta`.
        (Some(_), None) => Ok(()),
        _ => Err(mismatch(header::PROTOCOL_VERSION)),
    }
}

/// So are the method, and what the request is about.
pub(super) fn method(headers: &HeaderMap, method: &str, params: &Value) -> Result<(), RpcError> {
    if one(headers, header::METHOD) != Some(method) {
        return Err(mismatch(header::METHOD));
    }
    let about = match method {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params["taskId"].as_str(),
        _ => return Ok(()),
    };
    let named = one(headers, header::NAME).and_then(decoded);
    if about.is_some() && named.as_deref() != about {
        return Err(mismatch(header::NAME));
    }
    Ok(())
}

/// And so are the arguments that a tool's schema wants in headers.
pub(super) fn arguments(
    server: &Server,
    headers: &HeaderMap,
    method: &str,
    params: &Value,
) -> Result<(), RpcError> {
    let name = params["name"].as_str().filter(|_| method == "tools/call");
    let Some(schema) = name.and_then(|name| tools::schema(server, name)) else { return Ok(()) };
    for (property, schema) in schema["properties"].as_object().into_iter().flatten() {
        let Some(header) = schema["x-mcp-header"].as_str() else { continue };
        let header = format!("mcp-param-{}", header.to_ascii_lowercase());
        let said = match &params["arguments"][property] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        let given = one(headers, &header);
        if given.and_then(decoded) != said || given.is_some() != said.is_some() {
            return Err(mismatch(&header));
        }
    }
    Ok(())
}

fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

/// A value that could not stand in a header stands there in Base64.
fn decoded(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(value.to_owned()),
        Some(base64) => {
            let bytes = data_encoding::BASE64.decode(base64.as_bytes()).ok()?;
            String::from_utf8(bytes).ok()
        }
    }
}

fn mismatch(header: &str) -> RpcError {
    let text = format!("Header mismatch: {header} must repeat what the request says");
    RpcError::new(code::HEADER_MISMATCH, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_local() {
        let with = |name: &'static str, value: &str| {
            HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
        };
        for value in ["localhost", "localhost:80", "127.0.0.1:9", "[::1]:1", "[::1]"] {
            assert!(local(&with("host", value)).is_ok(), "{value}");
            assert!(local(&with("origin", &format!("http://{value}"))).is_ok(), "{value}");
        }
        for value in ["evil.example.com", "localhost.evil.com", "127.0.0.1.evil.com:80", "null"] {
            assert!(local(&with("host", value)).is_err(), "{value}");
            assert!(local(&with("origin", &format!("http://{value}"))).is_err(), "{value}");
        }
    }

    #[test]
    fn base64_is_read_strictly() {
        assert_eq!(decoded("=?base64?SGVsbG8=?=").as_deref(), Some("Hello"));
        assert_eq!(decoded("=?base64?SGVsbG8?="), None);
        assert_eq!(decoded("=?base64?SGVs!!!bG8=?="), None);
        assert_eq!(decoded("=?base64?SGVsbG8=").as_deref(), Some("=?base64?SGVsbG8="));
    }
}
