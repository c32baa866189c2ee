//! What the programs under test do. Run by the tests in `program`, not by hand.

use std::arch::asm;
use std::ffi::{CStr, c_char, c_long};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use irdma_sim_protocol::VERBS_IOCTL;

/// Argument of an ioctl: what is wanted, and room for a descriptor's number.
#[repr(C)]
struct Argument(u32, i32);

fn verbs(descriptor: RawFd, argument: &mut Argument) -> io::Result<()> {
    // SAFETY: the argument is ours.
    match unsafe { libc::ioctl(descriptor, VERBS_IOCTL, std::ptr::from_mut(argument)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn errno(result: io::Result<()>) -> i32 {
    result.expect_err("a failure").raw_os_error().unwrap()
}

fn open_node() -> File {
    File::options().read(true).write(true).open("/dev/infiniband/uverbs0").unwrap()
}

/// An opened node and two of its pages.
struct Bar {
    node: File,
    address: u64,
}

impl Bar {
    fn open() -> Bar {
        let node = open_node();
        // Any ioctl does; this one is refused.
        assert_eq!(errno(verbs(node.as_raw_fd(), &mut Argument(libc::ENOSPC as u32, 0))), libc::ENOSPC);
        let address = map(&node);
        Bar { node, address }
    }

    fn word(&self) -> *mut u32 {
        self.address as *mut u32
    }

    /// The ordinary doorbell.
    fn ring(&self, value: u32) {
        // SAFETY: the page is mapped; the store is caught.
        unsafe { self.word().write_volatile(value) };
    }
}

fn map(node: &File) -> u64 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), 8192, protection, libc::MAP_SHARED, node.as_raw_fd(), 0) };
    assert_ne!(address, libc::MAP_FAILED);
    address as u64
}

#[test]
#[ignore = "run by the tests in program"]
fn node() {
    let file = open_node();
    assert!(file.metadata().unwrap().file_type().is_char_device());
    let descriptor = file.as_raw_fd();
    assert_eq!(errno(verbs(descriptor, &mut Argument(libc::ENOSPC as u32, 0))), libc::ENOSPC);
    // A BAR now, though fstat still says what libibverbs wants to hear.
    // SAFETY: all-zero is a valid value of this plain struct; fstat fills it.
    let status = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        assert_eq!(libc::fstat(descriptor, &mut status), 0);
        status
    };
    assert_eq!((status.st_mode & libc::S_IFMT, status.st_rdev), (libc::S_IFCHR, libc::makedev(1, 3)));
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap();
    assert!(link.to_string_lossy().contains("memfd:bar"), "{link:?}");
    // Close-on-exec as before the exchange.
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) }, libc::FD_CLOEXEC);
    // A duplicate is the same node.
    let twin = file.try_clone().unwrap();
    assert_eq!(errno(verbs(twin.as_raw_fd(), &mut Argument(libc::EBUSY as u32, 0))), libc::EBUSY);
    // Other files are nobody's.
    let other = File::open("/dev/zero").unwrap();
    assert_eq!(errno(verbs(other.as_raw_fd(), &mut Argument(0, 0))), libc::ENOTTY);
    assert_eq!(errno(verbs(-1, &mut Argument(0, 0))), libc::EBADF);
}

/// What `write` gives: a number of bytes or an errno.
fn write(descriptor: RawFd, bytes: &[u8]) -> Result<isize, i32> {
    // SAFETY: the bytes are readable for their length.
    match unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) } {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap()),
        taken => Ok(taken),
    }
}

fn flags(descriptor: RawFd, which: libc::c_int) -> libc::c_int {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(descriptor, which) }
}

fn open_manager(flags: libc::c_int) -> File {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(flags).open("/dev/infiniband/rdma_cm").unwrap()
}

const EVENT_NEVER: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];
const EVENT_SOON: [u8; 8] = [2, 0, 0, 0, 0, 0, 0, 0];
const COMMAND: [u8; 8] = [3, 0, 0, 0, 0, 0, 0, 0];

