//! Every verbs ioctl of this process, seen on its way to the kernel and back.
//!
//! The dynamic linker looks for `ioctl` in the program first, so libibverbs calls this one;
//! the next one is that of the software device's preload library.

use std::cell::RefCell;
use std::ffi::{c_int, c_ulong, c_void};
use std::slice::from_raw_parts;

use super::layouts::{Attribute, COMMANDS, Command, DRIVER_IN, DRIVER_OUT, Field, METHODS, Method, Show};
use super::observe::Observer;
use super::trace::Line;
use super::{arena, error};

/// `RDMA_VERBS_IOCTL`.
const VERBS: c_ulong = 0xc018_1b01;
/// Data of at most this many bytes is in the attribute itself.
const INLINE: usize = 8;

/// `struct ib_uverbs_ioctl_hdr`.
#[repr(C)]
struct Header {
    length: u16,
    object: u16,
    method: u16,
    attributes: u16,
    reserved: u64,
    driver: u32,
    reserved2: u32,
}

/// `struct ib_uverbs_attr`.
#[repr(C)]
struct Raw {
    id: u16,
    length: u16,
    flags: u16,
    reserved: u16,
    data: u64,
}

impl Raw {
    /// Its data.
    ///
    /// # Safety
    /// It is of a request that is being made, and carries data.
    unsafe fn bytes(&self) -> &[u8] {
        let length = usize::from(self.length);
        if length <= INLINE {
            // SAFETY: a part of the struct.
            return unsafe { from_raw_parts((&raw const self.data).cast(), length) };
        }
        // SAFETY: as the caller promises, the program's own memory.
        unsafe { from_raw_parts(self.data as *const u8, length) }
    }

    /// What the kernel left in it: also short data is where the address says.
    ///
    /// # Safety
    /// It is of a request that has succeeded, and has room for data.
    unsafe fn answer(&self) -> &[u8] {
        if self.data == 0 {
            return &[];
        }
        // SAFETY: as the caller promises, the program's own memory.
        unsafe { from_raw_parts(self.data as *const u8, usize::from(self.length)) }
    }
}

thread_local! {
    static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
}

/// Gives `body` the observer of this thread, if it has one.
pub fn observer<T>(body: impl FnOnce(&mut Observer) -> T) -> Option<T> {
    OBSERVER.with_borrow_mut(|observer| observer.as_mut().map(body))
}

/// Starts (`Some`) or ends observation; returns the observer that there was.
pub fn observe(observer: Option<Observer>) -> Option<Observer> {
    OBSERVER.replace(observer)
}

