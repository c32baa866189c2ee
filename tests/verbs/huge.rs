//! Rings on huge pages, where the environment asks for them.

use std::fs;

use irdma_tests::context::Context;
use irdma_tests::cq::Cq;
use irdma_tests::fixtures::Pair;
use irdma_tests::log::Log;
use irdma_tests::runner::{Test, skip};
use irdma_tests::test;

/// How many huge pages the system keeps ready.
const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

/// Kilobytes of huge pages mapped in this process.
fn mapped() -> u64 {
    let text = fs::read_to_string("/proc/self/smaps").expect("/proc is mounted");
    let mut size = 0;
    let mut sum = 0;
    for line in text.lines() {
        let number = || line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0u64);
        if line.starts_with("Size:") {
            size = number();
        }
        if line.starts_with("KernelPageSize:") && number() >= 2048 {
            sum += size;
        }
    }
    sum
}

fn ask_for_huge_pages() {
    // SAFETY: the program has one thread yet.
    unsafe { std::env::set_var("IRDMA_HUGE_PAGES", "1") };
}

/// Huge pages of the system, put back at the end.
struct Reserved(String);

impl Reserved {
    fn at_least(count: u32) -> Reserved {
        let before = fs::read_to_string(RESERVED).unwrap_or_default();
        let free = || {
            let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("HugePages_Free:")).unwrap_or_default();
            line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0u32)
        };
        let reserved = Reserved(before);
        if fs::write(RESERVED, count.to_string()).is_err() || free() < count {
            drop(reserved);
            skip("the system gives no huge pages");
        }
        reserved
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // As far as possible.
        let _ = fs::write(RESERVED, &self.0);
    }
}

fn rings_are_on_huge_pages_if_there_are_any() {
    let _reserved = Reserved::at_least(16);
    ask_for_huge_pages();
    let pair = Pair::new();
    assert!(mapped() > 0, "nothing is on huge pages");
    let before = mapped();
    let cq = Cq::new(pair.left.context(), 5000);
    assert_eq!(mapped(), before + 2048);
    drop(cq);
    assert_eq!(mapped(), before);
    pair.check_alive();
    drop(pair);
    assert_eq!(mapped(), 0);
}

fn small_pages_will_do() {
    if fs::read_to_string(RESERVED).is_ok_and(|count| count.trim() != "0") {
        skip("the system keeps huge pages ready");
    }
    ask_for_huge_pages();
    let log = Log::of_standard_error("4");
    let context = Context::open();
    log.expect(&["bytes of a queue", "not on huge pages"], || Cq::new(&context, 5000));
    assert_eq!(mapped(), 0);
    Pair::new().check_alive();
}

fn without_the_switch_nothing_is_on_huge_pages() {
    let _reserved = Reserved::at_least(16);
    let pair = Pair::new();
    assert_eq!(mapped(), 0);
    pair.check_alive();
}

/// The programs of this file. What the system keeps ready is everybody's.
pub const TESTS: &[Test] = &[
    test!(rings_are_on_huge_pages_if_there_are_any).alone().fails_on_c("has no such switch"),
    test!(small_pages_will_do).alone().fails_on_c("has no such switch"),
    test!(without_the_switch_nothing_is_on_huge_pages).alone(),
];