#[test]
#[ignore = "run by the tests in program"]
fn manager() {
    let node = open_manager(libc::O_NONBLOCK);
    let descriptor = node.as_raw_fd();
    assert_eq!(flags(descriptor, libc::F_GETFL) & libc::O_NONBLOCK, libc::O_NONBLOCK);
    assert_eq!(flags(descriptor, libc::F_GETFD), libc::FD_CLOEXEC);
    assert_eq!(write(descriptor, &[22, 0, 0, 0]), Err(libc::EINVAL));
    assert_eq!(write(descriptor, &EVENT_NEVER), Err(libc::EAGAIN));
    let ready = |descriptor| {
        let mut watched = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry; it does not wait.
        unsafe { libc::poll(&mut watched, 1, 0) == 1 }
    };
    assert!(!ready(descriptor));
    assert_eq!(write(descriptor, &COMMAND), Ok(8));
    assert!(ready(descriptor));
    // A duplicate is the same node, which waits or does not wait with it.
    let twin = node.try_clone().unwrap();
    assert_eq!(write(twin.as_raw_fd(), &COMMAND), Ok(8));

    let waiting = open_manager(0);
    assert_eq!(flags(waiting.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK, 0);
    let start = std::time::Instant::now();
    assert_eq!(write(waiting.as_raw_fd(), &EVENT_SOON), Ok(8));
    assert!(start.elapsed() >= std::time::Duration::from_millis(90));

    // What is not the node's is the system's.
    let (reader, writer) = io::pipe().unwrap();
    assert_eq!(write(reader.as_raw_fd(), &COMMAND), Err(libc::EBADF));
    assert_eq!(write(writer.as_raw_fd(), &COMMAND), Ok(8));
    assert_eq!(write(-1, &COMMAND), Err(libc::EBADF));
}

// SAFETY: the signature is that of POSIX.
unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> libc::c_int;
}

/// Waits for an event that never comes. May be unwound, so it owns nothing.
extern "C-unwind" fn wait_for_ever(node: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the bytes are readable for their length.
    unsafe { write_unwinding(node as usize as RawFd, EVENT_NEVER.as_ptr().cast(), EVENT_NEVER.len()) };
    std::ptr::null_mut()
}

// SAFETY: the signature is that of POSIX; a cancelled thread unwinds through it.
unsafe extern "C-unwind" {
    #[link_name = "write"]
    fn write_unwinding(descriptor: RawFd, bytes: *const libc::c_void, length: usize) -> isize;
}

#[test]
#[ignore = "run by the tests in program"]
fn cancelled() {
    let node = open_manager(0);
    type Start = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;
    type Unwinding = extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void;
    // SAFETY: the same convention, but for being unwound, which C's threads allow.
    let start = unsafe { std::mem::transmute::<Unwinding, Start>(wait_for_ever) };
    // SAFETY: the thread is joined below, and the node outlives it.
    unsafe {
        let mut thread: libc::pthread_t = std::mem::zeroed();
        let argument = node.as_raw_fd() as usize as *mut libc::c_void;
        assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), start, argument), 0);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(pthread_cancel(thread), 0);
        let mut ended = std::ptr::null_mut();
        assert_eq!(libc::pthread_join(thread, &mut ended), 0);
        // PTHREAD_CANCELED.
        assert_eq!(ended as isize, -1);
    }
}

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

/// Faults that the program's handler has seen.
static SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(signal: libc::c_int, status: *mut libc::siginfo_t, context: *mut libc::c_void) {
    assert_eq!(signal, libc::SIGBUS);
    SEEN.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel's own structs; a fault is ended by skipping the two-byte store at it.
    unsafe {
        if (*status).si_code > 0 {
            (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] += 2;
        }
    }
}

extern "C" fn count_plain(_: libc::c_int) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

fn action(handler: usize, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    action
}

fn store_at(address: u64) {
    // SAFETY: a two-byte store that the handler skips.
    unsafe { asm!("mov dword ptr [rax], ecx", in("rax") address, in("ecx") 5) };
}

