//! Verbs programs: what no tool reaches, checked field by field.
//!
//! Run by `cargo xtask test`, once on this project's provider and once on the C
//! one (see `irdma_tests::runner`). One file per kind of behaviour; each ends
//! with the list of its programs, where known faults of the C provider are marked.

use std::process::ExitCode;

mod absent;
mod answers;
mod atomics;
mod batches;
mod brim;
mod builders;
mod concurrency;
mod creation;
mod datagrams;
mod decoding;
mod device;
mod domains;
mod errors;
mod events;
mod extended;
mod fences;
mod flush;
mod huge;
mod injected;
mod inline;
mod keys;
mod lifetime;
mod loading;
mod logging;
mod operations;
mod posting;
mod push;
mod regions;
mod removal;
mod resizing;
mod scarcity;
mod shared;
mod states;
mod timestamps;
mod windows;

fn main() -> ExitCode {
    irdma_tests::runner::main(&[
        operations::TESTS,
        fences::TESTS,
        huge::TESTS,
        inline::TESTS,
        datagrams::TESTS,
        errors::TESTS,
        flush::TESTS,
        posting::TESTS,
        push::TESTS,
        creation::TESTS,
        events::TESTS,
        regions::TESTS,
        windows::TESTS,
        removal::TESTS,
        keys::TESTS,
        resizing::TESTS,
        brim::TESTS,
        extended::TESTS,
        states::TESTS,
        builders::TESTS,
        batches::TESTS,
        domains::TESTS,
        device::TESTS,
        lifetime::TESTS,
        answers::TESTS,
        scarcity::TESTS,
        absent::TESTS,
        logging::TESTS,
        loading::TESTS,
        injected::TESTS,
        decoding::TESTS,
        concurrency::TESTS,
        shared::TESTS,
        atomics::TESTS,
        timestamps::TESTS,
    ])
}
