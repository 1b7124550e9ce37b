//! Drivers: how to find, configure and start a kind of broker, and how to detect that it is ready. A driver is a TOML file; those in `drivers/` are
//! built in.
//!
//! Texts in it have placeholders in braces: `{program}`, `{self}` (our own program), `{prepared}` (where `lab prepare` puts what is not installed),
//! `{dir}` (a folder of the broker's own), `{site}`, `{index}` (from 1), `{address}`, `{first_address}`, the driver's settings and lists by name, and
//! in what is repeated for each broker `{peer_site}`, `{peer_index}`, `{peer_address}`.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::command;
use crate::error::LabError;
use crate::scenario::{Layers, Reach, System};

const BUILT_IN: [(&str, &str); 9] = [
    ("thicket", include_str!("../drivers/thicket.toml")),
    ("mosquitto", include_str!("../drivers/mosquitto.toml")),
    (
        "mosquitto-tree",
        include_str!("../drivers/mosquitto-tree.toml"),
    ),
    (
        "mosquitto-separate",
        include_str!("../drivers/mosquitto-separate.toml"),
    ),
    ("rabbitmq", include_str!("../drivers/rabbitmq.toml")),
    ("hivemq", include_str!("../drivers/hivemq.toml")),
    ("emqx", include_str!("../drivers/emqx.toml")),
    ("vernemq", include_str!("../drivers/vernemq.toml")),
    ("external", include_str!("../drivers/external.toml")),
];

/// A driver as in its file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// What it starts, in one line.
    pub about: String,
    /// Program to look for: a name in PATH, a path, or `{self}`.
    #[serde(default)]
    pub program: Option<String>,
    /// How to get it where it is missing.
    #[serde(default)]
    pub install: Option<String>,
    /// How to prepare it where it cannot be installed.
    #[serde(default)]
    pub prepare: Option<Prepare>,
    /// Command whose output contains a version.
    #[serde(default)]
    pub version: Vec<String>,
    /// Where brokers run.
    #[serde(default)]
    pub brokers: Brokers,
    /// Command line of a broker that stays in the foreground.
    #[serde(default)]
    pub start: Vec<String>,
    /// Command that makes a broker join the first one, once both are ready; run where the broker runs.
    #[serde(default)]
    pub join: Vec<String>,
    /// Command that sends a broker's clients and sessions to others; run where the broker runs.
    #[serde(default)]
    pub drain: Vec<String>,
    /// Whether the first broker is ready before the others start.
    #[serde(default)]
    pub first_alone: bool,
    /// Words added to `start` if clients use TLS; `None`: TLS is not supported by this driver.
    #[serde(default)]
    pub tls: Option<Vec<String>>,
    /// Words added to `start` if clients use WebSocket; `None`: WebSocket is not supported by this driver.
    #[serde(default)]
    pub websocket: Option<Vec<String>>,
    /// Words added to those of `tls` and `websocket` if clients use WebSocket over TLS.
    #[serde(default)]
    pub websocket_over_tls: Vec<String>,
    /// Words added to `start` if disks stall: with them a broker syncs what it acknowledges. `None`: its disk cannot be stalled by this driver.
    #[serde(default)]
    pub disk: Option<Vec<String>>,
    /// The process that sends clients to brokers, for systems that attach clients by it.
    #[serde(default)]
    pub dispatcher: Option<Dispatcher>,
    /// How to detect that a broker is ready.
    #[serde(default)]
    pub ready: Ready,
    /// Longest wait for a broker, and for the cluster after that.
    #[serde(default = "patience")]
    pub patience_s: u64,
    /// Multicast groups of its discovery: the routers forward them.
    #[serde(default)]
    pub multicast: Vec<SocketAddrV4>,
    /// Settings with their defaults.
    #[serde(default)]
    pub settings: BTreeMap<String, toml::Value>,
    /// Environment of a broker.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Placeholders that list all brokers.
    #[serde(default)]
    pub lists: BTreeMap<String, List>,
    /// Where a broker reports how many bytes it sent on its links, if it does.
    #[serde(default)]
    pub link_bytes: Option<Counter>,
    /// Where a broker counts the publications that it sent to others, if it does.
    #[serde(default)]
    pub link_messages: Option<Counter>,
    /// Where a broker reports how many of those bytes are publications, if it does.
    #[serde(default)]
    pub link_data_bytes: Option<Counter>,
    /// Where a broker reports the seconds from its start until it and the others first agreed on their trees, if it does.
    #[serde(default)]
    pub convergence_s: Option<Counter>,
    /// Where a broker counts lost brokers for which it repaired its trees, if it does.
    #[serde(default)]
    pub repairs: Option<Counter>,
    /// Where it reports the seconds that the last repair took.
    #[serde(default)]
    pub last_repair_s: Option<Counter>,
    /// Files in its folder.
    #[serde(default)]
    pub files: Vec<Template>,
    /// How it runs in a container.
    #[serde(default)]
    pub kubernetes: Option<Container>,
}

