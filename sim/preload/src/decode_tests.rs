//! Stores and loads as compilers emit them, checked against tables and against another decoder.

use iced_x86::code_asm::{CodeAssembler, *};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, OpKind, Register};

use super::*;

fn decode_bytes(bytes: &[u8]) -> Option<Instruction> {
    decode(|index| bytes[index])
}

fn register(number: u8) -> Source {
    Source::General(General { number, high_byte: false })
}

fn store(length: usize, width: usize, source: Source) -> Option<Instruction> {
    Some(Instruction { length, action: Action::Store { width, source } })
}

#[test]
fn stores_in_every_address_form() {
    // mov [rdi], esi
    assert_eq!(decode_bytes(&[0x89, 0x37]), store(2, 4, register(6)));
    // mov [rax+0x40], edx
    assert_eq!(decode_bytes(&[0x89, 0x50, 0x40]), store(3, 4, register(2)));
    // mov [r12], r13d: base 4 always has a SIB
    assert_eq!(decode_bytes(&[0x45, 0x89, 0x2c, 0x24]), store(4, 4, register(13)));
    // mov [rbp+rax*8+0x12345678], r9
    assert_eq!(decode_bytes(&[0x4c, 0x89, 0x8c, 0xc5, 0x78, 0x56, 0x34, 0x12]), store(8, 8, register(9)));
    // mov [rax*4+0x1000], cx: SIB without a base has a displacement
    assert_eq!(decode_bytes(&[0x66, 0x89, 0x0c, 0x85, 0, 0x10, 0, 0]), store(8, 2, register(1)));
    // mov [rip+0x10], eax
    assert_eq!(decode_bytes(&[0x89, 0x05, 0x10, 0, 0, 0]), store(6, 4, register(0)));
    // mov [0x1122334455667788], eax
    assert_eq!(
        decode_bytes(&[0xa3, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]),
        store(9, 4, register(0))
    );
    // mov fs:[rax], ecx
    assert_eq!(decode_bytes(&[0x64, 0x89, 0x08]), store(3, 4, register(1)));
}

#[test]
fn immediates_follow_the_address() {
    // mov dword [rdi+0x40], 7
    assert_eq!(decode_bytes(&[0xc7, 0x47, 0x40, 7, 0, 0, 0]), store(7, 4, Source::Immediate(7)));
    // mov qword [rip+4], -2
    assert_eq!(
        decode_bytes(&[0x48, 0xc7, 0x05, 4, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]),
        store(11, 8, Source::Immediate(-2_i64 as u64))
    );
    // mov word [rax], 0x1234; mov byte [rax], 5
    assert_eq!(decode_bytes(&[0x66, 0xc7, 0x00, 0x34, 0x12]), store(5, 2, Source::Immediate(0x1234)));
    assert_eq!(decode_bytes(&[0xc6, 0x00, 5]), store(3, 1, Source::Immediate(5)));
}

#[test]
fn byte_registers_depend_on_rex() {
    // mov [rax], ah; mov [rax], spl
    let high = Source::General(General { number: 0, high_byte: true });
    assert_eq!(decode_bytes(&[0x88, 0x20]), store(2, 1, high));
    assert_eq!(decode_bytes(&[0x40, 0x88, 0x20]), store(3, 1, register(4)));
}

#[test]
fn what_is_not_a_plain_access_is_refused() {
    let refused: [&[u8]; 12] = [
        &[0x89, 0xf7],                         // mov edi, esi: no memory
        &[0x01, 0x37],                         // add [rdi], esi
        &[0xc7, 0x4f, 0x40, 7, 0, 0, 0],       // C7 /1
        &[0xf0, 0x89, 0x37],                   // lock mov
        &[0xa4],                               // movsb
        &[0xf3, 0xaa],                         // rep stosb
        &[0xff, 0x30],                         // push [rax]
        &[0x0f, 0x38, 0xf8, 0x00],             // 0F 38 F8
        &[0xc5, 0xfe, 0x7f, 0x07],             // vmovdqu [rdi], ymm0
        &[0x62, 0xf1, 0x7c, 0x48, 0x11, 0x07], // vmovups [rdi], zmm0
        &[0x66; 15],                           // only prefixes
        &[0x0f, 0x11, 0xc1],                   // movups xmm1, xmm0
    ];
    for bytes in refused {
        assert_eq!(decode_bytes(bytes), None, "{bytes:02x?}");
    }
}

