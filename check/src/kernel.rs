//! The kernel's part: its release, and the module of irdma.

use serde::Serialize;

use crate::files::Root;

/// Names of the module, today's first.
const MODULES: [&str; 2] = ["irdma", "i40iw"];

/// The running kernel.
#[derive(Debug, Serialize)]
pub struct Kernel {
    /// Its release.
    pub release: Option<String>,
    /// The module of irdma, if it is loaded.
    pub module: Option<Module>,
}

/// A loaded module.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Module {
    /// Its name.
    pub name: &'static str,
    /// Its version; the kernel's own has none.
    pub version: Option<String>,
    /// The checksum of its source.
    pub source: Option<String>,
}

impl Kernel {
    /// Of that system.
    pub fn find(root: &Root) -> Kernel {
        let module = MODULES.into_iter().find(|name| root.at(format!("/sys/module/{name}")).is_dir());
        Kernel {
            release: root.line("/proc/sys/kernel/osrelease"),
            module: module.map(|name| Module {
                name,
                version: root.line(format!("/sys/module/{name}/version")),
                source: root.line(format!("/sys/module/{name}/srcversion")),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn a_module_may_have_a_version() {
        let tree = Tree::with_device("kernel");
        let module = |tree: &Tree| Kernel::find(&tree.root()).module;
        let own = Module { name: "irdma", version: None, source: Some("ABC".to_owned()) };
        assert_eq!(module(&tree), Some(own));
        tree.file("sys/module/irdma/version", "1.14.32\n");
        assert_eq!(module(&tree).unwrap().version.as_deref(), Some("1.14.32"));
        tree.remove("sys/module/irdma");
        assert_eq!(module(&tree), None);
        assert_eq!(Kernel::find(&tree.root()).release.as_deref(), Some("6.12.0"));
    }
}
