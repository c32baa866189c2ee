//! Other suites' rdma-core: the plugin in each suite's own `/usr`, and the wrong plugin there.

mod command;
mod deb;
mod rpm;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::programs::rows;
use super::session::{Session, Verdict};
use crate::layout::Layout;
use crate::newest::IN_ROOT;
use crate::plugin;
use crate::process::{self, Finished, Running};
use crate::sim::{Device, Provider, Simulator};
use crate::suites::{self, SUITES};
use crate::workspace::read;
use crate::{package, packages};

/// Longest time one program may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Pairs of programs, which generation they run on, and whether they print a table.
const PAIRS: &[(&str, &str, bool)] = &[
    ("ibv_rc_pingpong -g 0 -n 200", "2", false),
    ("ibv_rc_pingpong -g 0 -n 200 -e", "3", false),
    ("ibv_ud_pingpong -g 0 -n 200", "2", false),
    ("ibv_srq_pingpong -g 0 -n 200", "3", false),
    // Of themselves these use work request builders.
    ("ib_write_bw -F -n 200 -s 4096", "2", true),
    ("ib_send_lat -F -n 200 -s 64 -I 64", "3", true),
];

/// What programs of a suite run in and with.
struct Place {
    /// Its unpacked root.
    root: PathBuf,
    /// Our plugin for its libibverbs.
    plugin: PathBuf,
    layout: &'static Layout,
}

/// Every suite but the machine's own, whose rdma-core the other groups run on. Only when asked for.
pub fn check(session: &mut Session) {
    if !session.is_asked_for("releases") {
        session.check("releases", "all", |_| {
            let reason = "minutes of fetching and building: `cargo xtask test releases`, or --full";
            Ok(Verdict::Skipped(reason.to_owned()))
        });
        return;
    }
    session.check("releases", "lintian finds nothing in the package", lint);
    let own = machine_release().unwrap_or_default();
    let mut places: BTreeMap<&str, Result<Place, String>> = BTreeMap::new();
    for &(suite, release) in SUITES.iter().filter(|(_, release)| *release != own) {
        let group = format!("releases/{suite}");
        let mut in_place = |name: &str, check: &dyn Fn(&Place, &Simulator, &Path) -> Result<()>| {
            session.check_on_device(&group, name, |simulator, folder| {
                if !rustix::process::geteuid().is_root() {
                    return Ok(Verdict::Skipped("needs root, to mount what its programs see".to_owned()));
                }
                let place = places.entry(suite).or_insert_with(|| {
                    Place::of_suite(suite, release, simulator).map_err(|error| format!("{error:#}"))
                });
                match place {
                    Ok(place) => check(place, simulator, folder).map(|()| Verdict::Passed),
                    Err(reason) => Ok(Verdict::Skipped(reason.clone())),
                }
            });
        };
        in_place("ibv_devinfo -v", &|place, simulator, folder| {
            let finished = place.alone(simulator, &place.plugin, &["ibv_devinfo", "-v"], folder)?;
            let shows = |text| finished.output.contains(text);
            let loaded = finished.output.contains(&format!("calling init: {}", place.plugin.display()));
            ensure!(
                finished.succeeded() && shows("PORT_ACTIVE") && shows("max_qp:"),
                "{}",
                finished.explain()
            );
            ensure!(loaded, "another plugin was loaded: {}", finished.explain());
            Ok(())
        });
        for (command, generation, has_table) in PAIRS {
            in_place(&format!("{command} on GEN{generation}"), &|place, simulator, folder| {
                place.pair(simulator, command, generation, *has_table, folder)
            });
        }
        in_place("installed in the place of the distribution's", &|place, simulator, folder| {
            place.installs(simulator, folder)
        });
        in_place("installed below a prefix", &|place, simulator, folder| {
            place.installs_below_prefix(simulator, folder)
        });
        in_place("packed, and installed by dpkg", &|place, simulator, folder| {
            place.packages(simulator, folder)
        });
        in_place("packed, beside others and for another layout", &|place, _, folder| {
            place.packages_and_others(folder)
        });
        in_place("packed, and installed by rpm", &|place, simulator, folder| {
            place.packages_for_rpm(simulator, folder)
        });
        in_place("the plugin of another layout is refused", &|place, simulator, folder| {
            place.refuses(simulator, folder)
        });
    }
}

