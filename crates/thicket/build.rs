//! Names the commit that this is built from, which is part of every result of the lab. Sources without git build as well, and have none.

use std::path::Path;
use std::process::Command;

/// The environment of the build may have the commit here; it is taken as it is.
const COMMIT: &str = "THICKET_COMMIT";
/// The variable that the crate is compiled with. Cargo also sets it for programs that it runs, where a name with THICKET_ would be taken for a
/// setting of the broker.
const BUILT_FROM: &str = "BUILT_FROM_COMMIT";

fn main() {
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    println!("cargo::rerun-if-changed=build.rs");
    // The former is written whenever HEAD moves, if git keeps it.
    let written = ["logs/HEAD", "HEAD"].into_iter().find_map(|name| {
        let path = root.join(git(&root, &["rev-parse", "--git-path", name])?);
        path.is_file().then_some(path)
    });
    if let Some(path) = written {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    if let Some(commit) = std::env::var(COMMIT).ok().or_else(|| commit(&root)) {
        println!("cargo::rustc-env={BUILT_FROM}={commit}");
    }
}

/// The commit, with `-dirty` if files differ from it. `None` if the sources are not those of the repository, but only in a folder of it.
fn commit(root: &Path) -> Option<String> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    git(
        root,
        &[
            "describe",
            "--always",
            "--dirty",
            "--abbrev=12",
            "--exclude=*",
        ],
    )
}

/// The answer of git in one line.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    let output = command.arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
