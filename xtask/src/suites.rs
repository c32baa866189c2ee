//! rdma-core of other Debian releases, fetched through apt and cached in the target directory.
//!
//! apt runs on directories of its own here, with the mirror and the keys that
//! the machine is set up for and another suite; the machine's own package
//! lists stay as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use crate::workspace::{read, run, target};

/// The suites whose rdma-core the tests look at, with its release.
pub const SUITES: &[&str] = &["bookworm", "trixie", "forky"];

/// Packages that a plugin for another release is built against.
const DEVELOPMENT: &[&str] = &["libibverbs1", "libibverbs-dev"];

/// Packages with what rdma-core's Python tests run, for programs of another release.
const PROGRAMS: &[&str] =
    &["coreutils", "dash", "ibverbs-providers", "iproute2", "python3", "python3-pyverbs"];

/// Holds one unpacked rdma-core source tree per suite, named like the suite.
pub fn sources_folder() -> PathBuf {
    target().join("rdma-core")
}

/// The unpacked rdma-core source tree of `suite`.
pub fn source(suite: &str) -> Result<PathBuf> {
    let tree = sources_folder().join(suite);
    fetched(&tree, |partial| {
        let apt = Apt::of_suite(suite)?;
        // Debian's own changes lie under debian/: the upstream archive has all that is compared.
        let listing = read(apt.get().args(["source", "--print-uris", "--only-source", "rdma-core"]))?;
        let archive = listing
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|fields| fields.len() >= 4 && fields[1].contains(".orig.tar."))
            .ok_or_else(|| anyhow!("{suite} has no source archive of rdma-core"))?;
        let [uri, name, _, digest] = archive[..4] else { bail!("apt listed the archive in an unknown form") };
        let file = partial.with_file_name(name);
        read(apt.helper().arg("download-file").arg(uri.trim_matches('\'')).arg(&file).arg(digest))
            .map_err(|error| anyhow!("{name} cannot be had: {}", reason(&error)))?;
        run(Command::new("tar").arg("-C").arg(partial).args(["--strip-components=1", "-xf"]).arg(&file))?;
        fs::remove_file(&file)?;
        Ok(())
    })?;
    Ok(tree)
}

/// A root with the headers and the library of `suite`'s rdma-core, to build against.
pub fn development_root(suite: &str) -> Result<PathBuf> {
    let tree = target().join("roots").join(suite);
    fetched(&tree, |partial| download(&Apt::of_suite(suite)?, suite, DEVELOPMENT, partial))?;
    Ok(tree)
}

/// A root in which `suite`'s Python finds its pyverbs, with all that both depend on.
pub fn program_root(suite: &str) -> Result<PathBuf> {
    let tree = target().join("roots").join(format!("{suite}-programs"));
    fetched(&tree, |partial| {
        let apt = Apt::of_suite(suite)?;
        // Nothing is installed there, so that apt takes everything that is needed.
        let none = apt.folder.join("status");
        fs::write(&none, "")?;
        let mut install = apt.get();
        install.arg("-o").arg(format!("Dir::State::status={}", none.display()));
        install.args(["--yes", "--download-only", "--no-install-recommends", "install"]).args(PROGRAMS);
        read(&mut install).map_err(|error| {
            anyhow!("{} of {suite} cannot be had: {}", PROGRAMS.join(", "), reason(&error))
        })?;
        let archives = apt.folder.join("cache/archives");
        unpack(&archives, partial)?;
        fs::remove_dir_all(&archives)?;
        Ok(())
    })?;
    Ok(tree)
}

