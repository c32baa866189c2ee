//! `cargo xtask package`: the plugin as a package of Debian's or of RPM's kind.

pub mod deb;
pub mod rpm;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::plugin::{self, Plugin};
use crate::workspace::{read, root};
use crate::{inspect, packages};

/// The package's name.
pub const NAME: &str = "irdma-provider";

/// The maintainer of a package for which nobody was named: both kinds of packages must name one.
pub const NOBODY: &str = "Whoever built it from source <nobody@irdma-provider.invalid>";

/// Which package.
#[derive(clap::Args)]
#[group(id = "package")]
pub struct Options {
    #[command(flatten)]
    plugin: plugin::Options,
    /// For Fedora, RHEL, SUSE and their relatives, instead of Debian and its
    #[arg(long)]
    rpm: bool,
    /// Whom users of the package are to write to
    #[arg(long, value_name = "NAME <ADDRESS>", default_value = NOBODY)]
    maintainer: String,
}

/// Builds the plugin and packs it.
pub fn run(options: &Options) -> Result<ExitCode> {
    packages::install(packages::BUILD)?;
    let plugin = options.plugin.build()?;
    inspect::symbols(&plugin.library, plugin.layout)?;
    let maintainer = &options.maintainer;
    ensure!(is_name_and_address(maintainer), "{maintainer} is not of the form NAME <ADDRESS>");
    let package =
        if options.rpm { rpm::build(&plugin, maintainer)? } else { deb::build(&plugin, maintainer)? };
    println!("{}", package.display());
    Ok(ExitCode::SUCCESS)
}

/// As both kinds of packages have it: a comma would begin a second one.
fn is_name_and_address(text: &str) -> bool {
    let address = text.strip_suffix('>').and_then(|text| text.split_once(" <"));
    let is_plain = |text: &str| !text.is_empty() && !text.contains(['<', '>', ',', '\n']);
    address.is_some_and(|(name, address)| is_plain(name) && is_plain(address) && address.contains('@'))
}

/// The package's version: one can tell by it which releases of rdma-core it is for.
fn version(plugin: &Plugin) -> String {
    format!("{}+layout{}", env!("CARGO_PKG_VERSION"), plugin.layout.number)
}

/// A file of `packaging/`, with values in the place of their `@NAMES@`.
fn filled(name: &str, values: &[(&str, &str)]) -> Result<String> {
    let file = root().join("packaging").join(name);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    Ok(values.iter().fold(text, |text, (name, value)| text.replace(&format!("@{name}@"), value)))
}

/// Writes a file of a package below `tree`, and the folders that it takes.
fn put(tree: &Path, path: &str, bytes: &[u8], mode: u32) -> Result<PathBuf> {
    let file = tree.join(path.trim_start_matches('/'));
    let folder = file.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder)?;
    // Whatever this user's mask is.
    for folder in folder.ancestors().take_while(|folder| folder.starts_with(tree)) {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(&file, bytes)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
    Ok(file)
}

/// Writes what packages of each kind have beside the plugin: `irdma-check`, and manual pages.
fn put_common(tree: &Path, program: &Path, plugin: &str, replaced: &str) -> Result<()> {
    put(tree, "usr/bin/irdma-check", &fs::read(program)?, 0o755)?;
    let pages = pages(Path::new(plugin), Some(Path::new(replaced)), Path::new("/etc/libibverbs.d"))?
        .into_iter()
        .map(|(page, text)| put(tree, &format!("usr/{}", place_of_page(page)), text.as_bytes(), 0o644));
    compress(&pages.collect::<Result<Vec<_>>>()?)
}

/// The manual pages: that of the plugin, and that of `irdma-check`.
pub const PAGES: [&str; 2] = ["irdma-provider.7", "irdma-check.1"];

/// Where a page of that name goes below a prefix.
pub fn place_of_page(page: &str) -> String {
    let section = page.rsplit('.').next().unwrap_or_default();
    format!("share/man/man{section}/{page}")
}

/// The manual pages, for a plugin in one place, that of the distribution (if it is known) in the other, and the
/// folder of driver files.
pub fn pages(plugin: &Path, replaced: Option<&Path>, drivers: &Path) -> Result<Vec<(&'static str, String)>> {
    let [plugin, drivers] = [plugin, drivers].map(Path::to_string_lossy);
    let replaced = match replaced {
        Some(path) => {
            format!(".TP\n.I {}\nthat of rdma-core, while this one is in its place\n", path.display())
        }
        None => String::new(),
    };
    let values = [("PLUGIN", &*plugin), ("REPLACED", &*replaced), ("DRIVERS", &*drivers)];
    PAGES.into_iter().map(|name| Ok((name, filled(name, &values)?))).collect()
}

/// Compresses files, the same way each time.
fn compress(files: &[PathBuf]) -> Result<()> {
    read(Command::new("gzip").args(["--best", "--no-name"]).args(files)).map(|_| ())
}

/// The date of everything in the package: `$SOURCE_DATE_EPOCH`, else that of the commit.
fn date() -> Result<String> {
    if let Ok(date) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(date);
    }
    let mut log = Command::new("git");
    let date = read(log.current_dir(root()).args(["log", "-1", "--format=%ct"]));
    Ok(date.context("without git, SOURCE_DATE_EPOCH must name a date")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maintainer_has_a_name_and_an_address() {
        for text in [NOBODY, "A. B. <a@b>"] {
            assert!(is_name_and_address(text), "{text}");
        }
        for text in ["", "a@b", "<a@b>", "A <b>", "A <a@b", "A, B <a@b>", "A <a@b> <c@d>", "A\nB <a@b>"] {
            assert!(!is_name_and_address(text), "{text}");
        }
    }

    #[test]
    fn a_page_names_the_replaced_plugin_if_there_is_one() {
        let text = |replaced| {
            let pages = pages(Path::new("/p/new.so"), replaced, Path::new("/etc/libibverbs.d")).unwrap();
            pages.into_iter().map(|(_, text)| text).collect::<String>()
        };
        let with = text(Some(Path::new("/p/old.so")));
        assert!(with.contains(".I /p/new.so\nthe plugin\n.TP\n.I /p/old.so\nthat of rdma-core"), "{with}");
        let without = text(None);
        assert!(without.contains("the plugin\n.TP\n.I /etc/libibverbs.d/irdma.driver\n"), "{without}");
        assert!(!with.contains('@') && !without.contains('@'));
    }
}
