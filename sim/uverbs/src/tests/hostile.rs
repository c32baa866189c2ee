//! Programs that send anything at all.

use super::fake::{Attribute, BASE, Fixture, RINGS, TOKEN, input, output};
use crate::abi::number::{CORE_IN, CORE_OUT, DRIVER_IN, DRIVER_OUT, WRITE_COMMAND};
use crate::errno::{EINVAL, ESTALE};
use crate::profile::Profile;
use crate::program::Program;
use irdma_engine::spec::Generation;

/// A small generator of numbers that look random and are the same every time (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Often a small number, sometimes an address, sometimes anything.
    fn word(&mut self) -> u64 {
        match self.below(6) {
            0 => self.next(),
            1 => BASE + self.below(1 << 20),
            2 => RINGS + 4096 * self.below(16),
            3 => u64::MAX - self.below(3),
            _ => self.below(20),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length =
            [0, 1, 2, 4, 4, 8, 8, 16, 20, 24, 32, 40, 48, 56, 112, 120, 304][self.below(17) as usize];
        let mut bytes = Vec::new();
        while bytes.len() < length {
            bytes.extend((self.word() as u32).to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    fn attribute(&mut self) -> Attribute {
        let ids = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, DRIVER_IN, DRIVER_OUT];
        let id = ids[self.below(ids.len() as u64) as usize];
        match self.below(5) {
            0 => Attribute::NewHandle(id),
            1 => Attribute::Handle(id, self.word()),
            2 => output(id, self.below(400) as usize),
            3 => Attribute::OutAt(id, self.below(64) as usize, self.word()),
            _ => input(id, &self.bytes()),
        }
    }
}

fn profiles() -> [Profile; 2] {
    [Profile::default(), Profile { generation: Generation::Gen3, ..Profile::default() }]
}

#[test]
fn random_methods_get_errors_and_nothing_worse() {
    for profile in profiles() {
        let mut numbers = Numbers(0x1234_5678_9abc_def1);
        let mut fixture = Fixture::with_context(profile);
        fixture.create_channel(true);
        let pd = fixture.alloc_pd();
        fixture.create_cq(pd, RINGS, None);
        for _ in 0..30_000 {
            let count = numbers.below(14);
            let attributes: Vec<_> = (0..count).map(|_| numbers.attribute()).collect();
            let _ = fixture.call(numbers.below(18) as u16, numbers.below(8) as u16, &attributes);
            let _ = fixture.device.doorbell(TOKEN, numbers.word(), numbers.word(), 4);
        }
        fixture.device.close(TOKEN);
    }
}

#[test]
fn random_commands_get_errors_and_nothing_worse() {
    for profile in profiles() {
        let mut numbers = Numbers(0xfeed_beef_1234_5671);
        let mut fixture = Fixture::with_context(profile);
        for _ in 0..60_000 {
            let number = numbers.below(40) | [0, 0, 0, 0x8000_0000][numbers.below(4) as usize];
            let attributes = [
                input(WRITE_COMMAND, &number.to_le_bytes()),
                input(CORE_IN, &numbers.bytes()),
                output(CORE_OUT, [4, 8, 12, 16, 32, 128, 176, 304][numbers.below(8) as usize]),
                input(DRIVER_IN, &numbers.bytes()),
                output(DRIVER_OUT, [0, 8, 20, 24, 80][numbers.below(5) as usize]),
            ];
            let _ = fixture.call(0, 0, &attributes);
        }
        fixture.device.close(TOKEN);
        fixture.device.open(TOKEN).unwrap();
        assert!(
            fixture.status().contains("total: files 1 pd 0 mr 0 ring 0 mw 0 cq 0 qp 0 srq 0 ah 0 channel 0")
        );
    }
}

#[test]
fn random_bytes_are_no_request() {
    let mut numbers = Numbers(77);
    let mut fixture = Fixture::with_context(Profile::default());
    for _ in 0..20_000 {
        let mut bytes = vec![0u8; 200];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&numbers.next().to_le_bytes());
        }
        // Plausible length, count and driver, or nothing would ever get further.
        let count = numbers.below(11) as u16;
        bytes[..2].copy_from_slice(&(24 + 16 * count).to_le_bytes());
        bytes[2..6].copy_from_slice(&[numbers.below(18) as u8, 0, numbers.below(8) as u8, 0]);
        bytes[6..8].copy_from_slice(&count.to_le_bytes());
        bytes[8..24].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        for attribute in bytes[24..].chunks_exact_mut(16) {
            attribute[1] = [0, 0x10][numbers.below(2) as usize];
            attribute[0] &= 15;
            attribute[3] = 0;
            attribute[6..8].copy_from_slice(&[0, 0]);
        }
        fixture.program.write(BASE, &bytes).unwrap();
        let _ = fixture.ioctl_at(BASE);
    }
}

#[test]
fn doorbells_of_strangers_and_at_odd_places_are_refused() {
    let mut fixture = Fixture::with_context(Profile::default());
    let page = fixture.device.doorbell_page(TOKEN).unwrap();
    assert_eq!(fixture.device.doorbell(7, page, 1, 4), Err(ESTALE));
    for (offset, value, width) in
        [(page + 4, 1, 4), (page, 1, 8), (page, 1 << 32, 4), (0, 1, 4), (u64::MAX, 1, 4)]
    {
        assert_eq!(fixture.device.doorbell(TOKEN, offset, value, width), Err(EINVAL));
    }
    for number in [0, 1, 2, 12345, u64::from(u32::MAX)] {
        assert_eq!(fixture.device.doorbell(TOKEN, page, number, 4), Ok(()));
        assert_eq!(fixture.device.doorbell(TOKEN, page + 64, number, 4), Ok(()));
    }
}
