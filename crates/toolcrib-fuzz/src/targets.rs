//! What is tried.

mod gateway;
mod manifest;
mod upstream;

use toolcrib_fuzz::{Found, Hunt};

pub(crate) use upstream::answer;

type Hunted = Result<u64, Found>;

/// Something that reads what others wrote.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) hunt: fn(&Hunt) -> Hunted,
    pub(crate) replay: fn(&Hunt, Vec<u8>) -> Hunted,
}

pub(crate) const TARGETS: [Target; 5] = [
    Target {
        name: "stdio_in",
        hunt: |hunt| gateway::stdio(hunt, None),
        replay: |hunt, input| gateway::stdio(hunt, Some(input)),
    },
    Target {
        name: "http_in",
        hunt: |hunt| gateway::http(hunt, None),
        replay: |hunt, input| gateway::http(hunt, Some(input)),
    },
    Target {
        name: "upstream_lines",
        hunt: |hunt| upstream::lines(hunt, None),
        replay: |hunt, input| upstream::lines(hunt, Some(input)),
    },
    Target {
        name: "upstream_http",
        hunt: |hunt| upstream::http(hunt, None),
        replay: |hunt, input| upstream::http(hunt, Some(input)),
    },
    Target {
        name: "manifest",
        hunt: |hunt| manifest::hunt(hunt, None),
        replay: |hunt, input| manifest::hunt(hunt, Some(input)),
    },
];

fn runtime() -> tokio::runtime::Runtime {
    // Without threads there is nothing to try.
    #[expect(clippy::expect_used, reason = "a test program may end here")]
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads")
}
