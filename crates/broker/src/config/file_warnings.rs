//! Files that a node starts with although something about them is wrong: secrets that every user of the host can read, and lists without users.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::access::Access;
use super::{AlgorithmChoice, Listen, Settings};

/// Permission of others to read a file.
const OTHERS_READ: u32 = 0o004;

/// A file that the node can start with, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileWarning {
    /// The key that names it.
    pub key: &'static str,
    /// As configured.
    pub path: PathBuf,
    /// What is wrong, and what to do if it is not obvious.
    pub problem: &'static str,
}

impl FileWarning {
    /// Warns of it in the log.
    pub(crate) fn log(&self) {
        let file = self.path.display();
        tracing::warn!(key = self.key, %file, "{}", self.problem);
    }

    pub(super) fn new((key, path): (&'static str, &Path), problem: &'static str) -> Self {
        Self {
            key,
            path: path.to_owned(),
            problem,
        }
    }
}

/// All such files that the settings name. One that cannot be looked at is reported where it is read.
pub(super) fn file_warnings(
    settings: &Settings,
    access: &Access,
    listeners: &[Listen],
) -> Vec<FileWarning> {
    let mut found = exposed(settings);
    let of_listeners = listeners.iter().filter_map(|listen| listen.users.as_ref());
    let of_listeners = of_listeners.map(|read| (&*read.path, &read.users));
    found.extend(access.empty_lists(&access.loaded, of_listeners));
    found
}

fn exposed(settings: &Settings) -> Vec<FileWarning> {
    let problem = "every user of this host can read this file with secrets: chmod o-r";
    let mut found: Vec<_> = (secrets(settings).into_iter())
        .filter(|(_, path)| is_exposed(path))
        .map(|file| FileWarning::new(file, problem))
        .collect();
    found.dedup();
    found
}

fn is_exposed(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & OTHERS_READ != 0)
}

/// Every file with a secret or with hashes of passwords.
fn secrets(settings: &Settings) -> Vec<(&'static str, &Path)> {
    let signs_tokens = matches!(settings.jwt_algorithm, Some(AlgorithmChoice::Hs256));
    let mut all = vec![
        ("cluster_secret_file", &settings.cluster_secret_file),
        ("tls_key", &settings.tls_key),
        ("link_tls_key", &settings.link_tls_key),
        ("users", &settings.users),
        ("http_users", &settings.http_users),
        ("otlp_headers_file", &settings.otlp_headers_file),
    ];
    if signs_tokens {
        all.push(("jwt_key", &settings.jwt_key));
    }
    for listener in settings.listener.iter().flatten() {
        all.push(("listener.tls_key", &listener.tls_key));
        all.push(("listener.users", &listener.users));
    }
    for hook in settings.hook.iter().flatten() {
        all.push(("hook.secret_file", &hook.secret_file));
        all.push(("hook.kafka_password_file", &hook.kafka_password_file));
    }
    for bridge in settings.bridge.iter().flatten() {
        all.push(("bridge.tls_key", &bridge.tls_key));
        all.push(("bridge.password_file", &bridge.password_file));
        all.push(("bridge.local_password_file", &bridge.local_password_file));
    }
    let given = all.into_iter();
    given
        .filter_map(|(key, path)| Some((key, path.as_deref()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::ListenerSettings;

    #[test]
    fn a_list_without_users_is_a_warning() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("empty");
        std::fs::write(&path, "# nobody yet\n").expect("written");
        set_permissions(&path, Permissions::from_mode(0o600)).expect("changed");
        let settings = Settings {
            users: Some(path.clone()),
            http_users: Some(path.clone()),
            http_tokens: Some(path.clone()),
            listener: Some(vec![ListenerSettings {
                address: Some("127.0.0.1:0".into()),
                users: Some(path.clone()),
                ..ListenerSettings::default()
            }]),
            ..Settings::default()
        };
        let keys = |settings: Settings| -> Vec<&str> {
            let config = settings.check().expect("a valid configuration");
            config.file_warnings.iter().map(|it| it.key).collect()
        };
        assert_eq!(
            keys(settings.clone()),
            ["users", "listener.users", "http_users", "http_tokens"]
        );
        let users = directory.path().join("users");
        let line = format!("viewer ann:{}\n", thicket_access::hash_token(b"x"));
        std::fs::write(&users, line).expect("written");
        set_permissions(&users, Permissions::from_mode(0o600)).expect("changed");
        let with_a_user = Settings {
            http_users: Some(users),
            ..settings
        };
        assert_eq!(keys(with_a_user), ["users", "listener.users"]);
    }

    #[test]
    fn files_with_secrets_that_everybody_can_read_are_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, mode| {
            let path = directory.path().join(name);
            std::fs::write(&path, "").expect("written");
            set_permissions(&path, Permissions::from_mode(mode)).expect("changed");
            Some(path)
        };
        let open = file("open", 0o644);
        let settings = |algorithm| Settings {
            cluster_secret_file: open.clone(),
            tls_key: file("closed", 0o640),
            tls_certificate: open.clone(),
            jwt_key: open.clone(),
            jwt_algorithm: Some(algorithm),
            users: Some(directory.path().join("missing")),
            listener: Some(vec![ListenerSettings {
                users: open.clone(),
                ..ListenerSettings::default()
            }]),
            ..Settings::default()
        };
        let keys = |settings: &Settings| -> Vec<&str> {
            exposed(settings).iter().map(|it| it.key).collect()
        };
        let of_secret = settings(AlgorithmChoice::Hs256);
        assert_eq!(
            keys(&of_secret),
            ["cluster_secret_file", "jwt_key", "listener.users"]
        );
        let of_public_key = settings(AlgorithmChoice::Rs256);
        assert_eq!(
            keys(&of_public_key),
            ["cluster_secret_file", "listener.users"]
        );
    }
}
