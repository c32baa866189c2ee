//! Configuration space of a function.

use irdma_engine::spec::Generation;

use crate::field::put_at;
use crate::interrupts::VECTORS;

/// Bytes of configuration space.
pub const BYTES: usize = 4096;
/// The BAR of the MSI-X table, and its bytes.
pub const VECTOR_BAR: u32 = 2;
pub const VECTOR_BAR_BYTES: u64 = 0x1_0000;

const INTEL: u16 = 0x8086;
/// Infrastructure Processing Unit, physical function.
const IPU: u16 = 0x1452;
/// E810-C for QSFP.
const E810: u16 = 0x1592;
/// Network controller, Ethernet; programming interface 1 marks a function of the IDPF standard.
const CLASS: [u8; 3] = [0, 0, 2];
/// 64-bit, prefetchable.
const WIDE_BAR: u32 = 0xc;
const HAS_CAPABILITIES: u16 = 0x10;
const COMMAND: usize = 4;
const EXPRESS: usize = 0x40;
/// Device capabilities.
const ROLE_BASED_ERRORS: u32 = 1 << 15;
const FUNCTION_LEVEL_RESET: u32 = 1 << 28;
/// Device control, and the bit that asks for the reset.
const DEVICE_CONTROL: usize = EXPRESS + 8;
const INITIATE_RESET: u16 = 1 << 15;
const VECTOR_TABLE: usize = 0x80;
/// Offset of the pending bits in the BAR.
const PENDING: u32 = 0x8000;

/// Configuration space, as far as the virtual machine does not play it itself.
#[derive(Debug)]
pub struct Configuration([u8; BYTES]);

impl Configuration {
    /// That of a function of this generation.
    pub fn new(generation: Generation) -> Self {
        let mut bytes = [0; BYTES];
        let device = if generation >= Generation::Gen3 { IPU } else { E810 };
        put_at(&mut bytes, 0, INTEL.to_le_bytes());
        put_at(&mut bytes, 2, device.to_le_bytes());
        put_at(&mut bytes, 6, HAS_CAPABILITIES.to_le_bytes());
        put_at(&mut bytes, 8, [0x10]);
        put_at(&mut bytes, 9, CLASS);
        put_at(&mut bytes, 0x10, WIDE_BAR.to_le_bytes());
        put_at(&mut bytes, 0x18, WIDE_BAR.to_le_bytes());
        put_at(&mut bytes, 0x2c, INTEL.to_le_bytes());
        put_at(&mut bytes, 0x2e, 1_u16.to_le_bytes());
        put_at(&mut bytes, 0x34, [EXPRESS as u8]);
        // PCI Express endpoint, version 2; link of 2.5 GT/s, one lane.
        put_at(&mut bytes, EXPRESS, [0x10, VECTOR_TABLE as u8]);
        put_at(&mut bytes, EXPRESS + 2, 0x0002_u16.to_le_bytes());
        put_at(&mut bytes, EXPRESS + 4, (ROLE_BASED_ERRORS | FUNCTION_LEVEL_RESET).to_le_bytes());
        put_at(&mut bytes, EXPRESS + 12, 0x11_u32.to_le_bytes());
        put_at(&mut bytes, EXPRESS + 18, 0x11_u16.to_le_bytes());
        // MSI-X.
        put_at(&mut bytes, VECTOR_TABLE, [0x11, 0]);
        put_at(&mut bytes, VECTOR_TABLE + 2, (VECTORS as u16 - 1).to_le_bytes());
        put_at(&mut bytes, VECTOR_TABLE + 4, VECTOR_BAR.to_le_bytes());
        put_at(&mut bytes, VECTOR_TABLE + 8, (PENDING | VECTOR_BAR).to_le_bytes());
        Self(bytes)
    }

    /// A load; nothing is beyond the end.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        let length = rest.len().min(data.len());
        data[..length].copy_from_slice(&rest[..length]);
    }

    /// A store: to the command register and the capabilities. True if it asks for a reset of the function.
    #[must_use]
    pub fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let Ok(offset) = usize::try_from(offset) else { return false };
        if offset != COMMAND && offset < EXPRESS {
            return false;
        }
        for (place, byte) in self.0.iter_mut().skip(offset).zip(data) {
            *place = *byte;
        }
        // The bit is never read as 1.
        let high = &mut self.0[DEVICE_CONTROL + 1];
        let asked = *high & (INITIATE_RESET >> 8) as u8 != 0;
        *high &= !(INITIATE_RESET >> 8) as u8;
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_cannot_be_changed() {
        let mut configuration = Configuration::new(Generation::Gen3);
        let stores: [(u64, &[u8]); 4] =
            [(0, &[1, 2, 3, 4]), (COMMAND as u64, &[6, 1]), (BYTES as u64 - 1, &[9, 9]), (u64::MAX, &[9])];
        assert!(stores.iter().all(|(offset, bytes)| !configuration.write(*offset, bytes)));
        let mut bytes = [0; 8];
        configuration.read(0, &mut bytes);
        assert_eq!(bytes, [0x86, 0x80, 0x52, 0x14, 6, 1, 0x10, 0]);
        configuration.read(BYTES as u64 - 1, &mut bytes);
        assert_eq!(bytes, [9, 0, 0, 0, 0, 0, 0, 0]);
        let mut device = [0; 2];
        Configuration::new(Generation::Gen2).read(2, &mut device);
        assert_eq!(u16::from_le_bytes(device), E810);
    }

    #[test]
    fn reset_is_asked_for_by_a_bit_that_does_not_stay() {
        let mut configuration = Configuration::new(Generation::Gen2);
        let mut control = [0; 2];
        configuration.read(DEVICE_CONTROL as u64, &mut control);
        let with_reset = (u16::from_le_bytes(control) | INITIATE_RESET).to_le_bytes();
        assert!(configuration.write(DEVICE_CONTROL as u64, &with_reset));
        let mut after = [0; 2];
        configuration.read(DEVICE_CONTROL as u64, &mut after);
        assert_eq!(after, control);
        assert!(!configuration.write(DEVICE_CONTROL as u64, &control));
    }
}
