//! x86-64 instructions that move data to or from a doorbell page.
//!
//! As much of the instruction set as compilers use for a plain store or load
//! of 1 to 16 bytes: MOV, MOVNTI, MOVDIRI, XCHG, zero and sign extending
//! loads, and the SSE and AVX-128 moves. Encodings: Intel SDM volume 2.

/// A decoded instruction with one operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Bytes of the instruction.
    pub length: usize,
    /// What it does to memory.
    pub action: Action,
}

/// What an instruction does to its operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stores `width` bytes.
    Store {
        /// Bytes stored: 1, 2, 4, 8 or 16.
        width: usize,
        /// Where they come from.
        source: Source,
    },
    /// Loads into a general register, which then holds `fill` bytes of the value
    /// (the upper half of a 32-bit target becomes zero).
    Load {
        /// Target.
        target: General,
        /// Bytes of the target that change: 1, 2, 4 or 8.
        fill: usize,
    },
    /// Stores a register of `width` bytes and loads what was there.
    Exchange {
        /// Both source and target.
        register: General,
        /// Bytes: 1, 2, 4 or 8.
        width: usize,
    },
}

/// A general register by hardware number: 0 RAX, 1 RCX, 2 RDX, 3 RBX, 4 RSP ... 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct General {
    /// 0 to 15.
    pub number: u8,
    /// It is bits 15:8 of the register (AH, CH, DH, BH).
    pub high_byte: bool,
}

/// Where stored bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A general register.
    General(General),
    /// The instruction itself.
    Immediate(u64),
    /// The low bytes of an XMM register.
    Vector(u8),
    /// The upper eight bytes of an XMM register.
    VectorHigh(u8),
}

/// Longest instruction.
const LONGEST: usize = 15;

/// Takes the bytes of an instruction one after the other.
struct Reader<F> {
    fetch: F,
    at: usize,
}

impl<F: FnMut(usize) -> u8> Reader<F> {
    fn byte(&mut self) -> Option<u8> {
        if self.at == LONGEST {
            return None;
        }
        let byte = (self.fetch)(self.at);
        self.at += 1;
        Some(byte)
    }

    /// Little-endian value of `count` bytes.
    fn value(&mut self, count: usize) -> Option<u64> {
        let mut value = 0;
        for index in 0..count {
            value |= u64::from(self.byte()?) << (8 * index);
        }
        Some(value)
    }

    /// Reads ModRM, SIB and displacement of an operand in memory; its `reg` field.
    fn memory_operand(&mut self) -> Option<u8> {
        let modrm = self.byte()?;
        let (mode, register, base) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
        let mut displacement = match mode {
            0 if base == 5 => 4,
            0 => 0,
            1 => 1,
            2 => 4,
            _ => return None,
        };
        if base == 4 {
            let sib = self.byte()?;
            if mode == 0 && sib & 7 == 5 {
                displacement = 4;
            }
        }
        self.value(displacement)?;
        Some(register)
    }
}

/// What stands before the opcode.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    operand_size: bool,
    address_size: bool,
    /// F2 or F3, whichever came last.
    repeat: Option<u8>,
    lock: bool,
    rex: Option<u8>,
}

impl Prefixes {
    /// Width of an operand that follows the operand size.
    fn width(&self) -> usize {
        match self {
            _ if self.wide() => 8,
            Prefixes { operand_size: true, .. } => 2,
            _ => 4,
        }
    }

    fn wide(&self) -> bool {
        self.rex.is_some_and(|rex| rex & 8 != 0)
    }

    /// Number of the register in a `reg` field.
    fn extend(&self, register: u8) -> u8 {
        register | self.rex.map_or(0, |rex| rex << 1 & 8)
    }

    /// A general register in a `reg` field.
    fn general(&self, register: u8, width: usize) -> General {
        if width == 1 && self.rex.is_none() && register >= 4 {
            General { number: register - 4, high_byte: true }
        } else {
            General { number: self.extend(register), high_byte: false }
        }
    }

    /// The one prefix that selects among SSE instructions, as in VEX's `pp`: 0 none, 1 66, 2 F3, 3 F2.
    fn selector(&self) -> u8 {
        match self {
            Prefixes { repeat: Some(0xf2), .. } => 3,
            Prefixes { repeat: Some(_), .. } => 2,
            Prefixes { operand_size: true, .. } => 1,
            _ => 0,
        }
    }
}

/// Decodes the instruction whose bytes `fetch` gives by index. Fetches no byte
/// behind it. `None` if it is not one of those above.
pub fn decode(fetch: impl FnMut(usize) -> u8) -> Option<Instruction> {
    let mut reader = Reader { fetch, at: 0 };
    let mut prefixes = Prefixes::default();
    let opcode = loop {
        match reader.byte()? {
            0x66 => prefixes.operand_size = true,
            0x67 => prefixes.address_size = true,
            repeat @ (0xf2 | 0xf3) => prefixes.repeat = Some(repeat),
            0xf0 => prefixes.lock = true,
            // Segment overrides matter to the address only, which the fault has told.
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 => {}
            rex @ 0x40..=0x4f => {
                prefixes.rex = Some(rex);
                break reader.byte()?;
            }
            opcode => break opcode,
        }
    };
    let action = match opcode {
        0xc4 | 0xc5 => vex(&mut reader, opcode, prefixes)?,
        0x0f => two_byte(&mut reader, prefixes)?,
        _ => one_byte(&mut reader, opcode, prefixes)?,
    };
    // Only an exchange may be locked; anything else is an invalid instruction.
    if prefixes.lock && !matches!(action, Action::Exchange { .. }) {
        return None;
    }
    Some(Instruction { length: reader.at, action })
}

