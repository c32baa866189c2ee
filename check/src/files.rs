//! Reading what may be anything: short, never waiting, and fit for a terminal.

use std::fs::{self, OpenOptions};
use std::io::{self, Error, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of the longest file of text.
const LONGEST_TEXT: u64 = 64 << 10;

/// Bytes of the longest library.
const LONGEST_LIBRARY: u64 = 64 << 20;

/// Entries of a folder that are looked at.
const MOST_ENTRIES: usize = 4096;

/// The root of the system to look at: `/`, or a folder that holds a copy.
pub struct Root(PathBuf);

impl Root {
    /// Of a system whose root is that folder.
    pub fn new(folder: PathBuf) -> Root {
        Root(folder)
    }

    /// Whether it is the machine itself, so that what the kernel and libibverbs say counts too.
    pub fn is_machine(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// A path of the system, as this process reaches it.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// How the system calls what this process reaches by that path.
    pub fn name(&self, path: &Path) -> String {
        let path = path.strip_prefix(&self.0).map_or(path.to_owned(), |rest| Path::new("/").join(rest));
        shown(&path.to_string_lossy())
    }

    /// A file of text as it is.
    pub fn text(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let bytes = read(&self.at(path), LONGEST_TEXT)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first line of a file, if there is one and it says anything.
    pub fn line(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = self.text(path).ok()?;
        let line = shown(text.lines().next()?.trim());
        (!line.is_empty()).then_some(line)
    }

    /// A file that is a number, with or without `0x`.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u32> {
        let line = self.line(path)?;
        match line.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => line.parse().ok(),
        }
    }

    /// The names in a folder, in order; none if there is no such folder.
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.at(path)).into_iter().flatten().take(MOST_ENTRIES);
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        // 2 before 10.
        names.sort_by_key(|name| (name.parse::<u32>().unwrap_or(u32::MAX), name.clone()));
        names
    }

    /// The last part of what a link leads to.
    pub fn link(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.at(path)).ok()?;
        Some(shown(&target.file_name()?.to_string_lossy()))
    }
}

/// The bytes of a library.
pub fn library(path: &Path) -> io::Result<Vec<u8>> {
    read(path, LONGEST_LIBRARY)
}

/// The bytes of a file that is one, up to a length.
fn read(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    // A pipe must not make us wait, nor a terminal ours.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidData, "not a file"));
    }
    let mut bytes = Vec::new();
    file.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(Error::new(ErrorKind::InvalidData, "too long"));
    }
    Ok(bytes)
}

/// A text without what a terminal would obey.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn what_is_no_short_file_is_refused() {
        let tree = Tree::new("files");
        tree.file("sys/long", &"x".repeat(LONGEST_TEXT as usize + 1));
        tree.file("sys/fits", &"x".repeat(LONGEST_TEXT as usize));
        tree.link("sys/loop", "loop");
        tree.pipe("sys/pipe");
        let root = tree.root();
        for (path, reason) in [
            ("sys/long", "too long"),
            ("sys/pipe", "not a file"),
            ("sys", "not a file"),
            ("sys/loop", "symbolic links"),
            ("sys/none", "No such file"),
        ] {
            let error = root.text(path).unwrap_err().to_string();
            assert!(error.contains(reason), "{path}: {error}");
        }
        assert_eq!(root.text("/sys/fits").unwrap().len() as u64, LONGEST_TEXT);
    }

    #[test]
    fn lines_are_fit_for_a_terminal() {
        let tree = Tree::new("lines");
        tree.file("a", "  4: ACTIVE\x1b[2J\n second");
        tree.file("empty", "\n");
        tree.bytes("binary", &[0xff, 0xfe, b'x', 0]);
        let root = tree.root();
        assert_eq!(root.line("a").unwrap(), "4: ACTIVE\\u{1b}[2J");
        assert_eq!(root.line("empty"), None);
        assert_eq!(root.line("binary").unwrap(), "\u{fffd}\u{fffd}x\\u{0}");
    }

    #[test]
    fn numbers_are_decimal_or_not() {
        let tree = Tree::new("numbers");
        let root = tree.root();
        for (text, number) in
            [("0x8086\n", Some(0x8086)), ("5\n", Some(5)), ("0xg", None), ("-1", None), ("99999999999", None)]
        {
            tree.file("n", text);
            assert_eq!(root.number("n"), number, "{text}");
        }
    }

    #[test]
    fn names_come_in_the_order_of_their_numbers() {
        let tree = Tree::new("names");
        for name in ["10", "2", "b", "a"] {
            tree.file(&format!("f/{name}"), "");
        }
        assert_eq!(tree.root().names("f"), ["2", "10", "a", "b"]);
        assert!(tree.root().names("g").is_empty());
    }
}
