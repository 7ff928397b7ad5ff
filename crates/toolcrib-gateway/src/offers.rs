//! What servers offer beside tools, as one list, and whose each entry is.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use serde_json::value::RawValue;
use toolcrib_core::{Fingerprint, Group, GroupId, Naming, ToolName};
use toolcrib_runtime::{Offers, Toolset};
use toolcrib_wire::Fields;

use crate::gateway::server_name;
use crate::seat::Seat;
use crate::template::Template;
use crate::{Endpoint, Gateway};

/// What a uri begins with that says whose it is: a scheme of the gateway's own.
const SCHEME: &str = "crib://";

/// What is known of every server that some callers may know of, by their policy.
#[derive(Default)]
pub(crate) struct Tables(Mutex<HashMap<Fingerprint, Arc<Table>>>);

/// Tables kept: beyond that all are made again when needed.
const MOST_KEPT: usize = 64;

/// Templates of one server that are looked at to see whose a resource is.
const MOST_TEMPLATES: usize = 1_000;

/// A kind of entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Resources,
    Templates,
    Prompts,
}

/// How a resource is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// As its server does.
    Own,
    /// With the server before it.
    Crib,
}

/// What all the servers offer that a caller may know of.
pub(crate) struct Table {
    /// In the order of their names.
    servers: Vec<Offering>,
    resources: HashMap<String, Vec<usize>>,
    templates: Vec<(String, Template, usize)>,
    /// By the name clients know.
    prompts: HashMap<String, (usize, String)>,
    lists: [OnceLock<List>; 5],
}

/// One server, and what it offers.
pub(crate) struct Offering {
    pub(crate) id: GroupId,
    pub(crate) name: Arc<str>,
    toolset: Weak<dyn Toolset>,
    pub(crate) offers: Arc<Offers>,
}

/// Entries as JSON, and what tells them from others.
#[derive(Default)]
pub(crate) struct List {
    pub(crate) entries: Vec<Box<str>>,
    pub(crate) hash: u64,
}

/// Whose something is, and what its server calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) id: GroupId,
    pub(crate) server: Arc<str>,
    pub(crate) own: String,
    pub(crate) form: Form,
}

/// Why nobody can say whose something is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Nobody has it.
    Unknown,
    /// Several have it, under these names.
    Several(Vec<String>),
}

impl Kind {
    /// The list's method.
    pub(crate) fn of(method: &str) -> Option<Self> {
        match method {
            "resources/list" => Some(Self::Resources),
            "resources/templates/list" => Some(Self::Templates),
            "prompts/list" => Some(Self::Prompts),
            _ => None,
        }
    }

    /// The member of the result that has the entries.
    pub(crate) fn member(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    fn entries(self, offers: &Offers) -> &[Arc<RawValue>] {
        match self {
            Self::Resources => &offers.resources,
            Self::Templates => &offers.templates,
            Self::Prompts => &offers.prompts,
        }
    }

    /// The member of an entry that names it.
    fn key(self) -> &'static str {
        match self {
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
            Self::Prompts => "name",
        }
    }
}

impl Form {
    /// How an endpoint lists resources.
    fn at(endpoint: &Endpoint) -> Self {
        match endpoint {
            Endpoint::Full | Endpoint::Server(_) => Self::Own,
            Endpoint::Meta | Endpoint::Inject => Self::Crib,
        }
    }

    /// A uri, or a template of some, in this form.
    pub(crate) fn write(self, server: &str, own: &str) -> String {
        match self {
            Self::Own => own.to_owned(),
            Self::Crib => format!("{SCHEME}{}/{own}", in_uri(server)),
        }
    }
}

