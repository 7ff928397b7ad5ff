//! Tools to search: made up, or read from a folder.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use toolcrib_search::Document;

/// Servers with their tools, and what is asked for.
pub(crate) struct Tools {
    pub(crate) servers: Vec<Server>,
    pub(crate) queries: Vec<String>,
}

pub(crate) struct Server(Vec<Tool>);

/// A tool as texts, in the order of our fields: name, server, the first sentence of the description
/// and the rest of it, names of parameters, their descriptions, hint.
pub(crate) struct Tool {
    key: Arc<str>,
    pub(crate) fields: [String; FIELDS],
}

pub(crate) const FIELDS: usize = 7;

const QUERIES: usize = 400;
const MOST_SERVERS: usize = 1_000;
const TOOLS_PER_SERVER: usize = 25;

impl Server {
    pub(crate) fn documents(&self) -> impl Iterator<Item = Document<'_>> {
        self.0.iter().map(|tool| Document::new(tool.key.clone(), tool.texts()))
    }
}

impl Tools {
    pub(crate) fn len(&self) -> usize {
        self.servers.iter().map(|server| server.0.len()).sum()
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &Tool> {
        self.servers.iter().flat_map(|server| &server.0)
    }

    /// Made-up tools, the same for the same number every time.
    pub(crate) fn synthetic(count: usize) -> Self {
        let mut maker = Maker::new();
        let servers = (count / TOOLS_PER_SERVER).clamp(1, MOST_SERVERS);
        let servers: Vec<Server> = (0..servers)
            .map(|at| {
                // What does not divide evenly goes to the first.
                let own = count / servers + usize::from(at < count % servers);
                maker.server(at, own)
            })
            .collect();
        let queries = (0..QUERIES).map(|_| maker.query(&servers)).collect();
        Self { servers, queries }
    }

    /// Those of a folder.
    pub(crate) fn read(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let mut by_server: BTreeMap<String, Vec<Tool>> = BTreeMap::new();
        let mut queries = Vec::new();
        let mut folders = vec![folder.to_owned()];
        folders.extend(entries(folder)?.into_iter().filter(|path| path.is_dir()));
        for folder in &folders {
            for line in lines(&folder.join("tools.jsonl"))? {
                let server = line["server"].as_str().unwrap_or_default();
                by_server.entry(server.to_owned()).or_default().push(Tool::read(server, &line));
            }
            let asked = lines(&folder.join("queries.jsonl"))?;
            queries.extend(asked.iter().filter_map(|it| Some(it["query"].as_str()?.to_owned())));
        }
        let is_list = |path: &PathBuf| path.extension().is_some_and(|it| it == "json");
        for file in entries(folder)?.iter().filter(|path| is_list(path)) {
            let list: Value = serde_json::from_str(&fs::read_to_string(file)?)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            let server = list["server"].as_str().unwrap_or_default();
            for tool in list["tools"].as_array().into_iter().flatten() {
                by_server.entry(server.to_owned()).or_default().push(Tool::read(server, tool));
            }
        }
        let servers: Vec<Server> = by_server.into_values().map(Server).collect();
        if servers.is_empty() {
            return Err(format!("{} has no tools.jsonl and no tool lists", folder.display()).into());
        }
        if queries.is_empty() {
            let mut maker = Maker::new();
            queries = (0..QUERIES).map(|_| maker.query(&servers)).collect();
        }
        // Spread over all of them.
        let step = queries.len().div_ceil(QUERIES);
        queries = queries.into_iter().step_by(step).collect();
        Ok(Self { servers, queries })
    }
}

impl Tool {
    fn texts(&self) -> [&str; FIELDS] {
        self.fields.each_ref().map(String::as_str)
    }

    fn new(server: &str, name: String, description: String, names: String, about: String) -> Self {
        let key = format!("{server}__{name}").into();
        let (summary, details) = split_summary(&description);
        let texts = [&name, server, summary, details, &names, &about, ""];
        Self { key, fields: texts.map(str::to_owned) }
    }