/// rdma-core's own Python tests, as `suite` has them among the documentation of pyverbs.
pub fn python_tests(suite: &str) -> Result<PathBuf> {
    const FOLDER: &str = "usr/share/doc/rdma-core/tests";
    let tree = target().join("rdma-core-tests").join(suite);
    fetched(&tree, |partial| {
        // A machine's own packages may have been unpacked without their documentation.
        download(&Apt::of_suite(suite)?, suite, &["python3-pyverbs"], partial)?;
        let compressed = fs::read_dir(partial.join(FOLDER))
            .with_context(|| format!("pyverbs of {suite} has no tests in its documentation"))?
            .map(|entry| Ok(entry?.path()))
            .filter(|path: &Result<PathBuf>| {
                path.as_ref().map_or(true, |path| path.extension().is_some_and(|end| end == "gz"))
            })
            .collect::<Result<Vec<_>>>()?;
        run(Command::new("gzip").arg("--decompress").args(compressed))
    })?;
    Ok(tree.join(FOLDER))
}

/// Fetches packages of `suite` and unpacks them into `tree`.
fn download(apt: &Apt, suite: &str, packages: &[&str], tree: &Path) -> Result<()> {
    let archives = tree.with_extension("archives");
    let _ = fs::remove_dir_all(&archives);
    fs::create_dir_all(&archives)?;
    read(apt.get().current_dir(&archives).arg("download").args(packages))
        .map_err(|error| anyhow!("{} of {suite} cannot be had: {}", packages.join(", "), reason(&error)))?;
    unpack(&archives, tree)?;
    fs::remove_dir_all(&archives)?;
    Ok(())
}

/// Unpacks every package in `archives` into `tree`.
fn unpack(archives: &Path, tree: &Path) -> Result<()> {
    for archive in fs::read_dir(archives)? {
        let archive = archive?.path();
        if archive.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(tree))?;
        }
    }
    Ok(())
}

/// Fills `tree` by `fill` unless it is there already; an interrupted run leaves no half tree.
fn fetched(tree: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if tree.exists() {
        return Ok(());
    }
    let partial = tree.with_extension("partial");
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial)?;
    fill(&partial)?;
    fs::rename(&partial, tree)?;
    Ok(())
}

fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.lines().find(|line| line.starts_with("E:")).unwrap_or(&text).to_owned()
}

/// apt on directories of its own.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// With up-to-date lists of `suite`.
    fn of_suite(suite: &str) -> Result<Apt> {
        let apt = Apt { folder: target().join("apt").join(suite) };
        for folder in ["state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"]
        {
            fs::create_dir_all(apt.folder.join(folder))?;
        }
        let mirror = Mirror::of_machine()?;
        let entry = |kind: &str| format!("{kind} {}{} {suite} main\n", mirror.options(), mirror.uri);
        fs::write(apt.folder.join("etc/sources.list"), entry("deb") + &entry("deb-src"))?;
        read(apt.get().arg("update"))
            .map_err(|error| anyhow!("the package lists of {suite} cannot be had: {}", reason(&error)))?;
        Ok(apt)
    }

    fn get(&self) -> Command {
        self.tool("apt-get")
    }

    fn helper(&self) -> Command {
        self.tool("/usr/lib/apt/apt-helper")
    }

    fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, folder) in [("Dir::State", "state"), ("Dir::Cache", "cache"), ("Dir::Etc", "etc")] {
            command.arg("-o").arg(format!("{option}={}", self.folder.join(folder).display()));
        }
        // Another suite's lists may be past their date on a mirror of a fixed day;
        // and the target directory need not be open to apt's own user.
        for option in
            ["Acquire::Check-Valid-Until=false", "Acquire::Languages=none", "APT::Sandbox::User=root"]
        {
            command.args(["-o", option]);
        }
        command.args(["-o", "Dir::State::status=/var/lib/dpkg/status"]);
        command
    }
}

/// Where the machine's own release comes from.
#[derive(Debug, PartialEq, Eq)]
struct Mirror {
    uri: String,
    signed_by: Option<String>,
}

