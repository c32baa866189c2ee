//! apt on directories of its own: with the mirror and the keys that the machine is set up for, and
//! another suite. The machine's own package lists stay as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use crate::workspace::{read, target};

/// What apt itself said, of an error with all that was run.
pub fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.lines().find(|line| line.starts_with("E:")).unwrap_or(&text).to_owned()
}

/// apt on directories of its own.
pub struct Apt {
    /// Those directories.
    pub folder: PathBuf,
    /// Debian's name of the architecture whose packages it fetches; `None`: this machine's.
    architecture: Option<&'static str>,
}

impl Apt {
    /// With up-to-date lists of `suite`.
    pub fn of_suite(suite: &str) -> Result<Apt> {
        Apt::without_lists(suite)?.with_lists(suite)
    }

    /// The same for machines of another architecture.
    pub fn of_architecture(suite: &str, architecture: &'static str) -> Result<Apt> {
        let apt =
            Apt { architecture: Some(architecture), ..Apt::in_folder(&format!("{suite}-{architecture}"))? };
        apt.with_lists(suite)
    }

    /// Brings its lists up to date.
    fn with_lists(self, suite: &str) -> Result<Apt> {
        let apt = self;
        let mirror = Mirror::of_machine()?;
        let entry = |kind: &str| format!("{kind} {}{} {suite} main\n", mirror.options(), mirror.uri);
        fs::write(apt.folder.join("etc/sources.list"), entry("deb") + &entry("deb-src"))?;
        read(apt.get().arg("update"))
            .map_err(|error| anyhow!("the package lists of {suite} cannot be had: {}", reason(&error)))?;
        Ok(apt)
    }

    /// For files of `suite` whose places are known.
    pub fn without_lists(suite: &str) -> Result<Apt> {
        Apt::in_folder(suite)
    }

    fn in_folder(name: &str) -> Result<Apt> {
        let apt = Apt { folder: target().join("apt").join(name), architecture: None };
        for folder in ["state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"]
        {
            fs::create_dir_all(apt.folder.join(folder))?;
        }
        Ok(apt)
    }

    /// apt-get.
    pub fn get(&self) -> Command {
        self.tool("apt-get")
    }

    /// apt-cache.
    pub fn cache(&self) -> Command {
        self.tool("apt-cache")
    }

    /// apt's tool that fetches a file and compares its digest.
    pub fn helper(&self) -> Command {
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
        if let Some(architecture) = self.architecture {
            command.arg("-o").arg(format!("APT::Architecture={architecture}"));
        }
        command
    }
}

/// Where the machine's own release comes from.
#[derive(Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Its address.
    pub uri: String,
    signed_by: Option<String>,
}

impl Mirror {
    /// Read from the machine's apt configuration.
    pub fn of_machine() -> Result<Mirror> {
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
