//! Which processor a library or program is for.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The number of the processor in an ELF file's header; `None` if it has none.
pub fn machine(bytes: &[u8]) -> Option<u16> {
    let number: [u8; 2] = bytes.get(18..20)?.try_into().ok()?;
    let is_little_endian = bytes[5] == 1;
    let number = if is_little_endian { u16::from_le_bytes(number) } else { u16::from_be_bytes(number) };
    bytes.starts_with(b"\x7fELF").then_some(number)
}

/// Refuses what the programs of a system cannot load or start; `expected` is for which processor its libibverbs is.
pub fn refuse_another(file: &Path, bytes: &[u8], expected: Option<u16>) -> Result<()> {
    let found = machine(bytes).with_context(|| format!("{} is no ELF file", file.display()))?;
    let name = |number| match number {
        62 => "x86-64".to_owned(),
        183 => "arm64".to_owned(),
        number => format!("processor {number} of ELF's list"),
    };
    ensure!(
        expected.is_none_or(|expected| expected == found),
        "{} is for {}, and this libibverbs for {}",
        file.display(),
        name(found),
        expected.map(name).unwrap_or_default()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As far as the number of the processor, which is 183.
    const LITTLE: &[u8] = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\xb7\0";
    const BIG: &[u8] = b"\x7fELF\x02\x02\x01\0\0\0\0\0\0\0\0\0\0\x03\0\xb7";

    #[test]
    fn the_processor_is_read_in_either_order_of_bytes() {
        assert_eq!((machine(LITTLE), machine(BIG)), (Some(183), Some(183)));
        for bytes in [&LITTLE[..19], b"", b"#!/bin/sh and more than twenty bytes"] {
            assert_eq!(machine(bytes), None);
        }
    }

    #[test]
    fn a_file_for_another_processor_is_refused() {
        let reason = |bytes, expected| {
            refuse_another(Path::new("plugin.so"), bytes, expected).err().map(|error| format!("{error:#}"))
        };
        assert_eq!(reason(LITTLE, Some(183)), None);
        assert_eq!(reason(LITTLE, None), None);
        let text = reason(LITTLE, Some(62));
        assert_eq!(text.as_deref(), Some("plugin.so is for arm64, and this libibverbs for x86-64"));
        assert_eq!(reason(b"text", Some(62)).as_deref(), Some("plugin.so is no ELF file"));
    }
}
