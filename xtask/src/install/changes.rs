//! What installing changes, and its undoing. Both begin where an interrupted one has ended.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::diversion::Diversion;
use super::record::{Method, RECORD, Record};
use super::site::Site;
use super::steps::{Content, Killed, Steps, draft_beside, is_there};
use super::system::System;
use super::tools::Tool;

/// The line of a driver file that names a plugin by its name alone.
const BY_NAME: &str = "driver irdma\n";

/// What is installed.
pub struct Parcel<'bytes> {
    /// The plugin's file.
    pub plugin: &'bytes [u8],
    /// What comes with it.
    pub tools: &'bytes [Tool],
}

impl Parcel<'_> {
    fn paths(&self) -> Vec<PathBuf> {
        self.tools.iter().map(|tool| tool.path.clone()).collect()
    }
}

/// Refuses, before anything changes, what cannot be installed on; `tools` is where what comes with the plugin goes.
pub fn refuse(system: &System, tools: &[PathBuf]) -> Result<()> {
    let mut paths: Vec<&Path> = vec![&system.own, &system.plugin, &system.drivers];
    paths.extend(tools.iter().map(PathBuf::as_path));
    system.refuse_unwritable(paths)?;
    match Record::read(system)? {
        Some(_) => Ok(()),
        None => plan(system, tools).map(|_| ()),
    }
}

/// Installs, or repairs or renews an installation. `check` looks at the plugin's file in its place.
pub fn install(
    system: &System,
    parcel: &Parcel,
    steps: &mut Steps,
    check: impl Fn(&Path) -> Result<()>,
) -> Result<Record> {
    let paths = parcel.paths();
    let known = match Record::read(system)? {
        Some(old) if (old.method, &old.plugin, &old.added) != (method(system), &place(system), &paths) => {
            // Of another release, before an upgrade, or of other files.
            undo(system, &old, steps)?;
            None
        }
        known => known,
    };
    let is_new = known.is_none();
    let record = match known {
        Some(record) => record,
        None => plan_for(system, parcel)?,
    };
    let mut change = || -> Result<()> {
        if is_new {
            steps.make_folder(&system.at(&system.own))?;
            record.write(system, steps)?;
        }
        apply(system, &record, parcel, steps)?;
        check(&system.at(&record.plugin))
    };
    let done = change();
    match done {
        Ok(()) => Ok(record),
        Err(error) if error.is::<Killed>() => Err(error),
        Err(error) => match undo(system, &record, steps) {
            Ok(()) => Err(error.context("not installed; everything is as before")),
            Err(second) => Err(anyhow!("{error:#}; and it cannot be undone: {second:#}")),
        },
    }
}

/// Undoes an installation; says whether there was one. What there is to undo is told by its record alone.
pub fn uninstall(site: &Site, steps: &mut Steps) -> Result<bool> {
    let record = Record::read(site)?;
    match &record {
        Some(record) => {
            let paths =
                [&record.plugin, &site.own].into_iter().chain(&record.driver_file).chain(&record.added);
            site.refuse_unwritable(paths.map(PathBuf::as_path))?;
            undo(site, record, steps)?;
        }
        // One that was interrupted at its very start or end.
        None => remove_own(site, steps)?,
    }
    Ok(record.is_some())
}

/// How it is done on this system.
fn method(system: &System) -> Method {
    if system.has_dpkg { Method::Diversion } else { Method::DriverFile }
}

/// Where the plugin goes.
pub fn place(system: &System) -> PathBuf {
    match method(system) {
        Method::Diversion => system.plugin.clone(),
        Method::DriverFile => system.own.join(system.plugin.file_name().unwrap_or_default()),
    }
}

/// Where the distribution's plugin then is.
pub fn replaced(system: &System) -> PathBuf {
    match method(system) {
        Method::Diversion => Diversion::kept_beside(&system.plugin),
        Method::DriverFile => system.plugin.clone(),
    }
}

/// [`plan`], for this plugin.
fn plan_for(system: &System, parcel: &Parcel) -> Result<Record> {
    let record = plan(system, &parcel.paths())?;
    let there = Content::of(&system.at(&record.plugin));
    ensure!(
        !there.is_ok_and(|there| there.bytes == parcel.plugin),
        "{} is this plugin already, put there by other means",
        record.plugin.display()
    );
    Ok(record)
}