/// A process beside the clients of the first site; placeholders are those of the first broker, and `{own_address}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dispatcher {
    /// Its command line.
    pub start: Vec<String>,
    /// Words added for each broker; `{peer_pid}` is its process.
    pub each_broker: Vec<String>,
    /// The port that clients connect to.
    pub port: u16,
}

/// How a driver's brokers run in a container.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Container {
    /// Image, unless `--image DRIVER=IMAGE` names another.
    #[serde(default)]
    pub image: Option<String>,
    /// Program in it.
    pub program: String,
    /// Command line, if it differs from the driver's: there is no multicast, and addresses are names.
    #[serde(default)]
    pub start: Vec<String>,
    /// What says that a broker is ready: a page that answers 200. Without one, that its port for clients accepts connections.
    #[serde(default)]
    pub ready: Option<Page>,
}

/// A page that a broker in a container serves over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Its port.
    pub port: u16,
    /// Its path.
    pub path: String,
}

/// A text for each broker.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Text for one.
    pub each: String,
    /// Text between two.
    pub between: String,
}

/// A page of metrics in the text format of Prometheus.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// Its URL, fetched where the broker runs.
    pub url: String,
    /// Name of the counter.
    pub metric: String,
    /// A label that a sample must have to count, such as `direction="out"`; absent: all count.
    #[serde(default)]
    pub label: String,
}

/// Where a system has brokers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Brokers {
    /// One at every site.
    #[default]
    EverySite,
    /// One at every site; the brokers are not connected.
    Separate,
    /// One at the first site, for the clients of all.
    FirstSite,
    /// None of the lab's: they run already.
    External,
}

impl Brokers {
    /// The brokers that the lab runs, from the first site on.
    #[must_use]
    pub const fn count(self, sites: usize) -> usize {
        match self {
            Self::EverySite | Self::Separate => sites,
            Self::FirstSite => 1,
            Self::External => 0,
        }
    }
}

/// How to detect that a broker is ready. In any case, messages must then pass from every broker to every other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ready {
    /// A test message is received.
    #[default]
    RoundTrip,
    /// This URL returns 200, fetched where the broker runs.
    Http(String),
}

/// How to prepare a broker that no package installs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    /// Programs it needs, and how to get them.
    pub needs: BTreeMap<String, String>,
    /// Files written first.
    pub files: Vec<Template>,
    /// Commands, run in the folder one after the other.
    pub commands: Vec<Vec<String>>,
    /// The file that exists when all is done.
    pub makes: String,
}

impl Prepare {
    /// Whether a driver's broker was prepared from the files that the driver has now.
    fn is_done(&self, driver: &str) -> bool {
        let folder = prepared_folder(driver);
        let is_there = |file: &Template| {
            let text = std::fs::read_to_string(folder.join(&file.path));
            text.is_ok_and(|text| text == file.text)
        };
        folder.join(&self.makes).is_file() && self.files.iter().all(is_there)
    }
}

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Its name in the broker's folder.
    pub path: String,
    /// Its text.
    pub text: String,
    /// Added for each broker below this one in a tree over the links, from the first site.
    #[serde(default)]
    pub each_child: String,
    /// Added for each broker, this one included.
    #[serde(default)]
    pub each_broker: String,
    /// Added where clients use TLS; the certificate is `{dir}/tls.pem`, its key `{dir}/tls.key`.
    #[serde(default)]
    pub tls: String,
    /// Added where clients use WebSocket.
    #[serde(default)]
    pub websocket: String,
    /// Added where clients use WebSocket over TLS, to the two before.
    #[serde(default)]
    pub websocket_over_tls: String,
    /// Added at the end.
    #[serde(default)]
    pub end: String,
    /// Its mode; 0644 by default.
    #[serde(default)]
    pub mode: Option<u32>,
}

