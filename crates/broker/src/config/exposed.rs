//! Files with secrets that every user of the host can read.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{AlgorithmChoice, Settings};

/// Permission of others to read a file.
const OTHERS_READ: u32 = 0o004;

/// A file with a secret that every user of this host can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedFile {
    /// The key that names it.
    pub key: &'static str,
    /// As configured.
    pub path: PathBuf,
}

/// All such files that the settings name. One that cannot be looked at is reported where it is read.
pub(super) fn exposed(settings: &Settings) -> Vec<ExposedFile> {
    let mut found: Vec<ExposedFile> = (secrets(settings).into_iter())
        .filter(|(_, path)| is_exposed(path))
        .map(|(key, path)| ExposedFile {
            key,
            path: path.to_owned(),
        })
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