/// What is to be changed on a system without an installation, or why it must not be.
fn plan(system: &System, tools: &[PathBuf]) -> Result<Record> {
    let files = system.driver_files()?;
    if let [(one, _), (other, _), ..] = &files[..] {
        bail!(
            "{} and {} both name an irdma provider, and libibverbs takes either: remove one",
            one.display(),
            other.display()
        );
    }
    let usual = system.drivers.join("irdma.driver");
    if files.is_empty() && is_there(&system.at(&usual)) {
        bail!("{} is there and names no irdma provider: somebody has turned it off", usual.display());
    }
    let method = method(system);
    for (file, text) in &files {
        let by_path = text.lines().any(|line| line.contains('/') && !line.trim_start().starts_with('#'));
        ensure!(
            !by_path,
            "{} names an irdma provider by its path: whoever wrote that is to remove it (it may be the package \
             irdma-provider)",
            file.display()
        );
    }
    let driver_file = match (method, files.first()) {
        (Method::Diversion, Some(_)) => None,
        (Method::DriverFile, Some((file, _))) => Some(file.clone()),
        (_, None) => Some(usual),
    };
    if let (Method::DriverFile, Some(file)) = (method, &driver_file) {
        let properties = system.at(file).symlink_metadata();
        ensure!(properties.map_or(true, |found| found.is_file()), "{} is not a plain file", file.display());
    }
    if method == Method::Diversion {
        let diversion = Diversion::of(system, &system.plugin);
        let (file, kept) = (diversion.file(), diversion.kept());
        ensure!(
            !diversion.is_registered()?,
            "{} is diverted already, by hand: `dpkg-divert --rename --remove` takes that back",
            system.plugin.display()
        );
        ensure!(!is_there(&kept), "{} is in the way", kept.display());
        let is_plain = file.symlink_metadata().is_ok_and(|properties| properties.is_file());
        ensure!(is_plain || !is_there(&file), "{} is not a plain file", file.display());
    }
    for file in tools {
        ensure!(!is_there(&system.at(file)), "{} is there already, put there by other means", file.display());
    }
    let plugins = system.plugin.parent().filter(|_| method == Method::Diversion);
    let wanted = [plugins, Some(&*system.drivers)].into_iter().flatten();
    let wanted = wanted.chain(tools.iter().filter_map(|file| file.parent()));
    Ok(Record {
        method,
        plugin: place(system),
        driver_file,
        had_driver_file: !files.is_empty(),
        added: tools.to_vec(),
        folders: missing(system, wanted),
    })
}

/// Which folders are to be made, so that these are there: outer ones first.
fn missing<'path>(site: &Site, folders: impl Iterator<Item = &'path Path>) -> Vec<PathBuf> {
    let mut missing = Vec::new();
    for folder in folders {
        let ancestors: Vec<&Path> = folder.ancestors().collect();
        for folder in ancestors.into_iter().rev() {
            if !site.behind(folder).is_dir() && !missing.iter().any(|known| known == folder) {
                missing.push(folder.to_owned());
            }
        }
    }
    missing
}

/// Makes every change that is not made yet.
fn apply(system: &System, record: &Record, parcel: &Parcel, steps: &mut Steps) -> Result<()> {
    for folder in &record.folders {
        steps.make_folder(&system.behind(folder))?;
    }
    for tool in parcel.tools {
        let file = system.at(&tool.path);
        steps.replace(&file, &draft_beside(&file), &tool.content)?;
    }
    let content = Content::new(parcel.plugin);
    let file = system.at(&record.plugin);
    if record.method == Method::Diversion {
        // By this copy ours is told from the distribution's; the older one is still in place.
        let next = Record::file(system, NEXT);
        if is_there(&next) && is_there(&file) && is_equal(&file, &next)? {
            // An attempt to renew it has come as far as that.
            steps.rename(&next, &Record::file(system, COPY))?;
        }
        steps.replace(&next, &draft_beside(&next), &content)?;
        divert(system, record, steps)?;
        steps.replace(&file, &draft_beside(&file), &content)?;
        steps.rename(&next, &Record::file(system, COPY))?;
    } else {
        steps.replace(&file, &draft_beside(&file), &content)?;
    }
    apply_driver_file(system, record, steps)?;
    remove_drafts(system, record, steps)
}

/// Copies of our plugin: of the one in place, and of the one that takes its place.
const COPY: &str = "copy";
const NEXT: &str = "copy.next";

/// The driver file as it was.
const SAVED: &str = "driver-file";

/// A copy of the distribution's plugin, as it was last under its own name: dpkg may put another under its other name
/// before an interrupted change goes on.
const THEIRS: &str = "distribution";

