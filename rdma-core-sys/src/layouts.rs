//! Which layout this build is of, and whether the loaded library is of it too.

use core::ffi::c_void;
use core::mem::offset_of;
use std::ffi::CString;

use crate::bindings::{verbs_context, verbs_context_ops};

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

// The headers that were found are those of the release that pkg-config names.
const _: () = assert!(size_of::<verbs_context_ops>() == LAYOUT.operations);
const _: () = assert!(offset_of!(verbs_context, context) == LAYOUT.context);

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
        let [older, newer] = [59, 62].map(|number| LAYOUTS.iter().find(|row| row.number == number).unwrap());
        assert_eq!(older.pabi, newer.pabi);
        let in_older = |name: &str| name == "ibv_cmd_reg_mr_ex";
        let in_newer = |name: &str| in_older(name) || name == "ibv_cmd_query_port_speed";
        assert!(matches(older, in_older) && !matches(older, in_newer));
        assert!(matches(newer, in_newer) && !matches(newer, in_older));
        assert!(!matches(older, |_| false) && !matches(newer, |_| false));
    }

    #[test]
    fn layouts_are_in_order_without_gaps() {
        for pair in LAYOUTS.windows(2) {
            assert!(pair[0].last + 1 == pair[1].first && pair[0].number < pair[1].number);
        }
    }
}
