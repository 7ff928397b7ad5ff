//! A request as the gateway reads it: its parameters, what stands beside them, its era.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use toolcrib_wire::version::{SESSION_VERSIONS, STATELESS_VERSION, meta};
use toolcrib_wire::{Era, Fields, Id, RpcError, code};

/// A request whose parameters have been looked at.
pub(crate) struct Request<'a> {
    pub(crate) id: Id,
    pub(crate) method: Cow<'a, str>,
    pub(crate) params: Params<'a>,
    pub(crate) meta: Meta<'a>,
    pub(crate) era: Era,
}

/// The parameters that any method here reads, each as it came.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Params<'a> {
    #[serde(borrow)]
    pub(crate) name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) protocol_version: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) request_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) notifications: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) cursor: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) level: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) input_responses: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) request_state: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) uri: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) task_id: Option<&'a RawValue>,
    /// All of them, with those that nobody here reads.
    #[serde(skip)]
    pub(crate) whole: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    pub(crate) fn parse(params: Option<&'a RawValue>) -> Result<Self, RpcError> {
        let Some(params) = params else { return Ok(Self::default()) };
        // A derived reader would take a list for an object, member by member.
        if !params.get().starts_with('{') {
            return Err(RpcError::invalid_params("`params` must be an object"));
        }
        let read = serde_json::from_str::<Self>(params.get());
        let read = read.map(|read| Self { whole: Some(params), ..read });
        read.map_err(|error| RpcError::invalid_params(format!("`params` can't be read: {error}")))
    }

    /// A member that should be a string.
    pub(crate) fn text(member: Option<&'a RawValue>) -> Option<Cow<'a, str>> {
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
        serde_json::from_str::<Text<'a>>(member?.get()).ok().map(|text| text.0)
    }
}

/// What a request says beside its parameters.
#[derive(Default)]
pub(crate) struct Meta<'a>(Fields<'a>);

impl<'a> Meta<'a> {
    fn parse(params: &Params<'a>) -> Result<Self, RpcError> {
        let Some(raw) = params.meta.filter(|raw| raw.get() != "null") else {
            return Ok(Self::default());
        };
        let fields = Fields::parse(raw.get());
        fields.map(Self).ok_or_else(|| RpcError::invalid_params("`_meta` must be an object"))
    }

    /// The protocol version the request is in, if it says.
    pub(crate) fn version(&self) -> Option<Cow<'_, str>> {
        self.0.get(meta::PROTOCOL_VERSION).map(|raw| {
            // What is no string is no version, and is shown as it stands.
            Params::text(Some(raw)).unwrap_or_else(|| Cow::Borrowed(raw.get()))
        })
    }

    /// What to name in progress notifications, if they are wanted.
    pub(crate) fn progress_token(&self) -> Option<Box<RawValue>> {
        let token = self.0.get(meta::PROGRESS_TOKEN).filter(|token| token.get() != "null");
        token.map(ToOwned::to_owned)
    }

    /// Which log messages are wanted, if any.
    pub(crate) fn log_level(&self) -> Option<Cow<'_, str>> {
        Params::text(self.0.get(meta::LOG_LEVEL))
    }

    /// What the client can do, where every request says so.
    pub(crate) fn capabilities(&self) -> Option<&RawValue> {
        self.0.get(meta::CLIENT_CAPABILITIES)
    }

    /// What the client calls itself, where every request says so.
    pub(crate) fn client_info(&self) -> Option<&RawValue> {
        self.0.get(meta::CLIENT_INFO)
    }

    /// What is to be passed on to the tool's server.
    pub(crate) fn to_pass_on(&self) -> Option<Box<RawValue>> {
        if self.0.is_empty() {
            return None;
        }
        let mut fields = self.0.clone();
        fields.retain(|key| !meta::HOP_BY_HOP.contains(&key));
        (!fields.is_empty()).then(|| fields.to_raw())
    }
}

impl<'a> Request<'a> {
    /// Reads a request. `header` is the version that an HTTP header gives.
    pub(crate) fn read(
        id: Id,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
        header: Option<&str>,
    ) -> Result<Self, (Id, RpcError)> {
        let read = || {
            let params = Params::parse(params)?;
            let meta = Meta::parse(&params)?;
            let era = era(&meta, header)?;
            Ok((params, meta, era))
        };
        match read() {
            Ok((params, meta, era)) => Ok(Self { id, method, params, meta, era }),
            Err(error) => Err((id, error)),
        }
    }
}

