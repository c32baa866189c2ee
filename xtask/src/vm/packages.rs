//! The packages of the virtual machine: sets of pinned versions, each unpacked into a root of its own.
//!
//! `vm/packages/SET.wanted` names what is needed, `SET.pinned` each package of it and of what it
//! depends on, with version, size, SHA-256 and place on a Debian mirror. `NAME/SUITE` is a package that
//! is taken from another suite, without what it depends on there.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use crate::apt::{Apt, Mirror, reason};
use crate::suites;
use crate::workspace::{read, root, target};

/// The distribution that they are of, unless it is said otherwise.
const SUITE: &str = "forky";

/// What no program of the machine reads.
const LEFT_OUT: &[&str] = &["usr/share/info", "usr/share/locale", "usr/share/man"];

/// A set of packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// QEMU and the guest's kernel.
    Machine,
    /// The guest's programs.
    Guest,
    /// What builds a module for the guest's kernel.
    Toolchain,
}

impl Set {
    /// All there are.
    const ALL: [Set; 3] = [Set::Machine, Set::Guest, Set::Toolchain];

    fn name(self) -> &'static str {
        match self {
            Set::Machine => "machine",
            Set::Guest => "guest",
            Set::Toolchain => "toolchain",
        }
    }

    fn file(self, kind: &str) -> PathBuf {
        root().join("vm/packages").join(format!("{}.{kind}", self.name()))
    }

    fn pinned(self) -> Result<(String, Vec<Package>)> {
        let file = self.file("pinned");
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let packages = parse(&text).with_context(|| format!("{} is damaged", file.display()))?;
        Ok((text, packages))
    }

    fn tree(self) -> PathBuf {
        target().join("roots").join(format!("vm-{}", self.name()))
    }

    /// Whether the pinned packages lie unpacked here.
    pub fn is_fetched(self) -> bool {
        let stamp = fs::read_to_string(self.tree().join(STAMP));
        stamp.is_ok_and(|stamp| self.pinned().is_ok_and(|(text, _)| text == stamp))
    }

    /// The root with the pinned packages, fetched first if it is not here.
    pub fn unpacked(self) -> Result<PathBuf> {
        let tree = self.tree();
        if self.is_fetched() {
            return Ok(tree);
        }
        let (text, packages) = self.pinned()?;
        if tree.exists() {
            fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
        }
        suites::fetched(&tree, |partial| {
            let archives = partial.with_extension("archives");
            let _ = fs::remove_dir_all(&archives);
            fs::create_dir_all(&archives)?;
            self.download(&packages, &archives)?;
            suites::unpack(&archives, partial)?;
            fs::remove_dir_all(&archives)?;
            for folder in LEFT_OUT {
                let _ = fs::remove_dir_all(partial.join(folder));
            }
            fs::write(partial.join(STAMP), &text)?;
            Ok(())
        })?;
        Ok(tree)
    }

    fn download(self, packages: &[Package], archives: &Path) -> Result<()> {
        let size: u64 = packages.iter().map(|package| package.size).sum();
        println!("Fetching {} packages, {} MB, of the set {}", packages.len(), size / 1_000_000, self.name());
        let mirror = Mirror::of_machine()?.uri;
        let mut helper = Apt::without_lists(SUITE)?.helper();
        helper.arg("download-file");
        for (number, package) in packages.iter().enumerate() {
            helper.arg(format!("{}/{}", mirror.trim_end_matches('/'), package.path));
            helper.arg(archives.join(format!("{number}.deb"))).arg(format!("SHA256:{}", package.digest));
        }
        read(&mut helper).map_err(|error| {
            anyhow!(
                "the pinned packages of the set {} cannot be had: {}\nIf the mirror has other versions by now, \
                 `cargo xtask vm --update` pins those",
                self.name(),
                reason(&error)
            )
        })?;
        Ok(())
    }

    fn update(self, apt: &Apt) -> Result<()> {
        let wanted = fs::read_to_string(self.file("wanted"))?;
        let (names, of_other_suites) = names(&wanted);
        // Nothing is installed there, so that apt takes everything that is needed.
        let none = apt.folder.join("status");
        fs::write(&none, "")?;
        let with_none = |mut command: Command| {
            command.arg("-o").arg(format!("Dir::State::status={}", none.display()));
            command
        };
        let mut install = with_none(apt.get());
        install.args(["--yes", "--print-uris", "--no-install-recommends", "install"]).args(names);
        let listing = read(&mut install)
            .map_err(|error| anyhow!("the set {} cannot be resolved: {}", self.name(), reason(&error)))?;
        let chosen: Vec<String> = listing.lines().filter_map(chosen).collect();
        let mut show = with_none(apt.cache());
        let known = read(show.arg("show").args(&chosen))?;
        let mut packages = known.trim_end().split("\n\n").map(Package::of_stanza).collect::<Option<Vec<_>>>();
        let packages = packages.as_mut().filter(|packages| packages.len() == chosen.len());
        let Some(packages) = packages else {
            bail!("apt described the set {} in an unknown form", self.name())
        };
        for (name, suite) in of_other_suites {
            packages.retain(|package| package.name != name);
            packages.push(Package::newest(name, suite)?);
        }
        packages.sort_by(|one, other| one.name.cmp(&other.name));
        let mut text = String::new();
        for package in &*packages {
            writeln!(text, "{package}")?;
        }
        fs::write(self.file("pinned"), text)?;
        println!("{}: {} packages", self.file("pinned").display(), packages.len());
        Ok(())
    }
}

