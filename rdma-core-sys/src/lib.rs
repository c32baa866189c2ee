//! Bindings of libibverbs, public and private, and irdma's uverbs driver data.
//!
//! Programs need [`bindings`] (the public functions and types) and [`inline`];
//! the provider needs all of it. Everything is of one [`LAYOUT`], chosen at build
//! time by the release of libibverbs that was built against: this machine's, as
//! pkg-config finds it, or that of the distribution unpacked at
//! `$IRDMA_RDMA_CORE_ROOT`.

mod layouts;

pub mod calls;
pub mod driver_data;
pub mod inline;
pub mod queue_pair;

/// Generated from `<infiniband/verbs.h>` and include/provider.h, in C's names.
#[allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]
#[allow(unsafe_op_in_unsafe_fn, unnecessary_transmutes)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
pub mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use layouts::{LAYOUT, Layout, loaded_library_matches};