#[test]
fn no_byte_behind_the_instruction_is_fetched() {
    let bytes = [0x48, 0xc7, 0x05, 4, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff];
    let mut highest = 0;
    decode(|index| {
        highest = highest.max(index);
        bytes[index]
    });
    assert_eq!(highest, bytes.len() - 1);
}

/// All the ways to write `[address]` that the assembler knows, times the registers.
fn addresses() -> Vec<AsmMemoryOperand> {
    let bases = [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15];
    let indices = [rax, rcx, rbp, rdi, r8, r12, r13];
    let mut all = vec![ptr(0x1000_u64), ptr(eax + 8), ptr(rbp * 4 + 0x100)];
    for base in bases {
        all.extend([ptr(base), ptr(base + 0x40), ptr(base + 0x1_0000)]);
        for index in indices {
            all.extend([ptr(base + index), ptr(base + index * 8 + 0x40), ptr(base + index * 2 - 0x1_0000)]);
        }
    }
    all
}

/// Assembles one instruction and takes both decoders' views of it.
fn assemble(
    build: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>,
) -> (Vec<u8>, iced_x86::Instruction) {
    let mut assembler = CodeAssembler::new(64).unwrap();
    build(&mut assembler).unwrap();
    let bytes = assembler.assemble(0x1000).unwrap();
    let oracle = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
    (bytes, oracle)
}

fn check(build: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>) {
    let (bytes, oracle) = assemble(build);
    compare(&bytes, &oracle);
}

/// Our view must be the oracle's.
fn compare(bytes: &[u8], oracle: &iced_x86::Instruction) {
    let ours = decode_bytes(bytes).unwrap_or_else(|| panic!("{oracle:?} {bytes:02x?} is not decoded"));
    assert_eq!(ours.length, oracle.len(), "{oracle:?} {bytes:02x?}");
    let mut factory = InstructionInfoFactory::new();
    let information = factory.info(oracle);
    let memory = information.used_memory()[0];
    let width = memory.memory_size().size();
    let full = |register: Register| register.full_register();
    let general = |register: General| {
        let name = Register::RAX as u32 + u32::from(register.number);
        Register::values().find(|candidate| *candidate as u32 == name).unwrap()
    };
    match ours.action {
        Action::Store { width: ours, source } => {
            assert_eq!(memory.access(), OpAccess::Write, "{oracle:?}");
            assert_eq!(ours, width, "{oracle:?}");
            match source {
                Source::General(register) => {
                    assert_eq!(general(register), full(oracle.op1_register()), "{oracle:?}");
                    let high = [Register::AH, Register::CH, Register::DH, Register::BH];
                    assert_eq!(register.high_byte, high.contains(&oracle.op1_register()), "{oracle:?}");
                }
                Source::Immediate(value) => {
                    let mask = if width < 8 { (1 << (8 * width)) - 1 } else { u64::MAX };
                    assert_eq!(value & mask, oracle.immediate(1) & mask, "{oracle:?}");
                }
                Source::Vector(number) | Source::VectorHigh(number) => {
                    assert_eq!(oracle.op1_register() as u32, Register::XMM0 as u32 + u32::from(number));
                }
            }
        }
        Action::Load { target, fill } => {
            assert_eq!(memory.access(), OpAccess::Read, "{oracle:?}");
            assert_eq!(general(target), full(oracle.op0_register()), "{oracle:?}");
            assert_eq!(fill, oracle.op0_register().size(), "{oracle:?}");
        }
        Action::Exchange { register, width: ours } => {
            assert_eq!(memory.access(), OpAccess::ReadWrite, "{oracle:?}");
            assert_eq!(ours, width, "{oracle:?}");
            let other = if oracle.op0_kind() == OpKind::Register {
                oracle.op0_register()
            } else {
                oracle.op1_register()
            };
            assert_eq!(general(register), full(other), "{oracle:?}");
        }
    }
}

