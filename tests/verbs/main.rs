//! Verbs programs: what no tool reaches, checked field by field.
//!
//! Run by `cargo xtask test`, once on this project's provider and once on the C
//! one (see `irdma_tests::runner`). One file per kind of behaviour; each ends
//! with the list of its programs, where known faults of the C provider are marked.

use std::process::ExitCode;

mod creation;
mod datagrams;
mod errors;
mod events;
mod flush;
mod operations;
mod posting;

fn main() -> ExitCode {
    irdma_tests::runner::main(&[
        operations::TESTS,
        datagrams::TESTS,
        errors::TESTS,
        flush::TESTS,
        posting::TESTS,
        creation::TESTS,
        events::TESTS,
    ])
}
