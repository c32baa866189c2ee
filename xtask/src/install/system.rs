//! What a system says about itself: its libibverbs, and where that looks for plugins and driver files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::layout::{Layout, of_version, triplet};

/// A system to install on: this machine, or one whose root is a folder.
#[derive(Debug)]
pub struct System {
    /// Its root.
    root: PathBuf,
    /// Folder of the installation's own, beside that of plugins, seen from the root.
    pub own: PathBuf,
    /// The layout of its libibverbs.
    pub layout: &'static Layout,
    /// The version of that.
    pub version: String,
    /// Where libibverbs looks for the plugin of irdma, seen from the root.
    pub plugin: PathBuf,
    /// The folder of driver files, seen from the root.
    pub drivers: PathBuf,
    /// Whether dpkg looks after its files.
    pub has_dpkg: bool,
}

impl System {
    /// The system whose root is `root`, with the libibverbs that is installed below `prefix`.
    pub fn find(root: &Path, prefix: Option<&Path>) -> Result<System> {
        let root = root.canonicalize().with_context(|| format!("no folder {}", root.display()))?;
        let library = library(&root, prefix)?;
        let name = library.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let version = name
            .strip_prefix("libibverbs.so.")
            .filter(|version| version.matches('.').count() == 3)
            .ok_or_else(|| anyhow!("{} does not name its version", library.display()))?
            .to_owned();
        let layout = of_version(&version)?;
        let bytes = fs::read(&library).with_context(|| library.display().to_string())?;
        let places = Places::of(&bytes)
            .with_context(|| format!("{} does not tell where it looks for plugins", library.display()))?;
        ensure!(
            places.pabi == layout.pabi,
            "{} looks for plugins of layout {}, not {}",
            library.display(),
            places.pabi,
            layout.pabi
        );
        let libraries = places.plugins.parent().context("libibverbs looks for plugins in /")?;
        let has_dpkg = prefix.is_none() && root.join("var/lib/dpkg/status").exists();
        Ok(System {
            own: libraries.join("irdma-provider"),
            layout,
            version,
            plugin: places.plugins.join(format!("libirdma-rdmav{}.so", layout.pabi)),
            drivers: places.drivers,
            has_dpkg,
            root,
        })
    }

    /// A path of the system, as this process reaches it.
    pub fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Whether it is the machine itself.
    pub fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Its root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The driver files that name an irdma driver, with what they say.
    pub fn driver_files(&self) -> Result<Vec<(PathBuf, String)>> {
        let folder = self.at(&self.drivers);
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            if entry.path().is_file() {
                let bytes = fs::read(entry.path()).with_context(|| entry.path().display().to_string())?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if text.lines().any(names_irdma) {
                    found.push((self.drivers.join(entry.file_name()), text));
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Whether a line of a driver file is `driver irdma`, or the same with a path.
fn names_irdma(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some("driver")
        && words.next().is_some_and(|name| {
            name.rsplit('/').next().is_some_and(|last| last == "irdma" || last == "libirdma")
        })
}

/// libibverbs itself: the file behind `libibverbs.so.1`.
fn library(root: &Path, prefix: Option<&Path>) -> Result<PathBuf> {
    let folder = prefix.unwrap_or(Path::new("/usr"));
    let folder = root.join(folder.strip_prefix("/").unwrap_or(folder));
    let candidates = [format!("lib/{}", triplet()), "lib64".to_owned(), "lib".to_owned()];
    for candidate in &candidates {
        let link = folder.join(candidate).join("libibverbs.so.1");
        if let Ok(library) = link.canonicalize() {
            ensure!(library.starts_with(root), "{} leads out of {}", link.display(), root.display());
            return Ok(library);
        }
    }
    bail!(
        "no libibverbs.so.1 in {}: install the distribution's rdma-core first (Debian: libibverbs1, Fedora: \
         libibverbs), or name another place by --prefix or --destdir",
        candidates.map(|candidate| folder.join(candidate).display().to_string()).join(", ")
    )
}

/// What libibverbs was built to look at.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    plugins: PathBuf,
    pabi: u32,
    drivers: PathBuf,
}

impl Places {
    /// From the texts in it: the pattern of a plugin's path, and the folder of driver files.
    fn of(library: &[u8]) -> Option<Places> {
        let texts = || library.split(|&byte| byte == 0).filter_map(|text| str::from_utf8(text).ok());
        let drivers = texts().find(|text| text.starts_with('/') && text.ends_with("/libibverbs.d"))?;
        texts().find_map(|text| {
            let (folder, rest) = text.strip_prefix('/')?.split_once("/lib%s-rdmav")?;
            let pabi = rest.strip_suffix(".so")?.parse().ok()?;
            Some(Places { plugins: Path::new("/").join(folder), pabi, drivers: drivers.into() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_tells_where_it_looks() {
        let library = b"x\0/etc/libibverbs.d\0%s\0/usr/lib64/libibverbs/lib%s-rdmav59.so\0lib%s-rdmav59.so\0";
        let places =
            Places { plugins: "/usr/lib64/libibverbs".into(), pabi: 59, drivers: "/etc/libibverbs.d".into() };
        assert_eq!(Places::of(library), Some(places));
        assert_eq!(Places::of(b"\0/usr/lib64/libibverbs/lib%s-rdmav59.so\0"), None);
        assert_eq!(Places::of(b"/etc/libibverbs.d\0/a/lib%s-rdmavx.so\0"), None);
    }

    #[test]
    fn lines_that_name_irdma_are_told_from_others() {
        for line in ["driver irdma", "  driver\tirdma ", "driver /usr/lib/x/libirdma", "driver /a/irdma"] {
            assert!(names_irdma(line), "{line}");
        }
        for line in ["driver mlx5", "# driver irdma", "driver", "drivers irdma", "driver irdma2", ""] {
            assert!(!names_irdma(line), "{line}");
        }
    }
}
