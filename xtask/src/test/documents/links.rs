//! Links, and names of files, in the documents: that there is what they name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, ensure};

use super::markdown::Document;
use crate::workspace::root;

/// Files of rdma-core's, whose folder is called as one of ours.
const FOREIGN: &[&str] = &["tests/test_rdmacm.py"];

/// Looks at every document.
pub fn check() -> Result<()> {
    let documents = Document::all()?;
    let anchors: BTreeMap<&str, Vec<String>> =
        documents.iter().map(|document| (document.path.as_str(), document.anchors())).collect();
    let mut broken = Vec::new();
    for document in &documents {
        for link in document.links() {
            if !resolves(&document.path, &link, &anchors) {
                broken.push(format!("{}: ({link})", document.path));
            }
        }
        for word in document.spans().iter().filter(|word| is_ours(word)) {
            if !root().join(word).exists() {
                broken.push(format!("{}: `{word}`", document.path));
            }
        }
    }
    ensure!(broken.is_empty(), "there is nothing where these lead:\n{}", broken.join("\n"));
    Ok(())
}

/// Whether a link in a document leads to a file, and to a heading of it if it names one.
fn resolves(from: &str, link: &str, anchors: &BTreeMap<&str, Vec<String>>) -> bool {
    if link.contains("://") {
        return true;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let path = if file.is_empty() { PathBuf::from(from) } else { plain(&folder.join(file)) };
    let Some(anchor) = anchor else { return root().join(&path).exists() };
    let headings = path.to_str().and_then(|path| anchors.get(path));
    headings.is_some_and(|headings| headings.iter().any(|heading| heading == anchor))
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// Whether a word is meant as the path of a file or folder in the source tree: it begins with a folder that
/// is at its top. Words in capitals stand for something else.
fn is_ours(word: &str) -> bool {
    let is_path = word.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter));
    let stands_for =
        word.split(['/', '.']).any(|part| part.len() > 2 && part.chars().all(|c| c.is_ascii_uppercase()));
    let Some((top, _)) = word.split_once('/') else { return false };
    let is_top = !top.is_empty()
        && top != "target"
        && fs::metadata(root().join(top)).is_ok_and(|about| about.is_dir());
    is_path && is_top && !stands_for && !FOREIGN.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_files_and_headings() {
        let anchors =
            BTreeMap::from([("docs/testing.md", vec!["arm64".to_owned()]), ("README.md", Vec::new())]);
        for link in ["testing.md", "testing.md#arm64", "../README.md", "../docs", "https://example.org/none"]
        {
            assert!(resolves("docs/tuning.md", link, &anchors), "{link}");
        }
        for link in ["nothing.md", "testing.md#amd64", "README.md", "#arm64"] {
            assert!(!resolves("docs/tuning.md", link, &anchors), "{link}");
        }
        assert!(resolves("docs/testing.md", "#arm64", &anchors));
    }

    #[test]
    fn words_that_name_files_are_told_from_others() {
        for word in ["src/log.rs", "tests/", "sim/nothing.rs"] {
            assert!(is_ours(word), "{word}");
        }
        for word in [
            "target/provider",
            "and/or",
            "docs/NAME.md",
            "src/a b",
            "/dev/infiniband",
            "tests/test_rdmacm.py",
        ] {
            assert!(!is_ours(word), "{word}");
        }
    }
}
