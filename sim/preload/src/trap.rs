//! Doorbells in trap mode: a store to a BAR of length 0 raises SIGBUS, and the
//! handler sends it to the device process in the program's stead.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use irdma_sim_protocol::{Operation, Request};

use crate::decode::{Action, General, Source, decode};
use crate::device;
use crate::hook_signals;
use crate::mappings::{self, Place};
use crate::report;
use crate::system;

/// Whether the handler is in place.
static STATE: AtomicU32 = AtomicU32::new(ABSENT);

const ABSENT: u32 = 0;
const COMING: u32 = 1;
const INSTALLED: u32 = 2;

/// General registers by hardware number, as the signal frame numbers them.
const REGISTERS: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Installs the handler, once. What the program had set for SIGBUS is kept and
/// gets every fault that is not a doorbell.
pub fn install() {
    // Acquire: pairs with the Release below; who returns from here may ring.
    while STATE.load(Ordering::Acquire) != INSTALLED {
        if STATE.compare_exchange(ABSENT, COMING, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            hook_signals::take_over(handle);
            STATE.store(INSTALLED, Ordering::Release);
        } else {
            system::pause();
        }
    }
}

extern "C" fn handle(signal: libc::c_int, status: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let errno = system::errno();
    // SAFETY: the kernel hands over valid structs that are ours until we return.
    let (fault, machine) = unsafe { (&*status, &mut *context.cast::<libc::ucontext_t>()) };
    // SAFETY: SIGBUS has an address; for one sent by a process it is checked by the code.
    let address = unsafe { fault.si_addr() } as u64;
    let served = fault.si_code > 0
        && match find(address) {
            Some(place) => serve(address, place, machine),
            None => false,
        };
    if !served {
        // SAFETY: the arguments are the handler's own.
        unsafe { hook_signals::pass_on(signal, status, context) };
    }
    system::set_errno(errno);
}

/// The BAR place at `address`, if it is one.
fn find(address: u64) -> Option<Place> {
    mappings::remembered(address).or_else(|| mappings::look_up(address, device::bar_device()?))
}

/// Carries out the instruction at the fault. `false` if it is not one we know.
fn serve(address: u64, place: Place, machine: &mut libc::ucontext_t) -> bool {
    let registers = &mut machine.uc_mcontext.gregs;
    let code = registers[libc::REG_RIP as usize] as u64;
    let fetch = |index: usize| {
        let byte = (code + index as u64) as *const u8;
        // SAFETY: the processor has just decoded these bytes; `decode` asks for none behind the instruction.
        unsafe { ptr::read_volatile(byte) }
    };
    let Some(instruction) = decode(fetch) else {
        report::line(format_args!(
            "the instruction at {code:#x} touches the doorbell page at {address:#x} in a way that is not \
             supported in trap mode ({:02x} {:02x} ...): try --mode poll",
            fetch(0),
            fetch(1)
        ));
        return false;
    };
    match instruction.action {
        Action::Store { width, source } => {
            let bytes = match source {
                Source::General(register) => general(registers, register).to_le_bytes(),
                Source::Immediate(value) => value.to_le_bytes(),
                Source::Vector(number) => vector(machine, number, 0).to_le_bytes(),
                Source::VectorHigh(number) => vector(machine, number, 1).to_le_bytes(),
            };
            ring(address, place, u64::from_le_bytes(bytes), width.min(8));
            if let Source::Vector(number) = source
                && width == 16
            {
                let upper = Place { token: place.token, offset: place.offset + 8 };
                ring(address + 8, upper, vector(machine, number, 1), 8);
            }
        }
        Action::Load { target, fill } => set_general(registers, target, fill, 0),
        Action::Exchange { register, width } => {
            let value = general(registers, register);
            ring(address, place, value, width);
            set_general(registers, register, width, 0);
        }
    }
    machine.uc_mcontext.gregs[libc::REG_RIP as usize] = (code + instruction.length as u64) as i64;
    true
}

/// Sends a doorbell and waits until it has been served. One for a node that is
/// gone is swallowed, as the kernel's zero page behind a removed device does.
fn ring(address: u64, place: Place, value: u64, width: usize) {
    let masked = if width < 8 { value & ((1 << (8 * width)) - 1) } else { value };
    let send = |place: Place| {
        let mut request = Request::new(Operation::Doorbell, place.token);
        (request.a, request.b, request.c) = (place.offset, masked, width as u64);
        device::call(&request, &[], &mut []).err()
    };
    if send(place) == Some(libc::ESTALE) {
        // Another node may have been mapped at the same address since we looked.
        mappings::forget(place.token);
        if let Some(current) = device::bar_device().and_then(|device| mappings::look_up(address, device))
            && current != place
        {
            send(current);
        }
    }
}

fn general(registers: &[i64; 23], register: General) -> u64 {
    let value = registers[REGISTERS[usize::from(register.number & 15)] as usize] as u64;
    if register.high_byte { value >> 8 } else { value }
}

/// Sets the low `width` bytes of a register as the processor does.
fn set_general(registers: &mut [i64; 23], register: General, width: usize, value: u64) {
    let slot = &mut registers[REGISTERS[usize::from(register.number & 15)] as usize];
    let old = *slot as u64;
    *slot = match width {
        1 if register.high_byte => old & !0xff00 | (value & 0xff) << 8,
        1 => old & !0xff | value & 0xff,
        2 => old & !0xffff | value & 0xffff,
        4 => value & 0xffff_ffff,
        _ => value,
    } as i64;
}

/// Eight bytes of an XMM register: `half` 0 the lower, 1 the upper.
fn vector(machine: &libc::ucontext_t, number: u8, half: usize) -> u64 {
    let state = machine.uc_mcontext.fpregs;
    if state.is_null() {
        return 0;
    }
    // SAFETY: the frame holds the state of the floating-point unit, which the kernel saved.
    let register = unsafe { &(&(*state)._xmm)[usize::from(number & 15)] };
    let words = &register.element[2 * half..2 * half + 2];
    u64::from(words[0]) | u64::from(words[1]) << 32
}
