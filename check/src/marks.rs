//! What a library says about itself, in its bytes.

use std::path::{Path, PathBuf};

/// The number of the private interface that it has or needs.
pub fn private_interface(bytes: &[u8]) -> Option<u32> {
    const START: &[u8] = b"IBVERBS_PRIVATE_";
    let at = find(bytes, START)? + START.len();
    let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).take(9);
    String::from_utf8(digits.copied().collect()).ok()?.parse().ok()
}

/// The note of this project's plugin (src/mark.rs): layout and version.
pub fn note(bytes: &[u8]) -> Option<(u32, String)> {
    const OWNER: &[u8] = b"irdma-provider\0\0";
    let content = &bytes[find(bytes, OWNER)? + OWNER.len()..];
    let (layout, version) = content.get(..20)?.split_at(4);
    let version = version.split(|&byte| byte == 0).next()?;
    let version = str::from_utf8(version).ok().filter(|text| !text.is_empty())?;
    Some((u32::from_le_bytes(layout.try_into().ok()?), crate::files::shown(version)))
}

/// Where a libibverbs looks for plugins and for driver files.
#[derive(Debug, PartialEq, Eq)]
pub struct Places {
    /// Folder of plugins.
    pub plugins: PathBuf,
    /// Folder of driver files.
    pub drivers: PathBuf,
}

/// The texts of libibverbs: the pattern of a plugin's path, and the folder of driver files.
pub fn places(bytes: &[u8]) -> Option<Places> {
    let texts = || bytes.split(|&byte| byte == 0).filter_map(|text| str::from_utf8(text).ok());
    let drivers = texts().find(|text| text.starts_with('/') && text.ends_with("/libibverbs.d"))?;
    let plugins = texts().find_map(|text| {
        let (folder, rest) = text.split_once("/lib%s-rdmav")?;
        (folder.starts_with('/') && rest.ends_with(".so")).then_some(folder)
    })?;
    Some(Places { plugins: Path::new(plugins).to_owned(), drivers: Path::new(drivers).to_owned() })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_names_its_interface() {
        assert_eq!(private_interface(b"\0IBVERBS_1.1\0IBVERBS_PRIVATE_59\0"), Some(59));
        for bytes in [&b""[..], b"IBVERBS_PRIVATE_", b"IBVERBS_PRIVATE_x", b"IBVERBS_1.1"] {
            assert_eq!(private_interface(bytes), None);
        }
        // More digits than a number has.
        assert_eq!(private_interface(b"IBVERBS_PRIVATE_99999999999999999999"), Some(999_999_999));
    }

    #[test]
    fn our_plugin_has_a_note_and_others_have_none() {
        let whole = b"\x7fELF...irdma-provider\0\0\x22\0\0\x000.1.0\0\0\0\0\0\0\0\0\0\0\0...";
        assert_eq!(note(whole), Some((34, "0.1.0".to_owned())));
        for length in 0..whole.len() - 3 {
            assert_eq!(note(&whole[..length]), None, "{length}");
        }
        assert_eq!(note(b"irdma-provider\0\0\x22\0\0\0\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), None);
    }

    #[test]
    fn places_are_whole_paths() {
        let library = b"x\0/etc/libibverbs.d\0%s\0/usr/lib64/libibverbs/lib%s-rdmav59.so\0lib%s-rdmav59.so\0";
        let known = Places { plugins: "/usr/lib64/libibverbs".into(), drivers: "/etc/libibverbs.d".into() };
        assert_eq!(places(library), Some(known));
        assert_eq!(places(b"/etc/libibverbs.d\0lib%s-rdmav59.so\0"), None);
        assert_eq!(places(b"/usr/lib64/libibverbs/lib%s-rdmav59.so\0"), None);
    }
}
