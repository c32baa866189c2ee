//! The file through which programs reach a device: `/dev/infiniband/uverbsN`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

use crate::files::Root;

const CLASS: &str = "/sys/class/infiniband_verbs";

/// The node of a device.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its path.
    pub path: String,
    /// Version of the driver's ABI, as sysfs has it.
    pub abi: Option<u32>,
    /// Whether there is such a file.
    pub exists: bool,
    /// Whether this user may read and write it.
    pub is_allowed: bool,
}

/// The node of the device with that name, if the kernel has made one.
pub fn of(root: &Root, device: &str) -> Option<Node> {
    let name = root
        .names(CLASS)
        .into_iter()
        .find(|name| root.line(format!("{CLASS}/{name}/ibdev")).is_some_and(|of| of == device))?;
    let path = format!("/dev/infiniband/{name}");
    let file = root.at(&path);
    Some(Node {
        abi: root.number(format!("{CLASS}/{name}/abi_version")),
        exists: file.exists(),
        is_allowed: is_allowed(&file),
        path: crate::files::shown(&path),
    })
}

/// Whether this process may read and write a file.
fn is_allowed(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: a terminated string.
    unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn a_node_is_found_by_its_device() {
        let tree = Tree::with_device("node");
        let root = tree.root();
        let node = of(&root, "irdma0").unwrap();
        assert_eq!((node.path.as_str(), node.abi), ("/dev/infiniband/uverbs0", Some(5)));
        assert!(node.exists && node.is_allowed);
        assert_eq!(of(&root, "irdma1"), None);
        tree.remove("dev/infiniband/uverbs0");
        let node = of(&root, "irdma0").unwrap();
        assert!(!node.exists && !node.is_allowed);
    }
}