/// The era of a request, by what it says itself and by its header.
fn era(meta: &Meta<'_>, header: Option<&str>) -> Result<Era, RpcError> {
    let said = meta.version();
    let (version, era) = match (said.as_deref(), header) {
        (None, None) => return Ok(Era::Sessions),
        (Some(said), Some(header)) if said != header => {
            let text = format!("MCP-Protocol-Version is `{header}`, but the body says `{said}`");
            return Err(RpcError::new(code::HEADER_MISMATCH, text));
        }
        (Some(version), _) | (None, Some(version)) => (version, Era::of(version)),
    };
    match era {
        None => Err(unsupported(version, &ALL_VERSIONS)),
        Some(Era::Sessions) => Ok(Era::Sessions),
        Some(Era::Stateless) => {
            let required = [meta::PROTOCOL_VERSION, meta::CLIENT_CAPABILITIES];
            match required.into_iter().find(|key| meta.0.get(key).is_none()) {
                Some(key) => Err(RpcError::invalid_params(format!("`_meta` must have `{key}`"))),
                None => Ok(Era::Stateless),
            }
        }
    }
}

/// Every version spoken here, newest first.
pub(crate) const ALL_VERSIONS: [&str; 5] = [
    STATELESS_VERSION,
    SESSION_VERSIONS[0],
    SESSION_VERSIONS[1],
    SESSION_VERSIONS[2],
    SESSION_VERSIONS[3],
];

/// A version that is not spoken.
pub(crate) fn unsupported(requested: &str, supported: &[&str]) -> RpcError {
    let requested: String = requested.chars().take(100).collect();
    RpcError::new(code::UNSUPPORTED_VERSION, "Unsupported protocol version")
        .with_data(&json!({"supported": supported, "requested": requested}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(params: &'a str, header: Option<&str>) -> Result<Request<'a>, i64> {
        let params: &RawValue = serde_json::from_str(params).unwrap();
        let read = Request::read(Id::from(1), "m".into(), Some(params), header);
        read.map_err(|(_, error)| error.code)
    }

    const MODERN: &str = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
        "io.modelcontextprotocol/clientCapabilities":{},"progressToken":1e3,"traceparent":"x"}}"#;

    #[test]
    fn a_request_says_which_era_it_is_of() {
        assert_eq!(read("{}", None).ok().unwrap().era, Era::Sessions);
        assert_eq!(read("{}", Some("2025-06-18")).ok().unwrap().era, Era::Sessions);
        assert_eq!(read(MODERN, None).ok().unwrap().era, Era::Stateless);
        assert_eq!(read(MODERN, Some("2026-07-28")).ok().unwrap().era, Era::Stateless);
        assert_eq!(read(MODERN, Some("2025-06-18")).err(), Some(code::HEADER_MISMATCH));
        assert_eq!(read("{}", Some("2026-07-28")).err(), Some(code::INVALID_PARAMS));
        assert_eq!(read("{}", Some("1999-01-01")).err(), Some(code::UNSUPPORTED_VERSION));
        let odd = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}"#;
        assert_eq!(read(odd, None).err(), Some(code::UNSUPPORTED_VERSION));
    }

    #[test]
    fn what_concerns_one_hop_is_not_passed_on() {
        let request = read(MODERN, None).ok().unwrap();
        assert_eq!(request.meta.progress_token().unwrap().get(), "1e3");
        assert_eq!(request.meta.to_pass_on().unwrap().get(), r#"{"traceparent":"x"}"#);
        assert!(
            read(r#"{"_meta":{"progressToken":1}}"#, None)
                .ok()
                .unwrap()
                .meta
                .to_pass_on()
                .is_none()
        );
    }

    #[test]
    fn params_that_are_no_object_are_refused() {
        for params in ["[]", "7", "\"x\"", r#"{"_meta":[]}"#, r#"["a"]"#] {
            assert_eq!(read(params, None).err(), Some(code::INVALID_PARAMS), "{params}");
        }
    }
}
