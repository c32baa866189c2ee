//! An initial file system for the kernel: the "newc" format of cpio, as the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst` describes it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// File types and permissions of `st_mode`.
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// An archive that is put together in memory.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds a file, which may be executed, and the folders above it.
    pub fn add(&mut self, path: &str, content: &[u8]) {
        for (end, _) in path.match_indices('/') {
            self.add_folder(&path[..end]);
        }
        self.entry(path, PROGRAM, content);
    }

    /// Adds the file that lies at `source`.
    pub fn add_from(&mut self, path: &str, source: &Path) -> Result<()> {
        let content = fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        self.add(path, &content);
        Ok(())
    }

    /// Adds a folder.
    pub fn add_folder(&mut self, path: &str) {
        if self.folders.insert(path.to_owned()) {
            self.entry(path, DIRECTORY, &[]);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let fields =
            [self.entries, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, path.len() as u32 + 1, 0];
        self.bytes.extend(b"070701");
        fields.iter().for_each(|field| self.bytes.extend(format!("{field:08x}").bytes()));
        self.bytes.extend(path.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_begins_at_a_multiple_of_four() {
        let mut archive = Archive::default();
        archive.add("a/b/c", b"12345");
        archive.add("a/b/d", b"");
        let bytes = archive.finish();
        let starts: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"070701")).collect();
        // a, a/b, a/b/c, a/b/d, the trailer.
        assert_eq!(starts.len(), 5);
        assert!(starts.iter().all(|start| start % 4 == 0));
        assert!(bytes.windows(5).any(|window| window == b"12345"));
    }
}
