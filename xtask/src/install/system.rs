//! What a system says about itself: its libibverbs, and where that looks for plugins and driver files.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::elf;
use super::site::{DISTRIBUTIONS, Site, libraries};
use crate::layout::{Layout, of_version};

/// A system to install on: this machine, or one whose root is a folder.
#[derive(Debug)]
pub struct System {
    /// Where in it.
    pub site: Site,
    /// Its libibverbs, as this process reaches it.
    pub library: PathBuf,
    /// The layout of that.
    pub layout: &'static Layout,
    /// The version of that.
    pub version: String,
    /// The processor that it is for, as ELF files name it; `None` if it is no such file.
    pub machine: Option<u16>,
    /// Where libibverbs looks for the plugin of irdma, seen from the root.
    pub plugin: PathBuf,
    /// The folder of driver files, seen from the root.
    pub drivers: PathBuf,
    /// Whether dpkg looks after its files.
    pub has_dpkg: bool,
}

impl Deref for System {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl System {
    /// The system whose root is `root`, with the libibverbs that is installed below `prefix`.
    pub fn find(root: &Path, prefix: Option<&Path>) -> Result<System> {
        let root = root.canonicalize().with_context(|| format!("no folder {}", root.display()))?;
        let (site, library) = library(&root, prefix)?;
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
        let is_distributions = prefix.is_none_or(|prefix| prefix == Path::new(DISTRIBUTIONS));
        let has_dpkg = is_distributions && root.join("var/lib/dpkg/status").exists();
        Ok(System {
            layout,
            version,
            machine: elf::machine(&bytes),
            plugin: places.plugins.join(format!("libirdma-rdmav{}.so", layout.pabi)),
            drivers: places.drivers,
            has_dpkg,
            library,
            site,
        })
    }

    /// The driver files that name an irdma driver, with what they say.
    pub fn driver_files(&self) -> Result<Vec<(PathBuf, String)>> {
        let folder = self.behind(&self.drivers);
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

/// libibverbs itself: the file behind `libibverbs.so.1`; and where an installation beside it has its own.
fn library(root: &Path, prefix: Option<&Path>) -> Result<(Site, PathBuf)> {
    let candidates = libraries(prefix);
    for folder in &candidates {
        let site = Site::beside(root, folder);
        let library = site.behind(&folder.join("libibverbs.so.1"));
        if library.is_file() {
            return Ok((site, library));
        }
    }
    bail!(
        "no libibverbs.so.1 in {}: install the distribution's rdma-core first (Debian: libibverbs1, Fedora: \
         libibverbs), or name another place by --prefix or --destdir; into a folder without libibverbs, from \
         which a package is to be made, --destdir installs with --layout and --libdir",
        candidates
            .map(|folder| root.join(folder.strip_prefix("/").unwrap_or(&folder)).display().to_string())
            .join(", ")
    )
}

/// Whether a libibverbs is there.
pub fn has_library(root: &Path, prefix: Option<&Path>) -> bool {
    root.canonicalize().is_ok_and(|root| library(&root, prefix).is_ok())
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