impl Mirror {
    /// Read from the machine's apt configuration.
    fn of_machine() -> Result<Mirror> {
        let release = fs::read_to_string("/etc/os-release").context("cannot tell the machine's release")?;
        let codename = release
            .lines()
            .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
            .ok_or_else(|| anyhow!("/etc/os-release names no release"))?
            .trim_matches('"');
        let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
        let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
        files.extend(parts.map(|entry| entry.path()));
        files
            .iter()
            .filter_map(|file| Some((file, fs::read_to_string(file).ok()?)))
            .find_map(|(file, text)| match file.extension()?.to_str()? {
                "sources" => Mirror::of_stanzas(&text, codename),
                "list" => Mirror::of_lines(&text, codename),
                _ => None,
            })
            .ok_or_else(|| anyhow!("apt is set up with no source of {codename}"))
    }

    /// From deb822-style text (sources.list(5)).
    fn of_stanzas(text: &str, codename: &str) -> Option<Mirror> {
        let text: String =
            text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        text.split("\n\n").find_map(|stanza| {
            let field = |name: &str| {
                stanza.lines().find_map(|line| {
                    let (key, value) = line.split_once(':')?;
                    key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
                })
            };
            let has =
                |name: &str, word: &str| field(name)?.split_whitespace().any(|one| one == word).then_some(());
            has("Types", "deb")?;
            has("Suites", codename)?;
            has("Components", "main")?;
            // A key may also stand in the stanza itself, over several lines: then Debian's own serves.
            let signed_by = field("Signed-By").filter(|path| path.starts_with('/'));
            Some(Mirror { uri: field("URIs")?.split_whitespace().next()?.to_owned(), signed_by })
        })
    }

    /// From one-line-style text (sources.list(5)).
    fn of_lines(text: &str, codename: &str) -> Option<Mirror> {
        text.lines().find_map(|line| {
            let rest = line.trim().strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
            let (options, rest) = match rest.strip_prefix('[') {
                Some(rest) => rest.split_once(']')?,
                None => ("", rest),
            };
            let words: Vec<&str> = rest.split_whitespace().collect();
            let (&uri, words) = words.split_first()?;
            let (&suite, components) = words.split_first()?;
            let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
            (suite == codename && components.contains(&"main"))
                .then(|| Mirror { uri: uri.to_owned(), signed_by: signed_by.map(str::to_owned) })
        })
    }

    /// For an entry of sources.list.
    fn options(&self) -> String {
        let debian = "/usr/share/keyrings/debian-archive-keyring.gpg";
        match &self.signed_by {
            Some(path) => format!("[signed-by={path}] "),
            None if Path::new(debian).exists() => format!("[signed-by={debian}] "),
            None => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(uri: &str, signed_by: Option<&str>) -> Option<Mirror> {
        Some(Mirror { uri: uri.to_owned(), signed_by: signed_by.map(str::to_owned) })
    }

    #[test]
    fn stanza_of_the_machines_release_is_found_among_others() {
        let text = "Types: deb\nURIs: file:/other\nSuites: bookworm-tools\nComponents: main\n\n\
                    # comment\nTypes: deb deb-src\nURIs: file:/debian\nSuites: bookworm bookworm-updates\n\
                    Components: main contrib\nSigned-By: /keys/debian.gpg\n";
        assert_eq!(Mirror::of_stanzas(text, "bookworm"), mirror("file:/debian", Some("/keys/debian.gpg")));
        assert_eq!(Mirror::of_stanzas(text, "trixie"), None);
    }

    #[test]
    fn line_of_the_machines_release_is_found_among_others() {
        let text = "# deb file:/no bookworm main\ndeb-src file:/no bookworm main\n\
                    deb file:/other bookworm contrib\n\
                    deb [arch=amd64 signed-by=/keys/debian.gpg] file:/debian bookworm main contrib\n";
        assert_eq!(Mirror::of_lines(text, "bookworm"), mirror("file:/debian", Some("/keys/debian.gpg")));
        assert_eq!(
            Mirror::of_lines("deb file:/debian bookworm main", "bookworm"),
            mirror("file:/debian", None)
        );
        assert_eq!(Mirror::of_lines(text, "forky"), None);
    }
}
