//! Stores to doorbells.

use std::arch::asm;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Argument, Bar, errno, open_node, verbs};

#[test]
#[ignore = "run by the tests in program"]
fn stores() {
    let bar = Bar::open();
    let base = bar.address;
    let bytes: [u8; 16] = std::array::from_fn(|index| index as u8 + 1);
    // SAFETY: all stores go to mapped pages and are caught; the exchange gives zero back.
    unsafe {
        asm!("mov dword ptr [{0}], {1:e}", in(reg) base, in(reg) 0x1122_3344);
        asm!("mov dword ptr [{0} + 64], 7", in(reg) base);
        asm!("mov qword ptr [{0} + {2} * 8 + 4096], {1}", in(reg) base, in(reg) 0x1122_3344_5566_7788_u64, in(reg) 1_u64);
        asm!("mov word ptr [{0} + 2], {1:x}", in(reg) base, in(reg) 0x5566);
        asm!("mov byte ptr [{0} + 3], {1}", in(reg) base, in(reg_byte) 0x77_u8);
        let mut exchanged = 0x99_u32;
        asm!("xchg dword ptr [{0}], {1:e}", in(reg) base, inout(reg) exchanged);
        assert_eq!(exchanged, 0);
        asm!("movups {1}, xmmword ptr [{2}]", "movups xmmword ptr [{0} + 16], {1}", in(reg) base, out(xmm_reg) _, in(reg) bytes.as_ptr());
        // Loads read zero and do not loop.
        let mut loaded = u64::MAX;
        asm!("mov {1:e}, dword ptr [{0}]", in(reg) base, inout(reg) loaded);
        assert_eq!(loaded, 0);
        asm!("movzx {1:e}, byte ptr [{0} + 5]", in(reg) base, inout(reg) loaded);
        assert_eq!(loaded, 0);
    }
}

#[test]
#[ignore = "run by the tests in program"]
fn threads() {
    let bar = Bar::open();
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    bar.ring(next.fetch_add(1, Ordering::Relaxed) as u32);
                }
            });
        }
    });
}

#[test]
#[ignore = "run by the tests in program"]
fn fork() {
    let bar = Bar::open();
    bar.ring(1);
    // SAFETY: the child makes system calls and stores only.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            bar.ring(2);
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
    }
    bar.ring(3);
}

#[test]
#[ignore = "run by the tests in program"]
fn closes_all() {
    let bar = Bar::open();
    bar.ring(1);
    for descriptor in 3..1024 {
        if descriptor != bar.node.as_raw_fd() {
            // SAFETY: no pointers; this program needs none of them.
            unsafe { libc::close(descriptor) };
        }
    }
    // Other files get the numbers now.
    // SAFETY: no pointers.
    let _fill: Vec<RawFd> = (0..600).map(|_| unsafe { libc::dup(0) }).collect();
    bar.ring(2);
}

#[test]
#[ignore = "run by the tests in program"]
fn removed() {
    let bar = Bar::open();
    let loaded_before = std::time::Instant::now();
    for value in 0..100 {
        bar.ring(value);
    }
    assert!(loaded_before.elapsed() < std::time::Duration::from_secs(2));
    assert_eq!(errno(verbs(bar.node.as_raw_fd(), &mut Argument(1, 0))), libc::EIO);
    let again = open_node();
    assert_eq!(errno(verbs(again.as_raw_fd(), &mut Argument(1, 0))), libc::EIO);
}
