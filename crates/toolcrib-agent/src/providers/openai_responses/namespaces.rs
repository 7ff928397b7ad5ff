//! The namespaces in which the tools live that a conversation was given.

use std::collections::{HashMap, HashSet};

use toolcrib_core::{Definition, Fingerprint, GroupId, Revealed};

use crate::providers::body;

/// The most functions of a namespace: the API advises fewer than ten.
const MOST: usize = 9;

/// Names of the API's own namespaces and tools. It refuses any other namespace of that name.
const RESERVED: [&str; 28] = [
    "api_tool",
    "apply_patch",
    "browser",
    "code_interpreter",
    "computer",
    "computer_use",
    "computer_use_preview",
    "container",
    "custom",
    "default",
    "file_search",
    "function",
    "functions",
    "image_gen",
    "image_generation",
    "local_shell",
    "mcp",
    "multi_tool_use",
    "namespace",
    "programmatic_tool_calling",
    "python",
    "shell",
    "tool_search",
    "user_info",
    "web",
    "web_run",
    "web_search",
    "web_search_preview",
];

/// Where the tools of a conversation live. A tool has its place from when the conversation is
/// first given it, by those given before it alone, so that it stays there for ever.
pub(super) struct Namespaces<'a> {
    all: Vec<Namespace>,
    /// By the tools' exposed names.
    places: HashMap<&'a str, usize>,
    groups: HashMap<&'a GroupId, Group>,
    taken: HashSet<String>,
}

struct Namespace {
    name: String,
    description: String,
}

/// What there is of a toolset.
struct Group {
    /// What its namespaces are called, but for a number.
    base: String,
    tools: usize,
    /// The namespace that is being filled.
    last: usize,
}

impl<'a> Namespaces<'a> {
    /// None, beside tools that have these names.
    pub(super) fn besides<'b>(names: impl Iterator<Item = &'b str>) -> Self {
        let taken = names.chain(RESERVED).map(str::to_ascii_lowercase).collect();
        Self { all: Vec::new(), places: HashMap::new(), groups: HashMap::new(), taken }
    }

    /// Gives places to tools that are in the request from the beginning. All that a model knows
    /// of them is their namespace, which therefore names them.
    pub(super) fn declare(&mut self, tools: &'a [Definition]) {
        let base = self.free("tools", "deferred");
        for (number, tools) in tools.chunks(MOST).enumerate() {
            let names: Vec<&str> = tools.iter().map(|tool| &**tool.name()).collect();
            let name = self.numbered(&base, number, "deferred");
            let place = self.add(name, format!("These tools: {}.", names.join(", ")));
            self.places.extend(names.into_iter().map(|name| (name, place)));
        }
    }

    /// Gives a tool its place, unless it has one.
    pub(super) fn place(&mut self, revealed: &'a Revealed) {
        let Revealed { group, tool } = revealed;
        if self.places.contains_key(&**tool.name()) {
            return;
        }
        let (base, tools, last) = match self.groups.remove(group) {
            Some(Group { base, tools, last }) => (base, tools, last),
            None => {
                let wanted = group.server_name().unwrap_or(group.as_str());
                (self.free(&body::name(wanted), group.as_str()), 0, 0)
            }
        };
        let last = if tools % MOST == 0 {
            let number = tools / MOST;
            let name = self.numbered(&base, number, group.as_str());
            self.add(name, description(group, number))
        } else {
            last
        };
        self.groups.insert(group, Group { base, tools: tools + 1, last });
        self.places.insert(tool.name(), last);
    }

    fn add(&mut self, name: String, description: String) -> usize {
        self.taken.insert(name.to_ascii_lowercase());
        self.all.push(Namespace { name, description });
        self.all.len() - 1
    }

    fn numbered(&self, base: &str, number: usize, owner: &str) -> String {
        if number == 0 {
            base.to_owned()
        } else {
            self.free(&body::name(&format!("{base}_{}", number + 1)), owner)
        }
    }

    /// The name that is wanted, or one like it if that is taken.
    fn free(&self, wanted: &str, owner: &str) -> String {
        let digits = Fingerprint::of([owner.as_bytes()]).to_string();
        let others = [format!("{wanted}_tools"), format!("{wanted}_{}", &digits[..8])];
        let names = std::iter::once(wanted.to_owned()).chain(others);
        let mut names = names.map(|name| body::name(&name).into_owned());
        let is_free = |name: &String| !self.taken.contains(&name.to_ascii_lowercase());
        names.find(is_free).unwrap_or_else(|| body::name(&format!("tools_{digits}")).into_owned())
    }

    /// The name of the namespace that a tool lives in.
    pub(super) fn of(&self, tool: &str) -> Option<&str> {
        self.places.get(tool).map(|place| self.all[*place].name.as_str())
    }

    /// The name and the description of a namespace.
    pub(super) fn words(&self, place: usize) -> (&str, &str) {
        let Namespace { name, description } = &self.all[place];
        (name, description)
    }

    /// Tools by the namespace they live in, each once, in the order in which they came.
    pub(super) fn sort<'b>(
        &self,
        tools: impl IntoIterator<Item = &'b Definition>,
    ) -> Vec<(usize, Vec<&'b Definition>)> {
        let mut sorted: Vec<(usize, Vec<&Definition>)> = Vec::new();
        for tool in tools {
            let Some(place) = self.places.get(&**tool.name()) else { continue };
            match sorted.iter_mut().find(|(it, _)| it == place) {
                Some((_, tools)) if tools.iter().any(|it| it.name() == tool.name()) => {}
                Some((_, tools)) => tools.push(tool),
                None => sorted.push((*place, vec![tool])),
            }
        }
        sorted
    }
}

fn description(group: &GroupId, number: usize) -> String {
    let whose = match group.server_name() {
        Some(server) => format!("Tools of the MCP server {server}"),
        None if *group == GroupId::host() => "Tools of the application".to_owned(),
        None if *group == GroupId::builtin() => "Built-in tools".to_owned(),
        None => format!("Tools of the group {}", group.as_str()),
    };
    if number == 0 { format!("{whose}.") } else { format!("{whose}, part {}.", number + 1) }
}
