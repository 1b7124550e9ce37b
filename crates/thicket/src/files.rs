//! Files and folders that the user names: an error says which one.

use std::path::Path;

use anyhow::Context;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads a file of text, without the byte order mark that some editors write before it.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    let mut text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len_utf8());
    }
    Ok(text)
}

/// Writes a file.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Makes a folder with those above it, unless it is there.
pub fn make_folder(path: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(path)
        .with_context(|| format!("cannot make the folder {}", path.display()))
}

/// The same; an error if there is something in it.
pub fn make_empty_folder(path: &Path) -> anyhow::Result<()> {
    make_folder(path)?;
    let mut entries =
        std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(
        entries.next().is_none(),
        "{} is not empty: what is in it would mix with what is to come",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        write(&file, "x").unwrap();
        let below = file.join("below");
        for failed in [
            read_text(&below).map(drop),
            write(&below, "x"),
            make_folder(&below),
            make_folder(&file),
            make_empty_folder(&file),
            make_empty_folder(folder.path()),
        ] {
            let error = format!("{:#}", failed.unwrap_err());
            let path = folder.path().to_str().unwrap();
            assert!(error.contains(path), "{error}");
        }
        let new = folder.path().join("a/b");
        make_empty_folder(&new).unwrap();
        make_empty_folder(&new).unwrap();
    }
}
