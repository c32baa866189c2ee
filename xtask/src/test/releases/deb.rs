//! The package for dpkg, in a suite's root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::command::{Installation, listing};
use super::{IN_ROOT, LIMIT, Place, copy_for_dpkg};
use crate::layout::LAYOUTS;
use crate::package::{self, deb};
use crate::plugin::Plugin;
use crate::sim::{Provider, Simulator};
use crate::workspace::read;
use crate::{checker, process};

impl Place {
    /// It is what programs load; a second build of it has the same bytes.
    pub(super) fn packages(&self, simulator: &Simulator, folder: &Path) -> Result<()> {
        let plugin =
            Plugin { layout: self.layout, library: self.plugin.clone(), unstripped: self.plugin.clone() };
        let package = folder.join("package.deb");
        fs::copy(deb::build(&plugin, package::NOBODY)?, &package)?;
        ensure!(
            fs::read(deb::build(&plugin, package::NOBODY)?)? == fs::read(&package)?,
            "a second build has other bytes"
        );
        let path = package.to_string_lossy();
        let put = |root: &Path| {
            dpkg(root, &["--install", &path])?;
            let files = dpkg(root, &["--listfiles", package::NAME])?;
            let file =
                files.lines().find(|line| line.ends_with(".so")).context("no plugin in the package")?;
            let mut command = simulator.run(Provider::C);
            command.args(["--gen", "3", "--", "unshare", "--mount", "sh", "-c", IN_ROOT]).arg(root);
            let finished = process::run(command.arg("irdma-check"), &folder.join("check"), LIMIT)?;
            let layout = self.layout.number;
            let served =
                format!("served by    irdma-provider {} (layout {layout})", env!("CARGO_PKG_VERSION"));
            ensure!(finished.output.contains(&served), "{}", finished.explain());
            Ok(PathBuf::from(file))
        };
        let take = |root: &Path| {
            // As in an upgrade of the package, and then for good.
            dpkg(root, &["--install", &path])?;
            dpkg(root, &["--remove", package::NAME])?;
            dpkg(root, &["--purge", package::NAME]).map(|_| ())
        };
        self.replaces(simulator, folder, put, take)
    }

    /// The package and an installation by our command refuse each other and leave each other alone, and where the
    /// package for one layout takes the place of that for another, every plugin of the distribution's comes back.
    pub(super) fn packages_and_others(&self, folder: &Path) -> Result<()> {
        let root = copy_for_dpkg(&self.root, folder)?;
        let package = |layout, name: &str| {
            let plugin = Plugin { layout, library: self.plugin.clone(), unstripped: self.plugin.clone() };
            let package = folder.join(name);
            fs::copy(deb::build(&plugin, package::NOBODY)?, &package)?;
            Ok::<_, anyhow::Error>(package.to_string_lossy().into_owned())
        };
        let ours = package(self.layout, "ours.deb")?;
        let other =
            LAYOUTS.iter().rev().find(|layout| layout.pabi != self.layout.pabi).context("one layout only")?;
        let other = package(other, "other.deb")?;
        // dpkg's own files tell of a package that was there once.
        let beside_dpkg = || {
            let text = listing(&root)?;
            let lines = text.lines().filter(|line| !line.starts_with("var/lib/dpkg"));
            Ok::<_, anyhow::Error>(lines.collect::<Vec<_>>().join("\n"))
        };
        let before = beside_dpkg()?;

        let installation = Installation { plugin: &self.plugin, checker: checker::quick()? };
        installation.run("install", &root)?;
        let installed = beside_dpkg()?;
        let refusal = dpkg(&root, &["--install", &ours]).err().map(|error| error.to_string());
        let refusal = refusal.context("the package was installed over an installation by the command")?;
        ensure!(refusal.contains("'cargo xtask uninstall' takes it back"), "{refusal}");
        let audit = dpkg(&root, &["--audit"])?;
        ensure!(audit.is_empty(), "the refused package is left half installed: {audit}");
        ensure!(beside_dpkg()? == installed, "the refused package has changed something");
        installation.run("uninstall", &root)?;
        ensure!(beside_dpkg()? == before, "beside a refused package, not all is as before");

        dpkg(&root, &["--install", &ours])?;
        let refusal = installation.run("install", &root).err().map(|error| error.to_string());
        let refusal = refusal.context("it was installed over a package")?;
        ensure!(refusal.contains("by the package irdma-provider"), "{refusal}");
        let diversions = || fs::read_to_string(root.join("var/lib/dpkg/diversions"));
        let own = diversions()?;
        dpkg(&root, &["--install", &other])?;
        let others = diversions()?;
        ensure!(others.lines().count() == 3 && others != own, "diversions of both packages: {others}");
        dpkg(&root, &["--install", &ours])?;
        ensure!(diversions()? == own, "not diverted as before: {}", diversions()?);
        dpkg(&root, &["--install", &other])?;
        dpkg(&root, &["--purge", package::NAME])?;
        ensure!(diversions()?.is_empty(), "diversions are left: {}", diversions()?);
        ensure!(beside_dpkg()? == before, "not all is as before");
        fs::remove_dir_all(&root)?;
        Ok(())
    }
}

/// dpkg, for a root whose programs were unpacked, not installed: it knows no other package.
fn dpkg(root: &Path, words: &[&str]) -> Result<String> {
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", root.display())).args(["--force-depends"]).args(words);
    read(&mut command)
}
