//! Decoding of the uverbs ioctl: header, attributes, and the checks that the kernel makes before any method runs.

use std::rc::Rc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::abi::number::{self, DRIVER_IN, DRIVER_OUT, FLAG_MANDATORY};
use crate::errno::{EBADF, EFAULT, EINVAL, ENODATA, ENOENT, EOPNOTSUPP, EPROTONOSUPPORT, Errno, Result};
use crate::events::{ChannelId, ChannelKind};
use crate::file::OpenFile;
use crate::method::{self, Access, AttributeSpec, AttributeType, Method};
use crate::object::Object;
use crate::program::Program;

/// Bytes of `struct ib_uverbs_ioctl_hdr`.
const HEADER_SIZE: u64 = 24;
/// Bytes of `struct ib_uverbs_attr`.
const ATTRIBUTE_SIZE: u64 = 16;
/// Offset of the data word in an attribute.
const DATA_OFFSET: u64 = 8;
/// Offset of the flags in an attribute.
const FLAGS_OFFSET: u64 = 4;
/// Largest header with attributes: a page.
const LARGEST: u16 = 4096;
/// Data of at most this many bytes is in the attribute itself.
const INLINE: u16 = 8;

#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
struct Header {
    length: u16,
    object: u16,
    method: u16,
    attributes: u16,
    reserved: u64,
    driver: u32,
    reserved2: u32,
}

#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
struct RawAttribute {
    id: u16,
    length: u16,
    flags: u16,
    reserved: u16,
    data: u64,
}

/// An attribute that passed the checks.
#[derive(Clone, Copy, Debug)]
struct Attribute {
    /// Where it is in the program.
    address: u64,
    id: u16,
    length: u16,
    flags: u16,
    data: u64,
    /// The channel, for an attribute that names one.
    channel: Option<ChannelId>,
}

/// A decoded request.
#[derive(Debug)]
pub struct Request {
    program: Rc<dyn Program>,
    method: &'static Method,
    attributes: Vec<Attribute>,
}

impl Request {
    /// Reads and checks the request at `address` of `program`.
    pub fn decode(file: &OpenFile, program: Rc<dyn Program>, address: u64) -> Result<Request> {
        let header: Header = read_value(&*program, address)?;
        let expected = HEADER_SIZE + ATTRIBUTE_SIZE * u64::from(header.attributes);
        if header.length > LARGEST || u64::from(header.length) != expected {
            return Err(EINVAL);
        }
        if header.reserved != 0 || header.reserved2 != 0 {
            return Err(EPROTONOSUPPORT);
        }
        if header.driver != number::DRIVER {
            return Err(EINVAL);
        }
        let method = method::find(header.object, header.method).ok_or(EPROTONOSUPPORT)?;
        let start = address.wrapping_add(HEADER_SIZE);
        let mut bytes = vec![0; usize::from(header.attributes) * ATTRIBUTE_SIZE as usize];
        program.read(start, &mut bytes).map_err(|_| EFAULT)?;
        let mut request = Request { program, method, attributes: Vec::new() };
        for (index, chunk) in bytes.chunks_exact(ATTRIBUTE_SIZE as usize).enumerate() {
            let raw = RawAttribute::read_from_bytes(chunk).map_err(|_| EINVAL)?;
            request.accept(file, raw, start.wrapping_add(index as u64 * ATTRIBUTE_SIZE))?;
        }
        let complete = method.attributes.iter().all(|spec| !spec.mandatory || request.has(spec.id));
        if complete { Ok(request) } else { Err(EINVAL) }
    }

