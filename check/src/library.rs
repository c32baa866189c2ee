//! libibverbs: which release, which private interface, and where it looks for plugins.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::files::{self, Root};
use crate::layouts;
use crate::marks::{self, Places};

/// The libibverbs that programs get.
#[derive(Debug, Default, Serialize)]
pub struct Library {
    /// Its file; none if there is none.
    pub file: Option<String>,
    /// Its release of rdma-core, such as 44.0, by the file's name.
    pub release: Option<String>,
    /// The number of its private interface (PABI).
    pub private_interface: Option<u32>,
    /// The layout of that, by the release.
    pub layout: Option<u32>,
    /// Why it cannot be loaded or read.
    pub error: Option<String>,
    /// Where it looks for plugins and driver files.
    #[serde(skip)]
    pub places: Option<Places>,
}

impl Library {
    /// What a file says; `loaded` is the one that a program got, else it is looked for.
    pub fn find(root: &Root, loaded: Option<&Path>) -> Library {
        let found = loaded.map(Path::to_owned).or_else(|| installed(root));
        let Some(file) = found else { return Library::default() };
        let file = file.canonicalize().unwrap_or(file);
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let release = release(name);
        let layout = release
            .as_ref()
            .and_then(|release| layouts::of_release(release.split('.').next()?.parse().ok()?));
        let mut library = Library { file: Some(root.name(&file)), release, layout, ..Library::default() };
        match files::library(&file) {
            Ok(bytes) => {
                library.private_interface = marks::private_interface(&bytes);
                library.places = marks::places(&bytes);
            }
            Err(error) => library.error = Some(format!("cannot be read: {error}")),
        }
        library
    }
}

/// `libibverbs.so.1.14.44.0` is of rdma-core 44.0.
fn release(name: &str) -> Option<String> {
    let mut fields = name.strip_prefix("libibverbs.so.")?.split('.').skip(2);
    let (major, minor) = (fields.next()?.parse::<u32>().ok()?, fields.next()?.parse::<u32>().ok()?);
    Some(format!("{major}.{minor}"))
}

/// The one in the folders that distributions have.
fn installed(root: &Root) -> Option<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let folders = [multiarch.as_str(), "/usr/lib64", "/usr/lib"];
    folders.iter().map(|folder| root.at(format!("{folder}/libibverbs.so.1"))).find(|file| file.exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn the_release_is_in_the_name() {
        assert_eq!(release("libibverbs.so.1.14.44.0").as_deref(), Some("44.0"));
        assert_eq!(release("libibverbs.so.1.16.62.1").as_deref(), Some("62.1"));
        for name in ["", "libibverbs.so.1", "libibverbs.so.1.14", "libibverbs.so.1.14.x.0", "libother.so"] {
            assert_eq!(release(name), None, "{name}");
        }
    }

    #[test]
    fn a_library_is_found_behind_its_link() {
        let tree = Tree::with_device("library");
        let library = Library::find(&tree.root(), None);
        assert_eq!(library.file.as_deref(), Some("/usr/lib64/libibverbs.so.1.14.44.0"));
        assert_eq!((library.private_interface, library.layout), (Some(34), Some(34)));
        assert!(library.places.is_some() && library.error.is_none());
        tree.remove("usr/lib64/libibverbs.so.1.14.44.0");
        assert!(Library::find(&tree.root(), None).file.is_none());
    }

    #[test]
    fn what_is_no_library_is_said_to_be_none() {
        let tree = Tree::with_device("no-library");
        tree.remove("usr/lib64/libibverbs.so.1.14.44.0");
        tree.pipe("usr/lib64/libibverbs.so.1.14.44.0");
        let library = Library::find(&tree.root(), None);
        assert_eq!(library.error.as_deref(), Some("cannot be read: not a file"));
        assert_eq!(library.private_interface, None);
    }
}