const fn patience() -> u64 {
    30
}

/// A broker as the placeholders of templates have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Name of its site.
    pub site: String,
    /// Number of its site, from 1.
    pub index: usize,
    /// Its address.
    pub address: String,
}

/// Whether a driver can be used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// Name of the driver.
    pub name: String,
    /// What it starts.
    pub about: String,
    /// The version found, or what is missing.
    pub found: Result<String, String>,
}

/// All built-in drivers, and whether they can be used here.
#[must_use]
pub fn available(own_program: &Path) -> Vec<Availability> {
    let one = |(name, text): (&str, &str)| {
        let driver: Driver = toml::from_str(text).expect("built-in drivers are tested");
        let system = System::of_driver(name);
        let found = match &driver.program {
            None => Ok("needs nothing here".to_owned()),
            Some(_) => driver
                .find(&system, own_program)
                .map(|program| driver.find_version(name, &program))
                .map_err(|error| error.to_string()),
        };
        Availability {
            name: name.to_owned(),
            about: driver.about,
            found,
        }
    };
    BUILT_IN.into_iter().map(one).collect()
}

impl Driver {
    /// The driver of a system: built in, or a file.
    pub fn load(system: &System) -> Result<Self, LabError> {
        Self::of(system).map_err(|reason| LabError::Driver {
            driver: system.driver.clone(),
            reason,
        })
    }

    /// The same; an error begins with the key that it is about.
    pub(crate) fn of(system: &System) -> Result<Self, String> {
        let System { name, driver, .. } = system;
        let built_in = BUILT_IN.iter().find(|(name, _)| name == driver);
        let text = match built_in {
            Some((_, text)) => (*text).to_owned(),
            None if driver.ends_with(".toml") => std::fs::read_to_string(driver)
                .map_err(|error| format!("system.driver of {name}: {driver}: {error}"))?,
            None => {
                let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                return Err(format!(
                    "system.driver of {name}: {driver} is none of {} and no .toml file",
                    names.join(", ")
                ));
            }
        };
        let driver: Self = toml::from_str(&text)
            .map_err(|error| format!("system.driver of {name}: {driver}: {error}"))?;
        if let Some(unknown) = system
            .settings
            .keys()
            .find(|key| !driver.settings.contains_key(*key))
        {
            let known: Vec<&str> = driver.settings.keys().map(String::as_str).collect();
            return Err(format!(
                "system.settings.{unknown} of {name}: the driver {} has no such setting, only {}",
                system.driver,
                known.join(", ")
            ));
        }
        if driver.brokers == Brokers::External && system.addresses.is_empty() {
            return Err(format!("system.addresses of {name}: give one a site"));
        }
        Ok(driver)
    }

