//! Which layout of libibverbs' private interface a release has.

#[allow(dead_code, reason = "the bindings use more of the table")]
mod table {
    include!("../../rdma-core-sys/layouts.rs");
}

/// The number of the layout of an rdma-core release, if it is known.
pub fn of_release(release: u32) -> Option<u32> {
    let row = table::LAYOUTS.iter().find(|row| (row.first..=row.last).contains(&release))?;
    Some(row.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_the_layout_that_the_plugin_is_built_for() {
        assert_eq!(of_release(44), Some(34));
        assert_eq!(of_release(61), Some(59));
        assert_eq!(of_release(63), Some(62));
        assert_eq!(of_release(9), None);
        assert_eq!(of_release(999), None);
    }
}