/// A server's name where a uri has its host.
fn in_uri(server: &str) -> String {
    let mut out = String::with_capacity(server.len());
    for byte in server.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The name of a server's prompt where there are several servers.
fn prompt_name(server: &str, own: &str) -> String {
    ToolName::mcp(server, own).exposed(Naming::Gateway)
}

impl List {
    /// A server's own entries.
    pub(crate) fn own(kind: Kind, offers: &Offers) -> Self {
        Self::of(kind.entries(offers).iter().map(|entry| entry.get().into()).collect())
    }

    fn of(entries: Vec<Box<str>>) -> Self {
        let mut hasher = DefaultHasher::new();
        entries.hash(&mut hasher);
        Self { entries, hash: hasher.finish() }
    }
}

impl Gateway {
    /// What all the servers offer that a caller may know of.
    pub(crate) fn table(&self, seat: &Seat) -> Arc<Table> {
        let lock = || self.tables().0.lock().unwrap_or_else(PoisonError::into_inner);
        let servers = self.offering(seat);
        let by = seat.policy.fingerprint();
        if let Some(table) = lock().get(&by)
            && table.is_of(&servers)
        {
            return table.clone();
        }
        let table = Arc::new(Table::new(servers));
        let mut kept = lock();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(by, table.clone());
        table
    }

    /// What one server offers, if a caller may know of it.
    pub(crate) fn offers_of(&self, seat: &Seat, server: &str) -> Option<Arc<Offers>> {
        let toolset = self.crib().toolset(&self.group_of(seat, server)?)?;
        toolset.server().map(|server| server.offers())
    }

    fn offering(&self, seat: &Seat) -> Vec<Offering> {
        let catalog = self.catalog();
        let groups = catalog.groups().map(Group::id);
        let unready = catalog.unready().map(|(id, _)| id);
        let mut servers = BTreeMap::new();
        for id in groups.chain(unready).filter(|id| self.may_know(seat, &catalog, id)) {
            let name = server_name(id);
            if servers.contains_key(&(name, id)) {
                continue;
            }
            let Some(toolset) = self.crib().toolset(id) else { continue };
            let Some(offers) = toolset.server().map(|server| server.offers()) else { continue };
            let toolset = Arc::downgrade(&toolset);
            let offering = Offering { id: id.clone(), name: name.into(), toolset, offers };
            servers.insert((name, id), offering);
        }
        servers.into_values().collect()
    }
}

impl Table {
    fn new(servers: Vec<Offering>) -> Self {
        let mut table = Self {
            servers: Vec::new(),
            resources: HashMap::new(),
            templates: Vec::new(),
            prompts: HashMap::new(),
            lists: Default::default(),
        };
        for (at, server) in servers.iter().enumerate() {
            for own in keys(Kind::Resources, &server.offers) {
                let whose = table.resources.entry(own).or_default();
                if whose.last() != Some(&at) {
                    whose.push(at);
                }
            }
            for own in keys(Kind::Templates, &server.offers).take(MOST_TEMPLATES) {
                let template = Template::parse(&own);
                table.templates.push((own, template, at));
            }
            for own in keys(Kind::Prompts, &server.offers) {
                table.prompts.entry(prompt_name(&server.name, &own)).or_insert((at, own));
            }
        }
        table.servers = servers;
        table
    }

    /// Whether it was made of these servers as they are.
    fn is_of(&self, servers: &[Offering]) -> bool {
        let same = |(a, b): (&Offering, &Offering)| {
            a.id == b.id
                && Weak::ptr_eq(&a.toolset, &b.toolset)
                && (Arc::ptr_eq(&a.offers, &b.offers) || a.offers.version == b.offers.version)
        };
        self.servers.len() == servers.len() && self.servers.iter().zip(servers).all(same)
    }

    /// The servers, in the order of their names.
    pub(crate) fn servers(&self) -> &[Offering] {
        &self.servers
    }

    /// The entries of an endpoint of many servers.
    pub(crate) fn list(&self, kind: Kind, endpoint: &Endpoint) -> &List {
        let form = Form::at(endpoint);
        let at = match (kind, form) {
            (Kind::Prompts, _) => 0,
            (Kind::Resources, Form::Own) => 1,
            (Kind::Resources, Form::Crib) => 2,
            (Kind::Templates, Form::Own) => 3,
            (Kind::Templates, Form::Crib) => 4,
        };
        self.lists[at].get_or_init(|| {
            let mut entries: Vec<Box<str>> = Vec::new();
            for server in &self.servers {
                for entry in kind.entries(&server.offers) {
                    let Some(mut fields) = Fields::parse(entry.get()) else { continue };
                    let Some(own) = fields.read::<String>(kind.key()) else { continue };
                    match kind {
                        Kind::Prompts => fields.set("name", &prompt_name(&server.name, &own)),
                        _ => fields.set(kind.key(), &form.write(&server.name, &own)),
                    }
                    entries.push(fields.to_raw().get().into());
                }
            }
            List::of(entries)
        })
    }

    /// Whose resource this is, in either form.
    pub(crate) fn resource(&self, uri: &str) -> Result<Place, Lost> {
        if let Some(place) = self.crib_form(uri) {
            return Ok(place);
        }
        if let Some(whose) = self.resources.get(uri) {
            return self.one_of(whose, uri);
        }
        let fits = self.templates.iter().filter(|(_, template, _)| template.matches(uri));
        let mut whose: Vec<usize> = fits.map(|(_, _, at)| *at).collect();
        whose.dedup();
        self.one_of(&whose, uri)
    }

    /// Whose template this is, or whose resource.
    pub(crate) fn template(&self, uri: &str) -> Result<Place, Lost> {
        let same = self.templates.iter().filter(|(template, _, _)| template == uri);
        let mut whose: Vec<usize> = same.map(|(_, _, at)| *at).collect();
        whose.dedup();
        if whose.is_empty() { self.resource(uri) } else { self.one_of(&whose, uri) }
    }

    /// Whose prompt this is.
    pub(crate) fn prompt(&self, name: &str) -> Result<Place, Lost> {
        let (at, own) = self.prompts.get(name).ok_or(Lost::Unknown)?;
        self.place(*at, own, Form::Crib).ok_or(Lost::Unknown)
    }

    /// Whose task this is.
    pub(crate) fn task(&self, id: &str) -> Result<Place, Lost> {
        let begins = |server: &Offering| {
            let own = id.strip_prefix(&*server.name)?.strip_prefix(':')?;
            Some((server.name.len(), own))
        };
        self.longest(begins).ok_or(Lost::Unknown)
    }

    fn crib_form(&self, uri: &str) -> Option<Place> {
        let rest = uri.strip_prefix(SCHEME)?;
        self.longest(|server| {
            let after = |name: &str| rest.strip_prefix(name)?.strip_prefix('/');
            let own = after(&server.name).or_else(|| after(&in_uri(&server.name)))?;
            Some((server.name.len(), own))
        })
    }

    /// The server whose name is the longest that fits.
    fn longest<'a>(&self, fits: impl Fn(&Offering) -> Option<(usize, &'a str)>) -> Option<Place> {
        let fitting = self.servers.iter().enumerate();
        let fitting = fitting.filter_map(|(at, server)| Some((at, fits(server)?)));
        let (at, (_, own)) = fitting.max_by_key(|(_, (length, _))| *length)?;
        self.place(at, own, Form::Crib)
    }

    fn one_of(&self, whose: &[usize], uri: &str) -> Result<Place, Lost> {
        match whose {
            [] => Err(Lost::Unknown),
            [at] => self.place(*at, uri, Form::Own).ok_or(Lost::Unknown),
            several => {
                let servers = several.iter().filter_map(|at| self.servers.get(*at));
                let names = servers.map(|server| Form::Crib.write(&server.name, uri));
                Err(Lost::Several(names.take(20).collect()))
            }
        }
    }

    fn place(&self, at: usize, own: &str, form: Form) -> Option<Place> {
        let server = self.servers.get(at)?;
        let (id, name) = (server.id.clone(), server.name.clone());
        Some(Place { id, server: name, own: own.to_owned(), form })
    }
}

/// The names of a server's entries.
fn keys(kind: Kind, offers: &Offers) -> impl Iterator<Item = String> {
    let entries = kind.entries(offers).iter();
    entries.filter_map(move |entry| Fields::parse(entry.get())?.read::<String>(kind.key()))
}
