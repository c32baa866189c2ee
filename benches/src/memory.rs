//! What a verbs object takes of the program's memory.

use std::sync::Arc;

use irdma_tests::context::{Context, Pd};
use irdma_tests::cq::Cq;
use irdma_tests::device::{Device, feature};
use irdma_tests::srq::Srq;

use crate::bed;

/// Objects whose mean is taken.
const COUNT: usize = 256;

/// Requests of each queue, entries of each completion queue.
const DEPTH: u32 = 256;

/// Prints lines `NAME TAB BYTES` for each kind of object: of the heap, of mappings beside it, and both.
pub fn measure() {
    let pd = Pd::new(&Context::open());
    let cq = bed::queue(pd.context());
    of_each("completion queue of 256 entries", || Cq::new(pd.context(), DEPTH as i32));
    of_each("RC queue pair of 256 + 256 requests", || Arc::new(bed::small(&pd, &cq, DEPTH)));
    if Device::present().has(feature::SRQ) {
        of_each("shared receive queue of 256 requests", || Srq::new(&pd, DEPTH, 1));
    }
}

/// Of the objects that `make` makes, on top of those there are.
fn of_each<T>(name: &str, make: impl Fn() -> Arc<T>) {
    let mut made: Vec<Arc<T>> = Vec::with_capacity(2 * COUNT);
    // What the first ones bring into being for all is not theirs.
    made.extend((0..COUNT).map(|_| make()));
    let before = Usage::now();
    made.extend((0..COUNT).map(|_| make()));
    let after = Usage::now();
    // The owner of the object, with its two counts, is the program's.
    let owner = COUNT * (size_of::<T>() + 2 * size_of::<usize>() + size_of::<usize>()).next_multiple_of(16);
    let (heap, mapped) = ((after.heap - before.heap - owner) / COUNT, (after.mapped - before.mapped) / COUNT);
    for (part, bytes) in [("heap", heap), ("mapped", mapped), ("in all", heap + mapped)] {
        println!("{name}, {part}\t{bytes}");
    }
}

/// Memory of the program, in bytes.
#[derive(Clone, Copy)]
struct Usage {
    /// Handed out by the C library, with what it notes in front of each piece.
    heap: usize,
    /// Mapped otherwise.
    mapped: usize,
}

impl Usage {
    fn now() -> Usage {
        // SAFETY: has no preconditions.
        let heap = unsafe { libc::mallinfo2() };
        let sizes = std::fs::read_to_string("/proc/self/statm").expect("the kernel tells sizes");
        let pages: usize =
            sizes.split(' ').next().and_then(|word| word.parse().ok()).expect("a number of pages");
        Usage { heap: heap.uordblks + heap.hblkhd, mapped: pages * 4096 - heap.arena - heap.hblkhd }
    }
}