/// Lets a crash of the provider leave the trace up to it on the standard output.
pub fn save_at_crash() {
    extern "C" fn save(signal: c_int) {
        // Should the observer itself have crashed, there is no telling what its text is.
        OBSERVER.with(|observer| {
            if let Ok(observer) = observer.try_borrow()
                && let Some(observer) = &*observer
            {
                let text = observer.trace.text();
                // SAFETY: writes and signals may be used in a handler. Short writes lose lines of a trace
                // that ends in a crash anyway.
                unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
            }
        });
        // SAFETY: as above; the handler is gone (SA_RESETHAND), so this ends the process.
        unsafe { libc::raise(signal) };
    }
    for signal in [libc::SIGSEGV, libc::SIGABRT, libc::SIGFPE, libc::SIGILL] {
        // SAFETY: an all-zero action is a value of the plain struct, the handler one of that signature.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = save as extern "C" fn(c_int) as usize;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// The `ioctl` behind this one.
fn next() -> Ioctl {
    // SAFETY: a plain look-up by name.
    let symbol = unsafe { libc::dlsym(libc::RTLD_NEXT, c"ioctl".as_ptr()) };
    assert!(!symbol.is_null(), "the C library has an ioctl");
    // SAFETY: it is ioctl; its variable argument is passed like a third one.
    unsafe { std::mem::transmute::<*mut c_void, Ioctl>(symbol) }
}

/// Keeps the function, which nothing in this program calls, in the program.
#[used]
static KEPT: Ioctl = ioctl;

/// # Safety
/// As `ioctl(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(descriptor: c_int, number: c_ulong, argument: *mut c_void) -> c_int {
    if number != VERBS || observer(|_| ()).is_none() {
        // SAFETY: the caller's.
        return unsafe { next()(descriptor, number, argument) };
    }
    // SAFETY: the caller's: a header and as many attributes as it says.
    let request = unsafe {
        let header = argument.cast::<Header>();
        let attributes = usize::from((*header).attributes);
        (&*header, from_raw_parts(header.add(1).cast::<Raw>(), attributes))
    };
    // What the provider gives back with a call must not be looked at any more after it.
    observer(|observer| observer.before(request.0.object, request.0.method, request.1));
    // SAFETY: the caller's.
    let result = unsafe { next()(descriptor, number, argument) };
    let errno = error::last();
    observer(|observer| observer.after(request.0, request.1, result, errno));
    error::set(errno);
    result
}

impl Observer {
    /// A call is about to be made.
    fn before(&mut self, object: u16, method: u16, attributes: &[Raw]) {
        let handle = attributes.iter().find(|attribute| attribute.id == 0);
        if let (true, Some(handle)) = (method == 1, handle) {
            self.forget(object, handle.data as u32);
        }
    }

    /// A call has been made.
    fn after(&mut self, header: &Header, attributes: &[Raw], result: c_int, errno: c_int) {
        let mut seen = Seen { names: std::mem::take(&mut self.names), ..Seen::default() };
        if (header.object, header.method) == (0, 0) {
            self.command(attributes, result, errno, &mut seen);
        } else {
            let method = METHODS.iter().find(|method| (method.0, method.1) == (header.object, header.method));
            match method {
                Some(method) => self.method(method, attributes, result, errno, &mut seen),
                None => {
                    let line = self.trace.line("ioctl unknown").with("object", header.object);
                    drop(line.with("method", header.method).result(result, errno));
                }
            }
        }
        if result == 0 {
            self.learn(&seen);
        } else {
            self.remember(&seen);
        }
        self.names = seen.names;
    }

    fn method(&mut self, method: &Method, attributes: &[Raw], result: c_int, errno: c_int, seen: &mut Seen) {
        let &(_, _, name, specs) = method;
        seen.name = name;
        let mut line = self.trace.line("ioctl").with("name", name);
        for raw in attributes {
            let Some((_, spec)) = specs.iter().find(|(id, _)| *id == raw.id) else {
                line = line.with(format_args!("{:#x}", raw.id), "unknown");
                continue;
            };
            let prefix = format!("{:x}", raw.id);
            line = match *spec {
                Attribute::Descriptor => line.with(prefix, "fd"),
                Attribute::New if result != 0 => line,
                Attribute::New => {
                    seen.set("handle", raw.data);
                    line.with(prefix, seen.names.made(raw.data))
                }
                Attribute::Handle => line.with(prefix, seen.names.of(raw.data)),
                // SAFETY: of the request just made, with data to the kernel.
                Attribute::In(fields) => show(line, &prefix, fields, unsafe { raw.bytes() }, seen),
                Attribute::Out(fields) if result == 0 => {
                    // SAFETY: of the request that has just succeeded.
                    show(line, &prefix, fields, unsafe { raw.answer() }, seen)
                }
                Attribute::Out(_) => line,
            };
        }
        drop(line.result(result, errno));
    }

    /// A command in its old form.
    fn command(&mut self, attributes: &[Raw], result: c_int, errno: c_int, seen: &mut Seen) {
        let find = |id| attributes.iter().find(|attribute| attribute.id == id);
        let number = find(2).map_or(0, |attribute| attribute.data as u32);
        let Some(Command { name, request, answer, .. }) =
            COMMANDS.iter().find(|command| command.number == number)
        else {
            drop(self.trace.line("command unknown").with("number", number).result(result, errno));
            return;
        };
        seen.name = name;
        let mut line = self.trace.line("ioctl").with("name", name);
        for (id, fields) in [(0, request[0]), (DRIVER_IN, request[1])] {
            if let Some(raw) = find(id) {
                // SAFETY: of the request just made, with data to the kernel.
                line = show(line, if id == 0 { "" } else { "driver" }, fields, unsafe { raw.bytes() }, seen);
            }
        }
        for (id, fields) in [(1, answer[0]), (DRIVER_OUT, answer[1])] {
            if let (0, Some(raw)) = (result, find(id)) {
                // SAFETY: of the request that has just succeeded.
                line = show(line, "out", fields, unsafe { raw.answer() }, seen);
            }
        }
        drop(line.result(result, errno));
    }
}

/// Values of a call that say where queues are.
#[derive(Debug, Default)]
pub struct Seen {
    /// Of the method or command.
    pub name: &'static str,
    values: Vec<(&'static str, u64)>,
    names: Names,
}

/// Which of the objects made so far a handle names: handles are used again as objects go, and
/// providers may let go of an object sooner or later.
#[derive(Debug, Default)]
pub struct Names {
    made: u64,
    names: std::collections::BTreeMap<u64, u64>,
}

impl Names {
    fn made(&mut self, handle: u64) -> u64 {
        self.made += 1;
        self.names.insert(handle, self.made);
        self.made
    }

    /// 0 for one that no object has.
    fn of(&self, handle: u64) -> u64 {
        self.names.get(&handle).copied().unwrap_or(0)
    }
}

impl Seen {
    fn set(&mut self, name: &'static str, value: u64) {
        self.values.push((name, value));
    }

    /// The last value of that name; 0 if there is none.
    pub fn get(&self, name: &str) -> u64 {
        self.values.iter().rev().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
    }
}

/// Shows the fields that `bytes` consist of, and what is beyond them.
fn show<'a>(mut line: Line<'a>, prefix: &str, fields: &[Field], bytes: &[u8], seen: &mut Seen) -> Line<'a> {
    let mut rest = bytes;
    for &(name, size, how) in fields {
        if rest.is_empty() {
            return line;
        }
        let (field, behind) = rest.split_at(size.min(rest.len()));
        rest = behind;
        let name_shown = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        if field.len() > 8 {
            line = line.bytes(name_shown, field);
            continue;
        }
        let mut word = [0; 8];
        word[..field.len()].copy_from_slice(field);
        let value = u64::from_le_bytes(word);
        seen.set(name, value);
        line = match how {
            Show::Value => line.hex(name_shown, value),
            Show::Address if value == 0 || arena::contains(value) => line.hex(name_shown, value),
            Show::Address => line.with(name_shown, "own"),
            Show::Hidden | Show::Context => line,
            Show::Handle => line.with(name_shown, seen.names.of(value)),
            Show::New => line.with(name_shown, seen.names.made(value)),
        };
    }
    if rest.is_empty() { line } else { line.bytes(format_args!("{prefix}.more"), rest) }
}
