//! The package for rpm, in a suite's root as it would be in a Fedora's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{LIMIT, Place, copy_of_root};
use crate::layout::triplet;
use crate::package::{self, rpm};
use crate::plugin::Plugin;
use crate::process;
use crate::sim::{Provider, Simulator};
use crate::workspace::read;

/// Puts the `/usr` and the driver files of the root that is its first argument in the place of this machine's.
const IN_ROOT: &str =
    "mount --bind \"$0/etc/libibverbs.d\" /etc/libibverbs.d && mount --bind \"$0/usr\" /usr && exec \"$@\"";

const DRIVER_FILE: &str = "/etc/libibverbs.d/irdma.driver";

/// What the distribution's says. No new line ends it.
const DISTRIBUTIONS: &str = "driver irdma";

/// A distribution's package: files of the root under the name that it has on Fedora, RHEL and SUSE, so that rpm
/// finds what ours asks for, or misses it. rpm reads the provided versions of libraries from them.
const SPECIFICATION: &str = "Name: @NAME@
Version: @VERSION@
Release: 1
Summary: Of the distribution
License: as there
AutoReq: no
@PROVIDES@
%description
%install
while read -r line; do
    file=${line##* }
    mkdir -p %{buildroot}${file%/*}
    cp @WORK@/own$file %{buildroot}$file || cp @ROOT@$file %{buildroot}$file
done <@LIST@
chmod -R 755 %{buildroot}
%files -f @LIST@
%defattr(-,root,root,-)
";

impl Place {
    /// A second build has the same bytes. It is refused beside a libibverbs that it is not for, or where somebody
    /// has turned irdma off. It is what programs load, also after an upgrade and with a libibverbs that came
    /// later; erased, it leaves what was there before and what somebody has added.
    pub(super) fn packages_for_rpm(&self, simulator: &Simulator, folder: &Path) -> Result<()> {
        let plugin =
            Plugin { layout: self.layout, library: self.plugin.clone(), unstripped: self.plugin.clone() };
        let package = folder.join("package.rpm");
        fs::rename(rpm::build(&plugin, package::NOBODY)?, &package)?;
        let second = rpm::build(&plugin, package::NOBODY)?;
        ensure!(fs::read(second)? == fs::read(&package)?, "a second build has other bytes");
        let package = &*package.to_string_lossy();

        let system = System { root: copy_of_root(&self.root, folder)?, work: folder.join("rpm") };
        // Debian's: rpm would put its own beside it, and writing to it would change the root.
        if system.driver_file().exists() {
            fs::remove_file(system.driver_file())?;
        }
        let (last, next) = (self.layout.last, self.layout.last + 1);
        system.rpm(&["--install", "--justdb", &system.distributions_rest()?])?;
        system.rpm(&["--install", "--force", &system.distributions_libibverbs(&next.to_string(), "")?])?;
        system.refuses(package, &format!("libibverbs < {next}~ is needed"))?;
        let first = system.distributions_libibverbs(&last.to_string(), "")?;
        system.rpm(&["--upgrade", "--oldpackage", &first])?;
        fs::write(system.driver_file(), "# no driver\n")?;
        system.refuses(package, "turned it off")?;
        fs::write(system.driver_file(), DISTRIBUTIONS)?;
        // As `cargo xtask install` leaves it where libraries are in /usr/lib64.
        let own = system.root.join(&rpm::FOLDER[1..]);
        fs::create_dir_all(&own)?;
        fs::write(own.join("record"), "")?;
        system.refuses(package, "installed by other means")?;
        fs::remove_dir_all(&own)?;

        let with_ours = format!("{DISTRIBUTIONS}\ndriver {}/libirdma\n", rpm::FOLDER);
        system.rpm(&["--install", package])?;
        system.has_driver_file(&with_ours)?;
        self.is_loaded(simulator, &system, folder)?;
        system.rpm(&["--upgrade", "--replacepkgs", package])?;
        system.has_driver_file(&with_ours)?;
        let more = "# of an upgrade\n";
        let second = system.distributions_libibverbs(&format!("{last}.1"), more)?;
        system.rpm(&["--upgrade", &second])?;
        system.has_driver_file(&format!("{more}{with_ours}"))?;
        self.is_loaded(simulator, &system, folder)?;
        system.rpm(&["--erase", package::NAME])?;
        system.has_driver_file(&format!("{more}{DISTRIBUTIONS}"))?;
        let left = system.root.join(&rpm::FOLDER[1..]);
        ensure!(!left.exists(), "{} is left", left.display());

        system.rpm(&["--install", package])?;
        system.rpm(&["--erase", "--nodeps", "libibverbs"])?;
        system.rpm(&["--install", &first])?;
        system.has_driver_file(&with_ours)?;
        fs::write(system.driver_file(), format!("{with_ours}driver mlx5\n"))?;
        system.rpm(&["--erase", package::NAME])?;
        system.has_driver_file(&format!("{DISTRIBUTIONS}\ndriver mlx5\n"))?;
        fs::remove_dir_all(&system.root)?;
        Ok(())
    }

    /// Programs of the system that ask for irdma load our plugin, from where the package has it.
    fn is_loaded(&self, simulator: &Simulator, system: &System, folder: &Path) -> Result<()> {
        let name = self.plugin.file_name().context("a plugin has a name")?;
        let path = Path::new(rpm::FOLDER).join(name);
        let installed = fs::read(system.root.join(path.strip_prefix("/")?))?;
        ensure!(installed == fs::read(&self.plugin)?, "{} is not the plugin", path.display());
        let mut command = simulator.run(Provider::C);
        command.args(["--gen", "3", "--", "unshare", "--mount", "sh", "-c", IN_ROOT]).arg(&system.root);
        command.arg("ibv_devinfo").env("LD_DEBUG", "files");
        let finished = process::run(&mut command, &folder.join("output"), LIMIT)?;
        let loaded = finished.output.contains(&format!("calling init: {}", path.display()));
        let works = finished.succeeded() && finished.output.contains("PORT_ACTIVE");
        ensure!(loaded && works, "{}", finished.explain());
        Ok(())
    }
}

/// A root that rpm looks after.
struct System {
    root: PathBuf,
    /// Where packages are built.
    work: PathBuf,
}

impl System {
    /// rpm, in the root. What it says there ends with the reason if it refuses.
    fn rpm(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("rpm");
        read(command.arg("--root").arg(&self.root).args(["--dbpath", "/var/lib/rpm"]).args(words))
    }

    /// The package is not installed, for that reason.
    fn refuses(&self, package: &str, reason: &str) -> Result<()> {
        let refusal = self.rpm(&["--install", package]).err().map(|error| error.to_string());
        let refusal = refusal.with_context(|| format!("it was installed, although {reason}"))?;
        ensure!(refusal.contains(reason), "refused, but not for the reason that {reason}: {refusal}");
        let all = self.rpm(&["--query", "--all"])?;
        ensure!(!all.contains(package::NAME), "refused, and there all the same: {all}");
        Ok(())
    }

    fn driver_file(&self) -> PathBuf {
        self.root.join(&DRIVER_FILE[1..])
    }

    fn has_driver_file(&self, text: &str) -> Result<()> {
        let there = fs::read_to_string(self.driver_file())?;
        ensure!(there == text, "{DRIVER_FILE} is not\n{text}\nbut\n{there}");
        Ok(())
    }

    /// What else our package asks for.
    fn distributions_rest(&self) -> Result<String> {
        let libraries = format!("/usr/lib/{}", triplet());
        let loader = format!("ld-linux-{}.so.2", std::env::consts::ARCH.replace('_', "-"));
        let files = ["libc.so.6", "libgcc_s.so.1", &loader].map(|name| format!("{libraries}/{name}"));
        self.pack("base", "1", "Provides: /bin/sh\nProvides: coreutils\nProvides: rtld(GNU_HASH)", &files)
    }

    /// libibverbs, with the plugin of irdma and its driver file, which says something more.
    fn distributions_libibverbs(&self, version: &str, more: &str) -> Result<String> {
        let libraries = format!("/usr/lib/{}", triplet());
        let library = self.root.join(&libraries[1..]).join("libibverbs.so.1").canonicalize()?;
        let library = library.file_name().context("a library has a name")?.to_string_lossy().into_owned();
        let plugin = fs::read_dir(self.root.join(&libraries[1..]).join("libibverbs"))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .find(|name| name.starts_with("libirdma-"))
            .context("the suite has no plugin of irdma")?;
        let files = [format!("{libraries}/{library}"), format!("{libraries}/libibverbs/{plugin}")];
        let files = files.into_iter().chain([DRIVER_FILE.to_owned()]).collect::<Vec<_>>();
        let own = self.work(&format!("libibverbs-{version}")).join("own");
        fs::create_dir_all(own.join("etc/libibverbs.d"))?;
        fs::write(own.join(&DRIVER_FILE[1..]), format!("{more}{DISTRIBUTIONS}"))?;
        self.pack("libibverbs", version, "", &files)
    }

    /// Where a package is built. What is there in `own` comes before the root's.
    fn work(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    fn pack(&self, name: &str, version: &str, provides: &str, files: &[String]) -> Result<String> {
        let work = self.work(&format!("{name}-{version}"));
        fs::create_dir_all(&work)?;
        let list = work.join("list");
        let as_listed = |file: &String| {
            let kind = if file.starts_with("/etc") { "%config(noreplace) " } else { "" };
            format!("{kind}{file}\n")
        };
        fs::write(&list, files.iter().map(as_listed).collect::<String>())?;
        let values = [
            ("NAME", name),
            ("VERSION", version),
            ("PROVIDES", provides),
            ("WORK", &work.to_string_lossy()),
            ("ROOT", &self.root.to_string_lossy()),
            ("LIST", &list.to_string_lossy()),
        ];
        let fill = |text: String, (name, value): (&str, &str)| text.replace(&format!("@{name}@"), value);
        let specification = work.join("package.spec");
        fs::write(&specification, values.into_iter().fold(SPECIFICATION.to_owned(), fill))?;
        Ok(rpm::pack(&specification, &work)?.to_string_lossy().into_owned())
    }
}