    /// The method called.
    pub fn method(&self) -> &'static Method {
        self.method
    }

    /// Checks one attribute as the kernel's `uverbs_process_attr` does.
    fn accept(&mut self, file: &OpenFile, raw: RawAttribute, address: u64) -> Result<()> {
        let Some(spec) = self.method.attributes.iter().find(|spec| spec.id == raw.id) else {
            return if raw.flags & FLAG_MANDATORY != 0 { Err(EPROTONOSUPPORT) } else { Ok(()) };
        };
        if self.has(raw.id) {
            return Err(EINVAL);
        }
        let mut attribute = Attribute {
            address,
            id: raw.id,
            length: raw.length,
            flags: raw.flags,
            data: raw.data,
            channel: None,
        };
        match spec.kind {
            AttributeType::Input { most, grows: true, .. }
                if raw.length > most && !self.is_zero(&attribute, most)? =>
            {
                return Err(EOPNOTSUPP);
            }
            AttributeType::Input { least, most, grows } | AttributeType::Output { least, most, grows } => {
                if raw.length < least || (!grows && raw.length > most) || raw.reserved != 0 {
                    return Err(EINVAL);
                }
            }
            AttributeType::Handle(_, access) => {
                if raw.reserved != 0 || raw.length != 0 {
                    return Err(EINVAL);
                }
                check_handle(file, spec, access, raw.data)?;
            }
            AttributeType::Channel(kind, access) => {
                if raw.reserved != 0 || raw.length != 0 {
                    return Err(EINVAL);
                }
                if access == Access::New {
                    file.context()?;
                } else {
                    attribute.channel = Some(self.find_channel(file, kind, raw.data)?);
                }
            }
        }
        self.attributes.push(attribute);
        Ok(())
    }

    /// The channel behind a descriptor number in an attribute.
    fn find_channel(&self, file: &OpenFile, kind: ChannelKind, data: u64) -> Result<ChannelId> {
        let descriptor = i32::try_from(data as i64).map_err(|_| EINVAL)?;
        let id = file.channel_of(&*self.program, descriptor).ok_or(EBADF)?;
        match file.channels.get(&id) {
            Some(channel) if channel.kind() == kind => Ok(id),
            _ => Err(EBADF),
        }
    }

    /// Whether an attribute's data is zero from byte `from` on.
    fn is_zero(&self, attribute: &Attribute, from: u16) -> Result<bool> {
        let bytes = self.bytes_of(attribute)?;
        Ok(bytes.iter().skip(usize::from(from)).all(|byte| *byte == 0))
    }

    /// All data of an attribute.
    fn bytes_of(&self, attribute: &Attribute) -> Result<Vec<u8>> {
        if attribute.length <= INLINE {
            return Ok(attribute.data.to_le_bytes()[..usize::from(attribute.length)].to_vec());
        }
        let mut bytes = vec![0; usize::from(attribute.length)];
        self.program.read(attribute.data, &mut bytes).map_err(|_| EFAULT)?;
        Ok(bytes)
    }

    /// The program that made the request.
    pub fn program(&self) -> &Rc<dyn Program> {
        &self.program
    }

    fn find(&self, id: u16) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.id == id)
    }

    /// Whether the program sent that attribute.
    pub fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// Bytes of an attribute, 0 if it is not there.
    pub fn length(&self, id: u16) -> usize {
        self.find(id).map_or(0, |attribute| usize::from(attribute.length))
    }

    /// A struct from the start of an attribute; what is missing is zero, more is ignored.
    pub fn truncated<T: FromBytes>(&self, id: u16) -> Result<T> {
        let Some(attribute) = self.find(id) else { return Err(ENOENT) };
        let mut bytes = self.bytes_of(attribute)?;
        bytes.resize(size_of::<T>(), 0);
        T::read_from_bytes(&bytes).map_err(|_| EINVAL)
    }

    /// A struct that may grow: what is missing is zero, more must be zero (`EOPNOTSUPP`).
    pub fn extensible<T: FromBytes>(&self, id: u16) -> Result<T> {
        let Some(attribute) = self.find(id) else {
            return T::read_from_bytes(&vec![0; size_of::<T>()]).map_err(|_| EINVAL);
        };
        if usize::from(attribute.length) > size_of::<T>()
            && !self.is_zero(attribute, size_of::<T>() as u16)?
        {
            return Err(EOPNOTSUPP);
        }
        self.truncated(id)
    }

    /// A number (`uverbs_get_const`): at most `most`.
    pub fn constant(&self, id: u16, most: u64) -> Result<u64> {
        let value = self.find(id).ok_or(ENOENT)?.data;
        if value <= most { Ok(value) } else { Err(EINVAL) }
    }

    /// Flags of 4 or 8 bytes, none if absent; any outside `allowed` is `EINVAL`.
    pub fn flags(&self, id: u16, allowed: u32) -> Result<u32> {
        let Some(attribute) = self.find(id) else { return Ok(0) };
        let value = match attribute.length {
            8 => attribute.data,
            4 => attribute.data & 0xffff_ffff,
            _ => return Err(EINVAL),
        };
        if value & !u64::from(allowed) == 0 { Ok(value as u32) } else { Err(EINVAL) }
    }

    /// The handle in an attribute that has passed its check.
    pub fn handle(&self, id: u16) -> Result<u32> {
        Ok(self.find(id).ok_or(ENOENT)?.data as u32)
    }

    /// The channel in an attribute, if the program named one.
    pub fn channel(&self, id: u16) -> Option<ChannelId> {
        self.find(id)?.channel
    }

    /// A descriptor number in an attribute.
    pub fn descriptor(&self, id: u16) -> Result<i32> {
        let data = self.find(id).ok_or(ENOENT)?.data;
        Ok(data as i32)
    }
}