    /// The program of the broker.
    pub fn find(&self, system: &System, own_program: &Path) -> Result<PathBuf, LabError> {
        if let Some(prepare) = &self.prepare
            && !prepare.is_done(&system.driver)
        {
            return Err(LabError::Driver {
                driver: system.driver.clone(),
                reason: format!("not prepared: run `thicket lab prepare {}`", system.driver),
            });
        }
        let wanted = match (&system.program, &self.program) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(name)) if name == "{self}" => return Ok(own_program.to_owned()),
            (None, Some(name)) => name.clone(),
            (None, None) => return Ok(PathBuf::new()),
        };
        let found = command::find(&wanted).and_then(|path| path.canonicalize().ok());
        found.ok_or_else(|| LabError::Driver {
            driver: system.driver.clone(),
            reason: match &self.install {
                Some(install) => format!("{wanted} is not installed: {install}"),
                None => format!("{wanted} is not there"),
            },
        })
    }

    /// The version that the program reports.
    #[must_use]
    pub fn find_version(&self, name: &str, program: &Path) -> String {
        let prepared = prepared_folder(name).display().to_string();
        let words: Vec<String> = self
            .version
            .iter()
            .map(|word| {
                word.replace("{program}", &program.display().to_string())
                    .replace("{prepared}", &prepared)
            })
            .collect();
        let Some((command, arguments)) = words.split_first() else {
            return "unknown".to_owned();
        };
        let output = std::process::Command::new(command)
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .output();
        let text = output.map_or(String::new(), |output| {
            [output.stdout, output.stderr]
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .concat()
        });
        version_in(&text).unwrap_or_else(|| "unknown".to_owned())
    }

    /// Values of the placeholders, for the broker `own`.
    pub fn places(
        &self,
        system: &System,
        program: &Path,
        own_program: &Path,
        own: &Peer,
        all: &[Peer],
        dir: &Path,
    ) -> BTreeMap<String, String> {
        let mut places: BTreeMap<String, String> = self
            .settings
            .iter()
            .map(|(key, value)| {
                let value = system.settings.get(key).unwrap_or(value);
                (key.clone(), text_of(value))
            })
            .collect();
        places.insert("program".to_owned(), program.display().to_string());
        places.insert("self".to_owned(), own_program.display().to_string());
        places.insert("dir".to_owned(), dir.display().to_string());
        places.insert("site".to_owned(), own.site.clone());
        places.insert("index".to_owned(), own.index.to_string());
        places.insert("address".to_owned(), own.address.clone());
        let prepared = prepared_folder(&system.driver);
        places.insert("prepared".to_owned(), prepared.display().to_string());
        let first = all.first().unwrap_or(own);
        places.insert("first_address".to_owned(), first.address.clone());
        for (name, list) in &self.lists {
            let texts: Vec<String> = all
                .iter()
                .map(|peer| fill(&list.each, &with_peer(&places, peer)))
                .collect();
            places.insert(name.clone(), texts.join(&list.between));
        }
        places
    }

    /// Words of a broker's command line, before placeholders are filled in.
    #[must_use]
    pub fn start_words(&self, layers: Layers, reach: Reach) -> Vec<String> {
        let [tls, websocket, both] = layers.parts();
        let none = Vec::new();
        let parts = [
            (tls, self.tls.as_ref().unwrap_or(&none)),
            (websocket, self.websocket.as_ref().unwrap_or(&none)),
            (both, &self.websocket_over_tls),
            (reach.disk, self.disk.as_ref().unwrap_or(&none)),
        ];
        let added = parts.into_iter().filter(|(is_used, _)| *is_used);
        let added = added.flat_map(|(_, words)| words);
        self.start.iter().chain(added).cloned().collect()
    }

    /// Whether the broker of a system is a node of our own program.
    pub(crate) fn is_own(&self, system: &System) -> bool {
        system.program.is_none() && self.program.as_deref() == Some("{self}")
    }

    /// The flag whose value is a setting, in the command line of a broker.
    pub(crate) fn flag_of(&self, setting: &str) -> Option<&str> {
        let place = format!("{{{setting}}}");
        let mut pairs = self.start.windows(2);
        let pair = pairs.find(|pair| pair[1] == place && pair[0].starts_with("--"))?;
        Some(&pair[0])
    }

    /// The key of the workload that this driver does not know how to serve, if there is one.
    #[must_use]
    pub fn lacks(&self, layers: Layers) -> Option<&'static str> {
        if layers.tls && self.tls.is_none() {
            return Some("tls");
        }
        (layers.websocket && self.websocket.is_none()).then_some("websocket")
    }

    /// Path, text and mode of each file of a broker.
    #[must_use]
    pub fn texts(
        &self,
        places: &BTreeMap<String, String>,
        children: &[Peer],
        all: &[Peer],
        layers: Layers,
    ) -> Vec<(String, String, Option<u32>)> {
        let [tls, websocket, both] = layers.parts();
        let one = |file: &Template| {
            let mut text = fill(&file.text, places);
            for (is_used, part) in [
                (tls, &file.tls),
                (websocket, &file.websocket),
                (both, &file.websocket_over_tls),
            ] {
                if is_used {
                    text.push_str(&fill(part, places));
                }
            }
            for (part, peers) in [(&file.each_child, children), (&file.each_broker, all)] {
                for peer in peers {
                    text.push_str(&fill(part, &with_peer(places, peer)));
                }
            }
            text.push_str(&fill(&file.end, places));
            (file.path.clone(), text, file.mode)
        };
        self.files.iter().map(one).collect()
    }

    /// Writes the files of a broker into `dir`.
    pub fn write_files(
        &self,
        places: &BTreeMap<String, String>,
        children: &[Peer],
        all: &[Peer],
        layers: Layers,
        dir: &Path,
    ) -> Result<(), LabError> {
        for (path, text, mode) in self.texts(places, children, all, layers) {
            write_file(&dir.join(path), &text, mode)?;
        }
        Ok(())
    }
}