    fn read(server: &str, tool: &Value) -> Self {
        let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        let (mut names, mut about) = (String::new(), String::new());
        collect(&tool["inputSchema"], &mut names, &mut about);
        Self::new(server, text("name"), text("description"), names, about)
    }
}

/// The first sentence or line, and the rest.
fn split_summary(description: &str) -> (&str, &str) {
    let ends = [". ", ".\n", "\n"].iter().filter_map(|end| description.find(end));
    description.split_at(ends.min().map_or(description.len(), |at| at + 1))
}

fn collect(schema: &Value, names: &mut String, about: &mut String) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        names.extend([name, " "]);
        about.extend([inner["description"].as_str().unwrap_or_default(), " "]);
        collect(inner, names, about);
        collect(&inner["items"], names, about);
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths = entries.map(|it| Ok(it?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// None of a file that is not there.
fn lines(file: &Path) -> Result<Vec<Value>, Box<dyn Error>> {
    if !file.is_file() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(file)?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let read = |line| serde_json::from_str(line).map_err(|e| format!("{}: {e}", file.display()));
    Ok(lines.map(read).collect::<Result<_, _>>()?)
}

/// Makes tools up.
struct Maker {
    random: Random,
    /// The commonest first.
    vocabulary: Vec<String>,
    /// For each word, how likely it or a commoner one is.
    shares: Vec<f64>,
}

/// Words in use; of longer texts with more of them, the rest would hardly occur.
const WORDS: usize = 8_000;

const VERBS: &str = "create list get update delete search export import archive restore assign \
    merge close open send fetch validate sync rename copy read write run start stop query";

/// The commonest words of what tools say of themselves, roughly in this order.
const COMMON: &str = "the a to of and in for by is with or an id from be name this list data user \
    use file returns get that path if all string optional tool can search query specified are not \
    on it as time default number date project using type page results status message text return \
    key create format given value content which issue order repository information url api request \
    start code details when table only end limit used set new update filter field account specific \
    current database delete document folder channel record send token customer item comment email \
    image version branch commit environment service model property group task event member report \
    line response label title job workflow session price point area node column language region \
    market chart weather location distance stock invoice payment product ticket alert dashboard \
    metric container secret webhook template pipeline deployment calendar meeting contact note \
    video audio thread reply reaction permission role policy backup snapshot cluster network";

const NOUNS: &str = "issue pull_request repository branch commit file directory message channel \
    user team event meeting invoice payment customer order product ticket alert dashboard metric \
    log database table row document page comment task project workflow pipeline deployment \
    container secret webhook template report image video contact note session calendar backup";

/// Words of a description's first sentence.
const FIRST_SENTENCE: usize = 12;

const SYLLABLES: &str = "an ber con dal en for gra hin is jo kel lo mar ne or pel qua res sta tor \
    ul ver win xa yel zon tri par men sol";

impl Maker {
    fn new() -> Self {
        let mut random = Random(0x746f_6f6c_6372_6962);
        let mut vocabulary: Vec<String> = COMMON.split_whitespace().map(str::to_owned).collect();
        let syllables: Vec<&str> = SYLLABLES.split_whitespace().collect();
        while vocabulary.len() < WORDS {
            let count = 2 + random.below(3);
            vocabulary.push((0..count).map(|_| *random.of(&syllables)).collect());
        }
        let mut sum = 0.0;
        let shares = (1..=vocabulary.len())
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        Self { random, vocabulary, shares }
    }

    /// A word, by Zipf's law: the second half as often as the first, and so on.
    fn word(&mut self) -> &str {
        let most = self.shares.last().copied().unwrap_or_default();
        let at = self.random.share() * most;
        let at = self.shares.partition_point(|share| *share < at);
        &self.vocabulary[at.min(self.vocabulary.len() - 1)]
    }

    fn words(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.word().to_owned()).collect()
    }

    fn server(&mut self, at: usize, tools: usize) -> Server {
        let rare = self.random.below(WORDS / 2) + WORDS / 2;
        let name = format!("{}{at}", self.vocabulary[rare]);
        let (verbs, nouns): (Vec<&str>, Vec<&str>) =
            (VERBS.split_whitespace().collect(), NOUNS.split_whitespace().collect());
        let tool = |at: usize| {
            let (verb, noun) = (*self.random.of(&verbs), *self.random.of(&nouns));
            // From 15 to 65 words, 40 in the mean.
            let length = 15 + self.random.below(51);
            let (noun_said, mut said) = (noun.replace('_', " "), self.words(length));
            said.splice(0..0, [verb.to_owned(), "a".to_owned(), noun_said]);
            let parameters = 1 + self.random.below(6);
            let names: Vec<String> = (0..parameters).map(|_| self.words(2).join("_")).collect();
            let about: Vec<String> = (0..parameters).map(|_| self.words(8).join(" ")).collect();
            let own =
                format!("{verb}_{noun}{}", if at < 9 { String::new() } else { format!("_{at}") });
            let (first, rest) = said.split_at(FIRST_SENTENCE.min(said.len()));
            let said = format!("{}. {}", first.join(" "), rest.join(" "));
            Tool::new(&name, own, said, names.join(" "), about.join(" "))
        };
        Server((0..tools).map(tool).collect())
    }

    /// Words about some tool: of its name, its description and of anything. Three to six of them,
    /// as agents ask, and every tenth time twenty, as people do.
    fn query(&mut self, servers: &[Server]) -> String {
        let server = self.random.of(servers);
        let tool = self.random.of(&server.0);
        let own: Vec<&str> =
            tool.fields[..4].iter().flat_map(|text| text.split([' ', '_', '.'])).collect();
        let own: Vec<&str> = own.into_iter().filter(|word| !word.is_empty()).collect();
        let count = if self.random.below(10) == 0 { 20 } else { 3 + self.random.below(4) };
        let words: Vec<String> = (0..count)
            .map(|_| match self.random.below(4) {
                0 => self.word().to_owned(),
                _ => (*self.random.of(&own)).to_owned(),
            })
            .collect();
        words.join(" ")
    }
}

/// The same numbers every time: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
