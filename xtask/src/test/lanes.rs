//! Checks that do not mind company, two at a time.
//!
//! Each lane is a process of its own, so that it is the parent of all that its checks start and
//! sees what they leave behind. All lanes go through the same checks in the same order; a check is
//! that lane's which first makes the file of its number.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::session::{Counts, Group, Session};
use crate::workspace::target;

/// How many checks run at once: as many as the smallest machine we care for has processors.
const LANES: usize = 2;

/// What lanes share: a folder.
pub struct Share {
    folder: PathBuf,
    next: usize,
}

impl Share {
    /// That of a lane which was started with `folder`.
    pub fn of(folder: PathBuf) -> Share {
        Share { folder, next: 0 }
    }

    /// Whether the next check is this lane's.
    pub fn claim(&mut self) -> Result<bool> {
        let path = self.folder.join(self.next.to_string());
        self.next += 1;
        match File::create_new(&path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot make {}", path.display())),
        }
    }

    /// Leaves the outcomes of this lane for the run that started it.
    pub fn leave(&self, groups: &[(&str, &Group)]) -> Result<()> {
        let text: String = groups.iter().map(|(name, group)| written(name, group)).collect();
        fs::write(outcomes(&self.folder, std::process::id()), text).context("cannot write a lane's outcomes")
    }
}

fn outcomes(folder: &Path, lane: u32) -> PathBuf {
    folder.join(format!("outcomes-{lane}"))
}

/// Runs this command again as lanes, with `arguments`, and takes over what they have found.
pub fn run(session: &mut Session, arguments: &[String]) -> Result<()> {
    let folder = target().join("tmp/lanes");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let program = std::env::current_exe()?;
    let start = || Command::new(&program).arg("test").arg("--lane").arg(&folder).args(arguments).spawn();
    let lanes = (0..LANES).map(|_| start()).collect::<Result<Vec<_>, _>>();
    for mut lane in lanes.context("cannot start a lane")? {
        let number = lane.id();
        let status = lane.wait()?;
        ensure!(status.success(), "a lane of the checks ended with {status}");
        let text = fs::read_to_string(outcomes(&folder, number)).context("a lane left no outcomes")?;
        read(&text, |name, group| session.add(name, group))?;
    }
    Ok(())
}

/// A group's outcomes as lines of words between tabs.
fn written(name: &str, group: &Group) -> String {
    let line = |kind: &str, text: &str| format!("{name}\t{kind}\t{}\n", text.replace(['\n', '\t'], " "));
    let counts = &group.counts;
    let mut text = line("passed", &counts.passed.to_string());
    text += &line("seconds", &group.time.as_secs_f64().to_string());
    text.extend(counts.failed.iter().map(|failure| line("failed", failure)));
    text.extend(counts.skipped.iter().map(|reason| line("skipped", reason)));
    text
}

fn read(text: &str, mut add: impl FnMut(&str, Group)) -> Result<()> {
    for line in text.lines() {
        let mut words = line.splitn(3, '\t');
        let mut word = || words.next().with_context(|| format!("not a lane's outcome: {line}"));
        let (name, kind, text) = (word()?, word()?, word()?);
        let mut group = Group::default();
        let counts = &mut group.counts;
        match kind {
            "passed" => *counts = Counts { passed: text.parse()?, ..Counts::default() },
            "seconds" => group.time = std::time::Duration::try_from_secs_f64(text.parse()?)?,
            "failed" => counts.failed.push(text.to_owned()),
            "skipped" => counts.skipped.push(text.to_owned()),
            _ => anyhow::bail!("not a lane's outcome: {line}"),
        }
        add(name, group);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn outcomes_come_over_as_they_were() {
        let failed = vec!["a: it broke\n    at 3".to_owned()];
        let skipped = vec!["b: no\tcard".to_owned(), "c: why".to_owned()];
        let group =
            Group { counts: Counts { passed: 7, failed, skipped }, time: Duration::from_millis(1500) };
        let mut all = Group::default();
        read(&written("programs/ours", &group), |name, part| {
            assert_eq!(name, "programs/ours");
            all.add(part);
        })
        .unwrap();
        assert_eq!((all.counts.passed, all.time), (7, group.time));
        assert_eq!(all.counts.failed, ["a: it broke     at 3"]);
        assert_eq!(all.counts.skipped, ["b: no card", "c: why"]);
        assert!(read("programs\tgone\t1\n", |_, _| ()).is_err());
        assert!(read("programs\n", |_, _| ()).is_err());
    }

    #[test]
    fn every_check_is_one_lanes() {
        let folder = std::env::temp_dir().join(format!("irdma-lanes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (mut one, mut other) = (Share::of(folder.clone()), Share::of(folder.clone()));
        let mut claims = Vec::new();
        for _ in 0..3 {
            claims.push((one.claim().unwrap(), other.claim().unwrap()));
        }
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(claims, [(true, false); 3]);
        assert!(one.claim().is_err());
    }
}
