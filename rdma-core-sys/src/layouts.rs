//! Which layout this build is of, and whether the loaded library is of it too.

use core::ffi::{CStr, c_void};
use core::mem::offset_of;

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
    matches(&LAYOUT, exports)
}

/// The version of the private functions of this build's layout, which has two digits.
const PRIVATE_VERSION: &CStr = {
    const PREFIX: &[u8; 16] = b"IBVERBS_PRIVATE_";
    const BYTES: [u8; PREFIX.len() + 3] = {
        assert!(LAYOUT.pabi >= 10 && LAYOUT.pabi < 100);
        let mut bytes = [0; PREFIX.len() + 3];
        bytes.first_chunk_mut::<{ PREFIX.len() }>().unwrap().copy_from_slice(PREFIX);
        bytes[PREFIX.len()] = b'0' + (LAYOUT.pabi / 10) as u8;
        bytes[PREFIX.len() + 1] = b'0' + (LAYOUT.pabi % 10) as u8;
        bytes
    };
    match CStr::from_bytes_with_nul(&BYTES) {
        Ok(version) => version,
        Err(_) => panic!("a C string"),
    }
};

/// The rule behind [`loaded_library_matches`].
fn matches(layout: &Layout, exports: impl Fn(&CStr) -> bool) -> bool {
    exports(layout.has) && !layout.lacks.is_some_and(&exports)
}

/// Whether the loaded libibverbs exports the private function `name`.
fn exports(name: &CStr) -> bool {
    // SAFETY: two C strings; the default handle searches the libraries that ours depends on.
    let address: *mut c_void =
        unsafe { libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), PRIVATE_VERSION.as_ptr()) };
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
        let in_older = |name: &CStr| name == c"ibv_cmd_reg_mr_ex";
        let in_newer = |name: &CStr| in_older(name) || name == c"ibv_cmd_query_port_speed";
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
