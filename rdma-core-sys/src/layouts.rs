//! Which layout this build is of, and whether the loaded library is of it too.

use core::ffi::c_void;
use std::ffi::CString;

include!("../layouts.rs");

/// The layout of this build.
pub const LAYOUT: Layout = {
    let number = number(env!("IRDMA_LAYOUT").as_bytes());
    let mut row = 0;
    while LAYOUTS[row].number != number {
        row += 1;
    }
    LAYOUTS[row]
};

/// The decimal number that `digits` spell.
const fn number(digits: &[u8]) -> u32 {
    let (mut value, mut at) = (0, 0);
    while at < digits.len() {
        value = value * 10 + (digits[at] - b'0') as u32;
        at += 1;
    }
    value
}

/// Whether the libibverbs in this process is of the layout of this build.
///
/// The dynamic loader has already refused one without `IBVERBS_PRIVATE_*` of the
/// right number; this tells apart layouts that share the number.
pub fn loaded_library_matches() -> bool {
    matches(&LAYOUT, |name| exports(&LAYOUT, name))
}

/// The rule behind [`loaded_library_matches`].
fn matches(layout: &Layout, exports: impl Fn(&str) -> bool) -> bool {
    exports(layout.has) && !layout.lacks.is_some_and(&exports)
}

/// Whether the loaded libibverbs exports the private function `name`.
fn exports(layout: &Layout, name: &str) -> bool {
    let version = CString::new(format!("IBVERBS_PRIVATE_{}", layout.pabi));
    let (Ok(name), Ok(version)) = (CString::new(name), version) else {
        return false;
    };
    // SAFETY: two C strings; the default handle searches the libraries that ours depends on.
    let address: *mut c_void = unsafe { libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), version.as_ptr()) };
    !address.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_this_was_linked_to_matches() {
        assert!(loaded_library_matches());
    }

    #[test]
    fn a_layout_is_told_from_another_with_the_same_version() {
        let layout = Layout { number: 59, pabi: 59, first: 59, last: 61, has: "old", lacks: Some("new") };
        assert!(matches(&layout, |name| name == "old"));
        assert!(!matches(&layout, |_| true));
        assert!(!matches(&layout, |_| false));
    }

    #[test]
    fn layouts_are_in_order_and_apart() {
        for pair in LAYOUTS.windows(2) {
            assert!(pair[0].last < pair[1].first && pair[0].number < pair[1].number);
        }
    }
}