#[test]
fn agrees_with_another_decoder_on_every_register_and_address() {
    for address in addresses() {
        for number in [al, cl, dl, bl, spl, bpl, sil, dil, r8b, r15b] {
            check(|a| a.mov(byte_ptr(address), number));
            check(|a| a.mov(number, byte_ptr(address)));
        }
        for number in [ax, sp, r8w, r15w] {
            check(|a| a.mov(word_ptr(address), number));
        }
        for number in [eax, ecx, edx, ebx, esp, ebp, esi, edi, r8d, r9d, r12d, r13d, r15d] {
            check(|a| a.mov(dword_ptr(address), number));
            check(|a| a.mov(number, dword_ptr(address)));
            check(|a| a.movnti(dword_ptr(address), number));
            check(|a| a.movdiri(dword_ptr(address), number));
            check(|a| a.xchg(dword_ptr(address), number));
            check(|a| a.movzx(number, byte_ptr(address)));
            check(|a| a.movsx(number, word_ptr(address)));
        }
        for number in [rax, rsp, rdi, r8, r13, r15] {
            check(|a| a.mov(qword_ptr(address), number));
            check(|a| a.mov(number, qword_ptr(address)));
            check(|a| a.movsxd(number, dword_ptr(address)));
            check(|a| a.movnti(qword_ptr(address), number));
        }
        check(|a| a.mov(byte_ptr(address), 0x12));
        check(|a| a.mov(word_ptr(address), 0x1234));
        check(|a| a.mov(dword_ptr(address), 0x1234_5678));
        check(|a| a.mov(qword_ptr(address), -3));
        for number in [xmm0, xmm5, xmm8, xmm15] {
            check(|a| a.movups(xmmword_ptr(address), number));
            check(|a| a.movupd(xmmword_ptr(address), number));
            check(|a| a.movaps(xmmword_ptr(address), number));
            check(|a| a.movapd(xmmword_ptr(address), number));
            check(|a| a.movdqu(xmmword_ptr(address), number));
            check(|a| a.movdqa(xmmword_ptr(address), number));
            check(|a| a.movntdq(xmmword_ptr(address), number));
            check(|a| a.movntps(xmmword_ptr(address), number));
            check(|a| a.movss(dword_ptr(address), number));
            check(|a| a.movsd_2(qword_ptr(address), number));
            check(|a| a.movd(dword_ptr(address), number));
            check(|a| a.movq(qword_ptr(address), number));
            check(|a| a.movlps(qword_ptr(address), number));
            check(|a| a.movhps(qword_ptr(address), number));
            check(|a| a.movhpd(qword_ptr(address), number));
            check(|a| a.vmovups(xmmword_ptr(address), number));
            check(|a| a.vmovdqu(xmmword_ptr(address), number));
            check(|a| a.vmovdqa(xmmword_ptr(address), number));
            check(|a| a.vmovntdq(xmmword_ptr(address), number));
            check(|a| a.vmovd(dword_ptr(address), number));
            check(|a| a.vmovq(qword_ptr(address), number));
        }
    }
}

/// Whatever the bytes are: what we accept, the oracle reads the same way.
#[test]
fn never_disagrees_on_arbitrary_bytes() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let opcodes =
        [0x63, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x8b, 0xa0, 0xa1, 0xa2, 0xa3, 0xc6, 0xc7, 0x0f, 0xc4, 0xc5];
    let second = [0x11, 0x13, 0x17, 0x29, 0x2b, 0x38, 0x7e, 0x7f, 0xb6, 0xb7, 0xbe, 0xbf, 0xc3, 0xd6, 0xe7];
    let prefixes = [0x66, 0x67, 0xf2, 0xf3, 0x2e, 0x64, 0x40, 0x44, 0x48, 0x4c, 0x4f];
    let mut accepted = 0;
    for _ in 0..300_000 {
        let mut bytes = Vec::new();
        for _ in 0..random() % 3 {
            bytes.push(prefixes[random() as usize % prefixes.len()]);
        }
        let opcode = opcodes[random() as usize % opcodes.len()];
        bytes.push(opcode);
        if opcode == 0x0f && random() % 8 != 0 {
            bytes.push(second[random() as usize % second.len()]);
        }
        while bytes.len() < 24 {
            bytes.push(random() as u8);
        }
        let oracle = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
        if let Some(ours) = decode_bytes(&bytes) {
            if oracle.is_invalid() {
                continue;
            }
            accepted += 1;
            assert_eq!(ours.length, oracle.len(), "{oracle:?} {bytes:02x?}");
            compare(&bytes, &oracle);
        }
    }
    assert!(accepted > 50_000, "{accepted}");
}