#[test]
#[ignore = "run by the tests in program"]
fn foreign() {
    // A handler from before the first doorbell, and one from after it.
    let before = action(count_plain as *const () as usize, libc::SA_RESTART);
    // SAFETY: handlers that only count.
    unsafe { assert_eq!(libc::sigaction(libc::SIGBUS, &before, std::ptr::null_mut()), 0) };
    let bar = Bar::open();
    bar.ring(1);
    // SAFETY: no pointers.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);

    let after = action(count as *const () as usize, libc::SA_SIGINFO);
    let mut old = action(0, 0);
    // SAFETY: as above.
    unsafe { assert_eq!(libc::sigaction(libc::SIGBUS, &after, &mut old), 0) };
    assert_eq!((old.sa_sigaction, old.sa_flags & libc::SA_RESTART), (before.sa_sigaction, libc::SA_RESTART));
    bar.ring(2);
    // A file without a byte that is none of ours.
    let file = std::env::temp_dir().join(format!("irdma-foreign-{}", std::process::id()));
    let foreign = File::options().create(true).truncate(true).read(true).write(true).open(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    store_at(map(&foreign));
    assert_eq!(SEEN.load(Ordering::Relaxed), 2);
    // SAFETY: as above.
    unsafe {
        // One shot, then ignored, and what was set is what is reported.
        let once = action(count_plain as *const () as usize, libc::SA_RESETHAND);
        libc::sigaction(libc::SIGBUS, &once, std::ptr::null_mut());
        libc::raise(libc::SIGBUS);
        assert_eq!(SEEN.load(Ordering::Relaxed), 3);
        assert_eq!(libc::signal(libc::SIGBUS, libc::SIG_IGN), libc::SIG_DFL);
        libc::raise(libc::SIGBUS);
        libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut old);
    }
    assert_eq!(old.sa_sigaction, libc::SIG_IGN);
    bar.ring(3);
    assert_eq!(SEEN.load(Ordering::Relaxed), 3);
}

#[test]
#[ignore = "run by the tests in program"]
fn fault_without_handler() {
    restore_default();
    let _bar = Bar::open();
    let file = std::env::temp_dir().join(format!("irdma-fault-{}", std::process::id()));
    let foreign = File::options().create(true).truncate(true).read(true).write(true).open(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    store_at(map(&foreign));
}

#[test]
#[ignore = "run by the tests in program"]
fn sent_without_handler() {
    restore_default();
    let _bar = Bar::open();
    // SAFETY: no pointers.
    unsafe { libc::raise(libc::SIGBUS) };
}

#[test]
#[ignore = "run by the tests in program"]
fn unknown_instruction() {
    restore_default();
    let bar = Bar::open();
    // SAFETY: reads and writes a mapped page, which is not supported there.
    unsafe { asm!("add dword ptr [{0}], 1", in(reg) bar.address) };
}

/// Rust's runtime has a handler for stack overflows.
fn restore_default() {
    // SAFETY: not a function.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

#[test]
#[ignore = "run by the tests in program"]
fn masks() {
    let bar = Bar::open();
    // SAFETY: sets and masks of ours; the handler rings a mapped page.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        assert_eq!(libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut()), 0);
        bar.ring(1);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut()), 0);
        bar.ring(2);
        assert_eq!(libc::pthread_sigmask(99, &all, std::ptr::null_mut()), libc::EINVAL);
        let mut now: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut now);
        assert_eq!((libc::sigismember(&now, libc::SIGBUS), libc::sigismember(&now, libc::SIGUSR1)), (0, 1));
        libc::sigprocmask(libc::SIG_UNBLOCK, &all, std::ptr::null_mut());

        // A handler that blocks everything may ring as well.
        ADDRESS.store(bar.address, Ordering::Relaxed);
        let mut ringing = action(ring_in_handler as *const () as usize, 0);
        ringing.sa_mask = all;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &ringing, std::ptr::null_mut()), 0);
        libc::raise(libc::SIGUSR1);
    }
    bar.ring(4);
    drop(bar.node);
}

