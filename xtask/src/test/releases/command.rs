//! `cargo xtask install` and `uninstall` as commands on a suite's root: killed again and again, then whole.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal};

use super::{LIMIT, Place, copy_of_root};
use crate::checker;
use crate::layout::triplet;
use crate::process;
use crate::sim::{Provider, Simulator};
use crate::workspace::read;

/// How often a command is killed, each time somewhat later in its course.
const KILLS: u32 = 12;

impl Place {
    /// It is what programs load, it can be used by everybody, and it is taken back.
    pub(super) fn installs(&self, simulator: &Simulator, folder: &Path) -> Result<()> {
        let installation = Installation { plugin: &self.plugin, checker: checker::quick()? };
        let put = |root: &Path| {
            installation.survives_kills(root)?;
            let said = installation.run("install", root)?;
            let files: Vec<PathBuf> = said
                .lines()
                .filter_map(|line| Path::new(line.strip_prefix("installed ")?).strip_prefix(root).ok())
                .map(|path| Path::new("/").join(path))
                .collect();
            ensure!(files.len() == 4, "not installed are the plugin, irdma-check and two pages: {said}");
            for file in &files {
                let everybody =
                    fs::metadata(root.join(file.strip_prefix("/")?))?.permissions().mode() & 0o444;
                ensure!(everybody == 0o444, "{} is not for everybody", file.display());
            }
            // In the place of this machine's, whose loader and kernel it gets.
            let mut command = simulator.run(Provider::C);
            command.args(["--gen", "3", "--", "unshare", "--mount", "sh", "-c", super::IN_ROOT]).arg(root);
            let finished =
                process::run(command.arg("/usr/local/bin/irdma-check"), &folder.join("check"), LIMIT)?;
            let served = format!(
                "served by    irdma-provider {} (layout {}), {}",
                env!("CARGO_PKG_VERSION"),
                self.layout.number,
                files[0].display()
            );
            ensure!(finished.output.contains(&served), "{}", finished.explain());
            Ok(files[0].clone())
        };
        let take = |root: &Path| installation.run("uninstall", root).map(|_| ());
        self.replaces(simulator, folder, put, take)
    }

    /// Below a prefix is another libibverbs than the root's, this machine's: that is what the plugin is loaded with for
    /// the check, which it would not pass with the root's.
    pub(super) fn installs_below_prefix(&self, simulator: &Simulator, folder: &Path) -> Result<()> {
        let root = copy_of_root(&self.root, folder)?;
        let libraries = root.join("opt/rdma/lib");
        fs::create_dir_all(&libraries)?;
        let library = Path::new("/usr/lib").join(triplet()).join("libibverbs.so.1").canonicalize()?;
        let name = library.file_name().context("a library has a name")?;
        fs::copy(&library, libraries.join(name))?;
        symlink(name, libraries.join("libibverbs.so.1"))?;
        // Not a second name of the unpacked root's, as everything else there is.
        let driver_file = root.join("etc/libibverbs.d/irdma.driver");
        let text = fs::read(&driver_file)?;
        fs::remove_file(&driver_file)?;
        fs::write(&driver_file, text)?;
        let installation = Installation { plugin: &simulator.plugin().library, checker: checker::quick()? };
        let before = listing(&root)?;
        let prefix = ["--prefix", "/opt/rdma"];
        let said = read(installation.command("install", &root)?.args(prefix))?;
        for path in ["opt/rdma/lib/irdma-provider/libirdma-rdmav", "opt/rdma/bin/irdma-check"] {
            let line = format!("installed {}", root.join(path).display());
            ensure!(said.contains(&line), "not installed: {path}\n{said}");
        }
        ensure!(!said.contains("not loaded"), "{said}");
        read(installation.command("uninstall", &root)?.args(prefix))?;
        ensure!(listing(&root)? == before, "not all is as before");
        fs::remove_dir_all(&root)?;
        Ok(())
    }
}

/// The command, with what it would otherwise build.
pub(super) struct Installation<'place> {
    pub(super) plugin: &'place Path,
    pub(super) checker: PathBuf,
}

impl Installation<'_> {
    /// As somebody would call it who lets nobody read what he makes.
    fn command(&self, name: &str, root: &Path) -> Result<Command> {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(std::env::current_exe()?);
        command.arg(name).arg("--destdir").arg(root);
        if name == "install" {
            command.arg("--plugin").arg(self.plugin).arg("--checker").arg(&self.checker);
        }
        Ok(command)
    }

    pub(super) fn run(&self, name: &str, root: &Path) -> Result<String> {
        read(&mut self.command(name, root)?)
    }

    /// Wherever an installation or its undoing is killed, with all that it has started: it can be undone.
    fn survives_kills(&self, root: &Path) -> Result<()> {
        let before = listing(root)?;
        let mut kills = 0;
        for name in ["install", "uninstall"] {
            let other = if name == "install" { "uninstall" } else { "install" };
            if name == "uninstall" {
                self.run("install", root)?;
            }
            let started = Instant::now();
            self.run(name, root)?;
            let whole = started.elapsed();
            self.run(other, root)?;
            for kill in 0..KILLS {
                kills += u32::from(self.is_killed(name, root, whole * kill / KILLS)?);
                // The same again, or the other.
                if kill % 2 == 0 {
                    self.run(name, root)?;
                }
                self.run("uninstall", root)?;
                let after = listing(root)?;
                ensure!(
                    after == before,
                    "{name} was killed after {kill}/{KILLS} of {whole:?}, and undone, and not all is as before"
                );
                if name == "uninstall" {
                    self.run("install", root)?;
                }
            }
            self.run("uninstall", root)?;
        }
        // Each takes a little longer or shorter than the one that was measured.
        ensure!(kills >= KILLS, "only {kills} of {} were killed in their course", 2 * KILLS);
        Ok(())
    }

    /// Says whether it was killed, and not at its end before.
    fn is_killed(&self, name: &str, root: &Path, after: Duration) -> Result<bool> {
        let mut command = self.command(name, root)?;
        let mut child = command
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context(name.to_owned())?;
        std::thread::sleep(after);
        let group = Pid::from_child(&child);
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
        Ok(child.wait()?.code().is_none())
    }
}

/// What is in a folder: kinds, modes, sizes, numbers of names, targets of links. dpkg keeps a copy of its list of diversions.
pub(super) fn listing(root: &Path) -> Result<String> {
    let mut find = Command::new("find");
    find.arg(root).args(["!", "-name", "diversions*", "-printf", "%P %y %m %s %n %l\\n"]);
    let text = read(&mut find)?;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    Ok(lines.join("\n"))
}
