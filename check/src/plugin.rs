//! A provider's file: whose it is and what it was built for.

use std::path::Path;

use serde::Serialize;

use crate::files::{self, Root};
use crate::library::Library;
use crate::marks;

/// A plugin of irdma.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Plugin {
    /// Its file.
    pub file: String,
    /// The version, if it is this project's; else it is rdma-core's.
    pub version: Option<String>,
    /// The layout that it was built for, if it is this project's.
    pub layout: Option<u32>,
    /// The number of the private interface that it needs.
    pub private_interface: Option<u32>,
    /// Why it cannot be read.
    pub error: Option<String>,
}

impl Plugin {
    /// The one in that file, as this process reaches it.
    pub fn of(root: &Root, file: &Path) -> Plugin {
        let mut plugin = Plugin {
            file: root.name(file),
            version: None,
            layout: None,
            private_interface: None,
            error: None,
        };
        match files::library(file) {
            Ok(bytes) => {
                plugin.private_interface = marks::private_interface(&bytes);
                if let Some((layout, version)) = marks::note(&bytes) {
                    (plugin.layout, plugin.version) = (Some(layout), Some(version));
                }
                if plugin.private_interface.is_none() {
                    plugin.error = Some("it is no plugin of libibverbs".to_owned());
                }
            }
            Err(error) => plugin.error = Some(error.to_string()),
        }
        plugin
    }

    /// Whose it is, in words.
    pub fn owner(&self) -> String {
        match (&self.version, self.layout) {
            (Some(version), Some(layout)) => format!("irdma-provider {version} (layout {layout})"),
            _ => "rdma-core's".to_owned(),
        }
    }

    /// If it was built for another libibverbs: what it was built for and what that library has.
    pub fn differs(&self, library: &Library) -> Option<(String, String)> {
        let differ = |what: &str, one: Option<u32>, other: Option<u32>| {
            let (one, other) = one.zip(other).filter(|(one, other)| one != other)?;
            Some((format!("{what} {one}"), format!("{what} {other}")))
        };
        differ("private interface", self.private_interface, library.private_interface)
            .or_else(|| differ("layout", self.layout, library.layout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    const OURS: &[u8] = b"IBVERBS_PRIVATE_59\0irdma-provider\0\0\x3e\0\0\x000.1.0\0\0\0\0\0\0\0\0\0\0\0";

    #[test]
    fn a_plugin_says_whose_it_is() {
        let tree = Tree::new("plugin");
        tree.bytes("ours.so", OURS);
        tree.bytes("c.so", b"IBVERBS_PRIVATE_59\0");
        tree.file("text", "nothing");
        let root = tree.root();
        let ours = Plugin::of(&root, &root.at("ours.so"));
        assert_eq!(ours.owner(), "irdma-provider 0.1.0 (layout 62)");
        assert_eq!(Plugin::of(&root, &root.at("c.so")).owner(), "rdma-core's");
        for (file, error) in [("text", "no plugin"), ("none", "No such file")] {
            let plugin = Plugin::of(&root, &root.at(file));
            assert!(plugin.error.as_ref().unwrap().contains(error), "{plugin:?}");
        }
    }

    #[test]
    fn layouts_of_one_number_are_told_apart() {
        let tree = Tree::new("plugin-layout");
        tree.bytes("ours.so", OURS);
        tree.bytes("c.so", b"IBVERBS_PRIVATE_59\0");
        let root = tree.root();
        let is_of_another = |file: &str, private_interface, layout| {
            let library =
                Library { private_interface: Some(private_interface), layout, ..Library::default() };
            Plugin::of(&root, &root.at(file)).differs(&library).is_some()
        };
        assert!(!is_of_another("ours.so", 59, Some(62)));
        assert!(is_of_another("ours.so", 59, Some(59)));
        assert!(is_of_another("ours.so", 34, Some(34)));
        assert!(!is_of_another("ours.so", 59, None));
        assert!(!is_of_another("c.so", 59, Some(59)));
        assert!(is_of_another("c.so", 64, Some(64)));
    }
}
