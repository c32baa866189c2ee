//! What a method gives back to its program. Nothing is stored before the method has succeeded.

use std::os::fd::OwnedFd;

use zerocopy::{Immutable, IntoBytes};

use crate::abi::number::{CORE_OUT, DRIVER_OUT, FLAG_VALID_OUTPUT};
use crate::errno::{EFAULT, ENOENT, Result};
use crate::events::ChannelId;
use crate::program::Program;
use crate::request::{Attribute, Request};

/// Offset of the data word in an attribute.
const DATA_OFFSET: u64 = 8;
/// Offset of the flags in an attribute.
const FLAGS_OFFSET: u64 = 4;

/// An answer in the making.
#[derive(Debug, Default)]
pub struct Answer {
    writes: Vec<(u64, Vec<u8>)>,
    /// Object to be destroyed again if the program cannot be told of it.
    pub created: Option<u32>,
    /// Descriptor for the program, and the channel it belongs to.
    pub descriptor: Option<Descriptor>,
}

/// A descriptor that goes to the program.
#[derive(Debug)]
pub struct Descriptor {
    /// The program's end of a channel.
    pub end: OwnedFd,
    /// The channel.
    pub channel: ChannelId,
    /// Where the program is to store the number.
    pub address: u64,
    /// Bytes of the number: 4 or 8.
    pub length: u32,
}

impl Answer {
    /// Nothing to say.
    pub fn new() -> Answer {
        Answer::default()
    }

    /// An object was made.
    pub fn made(handle: u32) -> Answer {
        Answer { created: Some(handle), ..Answer::default() }
    }

    /// A channel was made.
    pub fn granting(descriptor: Descriptor) -> Answer {
        Answer { descriptor: Some(descriptor), ..Answer::default() }
    }

    /// Marks an attribute as filled.
    fn mark(&mut self, attribute: &Attribute) {
        let flags = attribute.flags | FLAG_VALID_OUTPUT;
        self.writes.push((attribute.address.wrapping_add(FLAGS_OFFSET), flags.to_le_bytes().to_vec()));
    }

    /// As much of `value` as fits (`uverbs_copy_to`); `ENOENT` if the program did not ask.
    pub fn put(
        &mut self,
        request: &Request,
        id: u16,
        value: &(impl IntoBytes + Immutable + ?Sized),
    ) -> Result<()> {
        let attribute = request.find(id).ok_or(ENOENT)?;
        let bytes = value.as_bytes();
        let length = bytes.len().min(usize::from(attribute.length));
        self.writes.push((attribute.data, bytes[..length].to_vec()));
        self.mark(attribute);
        Ok(())
    }

    /// As [`Answer::put`], for an attribute that the program may leave out.
    pub fn offer(&mut self, request: &Request, id: u16, value: &(impl IntoBytes + Immutable + ?Sized)) {
        // Left out is the one way to fail.
        let _ = self.put(request, id, value);
    }

    /// As much of `value` as fits, and zeros to the end of the attribute.
    pub fn fill(
        &mut self,
        request: &Request,
        id: u16,
        value: &(impl IntoBytes + Immutable + ?Sized),
    ) -> Result<()> {
        let attribute = request.find(id).ok_or(ENOENT)?;
        let mut bytes = value.as_bytes().to_vec();
        bytes.resize(usize::from(attribute.length), 0);
        self.writes.push((attribute.data, bytes));
        self.mark(attribute);
        Ok(())
    }

    /// The driver's part of the answer: as much as fits, zeros behind it, nothing if not asked for.
    pub fn driver(&mut self, request: &Request, value: &(impl IntoBytes + Immutable)) {
        // Left out is the one way to fail.
        let _ = self.fill(request, DRIVER_OUT, value);
    }

    /// The core's part of the answer to a command in its old form.
    pub fn core(&mut self, request: &Request, value: &(impl IntoBytes + Immutable)) {
        // Left out is the one way to fail.
        let _ = self.fill(request, CORE_OUT, value);
    }

    /// Stores a new handle in the attribute that asked for it.
    pub fn put_handle(&mut self, request: &Request, id: u16, handle: u32) -> Result<()> {
        let attribute = request.find(id).ok_or(ENOENT)?;
        let place = attribute.address.wrapping_add(DATA_OFFSET);
        self.writes.push((place, u64::from(handle).to_le_bytes().to_vec()));
        Ok(())
    }

    /// Address of an attribute's data word, where the number of a new descriptor goes.
    pub fn descriptor_place(request: &Request, id: u16) -> Result<u64> {
        Ok(request.find(id).ok_or(ENOENT)?.address.wrapping_add(DATA_OFFSET))
    }

    /// Address of the data that an attribute points to.
    pub fn data_place(request: &Request, id: u16) -> Result<u64> {
        Ok(request.find(id).ok_or(ENOENT)?.data)
    }

    /// Marks the driver's answer as filled, whether or not the method had anything for it.
    pub fn mark_driver(&mut self, request: &Request) {
        if let Some(attribute) = request.find(DRIVER_OUT) {
            let attribute = *attribute;
            self.mark(&attribute);
        }
    }

    /// The driver's part of the answer, if there is one.
    pub fn driver_part(&mut self, request: &Request) -> Option<&mut [u8]> {
        let place = request.find(DRIVER_OUT)?.data;
        self.writes.iter_mut().find(|(address, _)| *address == place).map(|(_, bytes)| &mut bytes[..])
    }

    /// Stores everything in the program.
    pub fn deliver(&self, program: &dyn Program) -> Result<()> {
        for (address, bytes) in &self.writes {
            program.write(*address, bytes).map_err(|_| EFAULT)?;
        }
        Ok(())
    }
}
