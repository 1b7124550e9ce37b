//! Files as people write them.

use std::path::Path;

/// Some editors write it before UTF-8; it is no part of the text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The bytes of a file without a byte order mark.
pub(super) fn read_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = std::fs::read(path)?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

/// The text of a file without a byte order mark.
pub(super) fn read_text(path: &Path) -> std::io::Result<String> {
    let text = String::from_utf8(read_bytes(path)?);
    text.map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use crate::config::{ClusterSecret, Settings};

    #[test]
    fn a_byte_order_mark_is_no_part_of_any_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, format!("\u{feff}{text}")).expect("written");
            path
        };
        let hash = crate::hash_password(b"secret").expect("hashed");
        let token = thicket_access::hash_token(b"x");
        let path = |path: &std::path::Path| path.to_str().expect("text").to_owned();
        let users = file("users", &format!("ann:{hash}\n"));
        let acl = file("acl", "user ann\ntopic #\n");
        let http_users = file("http_users", &format!("viewer ann:{token}\n"));
        let config = file(
            "thicket.toml",
            &format!(
                "users = {:?}\nacl = {:?}\nhttp_users = {:?}\n",
                path(&users),
                path(&acl),
                path(&http_users)
            ),
        );
        let (settings, faults) = Settings::from_file(&config).expect("good TOML");
        assert!(faults.is_empty(), "{faults:?}");
        let config = settings.check().expect("good files");
        let policy = &config.access.loaded.policy;
        assert!(policy.users.as_ref().is_some_and(|users| !users.is_empty()));
        let secret = "4b8f1c0de2a95f3b7d6c8e9fa1b2c3d4e5f60718293a4b5c6d7e8f9011223344";
        let secret = ClusterSecret::from_file(&file("secret", secret)).expect("a good secret");
        assert!(!secret.secrets()[0].starts_with(b"\xef"));
        let password = file("password", "hush\r\n");
        let password = crate::config::values::password("password_file", &password);
        assert_eq!(password.expect("readable"), b"hush");
    }
}
