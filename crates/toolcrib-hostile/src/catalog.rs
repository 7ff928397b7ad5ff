//! Every fault there is.

use serde::Serialize;

/// One way to misbehave. Its flag is its name after two dashes, and works without a value.
#[derive(Debug, Serialize)]
pub struct Fault {
    /// What it is called.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// What kind of fault it is.
    pub family: Family,
    /// When it happens.
    pub when: When,
    /// What its flag may be followed by.
    pub value: Value,
    /// Over which transports it can happen.
    pub transports: Transports,
    /// In which eras of the protocol it can happen.
    pub eras: Eras,
    /// Which one it is.
    #[serde(skip)]
    pub(crate) kind: Kind,
}

/// Faults of a kind, each with a file of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// No answer comes.
    Silence,
    /// The process ends.
    Exits,
    /// More bytes than the answer, or too slowly.
    Noise,
    /// The list of tools.
    Lists,
    /// Names of tools.
    Names,
    /// Text that poses as instructions.
    Posing,
    /// Answers that are none.
    Answers,
    /// Messages that nobody asked for.
    Unasked,
    /// Processes that stay.
    Processes,
    /// What only HTTP can get wrong.
    Http,
}

impl Family {
    /// Whether it concerns what is said, rather than how.
    pub(crate) fn is_of_content(self) -> bool {
        matches!(self, Self::Posing | Self::Answers | Self::Unasked)
    }

    /// As a heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Silence => "Silence",
            Self::Exits => "Exits",
            Self::Noise => "Noise",
            Self::Lists => "Lists and schemas",
            Self::Names => "Names",
            Self::Posing => "Text that poses as instructions",
            Self::Answers => "Wrong answers",
            Self::Unasked => "Messages nobody asked for",
            Self::Processes => "Processes",
            Self::Http => "HTTP",
        }
    }
}

/// When a fault may strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// When the process starts.
    Start,
    /// At `initialize`.
    Initialize,
    /// At `server/discover`.
    Discover,
    /// At either of them.
    Handshake,
    /// At `notifications/initialized` and at everything after it.
    Initialized,
    /// At `tools/list`, before it is answered.
    List,
    /// In what `tools/list` answers.
    Page,
    /// At `tools/call`.
    Call,
    /// At `tools/call`, or where `--at` says.
    Answer,
    /// As long as the client listens for changes.
    Listening,
    /// When the client goes.
    Shutdown,
}

/// What a flag may be followed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Nothing.
    None,
    /// A number.
    Number {
        /// What of.
        name: &'static str,
        /// Unless it is given.
        default: &'static str,
        /// No more than this.
        most: u64,
    },
    /// A text.
    Text {
        /// What of.
        name: &'static str,
        /// Unless it is given.
        default: &'static str,
    },
}

/// Over which transports a fault can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transports {
    /// Over either.
    Both,
    /// Over standard input and output.
    Stdio,
    /// Over streamable HTTP.
    Http,
}

/// In which eras of the protocol a fault can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Eras {
    /// In either.
    Both,
    /// With sessions, up to 2025-11-25.
    Sessions,
    /// Without, from 2026-07-28.
    Stateless,
}

impl Fault {
    const fn new(
        kind: Kind,
        name: &'static str,
        family: Family,
        when: When,
        about: &'static str,
    ) -> Self {
        let (value, transports, eras) = (Value::None, Transports::Both, Eras::Both);
        Self { name, about, family, when, value, transports, eras, kind }
    }

    const fn number(mut self, name: &'static str, default: &'static str, most: u64) -> Self {
        self.value = Value::Number { name, default, most };
        self
    }

    const fn text(mut self, name: &'static str, default: &'static str) -> Self {
        self.value = Value::Text { name, default };
        self
    }

    const fn over(mut self, transports: Transports) -> Self {
        self.transports = transports;
        self
    }

    const fn within(mut self, eras: Eras) -> Self {
        self.eras = eras;
        self
    }
}

