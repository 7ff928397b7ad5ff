//! What the callers of a server with a fault are to be told.

/// What becomes of their calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Expect {
    /// They are served.
    Works,
    /// They fail, and the reason says this.
    Reason(&'static str),
    /// Some are served; of those that fail the reason says this.
    Either(&'static str),
}

use Expect::{Either, Reason, Works};

const STARTING: &str =
    "server `bad` is starting|did not start within|does not answer \\(it did not start";
const SILENT: &str = "Server `bad` did not answer within 3s\\. The call may have taken effect";
const ENDED: &str = "it ended \\((exit status: 1|signal: 9)";
/// A server of the newer era asks in its answer, and asks again whatever it is told.
const ASKED: &str = "asks for more input|asks again and again";
const LISTED_LATE: &str = "server `bad` is starting";

/// By fault: every fault of the hostile server has a line.
const EXPECTED: &[(&str, Expect)] = &[
    ("hang-at-initialize", Reason(STARTING)),
    ("hang-at-discover", Reason(STARTING)),
    ("hang-at-initialized", Reason(STARTING)),
    ("hang-at-list", Reason(STARTING)),
    ("hang-at-call", Reason(SILENT)),
    ("hang-at-shutdown", Works),
    ("never-read", Reason(STARTING)),
    // The first call is answered.
    ("stop-reading", Either(SILENT)),
    ("slow-answers", Works),
    ("exit-at-start", Reason(ENDED)),
    ("exit-after-handshake", Reason(ENDED)),
    ("exit-at-list", Reason(ENDED)),
    ("exit-at-call", Reason(ENDED)),
    ("killed-at-call", Reason(ENDED)),
    ("die-mid-answer", Reason(ENDED)),
    ("garbage", Works),
    // Sixteen megabytes a call take their time; what comes of it is served or late.
    ("flood", Either(SILENT)),
    ("flood-stderr", Works),
    ("drip", Either(SILENT)),
    // Lines that are no messages are all that comes.
    ("pretty-print", Reason(SILENT)),
    ("endless-output", Reason(SILENT)),
    ("endless-pages", Either(LISTED_LATE)),
    ("repeating-pages", Works),
    ("many-tools", Reason("too long: more than|server `bad` is starting")),
    ("big-schema", Either(LISTED_LATE)),
    ("deep-schema", Works),
    ("looping-schema", Works),
    ("schema-bomb", Works),
    ("schema-changes", Works),
    ("malformed-tools", Works),
    ("same-names", Works),
    ("lookalikes", Works),
    ("odd-names", Works),
    ("borrowed-names", Works),
    ("posing-descriptions", Works),
    // What a result says is the caller's to judge: it arrives as it was sent.
    ("posing-results", Reason("^another result: Done\\.")),
    ("wrong-ids", Reason(SILENT)),
    ("duplicate-answers", Works),
    ("wrong-types", Either("is no result|^another result: ")),
    ("result-and-error", Either("It failed as well")),
    ("error-answers", Reason("It failed, as it was told to")),
    ("odd-version", Reason("it speaks version `1999-12-31` of MCP")),
    // Ten megabytes arrive as they were sent, or are late.
    ("huge-result", Reason("^another result: 0123456789|did not answer within 3s")),
    ("list-changed-storm", Works),
    ("unknown-progress", Works),
    ("unknown-messages", Works),
    ("ask-sampling", Either(ASKED)),
    ("ask-elicitation", Either(ASKED)),
    ("ask-roots", Either(ASKED)),
    ("children", Works),
    ("children-at-call", Works),
    ("ignore-eof", Works),
    ("ignore-sigterm", Works),
    ("http-status", Reason("HTTP 500 Internal Server Error")),
    ("http-redirect", Reason("HTTP 307 Temporary Redirect: it has moved")),
    ("http-wrong-type", Works),
    ("http-drop", Reason("the connection broke")),
    ("http-stall", Reason(SILENT)),
    // A new session is opened, and forgotten again.
    ("http-forget-session", Either("session")),
];

pub(crate) fn expected(fault: &str) -> Option<Expect> {
    EXPECTED.iter().find(|(name, _)| *name == fault).map(|(_, expect)| *expect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_and_nothing_else_has_a_line() {
        let faults: Vec<&str> = toolcrib_hostile::FAULTS.iter().map(|fault| fault.name).collect();
        let lines: Vec<&str> = EXPECTED.iter().map(|(name, _)| *name).collect();
        assert_eq!(lines, faults);
    }

    #[test]
    fn every_reason_is_a_pattern() {
        for (name, expect) in EXPECTED {
            if let Reason(pattern) | Either(pattern) = expect {
                assert!(regex::Regex::new(pattern).is_ok(), "{name}");
            }
        }
    }
}