/// Keeps the distribution's plugin under its other name, where dpkg puts that of an upgrade. At no
/// point the system is without a plugin.
fn divert(site: &Site, record: &Record, steps: &mut Steps) -> Result<()> {
    let diversion = Diversion::of(site, &record.plugin);
    let (file, kept) = (diversion.file(), diversion.kept());
    let is_registered = diversion.is_registered()?;
    if is_there(&file) && !is_ours(site, &file)? {
        if is_there(&kept) && !is_same(&file, &kept)? {
            if is_registered {
                let is_replaced_next = is_theirs(site, &file)?;
                ensure!(
                    is_replaced_next,
                    "{} was changed by somebody since it was installed",
                    file.display()
                );
            } else {
                // Left by an attempt before dpkg has replaced the file.
                steps.remove(&kept)?;
            }
        }
        if !is_there(&kept) {
            keep_theirs(site, &file, steps)?;
            steps.link(&file, &kept)?;
        }
    }
    if !is_registered {
        diversion.register(steps)?;
    }
    Ok(())
}

fn apply_driver_file(site: &Site, record: &Record, steps: &mut Steps) -> Result<()> {
    let Some(name) = &record.driver_file else { return Ok(()) };
    let file = site.at(name);
    let saved = Record::file(site, SAVED);
    if record.had_driver_file && !is_there(&saved) {
        steps.replace(&saved, &draft_beside(&saved), &Content::of(&file)?)?;
    }
    let mut content = if record.had_driver_file { Content::of(&saved)? } else { Content::new("") };
    content.bytes = with_ours(record, &content.bytes);
    if Content::of(&file).is_ok_and(|there| there.bytes == content.bytes) {
        return Ok(());
    }
    steps.replace(&file, &driver_draft(site, name), &Content::new(content.bytes))
}

/// A driver file with our line. The last line is loaded first.
fn with_ours(record: &Record, text: &[u8]) -> Vec<u8> {
    let mut text = text.to_owned();
    if text.last().is_some_and(|&byte| byte != b'\n') {
        text.push(b'\n');
    }
    text.extend(our_line(record).into_bytes());
    text
}

fn our_line(record: &Record) -> String {
    match record.method {
        Method::Diversion => BY_NAME.to_owned(),
        Method::DriverFile => format!("driver {}\n", record.plugin.with_file_name("libirdma").display()),
    }
}

/// Not in the folder of driver files: libibverbs reads every file there.
fn driver_draft(site: &Site, driver_file: &Path) -> PathBuf {
    let folder = driver_file.parent().unwrap_or(driver_file);
    site.behind(folder).with_file_name(".irdma.driver.new")
}

/// Takes every change back that was made.
fn undo(site: &Site, record: &Record, steps: &mut Steps) -> Result<()> {
    // First, so that on a full disk there is room for what follows.
    for added in &record.added {
        steps.remove(&site.at(added))?;
    }
    undo_driver_file(site, record, steps)?;
    let file = site.at(&record.plugin);
    match record.method {
        Method::DriverFile => steps.remove(&file)?,
        Method::Diversion => undivert(site, record, steps)?,
    }
    remove_drafts(site, record, steps)?;
    for folder in record.folders.iter().rev() {
        steps.remove_empty_folder(&site.behind(folder))?;
    }
    remove_own(site, steps)
}

fn undivert(site: &Site, record: &Record, steps: &mut Steps) -> Result<()> {
    let diversion = Diversion::of(site, &record.plugin);
    let (file, kept) = (diversion.file(), diversion.kept());
    let is_registered = diversion.is_registered()?;
    if is_there(&kept) {
        if is_there(&file) && is_same(&file, &kept)? {
            steps.remove(&kept)?;
        } else if !is_there(&file) || is_ours(site, &file)? {
            keep_theirs(site, &kept, steps)?;
            steps.rename(&kept, &file)?;
        } else if !is_registered {
            // As in `divert`.
            steps.remove(&kept)?;
        } else if is_theirs(site, &file)? {
            steps.rename(&kept, &file)?;
        } else {
            bail!(
                "{} was changed by somebody since it was installed; the distribution's is {}",
                file.display(),
                kept.display()
            );
        }
    } else if is_there(&file) && is_ours(site, &file)? {
        // The distribution has none (any more).
        steps.remove(&file)?;
    }
    let library = record.plugin.parent().map(|folder| folder.with_file_name("libibverbs.so.1"));
    if let (Some(folder), Some(library)) = (record.plugin.parent(), library)
        && !is_there(&site.at(&library))
    {
        // Its folder of plugins has stayed for ours alone.
        steps.remove_empty_folder(&site.behind(folder))?;
    }
    if is_registered {
        diversion.remove(steps)?;
    }
    Ok(())
}

