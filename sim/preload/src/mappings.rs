//! Which BAR is mapped at an address: `/proc/self/maps`, remembered.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::report;
use crate::system;

/// A place in a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Token of the open node.
    pub token: u64,
    /// Byte of its BAR.
    pub offset: u64,
}

/// A line of the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    device: u64,
    inode: u64,
}

impl Mapping {
    fn place(&self, address: u64) -> Option<Place> {
        (self.start <= address && address < self.end)
            .then(|| Place { token: self.inode, offset: self.offset.wrapping_add(address - self.start) })
    }
}

/// A remembered mapping; `version` is odd while it is being written.
struct Entry {
    version: AtomicU32,
    start: AtomicU64,
    end: AtomicU64,
    offset: AtomicU64,
    inode: AtomicU64,
}

static CACHE: [Entry; 16] = [const { Entry::new() }; 16];
/// Entry that is overwritten next.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Entry {
    const fn new() -> Entry {
        Entry {
            version: AtomicU32::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            offset: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// A consistent copy, or none if it is being written.
    fn read(&self) -> Option<Mapping> {
        // Acquire: pairs with the Release at the end of `write`; the words below are not older.
        let version = self.version.load(Ordering::Acquire);
        // Acquire: if one of them is newer, the version read last is newer too.
        let mapping = Mapping {
            start: self.start.load(Ordering::Acquire),
            end: self.end.load(Ordering::Acquire),
            offset: self.offset.load(Ordering::Acquire),
            inode: self.inode.load(Ordering::Acquire),
            device: 0,
        };
        (version & 1 == 0 && self.version.load(Ordering::Relaxed) == version).then_some(mapping)
    }

    /// Replaces the entry; not if somebody else is at it, for it is only a cache.
    fn write(&self, mapping: &Mapping) {
        let version = self.version.load(Ordering::Relaxed);
        if version & 1 == 1
            || self
                .version
                .compare_exchange(version, version.wrapping_add(1), Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        // Release: whoever sees one of these sees the odd version.
        self.start.store(mapping.start, Ordering::Release);
        self.end.store(mapping.end, Ordering::Release);
        self.offset.store(mapping.offset, Ordering::Release);
        self.inode.store(mapping.inode, Ordering::Release);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

/// What is known to be at `address`.
pub fn remembered(address: u64) -> Option<Place> {
    CACHE.iter().find_map(|entry| entry.read()?.place(address))
}

/// Forgets a token that the device process no longer knows.
pub fn forget(token: u64) {
    for entry in &CACHE {
        if entry.read().is_some_and(|mapping| mapping.inode == token) {
            entry.write(&Mapping::default());
        }
    }
}

/// Forgets what overlaps `length` bytes from `start` on, which are being unmapped.
pub fn forget_range(start: u64, length: u64) {
    let end = start.saturating_add(length);
    for entry in &CACHE {
        if entry.read().is_some_and(|mapping| mapping.start < end && start < mapping.end) {
            entry.write(&Mapping::default());
        }
    }
}

/// Looks `address` up in the map, among files of device `bar_device`, and remembers it.
pub fn look_up(address: u64, bar_device: u64) -> Option<Place> {
    let descriptor = match system::open(c"/proc/self/maps") {
        Ok(descriptor) => descriptor,
        Err(errno) => {
            report::line(format_args!(
                "cannot tell whether {address:#x} is a doorbell, for /proc/self/maps does not open (errno {errno})"
            ));
            return None;
        }
    };
    let mut parser = Parser::default();
    let mut buffer = [0; 1024];
    let mut found = None;
    'reading: while let Ok(length @ 1..) = system::read(descriptor, &mut buffer) {
        for byte in &buffer[..length] {
            if let Some(mapping) = parser.feed(*byte)
                && mapping.place(address).is_some()
            {
                found = Some(mapping).filter(|mapping| mapping.device == bar_device);
                break 'reading;
            }
        }
    }
    system::close(descriptor);
    let mapping = found?;
    let next = NEXT.fetch_add(1, Ordering::Relaxed) as usize % CACHE.len();
    CACHE[next].write(&mapping);
    mapping.place(address)
}

/// Reads `start-end perms offset major:minor inode path` lines a byte at a time.
#[derive(Default)]
struct Parser {
    field: usize,
    numbers: [u64; 6],
}

impl Parser {
    /// A mapping, when the byte ends its line.
    fn feed(&mut self, byte: u8) -> Option<Mapping> {
        const PERMISSIONS: usize = 2;
        const INODE: usize = 6;
        match byte {
            b'\n' => {
                let [start, end, offset, major, minor, inode] = self.numbers;
                *self = Parser::default();
                let device = libc::makedev(major as u32, minor as u32);
                return Some(Mapping { start, end, offset, device, inode });
            }
            b' ' | b'-' | b':' if self.field != PERMISSIONS => self.field += 1,
            b' ' => self.field += 1,
            // Permissions, whose dashes separate nothing, and the path after the inode.
            _ if self.field == PERMISSIONS || self.field > INODE => {}
            _ => {
                let base = if self.field == INODE { 10 } else { 16 };
                let index = if self.field > PERMISSIONS { self.field - 1 } else { self.field };
                let digit = u64::from((byte as char).to_digit(16).unwrap_or(0));
                self.numbers[index] = self.numbers[index].wrapping_mul(base).wrapping_add(digit);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<Mapping> {
        let mut parser = Parser::default();
        text.bytes().filter_map(|byte| parser.feed(byte)).collect()
    }

    #[test]
    fn lines_become_mappings_whatever_their_paths_are() {
        let text = "\
55d0c1a00000-55d0c1a02000 r--p 00000000 fe:00 1835083                    /usr/bin/cat\n\
7f0000000000-7f0000001000 rw-s 00021000 00:1a 4097 /dev/shm/#4097 (deleted)\n\
7f0000001000-7f0000002000 ---p 00000000 00:00 0 \n\
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\n\
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n\
1000-2000 rw-s 1000 01:ff 18446744073709551615 /a b:c-d 12-34 ff:ff 99\n";
        let lines = parse(text);
        assert_eq!(lines.len(), 6);
        let expected = Mapping {
            start: 0x7f00_0000_0000,
            end: 0x7f00_0000_1000,
            offset: 0x21000,
            device: libc::makedev(0, 0x1a),
            inode: 4097,
        };
        assert_eq!(lines[1], expected);
        assert_eq!(lines[2].inode, 0);
        assert_eq!((lines[4].start, lines[4].end), (0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000));
        assert_eq!((lines[5].device, lines[5].inode), (libc::makedev(1, 0xff), u64::MAX));
    }

    #[test]
    fn a_place_counts_from_the_offset_of_its_mapping() {
        let mapping = Mapping { start: 0x1000, end: 0x2000, offset: 0x3000, device: 0, inode: 7 };
        assert_eq!(mapping.place(0xfff), None);
        assert_eq!(mapping.place(0x1040), Some(Place { token: 7, offset: 0x3040 }));
        assert_eq!(mapping.place(0x2000), None);
    }

    #[test]
    fn a_file_mapped_here_is_found_and_forgotten() {
        // SAFETY: a new descriptor, and a mapping of it nobody else knows.
        let (descriptor, address) = unsafe {
            let descriptor = libc::memfd_create(c"bar".as_ptr(), 0);
            let address =
                libc::mmap(core::ptr::null_mut(), 4096, libc::PROT_WRITE, libc::MAP_SHARED, descriptor, 8192);
            assert_ne!(address, libc::MAP_FAILED);
            (descriptor, address as u64)
        };
        let status = system::status(descriptor).unwrap();
        assert_eq!(look_up(address + 64, status.st_dev + 1), None);
        let place = Place { token: status.st_ino, offset: 8256 };
        assert_eq!(look_up(address + 64, status.st_dev), Some(place));
        assert_eq!(remembered(address + 64), Some(place));
        assert_eq!(remembered(address + 4096), None);
        forget(status.st_ino);
        assert_eq!(remembered(address + 64), None);
        assert_eq!(look_up(address, status.st_dev), Some(Place { token: status.st_ino, offset: 8192 }));
        forget_range(address - 4096, 4096);
        forget_range(address + 4096, u64::MAX);
        assert!(remembered(address).is_some());
        forget_range(address + 4095, 1);
        assert_eq!(remembered(address), None);
        // SAFETY: what was mapped and opened above.
        unsafe { libc::munmap(address as *mut libc::c_void, 4096) };
        system::close(descriptor);
    }
}