/// The wanted packages of the suite, and those of other suites with the suites.
fn names(wanted: &str) -> (Vec<&str>, Vec<(&str, &str)>) {
    let mut names = (Vec::new(), Vec::new());
    for line in wanted.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match line.split_once('/') {
            Some(of_other_suite) => names.1.push(of_other_suite),
            None => names.0.push(line),
        }
    }
    names
}

/// In a root, the pins that it was made from.
const STAMP: &str = ".pinned";

/// The file that tells which pins a root was made from.
pub fn stamp(tree: &Path) -> PathBuf {
    tree.join(STAMP)
}

/// Pins the versions that the mirror has now.
pub fn update() -> Result<()> {
    let apt = Apt::of_suite(SUITE)?;
    Set::ALL.into_iter().try_for_each(|set| set.update(&apt))
}

/// A line of a file of pins.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
    size: u64,
    digest: String,
    path: String,
}

impl std::fmt::Display for Package {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Package { name, version, size, digest, path } = self;
        write!(formatter, "{name} {version} {size} {digest} {path}")
    }
}

impl Package {
    /// The one that `suite` has now.
    fn newest(name: &str, suite: &str) -> Result<Package> {
        let known = read(Apt::of_suite(suite)?.cache().args(["show", "--no-all-versions", name]))
            .map_err(|error| anyhow!("{name} of {suite} cannot be had: {}", reason(&error)))?;
        Package::of_stanza(&known).ok_or_else(|| anyhow!("apt described {name} in an unknown form"))
    }

    /// From what `apt-cache show` says of it.
    fn of_stanza(stanza: &str) -> Option<Package> {
        let field = |name: &str| {
            let line = stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.map(str::to_owned)
        };
        Some(Package {
            name: field("Package")?,
            version: field("Version")?,
            size: field("Size")?.parse().ok()?,
            digest: field("SHA256")?,
            path: field("Filename")?,
        })
    }

    fn of_line(line: &str) -> Option<Package> {
        let [name, version, size, digest, path] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        Some(Package {
            name: name.to_owned(),
            version: version.to_owned(),
            size: size.parse().ok()?,
            digest: digest.to_owned(),
            path: path.to_owned(),
        })
    }
}

fn parse(text: &str) -> Result<Vec<Package>> {
    let of_line = |line| Package::of_line(line).ok_or_else(|| anyhow!("no package with its version: {line}"));
    text.lines().map(of_line).collect()
}

/// What a line of apt-get's list of addresses was chosen: `name=version`.
fn chosen(line: &str) -> Option<String> {
    // 'ADDRESS' NAME_VERSION_ARCHITECTURE.deb SIZE DIGEST, with the version's colon as %3a.
    let file = line.strip_prefix('\'')?.split_whitespace().nth(1)?.strip_suffix(".deb")?;
    let [name, version, _] = file.split('_').collect::<Vec<_>>().try_into().ok()?;
    Some(format!("{name}={}", version.replace("%3a", ":")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_package_has_its_version_with_the_epoch() {
        let line = "'http://mirror/pool/q_11.1%2bds-3_amd64.deb' q_1%3a11.1+ds-3_amd64.deb 10 MD5Sum:b5";
        assert_eq!(chosen(line).as_deref(), Some("q=1:11.1+ds-3"));
        assert_eq!(chosen("Reading package lists..."), None);
    }

    #[test]
    fn what_apt_says_of_a_package_survives_the_file_of_pins() {
        let stanza =
            "Package: q\nVersion: 1:2-3\nDepends: Size\nSize: 77\nFilename: pool/q.deb\nSHA256: ab\n";
        let package = Package::of_stanza(stanza).unwrap();
        assert_eq!(package.to_string(), "q 1:2-3 77 ab pool/q.deb");
        assert_eq!(parse(&format!("{package}\n")).unwrap(), [package]);
        assert!(parse("q 1 2\n").is_err());
    }

    #[test]
    fn every_set_is_pinned_with_all_that_is_wanted() {
        for set in Set::ALL {
            let (_, packages) = set.pinned().unwrap();
            let wanted = fs::read_to_string(set.file("wanted")).unwrap();
            let (names, of_other_suites) = names(&wanted);
            for name in names.into_iter().chain(of_other_suites.into_iter().map(|(name, _)| name)) {
                assert!(packages.iter().any(|package| package.name == name), "{name} of {}", set.name());
            }
        }
    }
}
