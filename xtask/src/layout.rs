//! Which layout of the private provider ABI a libibverbs has.

use std::path::Path;
use std::process::Command;

use anyhow::{Error, Result};

use crate::workspace::read;

#[allow(dead_code, reason = "the bindings use more of the tables than the commands do")]
mod table {
    include!("../../rdma-core-sys/layouts.rs");
    include!("../../rdma-core-sys/installation.rs");
}

pub use table::{LAYOUTS, Layout};

/// The layout of this machine's libibverbs, or of the one in an unpacked root.
pub fn layout_of(root: Option<&Path>) -> Result<&'static Layout> {
    match root {
        None => of_version(read(Command::new("pkg-config").args(["--modversion", "libibverbs"]))?.trim()),
        Some(root) => layout_below(root, &triplet()),
    }
}

/// The layout of the libibverbs in an unpacked root; `triplet` is Debian's name for its architecture
/// in paths.
pub fn layout_below(root: &Path, triplet: &str) -> Result<&'static Layout> {
    of_version(&table::Installation::below(root, triplet).map_err(Error::msg)?.version)
}

impl Layout {
    /// Whether it is that of an rdma-core release.
    pub fn has_release(&self, release: u32) -> bool {
        (self.first..=self.last).contains(&release)
    }

    /// Its releases, in words.
    pub fn releases(&self) -> String {
        if self.first == self.last {
            self.first.to_string()
        } else {
            format!("{} to {}", self.first, self.last)
        }
    }
}

/// The layout of a libibverbs of that version.
pub fn of_version(version: &str) -> Result<&'static Layout> {
    table::layout_of_version(version).map_err(Error::msg)
}

/// Debian's name for this machine's architecture in paths.
pub fn triplet() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::table::layout_of_version;
    use super::*;

    #[test]
    fn release_is_the_third_field() {
        for (version, layout) in [
            ("1.14.37.0", 34),
            ("1.14.44.0", 34),
            ("1.14.56.1", 34),
            ("1.14.57.0", 57),
            ("1.15.61.0", 59),
            ("1.16.62.0", 62),
            ("1.16.63.1", 62),
            ("1.17.64.0", 64),
            ("1.18.65.0", 65),
        ] {
            assert_eq!(layout_of_version(version).unwrap().number, layout, "{version}");
        }
    }

    #[test]
    fn unknown_release_is_refused_with_the_supported_ones() {
        for version in ["1.11.32.0", "1.99.999.0", "1.14", "", "a.b.c"] {
            let reason = layout_of_version(version).unwrap_err();
            assert!(reason.contains("37 to 65"), "{reason}");
        }
    }

    #[test]
    fn a_folder_without_a_library_or_without_headers_is_refused() {
        let folder = std::env::temp_dir().join(format!("irdma-layout-{}", std::process::id()));
        let libraries = folder.join("usr/lib64");
        std::fs::create_dir_all(&libraries).unwrap();
        let reason = || layout_of(Some(&folder)).unwrap_err().to_string();
        assert!(reason().contains("no libibverbs.so"), "{}", reason());
        std::fs::write(libraries.join("libibverbs.so"), "").unwrap();
        assert!(reason().contains("not infiniband/verbs.h"), "{}", reason());
        std::fs::create_dir_all(folder.join("usr/include/infiniband")).unwrap();
        std::fs::write(folder.join("usr/include/infiniband/verbs.h"), "").unwrap();
        assert!(reason().contains("libibverbs.pc"), "{}", reason());
        std::fs::create_dir(libraries.join("pkgconfig")).unwrap();
        std::fs::write(libraries.join("pkgconfig/libibverbs.pc"), "Name: x\nVersion: 1.16.63.0\n").unwrap();
        assert_eq!(layout_of(Some(&folder)).unwrap().number, 62);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
