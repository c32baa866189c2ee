//! What leaves the builder's machine: stripped, and with nothing in it that tells that machine from another.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace::{read, root};

/// Writes `built` without what programs do not need to `fresh`: the same bytes for the same sources, in whatever folder
/// they lie.
pub fn strip(built: &Path, fresh: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    strip.args(["--strip-unneeded", "--remove-section=.comment", "-o"]);
    read(strip.arg(fresh).arg(built))?;
    let headers = |file: &Path| read(Command::new("readelf").args(["--wide", "--segments"]).arg(file));
    let (before, after) = (headers(built)?, headers(fresh)?);
    // A sum over debug information, which names folders.
    ensure!(!after.contains("build-id"), "{} is linked with an identity of its build", built.display());
    // What strip leaves out may take that along, without a word.
    let is_kept = !before.contains("GNU_RELRO") || after.contains("GNU_RELRO");
    ensure!(is_kept, "stripped, {} can be written to where it could not before", built.display());
    let bytes = std::fs::read(fresh).with_context(|| fresh.display().to_string())?;
    for folder in [root().to_owned(), cargo_home()] {
        let text = folder.to_string_lossy().into_owned();
        ensure!(!has(&bytes, text.as_bytes()), "{} names {text}, where it was built", built.display());
    }
    Ok(())
}

fn has(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

/// Where cargo keeps the sources of crates.
fn cargo_home() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cargo");
    std::env::var_os("CARGO_HOME").map_or_else(home, PathBuf::from)
}

/// Flags by which the compiler names sources of crates as if they lay at one place, and the linker writes no identity
/// of the build; after what the user wishes.
pub fn flags() -> OsString {
    let mut flags = std::env::var_os("RUSTFLAGS").unwrap_or_default();
    flags.push(" --remap-path-prefix=");
    flags.push(cargo_home());
    flags.push("=/cargo -Clink-arg=-Wl,--build-id=none");
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_differs_with_the_folder_of_its_sources_is_not_shipped() {
        let folder = std::env::temp_dir().join(format!("irdma-shipped-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, built) = (folder.join("a.c"), folder.join("a.so"));
        let stripped = |text: &str, identity: &str| {
            std::fs::write(&source, format!("const char text[] = \"{text}\";\n")).unwrap();
            let mut gcc = Command::new("gcc");
            read(gcc.args(["-g", "-shared", "-nostdlib", identity, "-o"]).arg(&built).arg(&source)).unwrap();
            strip(&built, &folder.join("stripped.so")).map_err(|error| error.to_string())
        };
        let none = "-Wl,--build-id=none";
        stripped("a text", none).unwrap();
        let reason = stripped(&format!("{}/src/lib.rs", root().display()), none).unwrap_err();
        assert!(reason.contains("where it was built"), "{reason}");
        let reason = stripped("a text", "-Wl,--build-id").unwrap_err();
        assert!(reason.contains("identity"), "{reason}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