/// The folder of a driver's prepared broker.
#[must_use]
pub fn prepared_folder(driver: &str) -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(home).unwrap_or_else(std::env::temp_dir);
    // A driver may be the path of a file.
    let name = Path::new(driver).file_stem().unwrap_or_default();
    cache.join("thicket-lab").join(name)
}

/// A setting as a word of a command line or of a file.
pub(crate) fn text_of(setting: &toml::Value) -> String {
    match setting {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub(crate) fn with_peer(
    places: &BTreeMap<String, String>,
    peer: &Peer,
) -> BTreeMap<String, String> {
    let mut places = places.clone();
    places.insert("peer_site".to_owned(), peer.site.clone());
    places.insert("peer_index".to_owned(), peer.index.to_string());
    places.insert("peer_address".to_owned(), peer.address.clone());
    places
}

pub(crate) fn write_file(path: &Path, text: &str, mode: Option<u32>) -> Result<(), LabError> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).map_err(LabError::io(path.display()))?;
    if let Some(mode) = mode {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, permissions).map_err(LabError::io(path.display()))?;
    }
    Ok(())
}

/// Fills the placeholders of a text; braces without a known name stay.
#[must_use]
pub fn fill(text: &str, places: &BTreeMap<String, String>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        filled.push_str(&rest[..open]);
        rest = &rest[open..];
        let value = rest
            .find('}')
            .and_then(|close| Some((close, places.get(&rest[1..close])?)));
        match value {
            Some((close, value)) => {
                filled.push_str(value);
                rest = &rest[close + 1..];
            }
            None => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled + rest
}

/// The first word with a digit, a dot and another digit.
fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let word = word.trim_start_matches('v').as_bytes();
        word.first().is_some_and(u8::is_ascii_digit)
            && word
                .windows(2)
                .any(|pair| pair[0] == b'.' && pair[1].is_ascii_digit())
    };
    text.split(|c: char| c.is_whitespace() || c == ',' || c == '(' || c == ')')
        .find(is_version)
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(driver: &str) -> System {
        toml::from_str(&format!("name = \"x\"\ndriver = \"{driver}\"")).unwrap()
    }

    #[test]
    fn every_built_in_driver_is_a_whole_one() {
        for (name, text) in BUILT_IN {
            let driver: Driver =
                toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(
                driver.start.is_empty(),
                driver.brokers == Brokers::External,
                "{name}"
            );
        }
    }

    #[test]
    fn a_list_names_every_broker() {
        let driver = Driver::load(&system("emqx")).unwrap();
        let peer = |index: usize| Peer {
            site: format!("s{index}"),
            index,
            address: format!("10.{index}.0.2"),
        };
        let all = [peer(1), peer(2)];
        let places = driver.places(
            &system("emqx"),
            Path::new("emqx"),
            Path::new("thicket"),
            &all[1],
            &all,
            Path::new("/d"),
        );
        assert_eq!(places["seeds"], "emqx@10.1.0.2,emqx@10.2.0.2");
        assert_eq!(places["first_address"], "10.1.0.2");
    }

    #[test]
    fn places_are_filled_and_other_braces_stay() {
        let places = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        assert_eq!(fill("{a}{b} { {a}", &places), "1{b} { 1");
    }

    #[test]
    fn a_setting_that_the_driver_has_not_is_refused_with_those_it_has() {
        let mut system = system("thicket");
        system.settings.insert("rooting".to_owned(), "mesh".into());
        let error = Driver::load(&system).unwrap_err().to_string();
        assert!(
            error.contains("rooting") && error.contains("routing"),
            "{error}"
        );
        let error = Driver::load(&self::system("moskito"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("mosquitto"), "{error}");
    }

    #[test]
    fn a_version_is_found_in_what_programs_say() {
        for (text, version) in [
            ("thicket 0.1.0\n", Some("0.1.0")),
            ("mosquitto version 2.0.11\n\nmosquitto is", Some("2.0.11")),
            ("nothing here 3", None),
            ("emqx v5.8.1 started", Some("v5.8.1")),
        ] {
            assert_eq!(version_in(text).as_deref(), version, "{text}");
        }
    }
}
