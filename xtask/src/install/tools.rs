//! What comes with the plugin: `irdma-check`, and the manual pages of both.

use std::path::{Path, PathBuf};

use super::site::DISTRIBUTIONS;
use super::steps::Content;
use crate::package::{PAGES, place_of_page};

/// A file that is put where none was.
pub struct Tool {
    /// Seen from the system's root.
    pub path: PathBuf,
    /// What is put there.
    pub content: Content,
}

const PROGRAM: &str = "bin/irdma-check";

/// Where programs and manual pages go: what is below `/usr` itself is the distribution's, so beside it there.
pub fn folder(prefix: Option<&Path>) -> PathBuf {
    let prefix = prefix.filter(|prefix| *prefix != Path::new(DISTRIBUTIONS));
    Path::new("/").join(prefix.unwrap_or(Path::new("/usr/local")))
}

/// Their paths below `folder`.
pub fn paths(folder: &Path) -> Vec<PathBuf> {
    let pages = PAGES.iter().map(|page| folder.join(place_of_page(page)));
    [folder.join(PROGRAM)].into_iter().chain(pages).collect()
}

/// They themselves: an `irdma-check` of those bytes, and the pages by their names.
pub fn tools(folder: &Path, program: Vec<u8>, pages: Vec<(&'static str, String)>) -> Vec<Tool> {
    let program = Tool { path: folder.join(PROGRAM), content: Content::program(program) };
    let pages = pages
        .into_iter()
        .map(|(page, text)| Tool { path: folder.join(place_of_page(page)), content: Content::new(text) });
    [program].into_iter().chain(pages).collect()
}
