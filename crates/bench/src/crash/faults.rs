//! Stalling disks and jumping clocks for one process: a preloaded library, compiled where the nodes run.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::BenchError;

const SOURCE: &str = include_str!("faults.c");

/// The compiled library.
#[derive(Debug)]
pub struct Library(PathBuf);

/// Controls a process that has loaded the library, through a file that it maps.
#[derive(Debug)]
pub struct Faults {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl Library {
    /// # Errors
    /// There is no C compiler, or it fails.
    pub fn compile(folder: &Path) -> Result<Self, BenchError> {
        let source = folder.join("faults.c");
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&source, SOURCE))
            .map_err(BenchError::system(format!(
                "cannot write {}",
                source.display()
            )))?;
        let library = folder.join("faults.so");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(&library);
        let output = compiler.arg(&source).arg("-ldl").output();
        let missing = "disks that stall and clocks that jump need a C compiler: cannot run `cc`";
        let output = output.map_err(BenchError::system(missing))?;
        if output.status.success() {
            return Ok(Self(library));
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(BenchError::Setting(format!(
            "`cc` cannot compile {}: {said}",
            source.display()
        )))
    }

    /// The controls for one process, without a fault at first.
    pub fn faults(&self, folder: &Path) -> io::Result<Faults> {
        let path = folder.join("faults");
        let mut options = File::options();
        let options = options.create(true).truncate(true).read(true).write(true);
        let file = options.open(&path)?;
        file.write_all_at(&[0; 24], 0)?;
        Ok(Faults {
            library: self.0.clone(),
            path,
            file,
        })
    }
}

impl Faults {
    /// The environment of a process that loads the library. Faults set before its start stay in effect.
    pub fn environment(&self) -> [(&'static str, &Path); 2] {
        [
            ("LD_PRELOAD", &self.library),
            ("NODE_FAULTS_FILE", &self.path),
        ]
    }

    /// Whether the process has loaded the library: a statically linked one loads none.
    pub fn is_loaded(&self) -> io::Result<bool> {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, 16)?;
        Ok(i64::from_ne_bytes(word) == 1)
    }

    /// Makes syncs block until this is reset.
    pub fn stall_disk(&self, is_stalled: bool) -> io::Result<()> {
        let word = i64::from(is_stalled).to_ne_bytes();
        self.file.write_all_at(&word, 0)
    }

    /// Shifts the wall clock by this offset.
    pub fn set_clock(&self, offset_ns: i64) -> io::Result<()> {
        self.file.write_all_at(&offset_ns.to_ne_bytes(), 8)
    }
}