/// Whether a handle names an object of the right type.
fn check_handle(file: &OpenFile, spec: &AttributeSpec, access: Access, data: u64) -> Result<()> {
    if access == Access::New {
        return file.context().map(drop);
    }
    if (data as i64) < 0 {
        return Err(EINVAL);
    }
    let handle = u32::try_from(data).map_err(|_| ENOENT)?;
    let object = file.objects.get(handle).ok_or(ENOENT)?;
    let kind = match object {
        Object::Pd(_) => number::object::PD,
        Object::Mr(_) => number::object::MR,
        Object::Mw(_) => number::object::MW,
        Object::Cq(_) => number::object::CQ,
        Object::Qp(_) => number::object::QP,
        Object::Srq(_) => number::object::SRQ,
        Object::Ah(_) => number::object::AH,
    };
    match spec.kind {
        AttributeType::Handle(wanted, _) if wanted == kind => Ok(()),
        _ => Err(EINVAL),
    }
}

/// A plain value from a program's memory.
fn read_value<T: FromBytes + IntoBytes>(program: &dyn Program, address: u64) -> Result<T> {
    let mut bytes = vec![0; size_of::<T>()];
    program.read(address, &mut bytes).map_err(|_| EFAULT)?;
    T::read_from_bytes(&bytes).map_err(|_| EFAULT)
}

/// What a method gives back to its program. Nothing is stored before the method has succeeded.
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
    pub end: std::os::fd::OwnedFd,
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
        let flags = attribute.flags | number::FLAG_VALID_OUTPUT;
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
        let _ = self.fill(request, number::CORE_OUT, value);
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
        Ok(request.find(id).ok_or(ENODATA)?.data)
    }

    /// Marks the driver's answer as filled, whether or not the method had anything for it.
    pub fn mark_driver(&mut self, request: &Request) {
        if let Some(attribute) = request.find(DRIVER_OUT) {
            let attribute = *attribute;
            self.mark(&attribute);
        }
    }

    /// Stores everything in the program.
    pub fn deliver(&self, program: &dyn Program) -> Result<()> {
        for (address, bytes) in &self.writes {
            program.write(*address, bytes).map_err(|_| EFAULT)?;
        }
        Ok(())
    }
}

/// The driver's request, as far as it is there; too short for `least` bytes is `EINVAL`.
pub fn driver_request<T: FromBytes>(request: &Request, least: usize) -> Result<T> {
    if request.length(DRIVER_IN) < least {
        return Err(EINVAL);
    }
    request.truncated(DRIVER_IN)
}

/// `EINVAL` unless there is room for `least` bytes of the driver's answer.
pub fn driver_room(request: &Request, least: usize) -> Result<()> {
    if request.length(DRIVER_OUT) < least { Err(EINVAL) } else { Ok(()) }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}
