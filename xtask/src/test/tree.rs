//! The files of the source tree, without what is built.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::workspace::{root, target};

/// The paths of files whose names end like that, in order.
pub fn files(ending: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    collect(root(), ending, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, ending: &str, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type()?.is_dir() {
            let is_built = path == target() || path.join("CACHEDIR.TAG").exists();
            if name != ".git" && !is_built {
                collect(&path, ending, found)?;
            }
        } else if name.to_string_lossy().ends_with(ending) {
            found.push(path.strip_prefix(root())?.display().to_string());
        }
    }
    Ok(())
}