fn one_byte<F: FnMut(usize) -> u8>(reader: &mut Reader<F>, opcode: u8, prefixes: Prefixes) -> Option<Action> {
    let width = if opcode & 1 == 0 { 1 } else { prefixes.width() };
    match opcode {
        0x86 | 0x87 => {
            let register = reader.memory_operand()?;
            Some(Action::Exchange { register: prefixes.general(register, width), width })
        }
        0x88 | 0x89 => {
            let register = reader.memory_operand()?;
            Some(Action::Store { width, source: Source::General(prefixes.general(register, width)) })
        }
        0x8a | 0x8b => {
            let register = reader.memory_operand()?;
            Some(Action::Load { target: prefixes.general(register, width), fill: width })
        }
        // MOVSXD
        0x63 => {
            let register = reader.memory_operand()?;
            let fill = prefixes.width();
            Some(Action::Load { target: prefixes.general(register, fill), fill })
        }
        // The accumulator and an absolute address.
        0xa0..=0xa3 => {
            reader.value(if prefixes.address_size { 4 } else { 8 })?;
            let accumulator = General { number: 0, high_byte: false };
            Some(if opcode < 0xa2 {
                Action::Load { target: accumulator, fill: width }
            } else {
                Action::Store { width, source: Source::General(accumulator) }
            })
        }
        0xc6 | 0xc7 => {
            if reader.memory_operand()? != 0 {
                return None;
            }
            let value = match width {
                // Sign-extended from 32 bits.
                8 => reader.value(4)? as u32 as i32 as i64 as u64,
                width => reader.value(width)?,
            };
            Some(Action::Store { width, source: Source::Immediate(value) })
        }
        _ => None,
    }
}

fn two_byte<F: FnMut(usize) -> u8>(reader: &mut Reader<F>, prefixes: Prefixes) -> Option<Action> {
    let opcode = reader.byte()?;
    match opcode {
        // MOVZX, MOVSX
        0xb6 | 0xb7 | 0xbe | 0xbf => {
            let register = reader.memory_operand()?;
            let fill = prefixes.width();
            Some(Action::Load { target: prefixes.general(register, fill), fill })
        }
        // MOVNTI
        0xc3 if prefixes.selector() == 0 => {
            let width = prefixes.width();
            let register = reader.memory_operand()?;
            Some(Action::Store { width, source: Source::General(prefixes.general(register, width)) })
        }
        0x38 => {
            // MOVDIRI
            if reader.byte()? != 0xf9 || prefixes.selector() != 0 {
                return None;
            }
            let width = prefixes.width();
            let register = reader.memory_operand()?;
            Some(Action::Store { width, source: Source::General(prefixes.general(register, width)) })
        }
        _ => {
            let register = reader.memory_operand()?;
            let register = prefixes.extend(register);
            vector_store(opcode, prefixes.selector(), prefixes.wide(), register)
        }
    }
}

/// Moves from an XMM register to memory, by opcode after 0F and selector.
fn vector_store(opcode: u8, selector: u8, wide: bool, register: u8) -> Option<Action> {
    let low = |width| Some(Action::Store { width, source: Source::Vector(register) });
    match (opcode, selector) {
        // MOVUPS, MOVUPD, MOVSS, MOVSD
        (0x11, 0 | 1) => low(16),
        (0x11, 2) => low(4),
        (0x11, 3) => low(8),
        // MOVLPS, MOVLPD
        (0x13, 0 | 1) => low(8),
        // MOVHPS, MOVHPD
        (0x17, 0 | 1) => Some(Action::Store { width: 8, source: Source::VectorHigh(register) }),
        // MOVAPS, MOVAPD, MOVNTPS, MOVNTPD
        (0x29 | 0x2b, 0 | 1) => low(16),
        // MOVD, MOVQ
        (0x7e, 1) => low(if wide { 8 } else { 4 }),
        (0xd6, 1) => low(8),
        // MOVDQA, MOVDQU, MOVNTDQ
        (0x7f, 1 | 2) | (0xe7, 1) => low(16),
        _ => None,
    }
}

/// The AVX-128 forms of the same moves.
fn vex<F: FnMut(usize) -> u8>(reader: &mut Reader<F>, first: u8, prefixes: Prefixes) -> Option<Action> {
    if prefixes.rex.is_some() || prefixes.selector() != 0 || prefixes.lock {
        return None;
    }
    let payload = reader.byte()?;
    let (high_register, wide, last) = if first == 0xc5 {
        (payload & 0x80 == 0, false, payload)
    } else {
        // Map 1 is what follows 0F.
        if payload & 0x1f != 1 {
            return None;
        }
        let last = reader.byte()?;
        (payload & 0x80 == 0, last & 0x80 != 0, last)
    };
    let (unused, long, selector) = (last >> 3 & 15, last & 4 != 0, last & 3);
    if unused != 15 || long {
        return None;
    }
    let opcode = reader.byte()?;
    let register = reader.memory_operand()? | u8::from(high_register) << 3;
    vector_store(opcode, selector, wide, register)
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