/// Makes the catalogue, and the type that names each fault, of one row per fault.
macro_rules! faults {
    ($($kind:ident $name:literal $family:ident $when:ident [$($more:tt)*] $about:literal;)*) => {
        /// Which fault it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($kind,)*
        }

        /// Every fault, family by family.
        pub const FAULTS: &[Fault] = &[$(
            Fault::new(Kind::$kind, $name, Family::$family, When::$when, $about) $($more)*,
        )*];
    };
}

const STDIO: Transports = Transports::Stdio;
const WEB: Transports = Transports::Http;
const SESSIONS: Eras = Eras::Sessions;
const STATELESS: Eras = Eras::Stateless;

faults! {
    HangAtInitialize "hang-at-initialize" Silence Initialize [.within(SESSIONS)]
        "Never answers `initialize`";
    HangAtDiscover "hang-at-discover" Silence Discover [.within(STATELESS)]
        "Never answers `server/discover`";
    HangAtInitialized "hang-at-initialized" Silence Initialized [.within(SESSIONS)]
        "Answers nothing once it has heard `notifications/initialized`";
    HangAtList "hang-at-list" Silence List [] "Never answers `tools/list`";
    HangAtCall "hang-at-call" Silence Call [] "Never answers a call; other requests are answered";
    HangAtShutdown "hang-at-shutdown" Silence Shutdown []
        "Stays when its input ends and at SIGTERM; over HTTP, never answers DELETE";
    NeverRead "never-read" Silence Start [.over(STDIO)]
        "Never reads its input, so that the pipe fills up";
    StopReading "stop-reading" Silence Call [.over(STDIO)]
        "Answers a call and reads nothing after it";
    SlowAnswers "slow-answers" Silence Answer [.number("MS", "1000", 86_400_000)] "Answers late";

    ExitAtStart "exit-at-start" Exits Start [.number("CODE", "1", 255)]
        "Exits before it has read anything";
    ExitAfterHandshake "exit-after-handshake" Exits Handshake [.number("CODE", "1", 255)]
        "Answers `initialize` or `server/discover`, then exits";
    ExitAtList "exit-at-list" Exits List [.number("CODE", "1", 255)]
        "Exits in place of listing its tools";
    ExitAtCall "exit-at-call" Exits Call [.number("CODE", "1", 255)]
        "Exits in place of answering a call";
    KilledAtCall "killed-at-call" Exits Call []
        "Is killed by a signal (SIGKILL) in place of answering a call";
    DieMidAnswer "die-mid-answer" Exits Answer [] "Is killed halfway through an answer";

    Garbage "garbage" Noise Answer [.number("LINES", "8", 1_000_000)]
        "Writes lines that are no messages before an answer; over HTTP they spoil the body";
    Flood "flood" Noise Answer [.number("MB", "16", 4096)]
        "Writes one line of many megabytes before an answer";
    FloodStderr "flood-stderr" Noise Answer [.number("MB", "16", 4096)]
        "Writes megabytes to standard error before an answer";
    Drip "drip" Noise Answer [.number("MS", "20", 3_600_000)]
        "Writes an answer byte by byte, with a pause after each";
    PrettyPrint "pretty-print" Noise Answer [.over(STDIO)] "Spreads an answer over several lines";
    EndlessOutput "endless-output" Noise Answer [.number("PER_SECOND", "1000", 1_000_000)]
        "Sends log messages without end in place of an answer; over HTTP as events";

    EndlessPages "endless-pages" Lists Page [] "Every page of the list of tools has a next one";
    RepeatingPages "repeating-pages" Lists Page []
        "Every page of the list is the first one and names the same next one";
    ManyTools "many-tools" Lists Page [.number("TOOLS", "60000", 1_000_000)]
        "Lists very many tools";
    BigSchema "big-schema" Lists Page [.number("MB", "10", 1024)]
        "Lists a tool whose schema has many megabytes";
    DeepSchema "deep-schema" Lists Page [.number("LEVELS", "10000", 5_000_000)]
        "Lists a tool whose schema is nested very deeply";
    LoopingSchema "looping-schema" Lists Page []
        "Lists tools whose schemas refer to themselves, in one step, in two, and below";
    SchemaBomb "schema-bomb" Lists Page [.number("LEVELS", "30", 10_000)]
        "Lists a tool whose schema doubles with every reference that is resolved";
    SchemaChanges "schema-changes" Lists Page []
        "From the second list on, `echo` is described differently and refuses what it took";
    MalformedTools "malformed-tools" Lists Page []
        "Lists things that are no tools beside those that are";

    SameNames "same-names" Names Page [] "Lists `echo` and `add` a second time, with other schemas";
    Lookalikes "lookalikes" Names Page []
        "Lists tools whose names look like `echo`: other alphabets, case, invisible \
         characters, suffixes";
    OddNames "odd-names" Names Page []
        "Lists tools with names that are empty, very long, paths, markup or control characters";
    BorrowedNames "borrowed-names" Names Page [.text("NAMES", "tool_search,load_tools,call_tool,files__read_file")]
        "Lists tools under names that belong to others, comma-separated";

    PosingDescriptions "posing-descriptions" Posing Page []
        "Descriptions that tell the model what to do: in a tool, a parameter and a title";
    PosingResults "posing-results" Posing Call [] "Results that tell the model what to do";

    WrongIds "wrong-ids" Answers Answer [] "Answers under an id that nobody gave";
    DuplicateAnswers "duplicate-answers" Answers Answer [.number("TIMES", "2", 10_000)]
        "Answers more than once, each time differently";
    WrongTypes "wrong-types" Answers Answer []
        "Results that are numbers, texts, lists, nothing, or objects of the wrong make, in turn";
    ResultAndError "result-and-error" Answers Answer [] "An answer that has a result and an error";
    ErrorAnswers "error-answers" Answers Answer [.number("CODE", "32603", 99_999)]
        "Answers with an error of the protocol, of this code below zero";
    OddVersion "odd-version" Answers Handshake []
        "Speaks a version of the protocol that there never was";
    HugeResult "huge-result" Answers Call [.number("MB", "10", 1024)]
        "A good result of many megabytes";

    ListChangedStorm "list-changed-storm" Unasked Listening [.number("PER_SECOND", "1000", 1_000_000)]
        "Tells again and again that its list of tools has changed";
    UnknownProgress "unknown-progress" Unasked Answer [.number("MESSAGES", "10", 1_000_000)]
        "Tells of progress that nobody asked to be told of, before an answer";
    UnknownMessages "unknown-messages" Unasked Answer [.number("MESSAGES", "10", 1_000_000)]
        "Sends requests and notifications that don't exist, before an answer";
    AskSampling "ask-sampling" Unasked Call []
        "Asks the client to run its model, whether it can or not";
    AskElicitation "ask-elicitation" Unasked Call []
        "Asks the user for a password, whether the client can or not";
    AskRoots "ask-roots" Unasked Call [] "Asks for the client's folders, whether it has any or not";

    Children "children" Processes Start [.number("CHILDREN", "50", 1000)]
        "Starts child processes that sleep for ten minutes and hold its output open";
    ChildrenAtCall "children-at-call" Processes Call [.number("CHILDREN", "10", 1000)]
        "Starts so many more with every call, up to 1000 in all";
    IgnoreEof "ignore-eof" Processes Shutdown [.over(STDIO)] "Stays when its input ends";
    IgnoreSigterm "ignore-sigterm" Processes Shutdown [] "Stays at SIGTERM";

    HttpStatus "http-status" Http Answer [.number("STATUS", "500", 599).over(WEB)]
        "Answers with a status that tells of failure";
    HttpRedirect "http-redirect" Http Answer [.text("URL", "/mcp").over(WEB)]
        "Redirects (307), to itself and so for ever unless an address is given";
    HttpWrongType "http-wrong-type" Http Answer [.text("TYPE", "text/html").over(WEB)]
        "Gives the wrong content type";
    HttpDrop "http-drop" Http Answer [.over(WEB)] "Drops the connection halfway through the body";
    HttpStall "http-stall" Http Answer [.over(WEB)] "Sends half of the body and then nothing more";
    HttpForgetSession "http-forget-session" Http Answer [.over(WEB).within(SESSIONS)]
        "Forgets the session and says so (404)";
}