/// Debian's own look at the package for this machine.
fn lint(folder: &Path) -> Result<Verdict> {
    packages::install(packages::LINTIAN)?;
    let package = package::deb::build(&plugin::build(None)?, package::NOBODY)?;
    let mut lintian = Command::new("lintian");
    lintian.args(["--display-info", "--fail-on", "error,warning,info"]);
    // Of C's functions with lengths that the compiler knows: there are none.
    lintian.args(["--suppress-tags", "hardening-no-fortify-functions"]);
    let finished = process::run(lintian.arg(package), &folder.join("output"), LIMIT)?;
    ensure!(finished.succeeded(), "{}", finished.explain());
    Ok(Verdict::Passed)
}

/// The release of this machine's rdma-core.
fn machine_release() -> Option<u32> {
    let output = Command::new("pkg-config").args(["--modversion", "libibverbs"]).output().ok()?;
    String::from_utf8_lossy(&output.stdout).split('.').nth(2)?.parse().ok()
}

impl Place {
    fn of_suite(suite: &str, release: u32, simulator: &Simulator) -> Result<Place> {
        let root = suites::tools_root(suite)?;
        let machines = simulator.plugin();
        let (plugin, layout) = if machines.layout.has_release(release) {
            (machines.library.clone(), machines.layout)
        } else {
            let built = plugin::build(Some(&suites::development_root(suite)?))?;
            (built.library, built.layout)
        };
        Ok(Place { root, plugin, layout })
    }

    /// A program in the root, on a device of its own or on a running one.
    fn program(&self, simulator: &Simulator, plugin: &Path, device: &[&str], words: &[&str]) -> Command {
        let mut command = simulator.run_with(Provider::Ours, plugin);
        command.args(device).args(["--", "unshare", "--mount", "sh", "-c", IN_ROOT]).arg(&self.root);
        command.args(words);
        command
    }

    /// Runs a program to its end; the dynamic loader says what it loads.
    fn alone(&self, simulator: &Simulator, plugin: &Path, words: &[&str], folder: &Path) -> Result<Finished> {
        let mut command = self.program(simulator, plugin, &[], words);
        process::run(command.env("LD_DEBUG", "files"), &folder.join("output"), LIMIT)
    }

    fn pair(
        &self,
        simulator: &Simulator,
        command: &str,
        generation: &str,
        has_table: bool,
        folder: &Path,
    ) -> Result<()> {
        let name = format!("release-{}", std::process::id());
        let _device: Device = simulator.start(&name, &["--gen", generation], &folder.join("device"))?;
        let port = process::free_port()?;
        let port_text = port.to_string();
        let mut words: Vec<&str> = command.split(' ').chain(["-p", &port_text]).collect();
        let on_device = ["--fabric", &name];
        let mut server = Running::start(
            &mut self.program(simulator, &self.plugin, &on_device, &words),
            &folder.join("server"),
        )?;
        let mut ended = false;
        let ready = process::wait_until(LIMIT, || {
            ended = !matches!(server.has_ended(), Ok(false));
            ended || process::listens(port)
        });
        ensure!(ready && !ended, "the server does not listen:\n    {}", server.output().trim_end());
        let loaded =
            process::loaded_provider(server.pid()).context("the server has loaded no irdma provider")?;
        ensure!(loaded == self.plugin, "the server has loaded {}", loaded.display());
        words.push("127.0.0.1");
        let mut client = self.program(simulator, &self.plugin, &on_device, &words);
        let client = process::run(&mut client, &folder.join("client"), LIMIT)?;
        let server = server.wait(LIMIT)?;
        let met =
            if has_table { rows(&client.output).len() == 1 } else { client.output.contains("iters in") };
        ensure!(client.succeeded() && met, "{}", client.explain());
        ensure!(server.succeeded(), "{}", server.explain());
        Ok(())
    }

