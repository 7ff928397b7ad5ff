//! The deferral engine: a registry of tools, and what a conversation sees and loads of them.
//!
//! Everything here is a function of values: nothing waits, and nothing touches the network, a
//! file, the clock or the environment. A driver (see `toolcrib-runtime`) does that for it.
//!
//! The parts, in reading order:
//!
//! 1. [`ToolName`], [`ToolSpec`], [`Schema`]: what a tool is.
//! 2. [`Registry`] accepts tools and publishes [`Catalog`]s; a [`Policy`] makes a [`View`] of one.
//!    [`Permissions`] are rules on which tools may run.
//! 3. [`Settings`]: which [`Preset`], [`Mode`] and [`Strategy`]; which tools are eager.
//! 4. [`Session`]: the ledger of one conversation.
//! 5. [`Engine`]: [`begin_turn`](Engine::begin_turn), [`prepare`](Engine::prepare) and
//!    [`resolve`](Engine::resolve), which answers with a [`Step`].
//! 6. [`Corpus`]: the same ranking over any tools, to be measured. [`Usage`]: what was called
//!    after which queries, which lifts these tools a little.
//! 7. [`flags`]: text of a definition that a person should look at.

mod announce;
mod arguments;
mod catalog;
mod copies;
mod corpus;
mod definition;
mod eager;
mod embedding;
mod engine;
mod find;
mod fingerprint;
mod globs;
mod group;
mod json;
mod lately;
mod meta;
mod name;
mod names;
mod native;
mod permission;
mod plan;
mod policy;
mod posing;
mod predict;
mod prompt;
mod registry;
mod resolve;
mod resume;
mod schema;
mod scope;
mod segment;
mod session;
mod settings;
mod spec;
mod stats;
mod step;
mod text;
mod tool;
mod turn;
mod usage;

pub use catalog::{Availability, Catalog, Diff, View};
pub use corpus::{Corpus, Ranked};
pub use definition::{Definition, Dialect};
pub use eager::{EagerError, EagerReason, EagerRules};
pub use embedding::{Embedder, Meaning, Unembedded, text_to_embed};
pub use engine::{Engine, EngineError};
pub use find::{SearchError, SearchPage, SearchRow};
pub use fingerprint::Fingerprint;
pub use globs::PatternError;
pub use group::{Group, GroupId, Loaded, Members};
pub use name::{Naming, ToolName, ToolSource};
pub use permission::{Permission, Permissions, Rule};
pub use plan::{
    Approach, Chosen, Footprint, Footprints, LoadRound, Plan, PlanRow, Scenario, TurningPoint,
    Varied, plan,
};
pub use policy::{Decision, Policy, PolicyRules};
pub use posing::{Flag, FlagKind, flags, visible};
pub use registry::{Change, RegisterError, Registry, ServerTools, schema_of};
pub use resolve::LoadReport;
pub use resume::{Fetched, ResumeError, ResumeReport, Saved, Snapshot};
pub use schema::Schema;
pub use session::Session;
pub use settings::{
    Mode, Preset, ProviderClass, Settings, Strategy, StrategyChoice, UnknownChoice,
};
pub use spec::{Annotations, Deferral, SpecError, ToolSpec};
pub use stats::{Stats, TokenStats};
pub use step::{
    Answer, Call, Effects, Need, Presentation, RequestTokens, Revealed, Run, Searched, Step,
    ToolChange, TurnReport,
};
pub use tool::Tool;
pub use usage::{Choice, Learning, Usage};
