//! The guest's disk: a file system with the unpacked packages.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, anyhow};

use super::packages::Set;
use crate::workspace::{read, target};

/// Room for files, without those that no pin takes: the image has holes.
const SIZE: &str = "2G";

/// The image, made first if it is not here or its packages have changed.
pub fn image() -> Result<PathBuf> {
    let tree = Set::Guest.unpacked()?;
    let folder = target().join("vm");
    fs::create_dir_all(&folder)?;
    let (image, stamp) = (folder.join("guest.ext4"), folder.join("guest.pinned"));
    let pins = fs::read_to_string(super::packages::stamp(&tree))?;
    if image.exists() && fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == pins) {
        return Ok(image);
    }
    println!("Making the guest's disk");
    let partial = folder.join("guest.partial");
    let _ = fs::remove_file(&partial);
    let mut make = Command::new("/usr/sbin/mke2fs");
    // Read only in the guest: nothing to put a journal to.
    make.args(["-q", "-t", "ext4", "-O", "^has_journal", "-d"]).arg(&tree).arg(&partial).arg(SIZE);
    read(&mut make).map_err(|error| anyhow!("{error:#}\nmke2fs is in the package e2fsprogs"))?;
    fs::rename(&partial, &image)?;
    fs::write(&stamp, pins)?;
    Ok(image)
}