/// The page for `ring_in_handler`.
static ADDRESS: AtomicU64 = AtomicU64::new(0);

extern "C" fn ring_in_handler(_: libc::c_int) {
    // SAFETY: the page is mapped; the store is caught.
    unsafe { (ADDRESS.load(Ordering::Relaxed) as *mut u32).write_volatile(3) };
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
fn errors() {
    let bar = Bar::open();
    let node = bar.node.as_raw_fd();
    let mut argument = Argument(1, -1);
    verbs(node, &mut argument).unwrap();
    let link = std::fs::read_link(format!("/proc/self/fd/{}", argument.1)).unwrap();
    assert_eq!(link.to_str(), Some("/dev/zero"));
    let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert_eq!(errno(verbs(node, &mut Argument(2, 0))), libc::EFAULT);
    assert_eq!(std::fs::read_dir("/proc/self/fd").unwrap().count(), before);
    // RDMA netlink is not there, other netlink is.
    // SAFETY: no pointers.
    unsafe {
        assert_eq!(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 20), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EPROTONOSUPPORT));
        assert!(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 0) >= 0);
    }
    // A doorbell leaves errno alone.
    // SAFETY: the C library's thread-local.
    unsafe { *libc::__errno_location() = 77 };
    bar.ring(1);
    assert_eq!(io::Error::last_os_error().raw_os_error(), Some(77));
}

#[test]
#[ignore = "run by the tests in program"]
fn harness() {
    type Step = extern "C" fn() -> c_long;
    type Control = unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> c_long;
    let find = |name: &CStr| {
        // SAFETY: the name is terminated.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        assert!(!address.is_null());
        address
    };
    // SAFETY: the library exports them with these signatures.
    let (step, control): (Step, Control) = unsafe {
        (
            std::mem::transmute::<*mut libc::c_void, Step>(find(c"irdma_sim_step")),
            std::mem::transmute::<*mut libc::c_void, Control>(find(c"irdma_sim_control")),
        )
    };
    assert_eq!(step(), 42);
    let mut reply = [1_u8; 64];
    // SAFETY: a terminated text and a buffer of that length.
    let mut say = |text: &CStr, length| unsafe {
        let result = control(text.as_ptr(), reply.as_mut_ptr().cast(), length);
        (result, CStr::from_bytes_until_nul(&reply).unwrap().to_str().unwrap().to_owned())
    };
    assert_eq!(say(c"this", 64), (8, "did this".into()));
    assert_eq!(say(c"this", 4), (3, "did".into()));
    assert_eq!(say(c"bad", 64), (-c_long::from(libc::EINVAL), "no such command".into()));
    assert_eq!(say(c"this", 0).0, -c_long::from(libc::EINVAL));
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

#[test]
#[ignore = "run by the tests in program"]
fn refused() {
    let node = open_node();
    assert_eq!(errno(verbs(node.as_raw_fd(), &mut Argument(1, 0))), libc::EIO);
    assert_eq!(errno(verbs(node.as_raw_fd(), &mut Argument(1, 0))), libc::EIO);
}

#[test]
#[ignore = "run by the tests in program"]
fn paths() {
    let device = "/sys/class/infiniband/irdma0";
    assert_eq!(std::fs::read_to_string(format!("{device}/node_type")).unwrap(), "1: CA\n");
    assert!(std::fs::metadata(device).unwrap().is_dir());
    let names: Vec<_> = std::fs::read_dir(device).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["node_type"]);
    assert!(std::fs::canonicalize(device).unwrap().ends_with("sys/class/infiniband/irdma0"));
    assert_eq!(std::fs::read_link("/dev/infiniband/uverbs0").unwrap().to_str(), Some("/dev/null"));
    let missing = std::fs::metadata("/sys/class/infiniband/mlx5_0").unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    // What is not the device's is where it was.
    assert_eq!(std::fs::metadata("/dev/null").unwrap().rdev(), libc::makedev(1, 3));
    assert!(std::fs::metadata("/sys/class/net/lo").is_ok());
}