    /// In the place of the distribution's, the plugin is what programs load that ask for that;
    /// afterwards, the distribution's is what it was. `put` gets the root and says where the plugin is.
    fn replaces(
        &self,
        simulator: &Simulator,
        folder: &Path,
        put: impl FnOnce(&Path) -> Result<PathBuf>,
        take: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let root = copy_for_dpkg(&self.root, folder)?;
        let path = put(&root)?;
        let file = root.join(path.strip_prefix("/")?);
        let distributions = self.root.join(path.strip_prefix("/")?);
        ensure!(fs::read(&file)? == fs::read(&self.plugin)?, "{} is not the plugin", file.display());
        // On a generation that not every release of the C provider knows.
        let mut command = simulator.run(Provider::C);
        command.args(["--gen", "3", "--", "unshare", "--mount", "sh", "-c", IN_ROOT]).arg(&root);
        command.arg("ibv_devinfo").env("LD_DEBUG", "files");
        let finished = process::run(&mut command, &folder.join("output"), LIMIT)?;
        let loaded = finished.output.contains(&format!("calling init: {}", path.display()));
        let works = finished.succeeded() && finished.output.contains("PORT_ACTIVE");
        ensure!(loaded && works, "{}", finished.explain());

        take(&root)?;
        ensure!(fs::read(&file)? == fs::read(&distributions)?, "{} is not as before", file.display());
        let left = fs::read_to_string(root.join("var/lib/dpkg/diversions"))?;
        ensure!(left.is_empty(), "a diversion is left: {left}");
        fs::remove_dir_all(&root)?;
        Ok(())
    }

    /// A plugin for another release under the name of this one's: libibverbs names it and the
    /// reason in one line, and the program finds no device, as without a plugin.
    fn refuses(&self, simulator: &Simulator, folder: &Path) -> Result<()> {
        let (suite, other) = SUITES
            .iter()
            .map(|(suite, release)| (suite, release))
            .find(|(_, release)| !self.layout.has_release(**release))
            .ok_or_else(|| anyhow!("every suite has this layout"))?;
        let wrong = if simulator.plugin().layout.has_release(*other) {
            simulator.plugin().library.clone()
        } else {
            plugin::build(Some(&suites::development_root(suite)?))?.library
        };
        let disguised = folder.join(format!("libirdma-rdmav{}.so", self.layout.pabi));
        fs::copy(&wrong, &disguised)?;
        let mut command = self.program(simulator, &disguised, &[], &["ibv_devinfo"]);
        let finished = process::run(&mut command, &folder.join("output"), LIMIT)?;
        let of_another = format!("IBVERBS_PRIVATE_{}' not found", number_of(&wrong)?);
        let mut lines: Vec<&str> =
            finished.output.lines().filter(|line| line.contains(&of_another)).collect();
        // Named by the environment and by the driver file: tried twice.
        lines.dedup();
        let named = |line: &&str| line.contains("couldn't load driver") && line.contains("libirdma");
        ensure!(lines.len() == 1 && lines.iter().all(named), "no such line: {}", finished.explain());
        ensure!(finished.status.is_some_and(|status| status.code().is_some()), "{}", finished.explain());
        ensure!(!finished.output.contains("PORT_ACTIVE"), "it opened a device: {}", finished.explain());
        Ok(())
    }
}

/// A copy of an unpacked root, to install in, of links: nothing in it is written to.
fn copy_of_root(root: &Path, folder: &Path) -> Result<PathBuf> {
    let copy = folder.join("root");
    read(Command::new("cp").arg("-al").arg(root).arg(&copy))?;
    for folder in ["bin", "lib", "lib64", "sbin"].iter().filter(|folder| !copy.join(folder).exists()) {
        symlink(Path::new("usr").join(folder), copy.join(folder))?;
    }
    Ok(copy)
}

/// The same, for a dpkg that knows no package.
fn copy_for_dpkg(root: &Path, folder: &Path) -> Result<PathBuf> {
    let copy = copy_of_root(root, folder)?;
    let dpkg = copy.join("var/lib/dpkg");
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(dpkg.join(folder))?;
    }
    fs::write(dpkg.join("status"), "")?;
    fs::write(dpkg.join("available"), "")?;
    Ok(copy)
}

/// The number in a plugin's file name.
fn number_of(library: &Path) -> Result<&str> {
    let name = library.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix("libirdma-rdmav").and_then(|rest| rest.strip_suffix(".so")).context("a plugin's name")
}