fn undo_driver_file(site: &Site, record: &Record, steps: &mut Steps) -> Result<()> {
    let Some(name) = &record.driver_file else { return Ok(()) };
    let (file, saved) = (site.at(name), Record::file(site, SAVED));
    let draft = driver_draft(site, name);
    // What somebody has removed stays away.
    if let Ok(there) = Content::of(&file) {
        if record.had_driver_file && is_there(&saved) {
            let before = Content::of(&saved)?;
            if there.bytes == with_ours(record, &before.bytes) {
                steps.replace(&file, &draft, &before)?;
            } else if there.bytes != before.bytes {
                // Somebody has changed it: our line goes, theirs stay.
                let text = String::from_utf8_lossy(&there.bytes).replace(&our_line(record), "");
                steps.replace(&file, &draft, &Content::new(text))?;
            }
        } else if !record.had_driver_file && there.bytes == with_ours(record, b"") {
            steps.remove(&file)?;
        }
    }
    if record.method == Method::DriverFile {
        remove_our_line(site, record, &draft, steps)?;
    }
    Ok(())
}

/// From whatever other driver file has it: rpm keeps a changed one under another name when it erases its package,
/// and libibverbs reads that too.
fn remove_our_line(site: &Site, record: &Record, draft: &Path, steps: &mut Steps) -> Result<()> {
    let folder = record.driver_file.as_ref().and_then(|file| file.parent());
    let Some(Ok(entries)) = folder.map(|folder| fs::read_dir(site.behind(folder))) else { return Ok(()) };
    let line = our_line(record);
    for entry in entries {
        let file = entry?.path();
        if !file.symlink_metadata()?.is_file() {
            continue;
        }
        let mut content = Content::of(&file)?;
        if let Ok(text) = str::from_utf8(&content.bytes)
            && text.contains(&line)
        {
            content.bytes = text.replace(&line, "").into();
            steps.replace(&file, draft, &content)?;
        }
    }
    Ok(())
}

/// Removes what an interrupted change was still writing.
fn remove_drafts(site: &Site, record: &Record, steps: &mut Steps) -> Result<()> {
    steps.remove(&draft_beside(&site.at(&record.plugin)))?;
    for added in &record.added {
        steps.remove(&draft_beside(&site.at(added)))?;
    }
    if let Some(name) = &record.driver_file {
        steps.remove(&driver_draft(site, name))?;
    }
    for name in [COPY, NEXT, SAVED, THEIRS, RECORD] {
        steps.remove(&draft_beside(&Record::file(site, name)))?;
    }
    Ok(())
}

/// Removes what the installation keeps for itself; the record last.
fn remove_own(site: &Site, steps: &mut Steps) -> Result<()> {
    for name in [COPY, NEXT, SAVED, THEIRS] {
        let file = Record::file(site, name);
        steps.remove(&draft_beside(&file))?;
        steps.remove(&file)?;
    }
    let record = Record::file(site, RECORD);
    steps.remove(&draft_beside(&record))?;
    steps.remove(&record)?;
    steps.remove_empty_folder(&site.at(&site.own))
}

/// Whether a file is our plugin, of this installation or of the one that it renews.
fn is_ours(site: &Site, file: &Path) -> Result<bool> {
    for name in [COPY, NEXT] {
        let copy = Record::file(site, name);
        if is_there(&copy) && is_equal(file, &copy)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Notes which plugin of the distribution's has its own name.
fn keep_theirs(site: &Site, file: &Path, steps: &mut Steps) -> Result<()> {
    let copy = Record::file(site, THEIRS);
    steps.replace(&copy, &draft_beside(&copy), &Content::of(file)?)
}

/// Whether a file is the distribution's plugin as it was then.
fn is_theirs(site: &Site, file: &Path) -> Result<bool> {
    let copy = Record::file(site, THEIRS);
    Ok(is_there(&copy) && is_equal(file, &copy)?)
}

/// Whether two files have the same bytes.
fn is_equal(one: &Path, other: &Path) -> Result<bool> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    Ok(read(one)? == read(other)?)
}

/// Whether two names are those of one file.
fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let properties = |path: &Path| path.symlink_metadata().with_context(|| path.display().to_string());
    let (one, other) = (properties(one)?, properties(other)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}
